//! Programs over real MCP servers, from the shell and through real MCP clients.

mod mcp_world;

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;

use mcp_world::{Story, World, installed, report, root, without_handles};
use serde_json::{Value, json};

const STORIES: [&str; 11] = [
    "aggregate_table",
    "copy_files",
    "everything",
    "five_cities",
    "forget",
    "four_servers",
    "knowledge_graph",
    "repository_log",
    "resources",
    "show_picture",
    "thoughts",
];

/// Runs each at most two at a time, and says what went wrong with all that did.
fn all_right<T: Send>(items: Vec<T>, check: impl Fn(&T) -> Result<(), String> + Sync) {
    let (waiting, wrong) = (Mutex::new(items), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while let Some(item) = { waiting.lock().expect("no panic").pop() } {
                    if let Err(reason) = check(&item) {
                        wrong.lock().expect("no panic").push(reason);
                    }
                }
            });
        }
    });
    let wrong = wrong.into_inner().expect("no panic");
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

fn same(what: &str, found: &Value, expected: &Value) -> Result<(), String> {
    if found == expected { Ok(()) } else { Err(format!("{what}: found {found:#}\nexpected {expected:#}")) }
}

#[test]
fn every_story_comes_to_its_end_from_the_shell() {
    all_right(STORIES.map(Story::read).into(), |story| {
        // One with all servers, the others with what they need.
        let servers = (story.name != "four_servers").then(|| story.servers());
        let world = World::new(servers.as_ref());
        let (file, servers) = (story.file.to_str().expect("UTF-8"), world.servers_file());
        let run = world.dacapo(&["run", file, "--json", "--yes", "--mcp"]).arg(servers).output();
        let report = report(&run.expect("dacapo starts")).map_err(|error| format!("{}: {error}", story.name))?;
        same(story.name, &without_handles(&report["data"]), &story.expected["data"])?;
        same(story.name, &report["calls"], &story.expected["calls"])?;
        let attached = report["attachments"].as_array().into_iter().flatten().map(
            |attachment| json!({ "type": attachment["block"]["type"], "mimeType": attachment["block"]["mimeType"] }),
        );
        let none = json!([]);
        same(story.name, &attached.collect(), story.expected.get("content").unwrap_or(&none))
    });
}

struct Client {
    name: &'static str,
    argv: Vec<String>,
    era: &'static str,
}

/// The official SDKs, in each era that they know.
fn clients() -> Vec<Client> {
    let clients = root().join("tests-tools/mcp/clients");
    let client = |name, interpreter: &str, script: &str, era| {
        let argv = vec![interpreter.to_owned(), clients.join(script).display().to_string()];
        Client { name, argv, era }
    };
    let python = installed("python-mcp/bin/python").display().to_string();
    let python1 = installed("python-mcp1/bin/python").display().to_string();
    installed("node_modules/@modelcontextprotocol/client");
    installed("node_modules/@modelcontextprotocol/sdk");
    vec![
        client("Python", &python, "python_client.py", "modern"),
        client("Python", &python, "python_client.py", "legacy"),
        client("Python 1", &python1, "python1_client.py", "legacy"),
        client("TypeScript", "node", "typescript_client.mjs", "modern"),
        client("TypeScript", "node", "typescript_client.mjs", "legacy"),
        client("TypeScript 1", "node", "typescript1_client.mjs", "legacy"),
    ]
}

impl Client {
    /// What it says after a conversation with the server.
    fn converse(&self, arguments: &[&str], server: &[&str]) -> Result<Value, String> {
        let mut command = Command::new(&self.argv[0]);
        command.args(&self.argv[1..]).args(["--era", self.era]).args(arguments).args(server);
        let output = command.output().map_err(|error| error.to_string())?;
        report(&output)
    }

    /// What is the same in every conversation.
    fn was_welcomed(&self, report: &Value) -> Result<(), String> {
        let protocol = if self.era == "modern" { "2026-07-28" } else { "2025-11-25" };
        same("protocol", &report["protocol"], &json!(protocol))?;
        let tools: Vec<&str> =
            (report["tools"].as_array().into_iter().flatten()).filter_map(|tool| tool["name"].as_str()).collect();
        same("tools", &json!(tools), &json!(["search", "execute"]))?;
        let instructions = report["instructions"].as_str().unwrap_or_default();
        if instructions.contains("search") { Ok(()) } else { Err(format!("no instructions: {instructions:?}")) }
    }
}

