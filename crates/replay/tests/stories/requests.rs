//! Wrong requests get an error that names the place.

use dacapo_replay::StepRequest;

#[test]
fn every_mistake_in_a_request_is_named_with_its_place() {
    let rows = [
        "",
        "not json",
        "[1, 2]",
        r#"{"program": {"code": "1"}} trailing"#,
        "{}",
        r#"{"program": "code"}"#,
        r#"{"program": {}}"#,
        r#"{"program": {"code": 3}}"#,
        r#"{"program": {"code": "1", "cod": "2"}}"#,
        r#"{"program": {"code": "1", "code": "2"}}"#,
        r#"{"program": {"code": "1", "started_at": -5}}"#,
        r#"{"program": {"code": "1", "started_at": "now"}}"#,
        r#"{"program": {"code": "1"}, "journals": []}"#,
        r#"{"program": {"code": "1"}, "journal": {}}"#,
        r#"{"program": {"code": "1"}, "journal": [3]}"#,
        r#"{"program": {"code": "1"}, "journal": [{"call": 0, "ok": 1}]}"#,
        r#"{"program": {"code": "1"}, "journal": [{"tool": "a", "ok": 1}]}"#,
        r#"{"program": {"code": "1"}, "journal": [{"call": -1, "tool": "a", "ok": 1}]}"#,
        r#"{"program": {"code": "1"}, "journal": [{"call": 1.5, "tool": "a", "ok": 1}]}"#,
        r#"{"program": {"code": "1"}, "journal": [{"call": 0, "tool": "a"}]}"#,
        r#"{"program": {"code": "1"}, "journal": [{"call": 0, "tool": "a", "ok": 1, "error": {"message": "x"}}]}"#,
        r#"{"program": {"code": "1"}, "journal": [{"call": 0, "tool": "a", "error": "x"}]}"#,
        r#"{"program": {"code": "1"}, "journal": [{"call": 0, "tool": "a", "error": {"message": "x", "code": 1}}]}"#,
        r#"{"program": {"code": "1"}, "journal": [{"call": 0, "tool": "a", "ok": 1}, {"call": 0, "tool": "a", "ok": 2}]}"#,
        r#"{"program": {"code": "1"}, "reuse": [{"tool": "a", "args": {}, "error": {"message": "x"}}]}"#,
        r#"{"program": {"code": "1"}, "reuse": [{"tool": "a", "ok": 1}]}"#,
        r#"{"program": {"code": "1"}, "limits": {"fule": 1}}"#,
        r#"{"program": {"code": "1"}, "limits": {"fuel": -1}}"#,
        r#"{"program": {"code": "1"}, "limits": {"fuel": "many"}}"#,
        r#"{"program": {"code": "1"}, "tools": "a"}"#,
        r#"{"program": {"code": "1"}, "tools": [{"name": 3}]}"#,
        r#"{"program": {"code": "1"}, "tools": [{"type": "function", "function": {"parameters": {}}}]}"#,
        r#"{"program": {"code": "1"}, "tools": [{"name": "a"}, {"name": "a"}]}"#,
        r#"{"program": {"code": "1"}, "tools": [{"name": "a", "input_schema": "object"}]}"#,
    ];
    let said = rows.map(|text| match StepRequest::parse(text) {
        Ok(_) => format!("{text}\n  accepted"),
        Err(error) => format!("{text}\n  {error}"),
    });
    insta::assert_snapshot!(said.join("\n"));
}

#[test]
fn a_tool_with_a_broken_schema_is_still_a_tool() {
    let request = r#"{"program": {"code": "return await a({ x: 1 })"}, "tools": [{"name": "a", "input_schema": {"type": "nonsense", "$ref": "https://example.com/x"}}], "journal": [{"call": 0, "tool": "a", "ok": 5}]}"#;
    let request: serde_json::Value = serde_json::from_str(request).expect("valid JSON");
    assert_eq!(crate::client::ProgramStory { request }.step()["result"]["data"], 5);
}
