//! Servers as they are: some work, some do what they should not, and each of them alone.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod fake;
mod faults;
mod http;
mod lists;
mod logs;
mod resources;
mod secrets;
mod sessions;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use dacapo_mcp::{Fleet, FleetOptions, ServerPhase, ServersFile};
use dacapo_replay::{Answer, JsonText};
use dacapo_runner::{Attachment, CallError, ToolCall, ToolHost, ToolOutput, with_trace};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

const LONG: Duration = Duration::from_secs(20);

/// Quick enough for a test, and slow enough for a busy machine.
fn options() -> FleetOptions {
    FleetOptions {
        connect_timeout: LONG,
        call_timeout: LONG,
        retry_min: Duration::from_millis(50),
        retry_max: Duration::from_millis(200),
        relist_wait: Duration::from_millis(5),
        shutdown_grace: Duration::from_secs(5),
        ..FleetOptions::default()
    }
}

/// A file entry for the fake server.
fn fake(mode: &str) -> Value {
    let program = std::env::current_exe().unwrap();
    json!({"command": program, "args": ["--exact", "fake::fake_server", "--nocapture"], "env": {fake::MODE: mode}})
}

fn environment() -> BTreeMap<String, String> {
    let path = std::env::var("PATH").unwrap();
    BTreeMap::from([("PATH".to_owned(), path), ("HOME".to_owned(), "/home/somebody".to_owned())])
}

fn file(servers: &Value, environment: &BTreeMap<String, String>) -> ServersFile {
    ServersFile::parse(&json!({ "mcpServers": servers }).to_string(), environment).unwrap()
}

async fn start(servers: Value, options: FleetOptions) -> Fleet {
    let fleet = Fleet::start(file(&servers, &environment()), options);
    fleet.settled(LONG).await;
    fleet
}

async fn call(fleet: &Fleet, server: &str, tool: &str, args: Value) -> Result<ToolOutput, CallError> {
    let Value::Object(args) = args else { panic!("arguments are an object") };
    let tool_call = ToolCall {
        server: server.to_owned(),
        tool: tool.to_owned(),
        args,
        idempotency_key: "k-1".to_owned(),
        approved: None,
    };
    fleet.call(&tool_call, &CancellationToken::new()).await
}

#[expect(clippy::unnecessary_wraps, reason = "compared with what a call returns")]
fn ok(value: &Value) -> Result<ToolOutput, CallError> {
    Ok(ToolOutput { answer: Answer::Ok(JsonText::from(value)), attachments: Vec::new() })
}

fn refused(message: &str) -> Result<ToolOutput, CallError> {
    Err(CallError(message.to_owned()))
}

fn tools(fleet: &Fleet) -> Vec<String> {
    let toolbox = fleet.toolbox();
    let mut names = Vec::new();
    for function in toolbox.catalog().functions() {
        names.push(function.expression());
    }
    names
}

