//! What models say, made fit to be carried.

use std::collections::BTreeSet;
use std::sync::Arc;

use dacapo_replay::Toolbox;
use dacapo_wire::{CallReply, Intent, ModelCall, ModelMessage, ModelTools};

#[test]
fn a_message_that_was_made_fit_stays_as_it_is() {
    let toolbox = Toolbox::read(r#"[{"name": "get_weather"}]"#).expect("a tool");
    let model_tools = ModelTools::new(Arc::new(toolbox), BTreeSet::new(), &BTreeSet::new(), 1_000);
    let call = |arguments: &str| ModelCall {
        name: "execute".to_owned(),
        arguments: arguments.to_owned(),
        ..ModelCall::default()
    };
    let calls = vec![call("{\"code"), call("return 1"), call(r#"{"code": "return 1"}"#)];
    let once = ModelMessage { calls, ..ModelMessage::default() }.normalized(&model_tools, &[]);
    let arguments: Vec<&str> = once.calls.iter().map(|call| call.arguments.as_str()).collect();
    assert_eq!(arguments, [r#"{"not_json":"{\"code"}"#, r#"{"code":"return 1"}"#, r#"{"code":"return 1"}"#]);
    assert_eq!(once.clone().normalized(&model_tools, &[]), once);
}

#[test]
fn a_search_that_asks_wrongly_is_told_so() {
    let toolbox = Toolbox::read(r#"[{"name": "get_weather"}]"#).expect("a tool");
    let model_tools = ModelTools::new(Arc::new(toolbox), BTreeSet::new(), &BTreeSet::new(), 0);
    let asked = |arguments: &str| {
        let arguments = arguments.to_owned();
        let calls = vec![ModelCall { name: "search".to_owned(), arguments, ..ModelCall::default() }];
        let message = ModelMessage { calls, ..ModelMessage::default() };
        message
            .replies(&model_tools, &|query| format!("{} of {}", query.limit(), query.text.texts().join("+")))
            .remove(0)
    };
    let search = |limit: &str| asked(&format!(r#"{{"query": "sky"{limit}}}"#));
    let found = |limit: usize| CallReply::Text(format!("{limit} of sky"));
    assert_eq!([search(""), search(r#", "limit": null"#), search(r#", "limit": 50"#)], [found(5), found(5), found(50)]);
    let error = r#"{"status":"error","error":{"kind":"mistake","message":"search needs {\"queries\": [\"what a tool should do\", \"what the next should do\"]}, at most 16, or one {\"query\": \"…\"}; and takes \"limit\" from 1 to 50"}}"#;
    for wrong in ["0", "51", "-1", "\"5\""] {
        assert_eq!(search(&format!(r#", "limit": {wrong}"#)), CallReply::Text(error.to_owned()), "{wrong}");
    }
    // Each step of a task gets as many.
    let steps = asked(r#"{"queries": ["sky", " ", "mail"], "limit": 3}"#);
    assert_eq!(steps, CallReply::Text("6 of sky+mail".to_owned()));
    assert_eq!(asked(r#"{"query": ["sky", "mail"]}"#), CallReply::Text("10 of sky+mail".to_owned()));
    let too_many = format!(r#"{{"queries": [{}]}}"#, vec![r#""a""#; 17].join(","));
    for wrong in [r#"{"queries": []}"#, r#"{"queries": [1]}"#, "{}", &too_many] {
        assert_eq!(asked(wrong), CallReply::Text(error.to_owned()), "{wrong}");
    }
}

#[test]
fn a_program_that_was_escaped_twice_is_understood() {
    let toolbox = Toolbox::read(r#"[{"name": "get_weather"}]"#).expect("a tool");
    let model_tools = ModelTools::new(Arc::new(toolbox), BTreeSet::new(), &BTreeSet::new(), 1_000);
    let program = |arguments: &str| {
        let calls =
            vec![ModelCall { name: "execute".to_owned(), arguments: arguments.to_owned(), ..ModelCall::default() }];
        match (ModelMessage { calls, ..ModelMessage::default() }).intent(&model_tools) {
            Intent::Program { code, .. } => code,
            other => panic!("{other:?}"),
        }
    };
    let meant = "const sky = await get_weather({ city: \"Oslo\" });\nreturn sky.split(\"\\n\");";
    let once = serde_json::to_string(meant).expect("a string");
    let twice = serde_json::to_string(&once[1..once.len() - 1]).expect("a string");
    assert_eq!(program(&format!("{{\"code\": {twice}}}")), meant);
    assert_eq!(program(&format!("{{\"code\": {once}}}")), meant);
    // What is a program as it stands stays as it is.
    let line = r#"return "a\nb".split(/\n/);"#;
    assert_eq!(program(&serde_json::json!({"code": line}).to_string()), line);
}
