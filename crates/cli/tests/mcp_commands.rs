//! The commands that use MCP servers, as far as they need none. With real servers: `mcp.rs`.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};

/// A folder with a file of servers.
struct Desk(tempfile::TempDir);

impl Desk {
    fn with(servers: &Value) -> Desk {
        let desk = Desk(tempfile::tempdir().expect("a folder"));
        fs::write(desk.path("mcp.json"), servers.to_string()).expect("a file");
        desk
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn dacapo(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().expect("dacapo starts")
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_dacapo"));
        command.args(arguments).current_dir(self.0.path()).env("DACAPO_CACHE_DIR", self.path("cache"));
        for variable in ["DACAPO_MCP_CONFIG", "DACAPO_MCP_TOKEN"] {
            command.env_remove(variable);
        }
        command.stdin(Stdio::null());
        command
    }
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("UTF-8")
}

fn absent() -> Value {
    json!({ "mcpServers": { "ghost": { "command": "/nowhere/ghost" } } })
}

#[test]
fn a_server_that_cannot_start_is_listed_with_its_reason() {
    let desk = Desk::with(&absent());
    let output = desk.dacapo(&["mcp", "--list", "--json"]);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).expect("a line of JSON");
    let ghost = &report["servers"][0];
    assert_eq!((&ghost["name"], &ghost["state"], &ghost["tools"]), (&json!("ghost"), &json!("failed"), &json!([])));
    assert!(ghost["reason"].as_str().is_some_and(|reason| reason.contains("/nowhere/ghost")), "{ghost}");
    assert!(report["tokens"]["dacapo"].as_u64().is_some_and(|tokens| (300..1_200).contains(&tokens)), "{report}");
}

#[test]
fn a_program_runs_although_a_server_is_missing() {
    let desk = Desk::with(&absent());
    fs::write(desk.path("sum.ts"), "console.log('adding'); return 1 + 1").expect("a file");
    let output = desk.dacapo(&["run", "sum.ts", "--mcp", "mcp.json"]);
    assert_eq!((text(&output.stdout), output.status.code()), ("2\n", Some(0)));
    let said = text(&output.stderr);
    assert!(said.starts_with("warning: ghost: ") && said.ends_with("adding\n"), "{said}");

    let output = desk.dacapo(&["run", "sum.ts", "--mcp", "mcp.json", "--json"]);
    let report: Value = serde_json::from_slice(&output.stdout).expect("a line of JSON");
    let expected = json!({
        "status": "success", "data": 2, "logs": [{ "level": "log", "text": "adding" }], "calls": {}, "attachments": [],
    });
    assert_eq!(report, expected);
}

#[test]
fn a_program_that_fails_says_where() {
    let desk = Desk::with(&json!({ "mcpServers": {} }));
    fs::write(desk.path("bad.ts"), "await ghost.speak({})").expect("a file");
    let output = desk.dacapo(&["run", "bad.ts", "--mcp", "mcp.json"]);
    assert_eq!((text(&output.stdout), output.status.code()), ("", Some(1)));
    assert!(text(&output.stderr).contains("> 1 | await ghost.speak({})"), "{}", text(&output.stderr));
}

#[test]
fn tools_of_servers_that_are_all_missing_are_an_error() {
    let desk = Desk::with(&absent());
    for command in [&["types", "--mcp", "mcp.json"][..], &["search", "ghosts", "--mcp", "mcp.json"]] {
        let output = desk.dacapo(command);
        assert_eq!(output.status.code(), Some(1));
        assert!(text(&output.stderr).ends_with("dacapo: none of the servers in mcp.json has answered\n"));
    }
    assert_eq!(desk.dacapo(&["types"]).status.code(), Some(2));
}

