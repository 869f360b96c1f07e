//! Sessions that a server over HTTP has forgotten.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use dacapo_mcp::{Fleet, FleetOptions, Settings};
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::{call, ok, options, start, tools, until};

const SESSION: &str = "mcp-session-id";

/// A server of 2025-11-25 that counts how often each tool was executed.
#[derive(Default)]
struct Sessions {
    opened: usize,
    executed: BTreeMap<String, usize>,
    /// Forgets the session of the next call, after or before it has executed the call.
    forgets: Option<Forgets>,
    /// Announced in the next list instead of the usual annotations of `look`.
    look: Option<Value>,
}

#[derive(Clone, Copy)]
enum Forgets {
    AfterExecution,
    BeforeExecution,
}

type Shared = Arc<Mutex<Sessions>>;

async fn answer(State(server): State<Shared>, headers: HeaderMap, body: Bytes) -> Response {
    let message: Value = serde_json::from_slice(&body).unwrap();
    let mut server = server.lock().unwrap();
    let reply = |result: Value| {
        let body = json!({"jsonrpc": "2.0", "id": message["id"], "result": result});
        ([("content-type", "application/json")], body.to_string()).into_response()
    };
    if message["method"] == "initialize" {
        server.opened += 1;
        let mut response = reply(json!({"protocolVersion": "2025-11-25", "capabilities": {"tools": {}},
                                        "serverInfo": {"name": "sessions", "version": "1"}}));
        response.headers_mut().insert(SESSION, server.opened.to_string().parse().unwrap());
        return response;
    }
    if message["method"] == "server/discover" {
        return StatusCode::BAD_REQUEST.into_response();
    }
    if headers.get(SESSION).is_none_or(|session| session.as_bytes() != server.opened.to_string().as_bytes()) {
        return StatusCode::NOT_FOUND.into_response();
    }
    match message["method"].as_str().unwrap() {
        "tools/list" => {
            let look = server.look.clone().unwrap_or(json!({"readOnlyHint": true}));
            let tool = |name: &str, annotations: Value| json!({"name": name, "inputSchema": {"type": "object"}, "annotations": annotations});
            reply(json!({"ttlMs": 0, "tools": [
                tool("pay", json!({})), tool("look", look), tool("put", json!({"idempotentHint": true})),
                tool("wipe", json!({"readOnlyHint": true, "destructiveHint": true})),
                tool("odd", json!({"readOnlyHint": "yes", "idempotentHint": 1}))
            ]}))
        }
        "tools/call" => {
            let forgets = server.forgets.take();
            if forgets.is_some() {
                // The session of this number was never opened, so that no session is known now.
                server.opened += 1;
            }
            if !matches!(forgets, Some(Forgets::BeforeExecution)) {
                *server.executed.entry(message["params"]["name"].as_str().unwrap().to_owned()).or_default() += 1;
            }
            match forgets {
                Some(_) => StatusCode::NOT_FOUND.into_response(),
                None => reply(json!({"content": [], "structuredContent": "done"})),
            }
        }
        _ => StatusCode::ACCEPTED.into_response(),
    }
}

async fn serve() -> (Shared, Fleet) {
    serve_with(options()).await
}

async fn serve_with(options: FleetOptions) -> (Shared, Fleet) {
    let server = Shared::default();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    let router = Router::new().route("/mcp", post(answer)).with_state(Arc::clone(&server));
    tokio::spawn(async move { axum::serve(listener, router).await });
    let fleet = start(json!({"web": {"url": url}}), options).await;
    (server, fleet)
}

#[tokio::test]
async fn a_call_that_may_have_been_executed_is_not_sent_again() {
    for tool in ["pay", "wipe", "odd"] {
        for forgets in [Forgets::AfterExecution, Forgets::BeforeExecution] {
            let (server, fleet) = serve().await;
            server.lock().unwrap().forgets = Some(forgets);
            let error = call(&fleet, "web", tool, json!({})).await.unwrap_err().0;
            let expected = format!(
                "`web.{tool}` was lost: the server does not know our session any more (HTTP 404); it is unknown whether \
                 the call was executed. The next call opens a new session"
            );
            assert_eq!(error, expected);
            let executed = usize::from(matches!(forgets, Forgets::AfterExecution));
            assert_eq!(server.lock().unwrap().executed.get(tool).copied().unwrap_or_default(), executed);

            assert_eq!(call(&fleet, "web", tool, json!({})).await, ok(&json!("done")), "in a new session");
            assert_eq!(server.lock().unwrap().executed[tool], executed + 1);
        }
    }
}

#[tokio::test]
async fn reads_and_idempotent_calls_are_sent_again_once_in_a_new_session() {
    for tool in ["look", "put"] {
        let (server, fleet) = serve().await;
        server.lock().unwrap().forgets = Some(Forgets::AfterExecution);
        assert_eq!(call(&fleet, "web", tool, json!({})).await, ok(&json!("done")));
        assert_eq!(server.lock().unwrap().executed[tool], 2);
    }
}

#[tokio::test]
async fn an_operator_can_say_what_a_tool_does() {
    let file = json!({"dacapo": {"effects": {"web.*": "write", "web.pay": "idempotent"}}});
    let effects = Settings::read(&file, &BTreeMap::new()).unwrap().fleet.effects;
    let (server, fleet) = serve_with(FleetOptions { effects, ..options() }).await;
    server.lock().unwrap().forgets = Some(Forgets::AfterExecution);
    assert_eq!(call(&fleet, "web", "pay", json!({})).await, ok(&json!("done")));
    assert_eq!(server.lock().unwrap().executed["pay"], 2);
    server.lock().unwrap().forgets = Some(Forgets::AfterExecution);
    call(&fleet, "web", "look", json!({})).await.unwrap_err();
    assert_eq!(server.lock().unwrap().executed["look"], 1, "although its annotations say that it only reads");
}

#[tokio::test]
async fn a_call_is_not_sent_again_to_a_tool_that_does_not_only_read_any_more() {
    let (server, fleet) = serve().await;
    {
        let mut server = server.lock().unwrap();
        server.forgets = Some(Forgets::AfterExecution);
        server.look = Some(json!({"destructiveHint": true}));
    }
    let error = call(&fleet, "web", "look", json!({})).await.unwrap_err().0;
    assert!(error.contains("; it is unknown whether the call was executed"), "{error}");
    assert_eq!(server.lock().unwrap().executed["look"], 1);
}

#[tokio::test]
async fn a_list_that_is_refused_in_an_old_session_is_had_in_a_new_one() {
    let (server, fleet) = serve().await;
    let opened = {
        let mut server = server.lock().unwrap();
        server.opened += 1;
        server.opened
    };
    until("a new session", || {
        // Whoever reads the tools asks for a list that has expired.
        assert_eq!(tools(&fleet).len(), 5);
        server.lock().unwrap().opened > opened
    })
    .await;
    assert_eq!(call(&fleet, "web", "pay", json!({})).await, ok(&json!("done")));
}
