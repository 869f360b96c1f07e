//! Real clients, changed in nothing but their base URL. `scripts/test-tools` installs them.

mod common;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

use common::Served;
use dacapo_wire::Wire;
use serde_json::{Value, json};

/// Those of a client that has no `scenarios` of its own.
const SCENARIOS: [&str; 4] = ["parallel", "sequential", "failing", "thinking"];

/// One client's run of one scenario.
struct Run {
    name: String,
    argv: Vec<String>,
    scenario: String,
    /// Of the model.
    upstream: Wire,
    /// The client replaces long ids, so that the gateway has to keep the states.
    needs_store: bool,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Those that are installed; the ones that the product names must be.
fn runs() -> Vec<Run> {
    let list = std::fs::read_to_string(root().join("tests-tools/clients/clients.json")).expect("the list of clients");
    let clients: Vec<Value> = serde_json::from_str(&list).expect("JSON");
    let mut runs = Vec::new();
    for client in clients {
        let wire = Wire::parse(client["wire"].as_str().expect("a wire")).expect("one of three");
        let argv: Vec<String> = serde_json::from_value(client["argv"].clone()).expect("a command");
        let is_there = |path: &str| root().join(path).exists();
        let needs = client["needs"].as_str();
        let is_installed = (!argv[0].contains('/') || is_there(&argv[0])) && needs.is_none_or(is_there);
        assert!(is_installed || client["core"] == false, "run scripts/test-tools first: {} is missing", argv[0]);
        if is_installed {
            let scenarios: Vec<String> = match &client["scenarios"] {
                Value::Null => SCENARIOS.map(str::to_owned).to_vec(),
                scenarios => serde_json::from_value(scenarios.clone()).expect("a list of scenarios"),
            };
            for scenario in scenarios {
                runs.extend(upstreams(wire, &scenario).into_iter().map(|upstream| Run {
                    name: client["name"].to_string(),
                    argv: argv.clone(),
                    scenario: scenario.clone(),
                    upstream,
                    needs_store: client["store"] == true,
                }));
            }
        }
    }
    runs
}

/// Models are on the client's own wire, where thoughts have to come back as they were, or on each of the others. An image
/// has another form on each, and so have the words of a user who stops an agent.
fn upstreams(client: Wire, scenario: &str) -> Vec<Wire> {
    let at = Wire::ALL.iter().position(|wire| *wire == client).expect("one of three");
    let further = match scenario {
        "image" | "stop" => return Wire::ALL.to_vec(),
        "sequential" => 1,
        "failing" => 2,
        _ => 0,
    };
    vec![Wire::ALL[(at + further) % Wire::ALL.len()]]
}

#[test]
fn every_client_gets_the_right_answer_from_its_own_tools() {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients.toml");
    let gateway = |wire: Wire, store: &str| {
        let arguments = ["--script", script.to_str().expect("UTF-8"), "--wire", wire.name()];
        Served::start(&arguments, &[("DACAPO_STORE_KIND", store)])
    };
    let gateways = Wire::ALL.map(|wire| (wire, gateway(wire, "off"), gateway(wire, "memory")));
    let waiting = Mutex::new(runs());
    let wrong = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while let Some(run) = { waiting.lock().expect("no panic").pop() } {
                    let gateway = gateways.iter().find(|(wire, ..)| *wire == run.upstream);
                    let (_, stateless, storing) = gateway.expect("all wires are there");
                    let url = if run.needs_store { &storing.url } else { &stateless.url };
                    if let Err(reason) = run.is_right(url) {
                        let run = format!("{} {}, {} model", run.name, run.scenario, run.upstream);
                        wrong.lock().expect("no panic").push(format!("{run}: {reason}"));
                    }
                }
            });
        }
    });
    let wrong = wrong.into_inner().expect("no panic");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

impl Run {
    fn is_right(&self, url: &str) -> Result<(), String> {
        let output = Command::new(&self.argv[0])
            .args(&self.argv[1..])
            .args(["--base-url", url, "--model", "gpt-scripted", "--scenario", &self.scenario])
            .current_dir(root())
            .output()
            .map_err(|error| error.to_string())?;
        if !output.status.success() {
            return Err(String::from_utf8_lossy(&output.stderr).into_owned());
        }
        let said = String::from_utf8_lossy(&output.stdout);
        let last = said.lines().last().unwrap_or_default();
        let report: Value = serde_json::from_str(last).map_err(|error| format!("{error}: {said}"))?;
        let mut calls: Vec<String> = report["calls"].as_array().into_iter().flatten().map(Value::to_string).collect();
        // Some clients run tools in threads.
        calls.sort();
        let (expected_calls, expected_answer) = self.expected();
        if calls != expected_calls {
            return Err(format!("executed {calls:?}"));
        }
        let answer = report["answer"].as_str().unwrap_or_default();
        // How a failure is told is the client's affair, and some keep its reason to themselves.
        let is_right =
            if self.scenario == "failing" { answer.starts_with(expected_answer) } else { answer == expected_answer };
        if is_right { Ok(()) } else { Err(format!("answered {answer:?}")) }
    }

    fn expected(&self) -> (Vec<String>, &'static str) {
        let call = |tool: &str, args: Value| json!({"tool": tool, "args": args}).to_string();
        match self.scenario.as_str() {
            "parallel" | "thinking" | "plugin" => (
                vec![call("web_search", json!({"query": "France"})), call("web_search", json!({"query": "Spain"}))],
                "France: France headline 1; Spain: Spain headline 2.",
            ),
            "sequential" => (
                vec![
                    call("get_price", json!({"item": "item headline 1", "currency": "EUR"})),
                    call("web_search", json!({"query": "item"})),
                ],
                "item headline 1 costs 150 EUR.",
            ),
            // Nothing is repeated, whether or not the program can go on.
            "editing" => {
                let calls = vec![
                    call("get_price", json!({"item": "item headline 1", "currency": "EUR"})),
                    call("web_search", json!({"query": "item"})),
                ];
                let lost = "<nothing at data/item> costs <nothing at data/price> EUR.";
                (calls, if self.needs_store { "item headline 1 costs 150 EUR." } else { lost })
            }
            "handoff" => (vec![call("web_search", json!({"query": "France"}))], "Reported: France headline 1."),
            "image" => (
                vec![call("take_photo", json!({"subject": "a cat"}))],
                "I see data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mNkYAAAAAYAAjCB0C8AAAAASUVORK5CYII=.",
            ),
            "last-step" => (
                vec![call("web_search", json!({"query": "item"}))],
                r#"I found [{"title":"item headline 1"},{"title":"item headline 2"}] and may not ask what it costs."#,
            ),
            "extract" => (Vec::new(), "item headline 1 costs 150 EUR."),
            "stop" => (vec![call("bash", json!({"writes": "one"}))], "Stopped."),
            "failing" => (vec![call("explode", json!({"reason": "a test"}))], "The tool said: {"),
            other => panic!("no scenario is named {other}"),
        }
    }
}
