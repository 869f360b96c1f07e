//! `dacapo eval`, with the solutions that come with its tasks and with other models.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

use self::common::Served;

fn eval(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_dacapo"));
    if !arguments.contains(&"--upstream") {
        // Nothing of the surroundings has a say in what is played from the tasks.
        command.envs([("http_proxy", "http://127.0.0.1:9"), ("DACAPO_LISTEN", "none")]);
    }
    command.arg("eval").args(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {}", text(&output.stderr)))
}

fn runs(report: &Value) -> &[Value] {
    report["runs"].as_array().unwrap()
}

/// What failed, and why.
fn failures(report: &Value) -> Vec<String> {
    let failed = runs(report).iter().filter(|run| !run["failure"].is_null());
    failed.map(|run| format!("{} {}: {} {}", run["mode"], run["task"], run["failure"], run["answers"])).collect()
}

#[test]
fn the_solutions_do_all_tasks_in_both_modes() {
    let output = eval(&["--json"]);
    let report = json(&output);
    assert_eq!(failures(&report), Vec::<String>::new());
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), ""));
    let names = |key: &str| runs(&report).iter().map(|run| run[key].to_string()).collect::<BTreeSet<_>>();
    assert!(names("task").len() >= 40, "{:?}", names("task"));
    assert_eq!(names("kind").len(), 11);
    assert_eq!(runs(&report).len(), 2 * names("task").len());
    // The tools were really called, in code mode by programs.
    for run in runs(&report) {
        assert!(run["cost"]["tool_calls"].as_u64() > Some(0), "{run}");
        assert_eq!(run["cost"]["programs"].as_u64() > Some(0), run["mode"] == "code", "{run}");
    }
    let [classic, code] = report["summary"]["modes"].as_array().unwrap().as_slice() else { panic!("{report}") };
    let mean = |mode: &Value, figure: &str| mode["all"][figure]["mean"].as_f64().unwrap();
    assert!(mean(code, "model_calls") < mean(classic, "model_calls"));
    assert!(mean(code, "tokens_in") < mean(classic, "tokens_in"));
}

