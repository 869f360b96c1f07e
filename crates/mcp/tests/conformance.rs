//! The official conformance suite against our side of a connection to a server. `scripts/test-tools` installs it.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use dacapo_mcp::{Fleet, FleetOptions, Login, ServerEntry, ServerPhase, ServersFile};
use dacapo_runner::{ToolCall, ToolHost};
use serde_json::{Map, Value, json};
use tokio_util::sync::CancellationToken;

#[test]
fn a_client_of_2025_11_25_conforms() {
    conforms("2025-11-25");
}

#[test]
fn a_client_of_2026_07_28_conforms() {
    conforms("2026-07-28");
}

/// Runs all that a revision of the protocol requires of clients. What we fail, and why, stands in the baseline; an
/// entry there that passes is a failure too.
fn conforms(revision: &str) {
    // One scenario takes the stream that a client opens for notifications, if that comes late, for a reconnect that
    // comes early. Which of the two it was, a second look tells.
    const TRIES: usize = 5;
    const RACY: &str = "sse-retry";
    for at in 1..=TRIES {
        match run_suite(revision) {
            Ok(()) => return,
            Err(found) if found.unexpected() == [RACY] && at < TRIES => {}
            Err(found) => panic!("{}\n{}", found.verdict, found.failures),
        }
    }
}

/// What the suite found wrong.
struct Found {
    verdict: String,
    failures: String,
}

impl Found {
    /// Scenarios that fail, or pass, against the baseline.
    fn unexpected(&self) -> Vec<&str> {
        self.verdict.lines().filter_map(|line| line.trim().strip_prefix("✗ ")).collect()
    }
}

fn run_suite(revision: &str) -> Result<(), Found> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let bin = root.join("target/test-tools/node24/node_modules/.bin");
    assert!(bin.join("conformance").exists(), "run scripts/test-tools first: conformance is missing");
    let results = tempfile::tempdir().expect("a directory");
    let this = std::env::current_exe().expect("this test");
    let client = format!("{} --ignored --exact --nocapture {CLIENT}", this.display());
    let output = Command::new(bin.join("node"))
        .arg(bin.join("conformance"))
        .args(["client", "--requirements", revision, "--command", &client, "--output-dir"])
        .arg(results.path())
        .arg("--expected-failures")
        .arg(root.join("tests-tools/mcp/conformance-baseline.yml"))
        .output()
        .expect("the suite starts");
    let said = String::from_utf8_lossy(&output.stdout);
    let verdict = said.find("\nTotal: ").map_or(&*said, |at| &said[at..]);
    if !output.status.success() {
        return Err(Found { verdict: verdict.to_owned(), failures: failures(results.path()) });
    }
    let empty: Vec<&str> = said.lines().filter(|line| line.ends_with(": 0 passed, 0 failed")).collect();
    assert_eq!(empty, Vec::<&str>::new(), "the suite takes a client that does nothing for one that does nothing wrong");
    Ok(())
}

/// What the failed checks say.
fn failures(results: &Path) -> String {
    let mut directories = vec![results.to_path_buf()];
    let mut texts = Vec::new();
    while let Some(directory) = directories.pop() {
        let entries: Vec<PathBuf> =
            std::fs::read_dir(&directory).expect("a directory").flatten().map(|entry| entry.path()).collect();
        for path in entries {
            if path.is_dir() {
                directories.push(path);
            } else if path.ends_with("checks.json") {
                let checks: Vec<Value> = serde_json::from_slice(&std::fs::read(&path).expect("a file")).expect("JSON");
                let failed = checks.iter().filter(|check| check["status"] == "FAILURE");
                let scenario = directory.strip_prefix(results).expect("inside").display().to_string();
                texts.extend(failed.map(|check| format!("{scenario}: {}: {}", check["id"], check["errorMessage"])));
            }
        }
    }
    texts.sort();
    texts.join("\n")
}

const CLIENT: &str = "the_client_that_the_suite_starts";

/// Connects to the server whose URL is the last argument, logs in if it wants that, and calls every tool that it lists.
#[test]
#[ignore = "the suite starts it"]
#[expect(clippy::print_stdout, reason = "the suite keeps it beside its verdict")]
fn the_client_that_the_suite_starts() {
    let url = std::env::args().next_back().expect("a URL");
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let context = context();
        let mut server = json!({ "url": url });
        if context["client_id"].is_string() {
            server["oauth"] = json!({ "clientId": context["client_id"], "clientSecret": context["client_secret"] });
        } else if std::env::var("MCP_CONFORMANCE_SCENARIO").is_ok_and(|scenario| scenario == "auth/basic-cimd") {
            server["oauth"] = json!({ "clientId": "https://conformance-test.local/client-metadata.json" });
        }
        let tokens = tempfile::tempdir().expect("a directory");
        let options = FleetOptions { tokens_dir: Some(tokens.path().to_owned()), ..FleetOptions::default() };
        let connect = async |server: &Value| {
            let fleet = Fleet::start(servers_file(server), options.clone());
            fleet.settled(Duration::from_secs(20)).await;
            println!("{:?}", fleet.states());
            fleet
        };
        let mut fleet = connect(&server).await;
        for _ in 0..LOGINS_MAX {
            let told = match &fleet.states()[0].phase {
                ServerPhase::Failed { reason, .. } if reason.contains("--login") => reason.clone(),
                _ => break,
            };
            fleet.shutdown().await;
            if let Err(error) = do_as_told(&told, &mut server, tokens.path()).await {
                println!("the login failed: {error}");
                return;
            }
            fleet = connect(&server).await;
        }
        for (tool, args) in calls(&fleet) {
            let call = ToolCall {
                server: "suite".to_owned(),
                idempotency_key: format!("{tool}-key"),
                tool,
                args,
                approved: None,
            };
            println!("{call:?}");
            for _ in 0..LOGINS_MAX {
                let called = fleet.call(&call, &CancellationToken::new()).await;
                println!("{called:?}");
                // The person does what the error says, and asks for the same again.
                let Some(told) = called.err().map(|error| error.0).filter(|told| told.contains("--login")) else {
                    break;
                };
                fleet.shutdown().await;
                if let Err(error) = do_as_told(&told, &mut server, tokens.path()).await {
                    println!("the login failed: {error}");
                    return;
                }
                fleet = connect(&server).await;
            }
        }
        fleet.shutdown().await;
    });
}