#[test]
fn every_sdk_starts_dacapo_and_asks_its_user_before_something_is_destroyed() {
    let story = Story::read("forget");
    let servers: BTreeSet<String> = ["memory", "time"].map(str::to_owned).into();
    // An accepted, a declined and an unasked one for each client would take long; each client has one.
    let words = [Some("accept"), Some("decline"), Some("accept"), Some("decline"), Some("accept"), None];
    let runs: Vec<_> = clients().into_iter().zip(words).collect();
    all_right(runs, |(client, word)| {
        let world = World::new(Some(&servers));
        let mut arguments = vec!["--query", "what time is it in another city", "--code", &story.code];
        arguments.extend(word.iter().flat_map(|word| ["--elicit", word]));
        let dacapo = world.dacapo_mcp();
        let server: Vec<&str> = ["--stdio"].into_iter().chain(dacapo.iter().map(String::as_str)).collect();
        let right = || {
            let report = client.converse(&arguments, &server)?;
            client.was_welcomed(&report)?;
            let found = report["search"]["structuredContent"]["functions"].as_array().cloned().unwrap_or_default();
            if !found.contains(&json!("time.convert_time")) {
                return Err(format!("found {found:?}"));
            }
            let data = if *word == Some("accept") {
                story.expected["data"].clone()
            } else {
                json!({ "deleted": false, "error": "ToolError", "left": 1 })
            };
            same("data", &report["execute"]["structuredContent"]["data"], &data)?;
            let questions = report["elicited"].as_array().map(Vec::len);
            same("questions", &json!(questions), &json!(usize::from(word.is_some())))?;
            let progress = report["progress"].as_array().map_or(0, Vec::len);
            // TypeScript's SDK handles a response before the notifications that it read together with it, and then drops
            // them: whether a quick program shows progress depends on how fast the client reads.
            let is_in_order = client.name.starts_with("Python");
            if progress > 0 || !is_in_order { Ok(()) } else { Err("no progress was reported".to_owned()) }
        };
        right().map_err(|reason| format!("{} {}: {reason}", client.name, client.era))
    });
}

/// A process that is ended when it is dropped.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        self.0.kill().expect("it runs");
        self.0.wait().expect("it was killed");
    }
}

/// `dacapo mcp` over HTTP.
struct Listening {
    _process: Ended,
    url: String,
}

impl Listening {
    fn start(world: &World) -> Listening {
        let dacapo = world
            .dacapo(&["mcp", "--listen", "127.0.0.1:0", "--config"])
            .arg(world.servers_file())
            .stderr(Stdio::piped())
            .spawn();
        let mut process = Ended(dacapo.expect("dacapo starts"));
        let mut lines = BufReader::new(process.0.stderr.take().expect("stderr")).lines();
        let url = (lines.by_ref())
            .map(|line| line.expect("UTF-8"))
            .find_map(|line| line.strip_prefix("dacapo listens on ").map(str::to_owned))
            .expect("dacapo listens");
        // Whatever else it says must not fill the pipe.
        std::thread::spawn(move || lines.for_each(drop));
        Listening { _process: process, url }
    }
}

