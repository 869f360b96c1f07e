//! People log in to a server that wants it, at a real authorization server (oidc-provider, `tests-tools/oauth`).

mod common;

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Output, Stdio};

use common::Served;
use serde_json::{Value, json};
use tempfile::TempDir;

/// An authorization server and an MCP server that wants its tokens; and a place for them on our side.
struct Vault {
    servers: Child,
    /// The URL of the MCP server, and of what only tests may do.
    urls: Value,
    directory: TempDir,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the repository")
}

fn installed(path: &str) -> PathBuf {
    let path = root().join("target/test-tools").join(path);
    assert!(path.exists(), "run scripts/test-tools first: {} is missing", path.display());
    path
}

fn node(script: &str) -> Command {
    installed("oauth/node_modules/oidc-provider");
    let mut command = Command::new(installed("node24/node_modules/.bin/node"));
    command.arg(root().join("tests-tools/oauth").join(script));
    command
}

impl Vault {
    /// Access tokens are good for so many seconds.
    fn new(token_seconds: u32) -> Vault {
        let mut servers = node("servers.mjs")
            .args(["--ttl", &token_seconds.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("the servers start");
        let mut line = String::new();
        BufReader::new(servers.stdout.take().expect("stdout")).read_line(&mut line).expect("UTF-8");
        let urls: Value = serde_json::from_str(&line).expect("JSON");
        let vault = Vault { servers, urls, directory: tempfile::tempdir().expect("a directory") };
        let file = json!({ "mcpServers": {
            "vault": { "type": "http", "url": vault.urls["url"] },
            "local": { "command": "true" },
        } });
        std::fs::write(vault.path("mcp.json"), file.to_string()).expect("a file");
        let program = "return { me: await vault.who_am_i({}), token: await vault.show_token({}) }";
        std::fs::write(vault.path("look.ts"), program).expect("a file");
        vault
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn dacapo(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_dacapo"));
        command.args(arguments).current_dir(self.directory.path()).env("NO_COLOR", "1");
        command.env("DACAPO_TOKENS_DIR", self.path("tokens")).env("DACAPO_CACHE_DIR", self.path("cache"));
        command
    }

    /// What a program gets, or why it fails.
    fn look(&self) -> Value {
        let run = self.dacapo(&["run", "look.ts", "--mcp", "mcp.json", "--json"]).output().expect("dacapo starts");
        self.keeps_its_secrets(&run);
        let report: Value = serde_json::from_slice(&run.stdout).expect("JSON");
        if report["status"] == "success" { report["data"].clone() } else { report["error"]["message"].clone() }
    }

    /// Begins a login, and gives the address that a person has to open.
    fn begin_login(&self) -> (Child, BufReader<ChildStderr>, String) {
        let mut login = self
            .dacapo(&["mcp", "--login", "vault", "--verbose"])
            .stdin(Stdio::piped())
            .stderr(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("dacapo starts");
        let mut stderr = BufReader::new(login.stderr.take().expect("stderr"));
        let mut line = String::new();
        while !line.starts_with("http") {
            line.clear();
            assert!(stderr.read_line(&mut line).expect("UTF-8") > 0, "it shows no address");
        }
        (login, stderr, line.trim().to_owned())
    }

    /// Logs in, and gives what dacapo says at the end and whether it succeeded.
    fn login(&self, person: &[&str]) -> (String, bool) {
        let (mut login, mut stderr, address) = self.begin_login();
        let browser = node("browser.mjs").arg(&address).args(person).output().expect("a browser");
        let page = String::from_utf8_lossy(&browser.stdout).trim().to_owned();
        if page.is_empty() {
            login.kill().expect("it runs");
            panic!("the browser came to no page: {}", String::from_utf8_lossy(&browser.stderr));
        }
        if person == ["--elsewhere"] {
            // Its machine cannot reach ours, so the person pastes where it ended.
            let mut stdin = login.stdin.take().expect("stdin");
            writeln!(stdin, "http://127.0.0.1/?code=stolen&state=wrong\n{page}").expect("it reads");
        }
        let mut said = String::new();
        stderr.read_to_string(&mut said).expect("UTF-8");
        let output = login.wait_with_output().expect("it ends");
        self.keeps_its_secrets(&Output { stderr: said.clone().into_bytes(), ..output.clone() });
        // The log has a time in front.
        let last = said.lines().rfind(|line| !line.starts_with("20")).unwrap_or_default();
        (format!("{page}\n{last}"), output.status.success())
    }

    fn tokens(&self) -> Option<(PathBuf, Value)> {
        let files = std::fs::read_dir(self.path("tokens")).ok()?.map(|entry| entry.expect("a file").path());
        let path = files.into_iter().find(|path| path.extension().is_some_and(|kind| kind == "json"))?;
        let text = std::fs::read(&path).expect("a file");
        Some((path, serde_json::from_slice(&text).expect("JSON")))
    }

    /// Nothing that is printed has a token in it.
    fn keeps_its_secrets(&self, output: &Output) {
        let Some((_, saved)) = self.tokens() else { return };
        for secret in ["access_token", "refresh_token"] {
            let secret = saved["tokens"][secret].as_str().expect("a token");
            for said in [&output.stdout, &output.stderr] {
                assert!(!String::from_utf8_lossy(said).contains(secret), "{}", String::from_utf8_lossy(said));
            }
        }
    }

    fn control(&self, method: &str, what: &str) -> Value {
        let agent = ureq::Agent::new_with_defaults();
        let url = format!("{}/{what}", self.urls["control"].as_str().expect("a URL"));
        let answer = if method == "POST" { agent.post(url).send_empty() } else { agent.get(url).call() };
        let text = answer.expect("an answer").body_mut().read_to_string().expect("a body");
        serde_json::from_str(&text).expect("JSON")
    }
}

impl Drop for Vault {
    fn drop(&mut self) {
        self.servers.kill().expect("they run");
        self.servers.wait().expect("they were killed");
    }
}

const NOT_LOGGED_IN: &str = "it wants authorization: log in with `dacapo mcp --login vault`, or put its token into \
                             `headers` as `Authorization`";
const REVOKED: &str = "its login has expired or was revoked: log in again with `dacapo mcp --login vault`";

#[test]
fn a_login_lasts_until_it_is_revoked() {
    // So short that every request needs a new token.
    let vault = Vault::new(20);
    let refused = vault.look();
    assert!(refused.as_str().is_some_and(|text| text.contains("vault")), "{refused}");
    let list = vault.dacapo(&["mcp", "--list", "--json"]).output().expect("dacapo starts");
    let list: Value = serde_json::from_slice(&list.stdout).expect("JSON");
    let vault_state = list["servers"].as_array().expect("servers").iter().find(|server| server["name"] == "vault");
    assert_eq!(vault_state.expect("the vault")["reason"], NOT_LOGGED_IN);

    let logged_in = "You are logged in. You can close this page.\nYou are logged in to `vault`, which has 2 tools.";
    assert_eq!(vault.login(&[]), (logged_in.to_owned(), true));
    let (file, saved) = vault.tokens().expect("they are kept");
    let mode = |path: &Path| std::fs::metadata(path).expect("it exists").permissions().mode() & 0o777;
    assert_eq!((mode(&file), mode(&vault.path("tokens"))), (0o600, 0o700));

    assert_eq!(vault.look(), json!({ "me": "ann", "token": "it is ***!" }));
    let later = vault.tokens().expect("they are kept").1;
    assert_ne!(saved["tokens"]["refresh_token"], later["tokens"]["refresh_token"], "it was used, and is good once");

    // The gateway has no browser, and uses the same tokens.
    let script = vault.path("script.toml");
    let turns = "[[turn]]\nwhen = { after = \"user\", tool = \"execute\" }\nprogram = \"return await vault.who_am_i({})\"\n\
                 [[turn]]\ntext = \"{{result/data}}{{result/error/message}}\"\n";
    std::fs::write(&script, turns).expect("a file");
    let paths = [vault.path("mcp.json"), vault.path("tokens"), vault.path("cache")];
    let paths: Vec<&str> = paths.iter().map(|path| path.to_str().expect("UTF-8")).collect();
    let environment =
        [("DACAPO_MCP_SERVERS", paths[0]), ("DACAPO_TOKENS_DIR", paths[1]), ("DACAPO_CACHE_DIR", paths[2])];
    let gateway = Served::start(&["--script", script.to_str().expect("UTF-8")], &environment);
    let ask = || {
        let body = json!({ "model": "m", "messages": [{ "role": "user", "content": "Who am I?" }] });
        let sent = ureq::Agent::new_with_defaults()
            .post(format!("{}/chat/completions", gateway.url))
            .header("content-type", "application/json")
            .send(body.to_string());
        let text = sent.expect("an answer").body_mut().read_to_string().expect("a body");
        let answer: Value = serde_json::from_str(&text).expect("JSON");
        answer["choices"][0]["message"]["content"].as_str().unwrap_or_default().to_owned()
    };
    assert!(ask().contains("ann"), "{}", ask());

    vault.control("POST", "revoke/all");
    let refused = vault.look();
    assert!(refused.as_str().is_some_and(|text| text.contains(REVOKED)), "{refused}");
    let refused = ask();
    assert!(refused.contains(REVOKED), "{refused}");

    // Without a restart.
    assert!(vault.login(&[]).1);
    assert!(ask().contains("ann"), "{}", ask());
}

#[test]
fn a_token_that_is_rejected_before_its_time_is_refreshed_once() {
    let vault = Vault::new(3_600);
    assert!(vault.login(&["--elsewhere"]).1, "an address that is pasted is as good");
    assert_eq!(vault.look()["me"], "ann");
    assert_eq!(vault.control("GET", "issued"), json!({ "access": 1, "refresh": 1 }));
    vault.control("POST", "revoke/access");
    assert_eq!(vault.look()["me"], "ann");
    assert_eq!(vault.look()["me"], "ann");
    assert_eq!(vault.control("GET", "issued"), json!({ "access": 2, "refresh": 2 }));
}

#[test]
fn what_cannot_be_logged_in_to_is_said() {
    let vault = Vault::new(3_600);
    let (said, succeeded) = vault.login(&["--deny"]);
    assert_eq!(
        (said.as_str(), succeeded),
        (
            "The login has failed. Dacapo says why where it was started.\n\
             dacapo: the login was denied: access_denied: End-User aborted interaction",
            false
        )
    );
    assert!(vault.tokens().is_none());
    for (name, message) in [
        ("nobody", "there is no server `nobody`; there are `vault`, `local`"),
        ("local", "`local` is a process on this machine; only servers with a `url` can be logged in to"),
    ] {
        let refused = vault.dacapo(&["mcp", "--login", name]).output().expect("dacapo starts");
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(refused.status.code() == Some(2) && said.contains(message), "{said}");
    }
}