/// Waits until something is so.
async fn until(what: &str, mut so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !so() {
        assert!(begun.elapsed() < LONG, "waited too long for {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn an_answer_is_what_the_tool_said_and_handles_stand_for_what_is_not_text() {
    let fleet = start(json!({"a": fake("legacy")}), options()).await;
    let text = |text: &str| json!({"type": "text", "text": text});
    let image = json!({"type": "image", "data": "aGk=", "mimeType": "image/png"});
    let resource =
        json!({"type": "resource", "resource": {"uri": "file:///a", "mimeType": "text/plain", "text": "hi"}});

    for (said, seen) in [
        (json!({"content": [text("one")]}), json!("one")),
        (json!({"content": [text("one"), text("two")]}), json!("one\ntwo")),
        (json!({"content": [text("{}")], "structuredContent": [1, null]}), json!([1, null])),
        (json!({"content": [], "structuredContent": null}), json!(null)),
        (json!({"content": []}), json!(null)),
    ] {
        assert_eq!(call(&fleet, "a", "echo", said).await, ok(&seen));
    }

    let seen = json!([{"type": "text", "text": "look"},
                      {"type": "image", "mimeType": "image/png", "handle": "attachment:k-1/1"},
                      {"type": "resource", "uri": "file:///a", "mimeType": "text/plain", "text": "hi",
                       "handle": "attachment:k-1/2"}]);
    let attachment = |handle: &str, block: &Value| Attachment { handle: handle.to_owned(), block: block.clone() };
    let output = ToolOutput {
        answer: Answer::Ok(JsonText::from(&seen)),
        attachments: vec![attachment("attachment:k-1/1", &image), attachment("attachment:k-1/2", &resource)],
    };
    assert_eq!(call(&fleet, "a", "echo", json!({"content": [text("look"), image, resource]})).await, Ok(output));

    let seen = json!({"pages": [{"type": "image", "mimeType": "image/png", "handle": "attachment:k-1/0"}]});
    let attachments = vec![attachment("attachment:k-1/0", &image)];
    let output = ToolOutput { answer: Answer::Ok(JsonText::from(&seen)), attachments };
    let said = json!({"content": [image], "structuredContent": {"pages": [image]}});
    assert_eq!(call(&fleet, "a", "echo", said).await, Ok(output));

    let error = |message: &str, data: Option<Value>| {
        let answer = Answer::Error { message: message.to_owned(), data: data.as_ref().map(JsonText::from) };
        Ok(ToolOutput { answer, attachments: Vec::new() })
    };
    let failed = json!({"content": [text("no such"), text("file")], "isError": true, "structuredContent": {"a": 1}});
    assert_eq!(call(&fleet, "a", "echo", failed).await, error("no such\nfile", Some(json!({"a": 1}))));
    assert_eq!(
        call(&fleet, "a", "nothing", json!({})).await,
        error("no tool nothing", Some(json!({"code": -32602, "data": null})))
    );

    assert_eq!(call(&fleet, "a", "meta", json!({})).await, ok(&json!("k-1")));
    assert_eq!(call(&fleet, "b", "echo", json!({})).await, refused("there is no server `b` in the configuration"));
}

#[tokio::test]
async fn a_call_says_what_its_era_wants_and_takes_its_own_answer() {
    let modern = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "dacapo", "version": env!("CARGO_PKG_VERSION")},
        "io.modelcontextprotocol/clientCapabilities": {},
        "dacapo/idempotency-key": "k-1"});
    for (mode, meta) in [("legacy", json!({"dacapo/idempotency-key": "k-1"})), ("modern", modern)] {
        let fleet = start(json!({"a": fake(mode)}), options()).await;
        assert_eq!(call(&fleet, "a", "whole_meta", json!({})).await, ok(&meta));
        // The trace of whoever runs the program goes with its calls, and nothing else of that request.
        let given = json!({"traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "secret": "x"});
        let mut traced = meta.clone();
        let key = traced.as_object_mut().unwrap().shift_remove("dacapo/idempotency-key").unwrap();
        traced["traceparent"] = given["traceparent"].clone();
        traced["dacapo/idempotency-key"] = key;
        let called = with_trace(given.as_object().unwrap(), call(&fleet, "a", "whole_meta", json!({})));
        assert_eq!(called.await, ok(&traced));
        assert_eq!(call(&fleet, "a", "asks_first", json!({})).await, ok(&json!("asked")));
        assert_eq!(call(&fleet, "a", "as_text", json!({})).await, ok(&json!("text")));
    }
}

#[tokio::test]
async fn a_server_works_on_as_many_calls_as_it_may() {
    let fleet = start(json!({"a": fake("legacy")}), FleetOptions { calls_per_server_max: 3, ..options() }).await;
    let nth_call = |index| ToolCall {
        server: "a".into(),
        tool: "hold".into(),
        args: serde_json::Map::new(),
        idempotency_key: format!("k-{index}"),
        approved: None,
    };
    let calls: Vec<ToolCall> = (0..12).map(nth_call).collect();
    let cancel = CancellationToken::new();
    let answers = futures_util::future::join_all(calls.iter().map(|call| fleet.call(call, &cancel))).await;
    assert_eq!(answers.last(), Some(&ok(&json!(3))));
}

#[tokio::test]
async fn both_eras_are_spoken() {
    let fleet = start(json!({"old": fake("legacy"), "new": fake("modern")}), options()).await;
    let seen: Vec<_> = fleet.states().into_iter().map(|state| (state.phase, state.protocol_version)).collect();
    let ready = |version: &str| (ServerPhase::Ready, Some(version.to_owned()));
    assert_eq!(seen, [ready("2025-11-25"), ready("2026-07-28")]);
    for server in ["old", "new"] {
        assert_eq!(call(&fleet, server, "echo", json!({"content": [], "structuredContent": 1})).await, ok(&json!(1)));
    }
}

#[tokio::test]
async fn an_old_server_that_is_puzzled_by_a_question_of_today_is_greeted_the_old_way() {
    let fleet = start(json!({"ends": fake("ends when asked"), "vague": fake("says yes")}), options()).await;
    for state in fleet.states() {
        assert_eq!((state.phase, state.protocol_version), (ServerPhase::Ready, Some("2025-11-25".to_owned())));
        let said = call(&fleet, &state.name, "echo", json!({"content": [], "structuredContent": 1})).await;
        assert_eq!(said, ok(&json!(1)));
    }
}