#[test]
fn tools_of_a_file_and_of_servers_are_searched_together() {
    let desk = Desk::with(&json!({ "mcpServers": {} }));
    fs::write(desk.path("tools.json"), r#"[{"name": "get_weather"}]"#).expect("a file");
    let output = desk.dacapo(&["search", "weather", "--tools", "tools.json", "--mcp", "mcp.json"]);
    assert!(text(&output.stdout).contains("get_weather"), "{}", text(&output.stderr));
}

#[test]
fn a_client_is_told_the_whole_paths_of_program_and_servers() {
    let desk = Desk::with(&absent());
    let output = desk.dacapo(&["mcp", "--install", "--json"]);
    let snippets: Value = serde_json::from_slice(&output.stdout).expect("a line of JSON");
    let server = &snippets["claude_desktop"]["content"]["mcpServers"]["dacapo"];
    let us = fs::canonicalize(env!("CARGO_BIN_EXE_dacapo")).expect("it is there");
    assert_eq!(server["command"], us.to_str().expect("UTF-8"));
    let args: Vec<&str> = server["args"].as_array().expect("arguments").iter().filter_map(Value::as_str).collect();
    assert_eq!(args[..2], ["mcp", "--config"]);
    assert!(PathBuf::from(args[2]).is_absolute() && fs::exists(args[2]).expect("a path"));
    let names: Vec<&String> = snippets.as_object().expect("an object").keys().collect();
    assert_eq!(names, ["claude_code", "claude_desktop", "cursor", "vs_code"]);

    let output = desk.dacapo(&["mcp", "--install"]);
    assert!(text(&output.stdout).contains("claude mcp add dacapo -- "));
}

#[test]
fn dacapo_does_not_start_itself_again_and_again() {
    let us = json!({ "command": env!("CARGO_BIN_EXE_dacapo"), "args": ["mcp"] });
    let desk = Desk::with(&json!({ "mcpServers": { "all": us } }));
    let output = desk.dacapo(&["mcp", "--list", "--json"]);
    let report: Value = serde_json::from_slice(&output.stdout).expect("a line of JSON");
    assert_eq!(report["servers"], json!([]));
    assert_eq!(text(&output.stderr), "mcp.json: the server `all` is dacapo itself and is left out\n");
}

#[test]
fn a_server_that_starts_dacapo_with_its_own_file_is_told_so() {
    let us = format!("echo started >> starts; exec {} mcp --config mcp.json", env!("CARGO_BIN_EXE_dacapo"));
    let wrapper = json!({ "command": "/bin/sh", "args": ["-c", us], "env": { "A": "b" } });
    let desk = Desk::with(&json!({ "mcpServers": { "wrapper": wrapper } }));
    let output = desk.dacapo(&["mcp", "--list", "--json", "--verbose"]);
    let report: Value = serde_json::from_slice(&output.stdout).expect("a line of JSON");
    assert_eq!(report["servers"][0]["state"], "failed");
    let said = report["servers"][0]["stderr"].to_string();
    assert!(said.contains("mcp.json has a server that starts dacapo with this same file"), "{said}");
    let starts = fs::read_to_string(desk.path("starts")).expect("it was started");
    assert!(starts.lines().count() <= 2, "once for each era of MCP, and not by itself again: {starts}");
}

#[test]
fn wrong_usage_is_told_before_anything_starts() {
    let wrong = |settings: Value| json!({ "mcpServers": {}, "dacapo": settings });
    let desk = Desk::with(&wrong(json!({ "policies": [] })));
    let cases = [
        (&["mcp"][..], "mcp.json: dacapo.policies: is not known here; known are policy, limits"),
        (&["mcp", "--config", "other.json"], "cannot read the servers in other.json"),
        (&["types", "--mcp", "mcp.json"], "mcp.json: dacapo.policies: is not known here"),
        (&["search", "x", "--mcp", "other.json"], "cannot read the servers in other.json"),
        (&["run", "mcp.json", "--mcp", "mcp.json"], "mcp.json: dacapo.policies: is not known here"),
        (&["mcp", "--json"], "--json goes with --list or --install"),
    ];
    for (arguments, message) in cases {
        let output = desk.dacapo(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(text(&output.stderr).contains(message), "{}", text(&output.stderr));
    }

    let open = Desk::with(&json!({ "mcpServers": {} }));
    let output = open.dacapo(&["mcp", "--listen", "0.0.0.0:0"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("set DACAPO_MCP_TOKEN, or add --allow-unauthenticated"));

    fs::remove_file(open.path("mcp.json")).expect("it is there");
    let output = open.dacapo(&["mcp"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("put it here as mcp.json"));
}

#[test]
fn a_client_that_leaves_without_a_word_ends_the_server() {
    let desk = Desk::with(&json!({ "mcpServers": {}, "dacapo": {} }));
    let output = desk.dacapo(&["mcp"]);
    assert_eq!((text(&output.stdout), text(&output.stderr), output.status.code()), ("", "", Some(0)));
}

/// A server that says on stderr who it is, and nothing else.
fn mute() -> Value {
    json!({ "mcpServers": { "mute": { "command": "/bin/sh", "args": ["-c", "echo $$ > pid; echo hello >&2; exec sleep 1000"] } } })
}

#[test]
fn servers_end_with_the_command_that_started_them_whatever_ends_it() {
    let send = |signal: &str, pid: &str| {
        let kill = Command::new("kill").args(["-s", signal, pid]).stderr(Stdio::null()).status();
        kill.expect("kill starts").success()
    };
    // Under nohup, hanging up is nothing that a command hears of.
    let hangup = if hangups_are_ignored() { "TERM" } else { "HUP" };
    for (signal, arguments) in [
        ("TERM", &["mcp", "--list"][..]),
        (hangup, &["types", "--mcp", "mcp.json"]),
        ("TERM", &["search", "x", "--mcp", "mcp.json"]),
        ("INT", &["run", "one.ts", "--mcp", "mcp.json"]),
    ] {
        let desk = Desk::with(&mute());
        fs::write(desk.path("one.ts"), "return 1").expect("a file");
        let mut dacapo = desk.command(arguments).stderr(Stdio::null()).spawn().expect("dacapo starts");
        let pid = eventually(|| fs::read_to_string(desk.path("pid")).ok().filter(|pid| pid.ends_with('\n')));
        assert!(send(signal, &dacapo.id().to_string()));
        assert_eq!(eventually(|| dacapo.try_wait().expect("it is ours")).code(), Some(1), "{signal} {arguments:?}");
        eventually(|| (!send("0", pid.trim())).then_some(()));
    }
}

/// As Linux tells it of this process, and so of those that it starts: the first bit is for the first signal.
fn hangups_are_ignored() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask & 1 == 1)
}

fn eventually<T>(mut look: impl FnMut() -> Option<T>) -> T {
    for _ in 0..1_000 {
        if let Some(found) = look() {
            return found;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    panic!("it did not happen in ten seconds")
}

#[test]
fn variables_that_are_not_text_are_of_no_concern_except_for_our_own() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    let desk = Desk::with(&json!({ "mcpServers": {} }));
    let odd = OsStr::from_bytes(b"\xff");
    let output = desk.command(&["mcp", "--list"]).env("ODD", odd).output().expect("dacapo starts");
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let output = desk.command(&["mcp"]).env("DACAPO_MCP_TOKEN", odd).output().expect("dacapo starts");
    assert_eq!((text(&output.stderr), output.status.code()), ("dacapo: DACAPO_MCP_TOKEN is not UTF-8\n", Some(2)));
}

#[test]
fn what_servers_say_on_stderr_is_shown_to_those_who_want_more() {
    let talker = json!({ "command": "/bin/sh", "args": ["-c", "echo hello >&2; exit 1"] });
    let desk = Desk::with(&json!({ "mcpServers": { "talker": talker } }));
    for (arguments, stderr) in
        [(&["mcp", "--list", "--json"][..], Value::Null), (&["mcp", "--list", "--json", "--verbose"], json!("hello"))]
    {
        let output = desk.dacapo(arguments);
        let report: Value = serde_json::from_slice(&output.stdout).expect("a line of JSON");
        assert_eq!(report["servers"][0]["stderr"][0], stderr);
    }
}