#[test]
fn people_read_a_table_and_a_page() {
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("eval.html");
    let output = eval(&["--task", "lookup,transfer", "--repeat", "2", "--html", page.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let table = text(&output.stdout);
    assert!(table.lines().all(|line| line.chars().count() <= 100), "{table}");
    assert!(!table.contains('\x1b'), "no colours where nobody looks");
    assert!(table.contains("scripted (tasks): 6 tasks, each played 2 times in each mode"), "{table}");
    assert_eq!(table.matches("\nall          12/12").count(), 2, "{table}");
    assert!(table.contains("intervals: model calls"), "{table}");
    let page = std::fs::read_to_string(page).unwrap();
    assert!(page.contains("order-status") && page.contains("a1 has 1,050.00 euros"), "{page}");
    assert!(!page.contains("<script") && !page.contains("http"), "it needs nothing else");
}

#[test]
fn an_evaluation_that_was_broken_off_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("results.jsonl");
    let arguments = |tasks| ["--json", "--results", file.to_str().unwrap(), "--task", tasks];
    eval(&arguments("order-status"));
    let first = std::fs::read_to_string(&file).unwrap();
    assert_eq!(first.lines().count(), 2);
    // It was stopped while it wrote.
    std::fs::write(&file, format!("{first}{{\"task\":\"prod")).unwrap();

    let output = eval(&arguments("order-status,product-price"));

    assert_eq!(text(&output.stderr), "dacapo: 2 of 4 results are in the file already\n");
    let after = std::fs::read_to_string(&file).unwrap();
    assert!(after.starts_with(&first) && after.lines().count() == 4, "{after}");
    assert_eq!(runs(&json(&output)).len(), 4);

    // A task that has changed is played again; what is no result is refused.
    std::fs::write(&file, after.replace("\"digest\":\"", "\"digest\":\"0")).unwrap();
    assert_eq!(text(&eval(&arguments("order-status")).stderr), "");
    std::fs::write(&file, format!("not JSON\n{first}")).unwrap();
    let refused = eval(&arguments("order-status"));
    assert_eq!(refused.status.code(), Some(1));
    assert!(text(&refused.stderr).contains("line 1: no result"), "{}", text(&refused.stderr));
}

/// A model that does not do its tasks, at an upstream of its own.
fn other_model(folder: &Path, script: &str) -> Served {
    let file = folder.join("model.toml");
    std::fs::write(&file, script).unwrap();
    // It is a gateway itself, and must not make programs of what it is sent.
    Served::start(&["--script", file.to_str().unwrap()], &[("DACAPO_CODE_MODE_DEFAULT", "off")])
}

#[test]
fn a_model_that_fails_is_told_by_the_kind_of_its_failures() {
    let folder = tempfile::tempdir().unwrap();
    let served = other_model(
        folder.path(),
        r#"
        [[turn]]                                    # an answer without looking
        when = { user = "status of order o7" }
        text = "It is <b>open</b>."
        [[turn]]                                    # half of the transfer
        when = { user = "Move 150 euros", after = "user", no_tool = "execute" }
        calls = [{ name = "withdraw", arguments = { account = "a1", amount = 150 } }]
        [[turn]]
        when = { user = "Move 150 euros", after = "user" }
        program = "await withdraw({ account: 'a1', amount: 150 }); return 1050;"
        [[turn]]
        when = { user = "Move 150 euros" }
        text = "Done: 1,050.00 and 460.50."
        [[turn]]                                    # calls without end
        when = { user = "product p5", no_tool = "execute" }
        calls = [{ name = "get_product", arguments = { sku = "p5" } }]
        [[turn]]
        when = { user = "Who placed order o12" }
        error = { status = 500, message = "out of order" }
        "#,
    );
    let page = folder.path().join("eval.html");
    let tasks = ["order-status", "transfer", "product-price", "order-customer"].join(",");
    let arguments = ["--json", "--model", "m", "--upstream", &served.url, "--task", &tasks, "--html"];
    let arguments = [&arguments[..], &[page.to_str().unwrap(), "--mode", "classic"]].concat();

    let output = eval(&arguments);

    assert_eq!(output.status.code(), Some(1), "the model could not always be asked");
    let report = json(&output);
    let mut kinds: Vec<(String, String)> = runs(&report)
        .iter()
        .map(|run| (run["task"].as_str().unwrap().into(), run["failure"]["kind"].as_str().unwrap().into()))
        .collect();
    kinds.sort();
    let expected = [
        ("order-customer", "upstream"),
        ("order-status", "wrong_answer"),
        ("product-price", "too_many_requests"),
        ("transfer", "wrong_world"),
    ];
    assert_eq!(kinds, expected.map(|(task, kind)| (task.to_owned(), kind.to_owned())));
    let page = std::fs::read_to_string(page).unwrap();
    assert!(page.contains("It is &lt;b&gt;open&lt;/b&gt;."), "answers are text");

    // In code mode the same model makes the same mistake, by a program.
    let arguments = ["--json", "--model", "m", "--upstream", &served.url, "--task", "transfer", "--mode", "code"];
    let report = json(&eval(&arguments));
    assert_eq!(runs(&report)[0]["failure"]["kind"], "wrong_world");
}

#[test]
fn wrong_usage_is_told() {
    for (arguments, told) in [
        (["--task", "nothing"], "--task nothing: no task and no kind has this name; see --list"),
        (["--mode", "fast"], "possible values: classic, code"),
        (["--repeat", "0"], "invalid value '0'"),
        (["--wire", "chat"], "--upstream <URL>"),
    ] {
        let output = eval(&arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(text(&output.stderr).contains(told), "{}", text(&output.stderr));
    }
    let list = eval(&["--list"]);
    assert!(text(&list.stdout).lines().count() >= 40);
}