#[test]
fn every_sdk_runs_a_story_over_http_and_asks_its_user_too() {
    let world = World::new(None);
    let dacapo = Listening::start(&world);
    let server = ["--http", &dacapo.url];
    // Each changes what the next one sees, so they come one after the other, and each story once.
    let stories = ["four_servers", "knowledge_graph", "aggregate_table", "everything", "five_cities", "repository_log"];
    for (client, story) in clients().iter().zip(stories.map(Story::read)) {
        let told = |reason| format!("{} {}, {}: {reason}", client.name, client.era, story.name);
        let report = client.converse(&["--code", &story.code], &server).map_err(told).expect("a conversation");
        client.was_welcomed(&report).map_err(told).expect("a welcome");
        let execute = &report["execute"];
        let structured = &execute["structuredContent"];
        assert_eq!(without_handles(&structured["data"]), story.expected["data"], "{}", told(execute.to_string()));
        assert_eq!(structured["calls"], story.expected["calls"], "{}", told(execute.to_string()));
        let made: f64 = story.expected["calls"].as_object().expect("calls").values().filter_map(Value::as_f64).sum();
        let done = report["progress"].as_array().and_then(|told| told.last()?["progress"].as_f64());
        assert_eq!(done, Some(made), "{}", told(report["progress"].to_string()));
        if story.name == "everything" {
            let image = execute["content"].as_array().expect("content").iter().find(|block| block["type"] == "image");
            let image = image.expect("the image itself");
            assert_eq!(image["mimeType"], "image/png");
            assert!(image["data"].as_str().is_some_and(|data| data.starts_with("iVBORw0KGgo")), "{image}");
        }
    }
    let story = Story::read("forget");
    for (client, word) in clients().iter().zip(["accept", "decline"].into_iter().cycle()) {
        let report = client.converse(&["--elicit", word, "--code", &story.code], &server).expect("a conversation");
        let deleted = &report["execute"]["structuredContent"]["data"]["deleted"];
        assert_eq!(*deleted, word == "accept", "{} {}: {report:#}", client.name, client.era);
        assert_eq!(report["elicited"].as_array().expect("questions").len(), 1, "{report:#}");
    }
    let story = Story::read("forbidden_file");
    let report = clients()[0].converse(&["--code", &story.code], &server).expect("a conversation");
    let (execute, expected) = (&report["execute"], &story.expected["error"]);
    assert_eq!(execute["isError"], true, "{execute:#}");
    let error = &execute["structuredContent"]["error"];
    for field in ["name", "line"] {
        assert_eq!(error[field], expected[field], "{error:#}");
    }
    let message = error["message"].as_str().expect("a message");
    assert!(message.starts_with(expected["message"].as_str().expect("text")), "{message}");
    let completed: Vec<&Value> =
        error["completed"].as_array().expect("calls").iter().map(|call| &call["tool"]).collect();
    assert_eq!(json!(completed), expected["completed"]);
    let text = execute["content"][0]["text"].as_str().expect("text");
    assert!(text.contains("> 3 | const secrets"), "no frame: {text}");
}

#[test]
fn all_servers_are_listed_and_their_tools_cost_a_model_little() {
    let world = World::new(None);
    let list = world.dacapo(&["mcp", "--list", "--json", "--config"]).arg(world.servers_file()).output();
    let report = report(&list.expect("dacapo starts")).expect("a report");
    let found: Vec<Value> = (report["servers"].as_array().expect("servers").iter())
        .map(|server| {
            let tools = server["tools"].as_array().map(Vec::len);
            json!([server["name"], server["state"], server["protocol_version"], tools])
        })
        .collect();
    let expected = json!([
        ["everything", "ready", "2025-11-25", 13],
        ["filesystem", "ready", "2025-11-25", 14],
        ["memory", "ready", "2025-11-25", 9],
        ["sequential-thinking", "ready", "2025-11-25", 1],
        ["time", "ready", "2026-07-28", 2],
        ["git", "ready", "2026-07-28", 12],
        ["sqlite", "ready", "2025-11-25", 6],
    ]);
    assert_eq!(json!(found), expected, "{report:#}");
    let tokens = &report["tokens"];
    assert!(tokens["dacapo"].as_u64().is_some_and(|tokens| tokens <= 1_200), "{tokens}");
    assert!(tokens["tools"].as_u64().is_some_and(|tokens| tokens > 5_000), "{tokens}");

    // Both from the lists of the run before.
    let said = |arguments: &[&str]| {
        let output = world.dacapo(arguments).arg("--mcp").arg(world.servers_file()).output().expect("dacapo starts");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("UTF-8")
    };
    let types = said(&["types"]);
    for name in ["everything", "filesystem", "memory", "sequential_thinking", "time", "git", "sqlite"] {
        assert!(types.contains(&format!("declare namespace {name} {{")), "{name} is missing: {types}");
    }
    assert!(said(&["search", "convert a time between time zones"]).contains("function convert_time("));
}