/// As often a person tries.
const LOGINS_MAX: usize = 3;

fn servers_file(server: &Value) -> ServersFile {
    let servers = json!({ "mcpServers": { "suite": server } }).to_string();
    ServersFile::parse(&servers, &std::env::vars().collect()).expect("a servers file")
}

/// What the suite says to the client it starts.
fn context() -> Value {
    let context = std::env::var("MCP_CONFORMANCE_CONTEXT").unwrap_or_default();
    serde_json::from_str(&context).unwrap_or_default()
}

/// Logs in as an error says, with the scopes that it names beside those of the last login.
async fn do_as_told(told: &str, server: &mut Value, tokens: &Path) -> Result<(), String> {
    let named = told.split_once("the scope `").and_then(|(_, rest)| rest.split('`').next());
    if let Some(named) = named {
        let mut scopes = server["lastScopes"].as_array().cloned().unwrap_or_default();
        scopes.extend(named.split(' ').map(Value::from).filter(|scope| !scopes.contains(scope)).collect::<Vec<_>>());
        server["oauth"]["scopes"] = json!(scopes);
    }
    log_in(&servers_file(server).servers[0], tokens).await.map(|scope| {
        server["lastScopes"] = scope.split(' ').filter(|scope| !scope.is_empty()).map(Value::from).collect();
    })
}

/// The suite's authorization servers let everybody in, so a request is as good as a browser. Returns the scopes
/// that were asked for.
async fn log_in(server: &ServerEntry, tokens: &Path) -> Result<String, String> {
    let login = Login::start(server, tokens).await.map_err(|error| error.to_string())?;
    let address = login.authorization_url().to_owned();
    let scope = reqwest::Url::parse(&address).ok().and_then(|address| {
        address.query_pairs().find(|(name, _)| name == "scope").map(|(_, scope)| scope.into_owned())
    });
    let (_nobody_pastes, pasted) = tokio::sync::mpsc::channel(1);
    let browser = async { reqwest::get(address).await.map_err(|error| error.to_string()) };
    let (finished, page) = tokio::join!(tokio::time::timeout(Duration::from_secs(10), login.finish(pasted)), browser);
    drop(page);
    finished.map_err(|_elapsed| "nobody came back".to_owned())?.map_err(|error| error.to_string())?;
    Ok(scope.unwrap_or_default())
}

/// The calls that a scenario names, and one of each tool that it does not name.
fn calls(fleet: &Fleet) -> Vec<(String, Map<String, Value>)> {
    let context = context();
    let named: Vec<(String, Map<String, Value>)> = (context["toolCalls"].as_array().into_iter().flatten())
        .map(|call| (call["name"].as_str().expect("a name").to_owned(), object(&call["arguments"])))
        .collect();
    let toolbox = fleet.toolbox();
    let tools = toolbox.catalog().tools();
    let others = (tools.iter())
        .filter(|tool| named.iter().all(|(name, _)| *name != tool.name))
        .map(|tool| (tool.name.clone(), arguments(&tool.input_schema)));
    let mut calls: Vec<_> = named.iter().cloned().chain(others).collect();
    // One scenario wants to see what we took for the schema of another tool.
    let schema = tools.iter().find(|tool| tool.name == "json_schema_2020_12_tool").map(|tool| &tool.input_schema);
    if let Some((_, echo)) = calls.iter_mut().find(|(name, _)| name == "json_schema_echo") {
        echo.insert("schema".to_owned(), json!(schema));
    }
    calls
}

/// Something for each required property.
fn arguments(schema: &Value) -> Map<String, Value> {
    let required = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
    required
        .map(|name| {
            let value = match schema["properties"][name]["type"].as_str() {
                Some("number" | "integer") => json!(3),
                Some("boolean") => json!(true),
                Some("object") => json!({}),
                Some("array") => json!([]),
                _ => json!("text"),
            };
            (name.to_owned(), value)
        })
        .collect()
}

fn object(value: &Value) -> Map<String, Value> {
    value.as_object().cloned().unwrap_or_default()
}
