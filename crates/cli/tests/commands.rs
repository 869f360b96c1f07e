//! The command line as its users meet it.

use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};

/// A folder with files, and the `dacapo` of this build.
struct Desk(tempfile::TempDir);

impl Desk {
    fn with(files: &[(&str, &str)]) -> Desk {
        let desk = Desk(tempfile::tempdir().expect("a folder"));
        for (name, text) in files {
            fs::write(desk.path(name), text).expect("a file");
        }
        desk
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn dacapo(&self, arguments: &[&str], stdin: impl AsRef<[u8]>) -> Output {
        let mut child = Command::new(env!("CARGO_BIN_EXE_dacapo"))
            .args(arguments)
            .current_dir(self.0.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("dacapo starts");
        let mut pipe = child.stdin.take().expect("stdin");
        // A command that fails early does not read its input.
        drop(pipe.write_all(stdin.as_ref()));
        drop(pipe);
        child.wait_with_output().expect("dacapo ends")
    }
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("UTF-8")
}

fn lines(output: &Output) -> Vec<Value> {
    text(&output.stdout).lines().map(|line| serde_json::from_str(line).expect("a line of JSON")).collect()
}

const SUM: &str = "const [a, b] = await Promise.all([price({ item: 'pen' }), price({ item: 'ink' })]);\nconsole.log('adding');\nreturn a + b";

#[test]
fn a_person_can_play_the_client() {
    let desk = Desk::with(&[("sum.ts", SUM)]);
    let output = desk.dacapo(&["run", "sum.ts"], "2\n7\n");
    assert_eq!((text(&output.stdout), output.status.code()), ("9\n", Some(0)));
    assert_eq!(
        text(&output.stderr),
        "call 0: price({\"item\":\"pen\"})\n> call 1: price({\"item\":\"ink\"})\n> adding\n"
    );

    let named = desk.dacapo(&["run", "sum.ts"], "{\"call\": 1, \"ok\": \"!\"}\nplain text\n");
    assert_eq!(text(&named.stdout), "\"plain text!\"\n");

    let refused = desk.dacapo(&["run", "sum.ts"], "! sold out\n7\n");
    assert_eq!((text(&refused.stdout), refused.status.code()), ("", Some(1)));
    assert!(text(&refused.stderr).contains("ToolError: sold out\n> 1 | const [a, b]"), "{}", text(&refused.stderr));

    let ended = desk.dacapo(&["run", "sum.ts"], "2\n");
    assert_eq!(ended.status.code(), Some(1));
    assert!(
        text(&ended.stderr)
            .ends_with("dacapo: the input ended while call 1 waits for an answer: price({\"item\":\"ink\"})\n")
    );
}

#[test]
fn answers_can_come_from_a_file() {
    let answers = r#"[{"tool": "price", "args": {"item": "ink"}, "ok": 7}, {"tool": "price", "ok": 2}, {"tool": "price", "ok": 3}]"#;
    let desk = Desk::with(&[
        ("sum.ts", SUM),
        ("answers.json", answers),
        ("few.json", "[]"),
        ("bad.json", r#"[{"tool": "price"}]"#),
    ]);
    let output = desk.dacapo(&["run", "sum.ts", "--answers", "answers.json"], "");
    assert_eq!((text(&output.stdout), text(&output.stderr)), ("9\n", "adding\n"));

    let piped = desk.dacapo(&["run", "-", "--answers", "answers.json"], SUM);
    assert_eq!(text(&piped.stdout), "9\n");

    let missing = desk.dacapo(&["run", "sum.ts", "--answers", "few.json"], "");
    assert_eq!(
        text(&missing.stderr),
        "dacapo: few.json has no answer for call 0: price({\"item\":\"pen\"}); add one\n"
    );
    let bad = desk.dacapo(&["run", "sum.ts", "--answers", "bad.json"], "");
    assert_eq!(text(&bad.stderr), "dacapo: bad.json: answer 0: needs either `ok` or `error`\n");
}

#[test]
fn null_is_an_answer_and_patience_may_be_endless() {
    let desk = Desk::with(&[("p.ts", "return [await price()]"), ("null.json", r#"[{"tool": "price", "ok": null}]"#)]);
    let step_timeout = u64::MAX.to_string();
    let from_file = desk.dacapo(&["run", "p.ts", "--answers", "null.json", "--step-timeout", &step_timeout], "");
    let typed = desk.dacapo(&["run", "p.ts"], "{\"call\": 0, \"ok\": null}\n");
    assert_eq!([text(&from_file.stdout), text(&typed.stdout)], ["[\n  null\n]\n"; 2]);
    let step = desk.dacapo(&["step", "--step-timeout", &step_timeout], r#"{"program": {"code": "1"}}"#);
    assert_eq!(step.status.code(), Some(0));
}

#[test]
fn a_script_can_play_the_client_in_json() {
    let desk = Desk::with(&[("sum.ts", SUM)]);
    let output = desk.dacapo(&["run", "sum.ts", "--json", "--seed", "s", "--started-at", "0"], "2\n7\n");
    let steps = lines(&output);
    assert_eq!(steps.len(), 2);
    assert_eq!(steps[0]["calls"][1]["args"], json!({ "item": "ink" }));
    assert_eq!(steps[1]["result"], json!({ "status": "success", "data": 9 }));
    assert_eq!(output.stderr, b"");
}

#[test]
fn failures_show_the_models_source_and_what_was_done() {
    let desk = Desk::with(&[
        ("bad.ts", "const x = await price();\nb();\nreturn x.y.z"),
        ("tools.json", r#"{"tools": [{"name": "price"}, {"name": "b"}]}"#),
    ]);
    let output = desk.dacapo(&["run", "bad.ts", "--tools", "tools.json"], "1\n");
    assert_eq!(output.status.code(), Some(1));
    let told = text(&output.stderr);
    assert!(
        told.contains(
            "TypeError: cannot read property 'z' of undefined: `x.y` is undefined\n  1 | const x = await price();"
        ),
        "{told}"
    );
    assert!(told.ends_with("completed: call 0 price\nnot completed: call 1 b\n"), "{told}");
}

#[test]
fn wrong_usage_says_what_is_right() {
    let desk = Desk::with(&[("sum.ts", SUM), ("tools.json", "[3]")]);
    let rows: [(&[&str], i32, &str); 8] = [
        (&[], 2, "Usage: dacapo"),
        (&["nonsense"], 2, "unrecognized subcommand 'nonsense'"),
        (&["run"], 2, "required arguments were not provided"),
        (&["run", "sum.ts", "--limit", "fule=1"], 2, "no limit `fule`; there are fuel, memory_bytes"),
        (&["run", "sum.ts", "--limit", "fuel=0"], 2, "0 is out of range; 1 to 1000000000000 are possible"),
        (&["run", "nowhere.ts"], 1, "cannot read the program nowhere.ts"),
        (&["run", "sum.ts", "--tools", "tools.json"], 1, "tools.json: tools[0]: expected an object"),
        (&["run", "-"], 1, "with the program on stdin, answers must come from a file"),
    ];
    for (arguments, code, said) in rows {
        let output = desk.dacapo(arguments, "");
        assert_eq!((output.status.code(), text(&output.stdout)), (Some(code), ""), "{arguments:?}");
        assert!(text(&output.stderr).contains(said), "{arguments:?}: {}", text(&output.stderr));
    }
    for command in ["run", "step"] {
        let help = desk.dacapo(&[command, "--help"], "");
        assert!(text(&help.stdout).contains("Example:\n") && help.status.success());
    }
}

#[test]
fn a_limit_can_be_changed_by_name() {
    let desk = Desk::with(&[("loop.ts", "for (;;) {}")]);
    let output = desk.dacapo(&["run", "loop.ts", "--json", "--limit", "fuel=1000000"], "");
    assert_eq!(lines(&output)[0]["result"]["error"]["value"], 1_000_000);
}

#[test]
fn a_step_is_one_request_and_one_response() {
    let desk = Desk::with(&[]);
    let mut request = json!({ "program": { "code": "return await add({ a: 1 })" }, "tools": [{ "name": "add" }] });
    let paused = desk.dacapo(&["step"], serde_json::to_string_pretty(&request).expect("JSON"));
    assert_eq!(lines(&paused)[0]["calls"][0]["args"], json!({ "a": 1 }));
    request["journal"] = json!([{ "call": 0, "tool": "add", "ok": 3 }]);
    let finished = desk.dacapo(&["step"], request.to_string());
    assert_eq!(lines(&finished)[0]["result"], json!({ "status": "success", "data": 3 }));
    assert_eq!(finished.status.code(), Some(0));

    request["journal"] = json!([{ "call": 5, "tool": "add", "ok": 3 }]);
    let diverged = desk.dacapo(&["step"], request.to_string());
    assert_eq!(lines(&diverged)[0]["result"]["error"]["kind"], "diverged");
    assert_eq!(diverged.status.code(), Some(1));
}

#[test]
fn lines_are_answered_one_by_one_and_a_bad_one_spoils_no_other() {
    let good = json!({ "program": { "code": "return await add({ a: 1 })" }, "tools": [{ "name": "add" }] });
    let mut next = good.clone();
    next["journal"] = json!([{ "call": 0, "tool": "add", "ok": 3 }]);
    let input =
        [good.to_string().as_bytes(), b"\n\nnot json\n\xff\xfe\n{\"program\":{}}\n", next.to_string().as_bytes()]
            .concat();
    for arguments in [&["step", "--lines"][..], &["step", "--lines", "--cold"]] {
        let output = Desk::with(&[]).dacapo(arguments, &input);
        let responses = lines(&output);
        let kinds: Vec<&Value> = responses.iter().map(|response| &response["status"]).collect();
        assert_eq!(kinds, ["paused", "error", "error", "error", "finished"]);
        assert_eq!(
            responses[3]["error"],
            json!({ "kind": "request", "path": "program.code", "message": "is missing" })
        );
        assert_eq!(output.status.code(), Some(1));
    }
}

#[test]
fn a_slow_machine_is_not_the_programs_fault() {
    let request = json!({ "program": { "code": "for (;;) {}" }, "limits": { "fuel": 1_000_000_000_000_u64 } });
    let output = Desk::with(&[]).dacapo(&["step", "--step-timeout", "0"], request.to_string());
    let response = &lines(&output)[0];
    assert_eq!(
        (&response["status"], &response["error"]["kind"], &response["error"]["retry"]),
        (&json!("error"), &json!("interrupted"), &json!(true))
    );
}

const TWO_TOOLS: &str = r#"[
  {"name": "get_weather", "description": "Forecast for a city.", "input_schema": {"type": "object", "required": ["city"],
    "properties": {"city": {"type": "string"}, "days": {"type": "integer", "minimum": 1, "maximum": 14, "default": 7}}}},
  {"name": "send_email", "server": "mail", "description": "Sends a message.", "inputSchema": {"type": "object"},
    "outputSchema": {"type": "object", "properties": {"id": {"type": "string"}}, "required": ["id"]}}
]"#;

#[test]
fn tools_can_be_read_as_a_model_reads_them() {
    let desk = Desk::with(&[("tools.json", TWO_TOOLS)]);
    let output = desk.dacapo(&["types", "--tools", "tools.json"], "");
    assert_eq!(output.status.code(), Some(0));
    insta::assert_snapshot!(text(&output.stdout));

    let report = &lines(&desk.dacapo(&["types", "--tools", "tools.json", "--json"], ""))[0];
    assert_eq!(
        (&report["declarations"], &report["tools"], &report["warnings"]),
        (&json!(text(&output.stdout)), &json!(2), &json!([]))
    );
    assert!(report["tokens"]["declarations"].as_u64() < report["tokens"]["json"].as_u64(), "{}", report["tokens"]);
}

#[test]
fn a_mistake_in_a_file_of_tools_is_told_with_its_place() {
    let mistakes = [
        (r#"[{"name": "a"}] b"#, "dacapo: tools.json is not JSON: trailing characters at line 1 column 17\n"),
        (
            r#"[{"name": "a"}, {"name""#,
            "dacapo: tools.json is not JSON: EOF while parsing an object at line 1 column 23\n",
        ),
        (r#"[{"name": "a"}, 3]"#, "dacapo: tools.json: tools[1]: expected an object, found a number\n"),
    ];
    for (file, message) in mistakes {
        let output = Desk::with(&[("tools.json", file)]).dacapo(&["search", "x", "--tools", "tools.json"], "");
        assert_eq!((text(&output.stderr), output.status.success()), (message, false));
    }
}

#[test]
fn tools_can_be_found_by_what_they_are_for() {
    let desk = Desk::with(&[("tools.json", TWO_TOOLS)]);
    let search = |arguments: &[&str]| desk.dacapo(&[&["search", "--tools", "tools.json"], arguments].concat(), "");
    let both = search(&["find the weather in Paris and send it by mail", "--explain"]);
    let told = text(&both.stdout);
    assert!(told.contains("// for: find the weather in Paris\n") && told.contains("function get_weather("), "{told}");
    assert!(told.contains("send it by mail\n") && told.contains("declare namespace mail"), "{told}");
    assert!(text(&both.stderr).contains("weather = weather (same): name"), "{}", text(&both.stderr));

    let report = &lines(&search(&["forecast", "--json", "--limit", "1", "--explain"]))[0];
    assert_eq!(report["hits"][0]["tool"], "get_weather");
    assert!(!report["hits"][0]["because"].as_array().expect("reasons").is_empty());

    let none = search(&["wether-forcast zzzz qqqq"]);
    assert_eq!(none.status.code(), Some(0));
    let all = search(&["", "--tokens", "1"]);
    assert!(
        text(&all.stdout).ends_with("// 1 more match: ask again with other words, or with a larger limit\n"),
        "{}",
        text(&all.stdout)
    );
    let nothing = search(&["zzzz qqqq"]);
    assert!(text(&nothing.stdout).starts_with("// nothing found for: zzzz qqqq; "), "{}", text(&nothing.stdout));
}