#[test]
fn servers_over_http_are_as_good_as_processes() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    drop(listener);
    let old = Command::new(installed("node_modules/.bin/mcp-server-everything"))
        .arg("streamableHttp")
        .env("PORT", port.to_string())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn();
    let mut old = Ended(old.expect("everything starts"));
    let said = BufReader::new(old.0.stderr.take().expect("stderr")).lines();
    let mut said = said.map(|line| line.expect("UTF-8"));
    assert!(said.any(|line| line.contains("listening on port")), "everything does not listen");
    // A server of today is one of our own.
    let behind = World::new(Some(&BTreeSet::from(["time".to_owned()])));
    let modern = Listening::start(&behind);
    let world = World::new(Some(&BTreeSet::new()));
    let servers = json!({ "mcpServers": {
        "everything": { "type": "http", "url": format!("http://127.0.0.1:{port}/mcp") },
        "inner": { "url": modern.url },
    } });
    std::fs::write(world.servers_file(), servers.to_string()).expect("a file");

    let story = Story::read("everything");
    let run = |program: &str| {
        let run = world.dacapo(&["run", program, "--yes", "--json", "--mcp"]).arg(world.servers_file()).output();
        report(&run.expect("dacapo starts")).expect("a report")
    };
    let report = run(story.file.to_str().expect("UTF-8"));
    assert_eq!(without_handles(&report["data"]), story.expected["data"], "{report:#}");
    let program = world.servers_file().with_file_name("nested.ts");
    let code = "const code = `return (await time.get_current_time({timezone: 'UTC'})).timezone`;\n\
                const [today, echo] = await Promise.all([inner.execute({ code }), everything.echo({ message: 'both' })]);\n\
                return [today.data, echo]";
    std::fs::write(&program, code).expect("a file");
    let report = run(program.to_str().expect("UTF-8"));
    assert_eq!(report["data"], json!(["UTC", "Echo: both"]), "{report:#}");
}

#[test]
fn the_inspector_finds_nothing_to_complain_about() {
    let servers: BTreeSet<String> = ["time".to_owned()].into();
    let world = World::new(Some(&servers));
    let dacapo = Listening::start(&world);
    let http = vec![dacapo.url.clone(), "--transport".to_owned(), "http".to_owned()];
    let list = ["--method", "tools/list", "--strict"];
    let search = ["--method", "tools/call", "--tool-name", "search", "--tool-args-json", r#"{"query": "time"}"#];
    let code = r#"{"code": "return (await time.convert_time({source_timezone: 'UTC', time: '12:00', target_timezone: 'Asia/Tokyo'})).time_difference"}"#;
    let execute = ["--method", "tools/call", "--tool-name", "execute", "--tool-args-json", code];
    let mut runs = Vec::new();
    for target in [world.dacapo_mcp(), http] {
        for era in ["modern", "legacy"] {
            runs.extend([&list[..], &search, &execute].map(|arguments| (target.clone(), era, arguments)));
        }
    }
    let bin = installed("node24/node_modules/.bin");
    let home = tempfile::tempdir().expect("a directory");
    all_right(runs, |(target, era, arguments)| {
        let mut inspector = Command::new(bin.join("node"));
        inspector.arg(bin.join("mcp-inspector")).args(["--cli", "--protocol-era", era, "--format", "json", "-q"]);
        let output = inspector.args(*arguments).args(target).env("HOME", home.path()).output();
        let output = output.map_err(|error| error.to_string())?;
        let told = |reason: String| format!("{era} {arguments:?} {target:?}: {reason}");
        // Complaints go to stderr and into the exit status.
        if !output.status.success() {
            return Err(told(String::from_utf8_lossy(&output.stderr).into_owned()));
        }
        let result = &report(&output).map_err(told)?["result"];
        let right = if arguments.contains(&"search") {
            result["structuredContent"]["functions"][0].as_str().is_some_and(|name| name.starts_with("time."))
        } else if arguments.contains(&"execute") {
            result["structuredContent"]["data"] == "+9.0h"
        } else {
            result["tools"].as_array().map(Vec::len) == Some(2)
        };
        if right { Ok(()) } else { Err(told(result.to_string())) }
    });
}

#[test]
fn a_server_of_2025_11_25_conforms() {
    conforms("2025-11-25", &["server-session-lifecycle", "server-sse-polling"]);
}

#[test]
fn a_server_of_2026_07_28_conforms() {
    conforms("2026-07-28", &["http-header-validation"]);
}

/// Runs all that a revision of the protocol requires of servers. What we fail, and why, stands in the baseline; an
/// entry there that passes is a failure too. Of what the revision does not require, some must pass.
fn conforms(revision: &str, more: &[&str]) {
    let world = World::new(Some(&BTreeSet::from(["time".to_owned()])));
    let dacapo = Listening::start(&world);
    let bin = installed("node24/node_modules/.bin");
    let results = tempfile::tempdir().expect("a directory");
    let output = Command::new(bin.join("node"))
        .arg(bin.join("conformance"))
        .args(["server", "--requirements", revision, "--url", &dacapo.url, "--output-dir"])
        .arg(results.path())
        .arg("--expected-failures")
        .arg(root().join("tests-tools/mcp/conformance-baseline.yml"))
        .output()
        .expect("the suite starts");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}");
    for scenario in more {
        assert!(said.contains(&format!("✓ {scenario}: ")), "{scenario} fails: {said}");
    }
}
