//! The demo's own claims, held against what it prints.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::process::{Command, Output};

use serde_json::Value;

fn demo(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_dacapo"));
    // No proxy, certificate or configuration of the surroundings has a say.
    let surroundings = [
        ("http_proxy", "http://127.0.0.1:9"),
        ("SSL_CERT_FILE", "/none"),
        ("SSL_CERT_DIR", "/none"),
        ("DACAPO_LISTEN", "none"),
    ];
    command.arg("demo").args(arguments).envs(surroundings).output().unwrap()
}

fn text(output: &Output) -> &str {
    std::str::from_utf8(&output.stdout).unwrap()
}

fn scenarios(arguments: &[&str]) -> Vec<Value> {
    let output = demo(arguments);
    assert_eq!((output.status.code(), String::from_utf8_lossy(&output.stderr).as_ref()), (Some(0), ""));
    serde_json::from_str::<Value>(text(&output)).unwrap()["scenarios"].as_array().unwrap().clone()
}

fn calls(scenario: &Value) -> Vec<String> {
    let rounds = scenario["rounds"].as_array().unwrap().iter();
    rounds
        .flat_map(|round| round.as_array().unwrap())
        .map(|call| format!("{} {}", call["tool"].as_str().unwrap(), call["arguments"].as_str().unwrap()))
        .collect()
}

fn cost(scenario: &Value, way: &str, figure: &str) -> u64 {
    scenario["ways"][way][figure].as_u64().unwrap()
}

#[test]
fn every_scenario_gives_the_answer_of_its_data_with_fewer_model_calls() {
    let scenarios = scenarios(&["--json"]);
    let names: Vec<&str> = scenarios.iter().map(|scenario| scenario["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["parallel-news", "sequential-news", "shipping", "budget", "failing-tool", "repaired-program"]);
    for scenario in &scenarios {
        let name = &scenario["name"];
        assert_eq!(scenario["answer"], scenario["expected"], "{name}");
        assert_eq!(scenario["client_saw_code"], false, "{name}");
        let model_calls = |way| cost(scenario, way, "model_calls");
        assert!(model_calls("code_mode") < model_calls("classic_sequential"), "{name}");
        assert!(model_calls("classic_parallel") <= model_calls("classic_sequential"), "{name}");
        assert_eq!(model_calls("classic_sequential"), calls(scenario).len() as u64 + 1, "{name}");
        let mut unique = calls(scenario);
        unique.sort();
        unique.dedup();
        assert_eq!(unique.len(), calls(scenario).len(), "{name} makes a call twice");
    }
}

#[test]
fn each_scenario_shows_what_it_is_for() {
    let scenarios = scenarios(&["--json"]);
    let [parallel, sequential, shipping, budget, failing, repaired] = scenarios.as_slice() else { panic!() };
    let rounds = |scenario: &Value| {
        scenario["rounds"].as_array().unwrap().iter().map(|round| round.as_array().unwrap().len()).collect::<Vec<_>>()
    };

    assert_eq!((rounds(parallel), rounds(sequential)), (vec![2], vec![1, 1]));
    assert!(parallel["answer"].as_str().unwrap().contains("Real Madrid advances to semifinals"));
    assert!(sequential["answer"].as_str().unwrap().contains("Federal Reserve hints at interest rate cut"));

    assert_eq!((rounds(shipping), shipping["searches"].as_array().unwrap().len()), (vec![1, 15, 5], 1));
    assert_eq!(
        shipping["answer"],
        "**Correos Priority** — **€12.91**\n- Delivery: 3-4 business days\n- Base price: €12.16 + €0.75 surcharge"
    );

    let lines = budget["rounds"][1].as_array().unwrap().iter().filter(|call| call["tool"] == "get_expenses");
    let lines: usize = lines.map(|call| call["answer"].as_str().unwrap().matches("\"id\":").count()).sum();
    assert_eq!((lines, budget["answer"].as_str().unwrap().lines().count()), (2_000, 4));
    for classic in ["classic_sequential", "classic_parallel"] {
        assert!(cost(budget, "code_mode", "context_tokens") * 10 < cost(budget, classic, "context_tokens"));
    }

    assert_eq!(failing["rounds"][0][1]["is_error"], true);
    assert_eq!(failing["rounds"][1][0]["tool"], "get_reference_rate");

    assert_eq!((rounds(repaired), repaired["programs"].as_array().unwrap().len()), (vec![1, 4, 5], 2));
}

#[test]
fn people_see_it_in_a_hundred_columns() {
    let output = demo(&[]);
    assert_eq!(output.status.code(), Some(0));
    let wide: Vec<&str> = text(&output).lines().filter(|line| line.chars().count() > 100).collect();
    assert_eq!(wide, Vec::<&str>::new());
    assert!(!text(&output).contains('\x1b'), "no colours where nobody looks");
    let stories = text(&output).split("\n\n").skip(1);
    assert!(stories.map(|story| story.lines().count()).all(|lines| lines <= 30));
}

#[test]
fn a_task_of_one_call_costs_least_without_programs() {
    let output = demo(&["--json"]);
    let costs = &serde_json::from_str::<Value>(text(&output)).unwrap()["one_call"];
    let ways = ["programs", "both", "classic"].map(|way| {
        assert_eq!(costs[way]["model_calls"], 2, "{way}");
        costs[way]["context_tokens"].as_u64().unwrap()
    });
    assert!(ways[0] > ways[2] && ways[1] > ways[2], "{costs}");
}

#[test]
fn one_scenario_can_be_chosen_by_name() {
    let chosen = scenarios(&["--json", "--only", "shipping"]);
    assert_eq!((chosen.len(), &chosen[0]["name"]), (1, &Value::from("shipping")));
    let unknown = demo(&["--only", "nothing"]);
    assert_eq!(unknown.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&unknown.stderr).contains("parallel-news"));
}

#[test]
fn the_readme_quotes_what_the_demo_prints() {
    let readme = include_str!("../../../README.md");
    let quoted = readme.split("```text\n").find(|block| block.starts_with("4. budget")).unwrap();
    let quoted = quoted.split("```").next().unwrap().lines().filter(|line| line.trim() != "…");
    let output = demo(&[]);
    let printed: Vec<&str> = text(&output).lines().map(|line| line.trim_end_matches([' ', '─'])).collect();
    let stale: Vec<&str> = quoted.filter(|line| !printed.contains(line)).collect();
    assert_eq!(stale, Vec::<&str>::new(), "replace these lines of README.md by those of `dacapo demo`");
}
