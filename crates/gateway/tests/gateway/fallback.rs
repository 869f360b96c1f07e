//! Names of models of the operator's own, and upstreams that take over when another one cannot answer.

use std::sync::{Arc, Mutex};

use axum::Router;
use axum::routing::{get, post};
use dacapo_gateway::{Environment, GatewayOptions, ModelOptions, TargetOptions, UpstreamOptions};
use dacapo_wire::Wire;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use crate::client_conversation::ClientConversation;
use crate::common::{Model, RunningGateway, SECRET, options, post_json, post_to, send_to};

/// Two rounds of calls, and an answer. It also says which name of the model it was asked by.
const ABLE: &str = r#"
[[turn]]
when = { after = "user", tool = "execute" }
text = "Let me see."
program = "const a = await price({ item: 'tea' }); const b = await price({ item: 'rye' }); return a + b;"

[[turn]]
when = { after = "tool" }
text = "The sum is {{result/data}}."

[[turn]]
when = { model = "other-name" }
text = "I am other-name."

[[turn]]
text = "I am somebody."
"#;

/// What an upstream may do instead of answering. The last two begin a response first.
const FAILURES: [&str; 4] = [
    "error = { status = 429, message = 'Slow down.', retry_after = 3600 }",
    "error = { status = 503, message = 'Overloaded.' }",
    "raw = 'not JSON'\nstatus = 200",
    "error = { status = 529, message = 'Overloaded.' }\nerror_after = 0",
];

fn upstream(name: &str, url: &str, wire: Wire) -> UpstreamOptions {
    UpstreamOptions {
        name: name.to_owned(),
        models: vec![format!("{name}-*")],
        wires: Some(vec![wire.name().to_owned()]),
        base_url: Some(url.to_owned()),
        ..UpstreamOptions::default()
    }
}

fn target(upstream: &str, model: Option<&str>) -> TargetOptions {
    TargetOptions { upstream: Some(upstream.to_owned()), model: model.map(str::to_owned) }
}

/// The model `m` is asked of these, one after the other.
fn in_order(upstreams: Vec<UpstreamOptions>) -> GatewayOptions {
    let ask = upstreams.iter().map(|upstream| target(&upstream.name, None)).collect();
    GatewayOptions {
        secret: Some(SECRET.to_owned()),
        upstreams,
        models: vec![ModelOptions { name: "m".to_owned(), ask }],
        ..GatewayOptions::default()
    }
}

/// Plays the conversation of `ABLE` to its end, and counts what the client was asked to do.
async fn play(talk: &mut ClientConversation, gateways: [&RunningGateway; 3]) -> (String, Vec<String>) {
    talk.user("What do they cost?");
    let mut executed = Vec::new();
    for gateway in gateways {
        let (path, body) = talk.request();
        let answer = post_to(&format!("{}{path}", gateway.url), &body).await;
        assert_eq!(answer.status, 200, "{}", answer.text);
        let response = talk.read_response(&answer.text);
        if response.calls.is_empty() {
            return (response.text, executed);
        }
        for call in &response.calls {
            executed.push(call.args["item"].as_str().unwrap().to_owned());
            talk.answer(call, if call.args["item"] == "tea" { "2" } else { "3" }, false);
        }
    }
    panic!("no answer after {executed:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upstream_that_cannot_answer_is_replaced_on_any_wire_streamed_or_not() {
    for (at, failure) in FAILURES.into_iter().enumerate() {
        let failing = Model::start(&format!("[[turn]]\n{failure}")).await;
        let able = Model::start(ABLE).await;
        for (client, first, second) in pairs_of_wires(at) {
            let upstreams = vec![upstream("first", &failing.url, first), upstream("second", &able.url, second)];
            let gateway = RunningGateway::start(in_order(upstreams)).await;
            for stream in [false, true] {
                let mut talk = ClientConversation::new(client, &[("price", &["item"])]);
                talk.extra["stream"] = json!(stream);
                let (text, executed) = play(&mut talk, [&gateway; 3]).await;
                let case = format!("{client} → {first}, {second}, stream {stream}, {failure}");
                assert_eq!(text, "The sum is 5.", "{case}");
                assert_eq!(executed, ["tea", "rye"], "{case}");
            }
        }
        assert!(!failing.asked().is_empty());
    }
}

/// Each failure is tried with other wires, and all of them with all clients.
fn pairs_of_wires(at: usize) -> impl Iterator<Item = (Wire, Wire, Wire)> {
    let other = move |wire: usize, by: usize| Wire::ALL[(wire + at + by) % 3];
    (0..3).flat_map(move |client| {
        [
            (Wire::ALL[client], other(client, 0), other(client, 1)),
            (Wire::ALL[client], other(client, 2), other(client, 2)),
        ]
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_goes_on_whichever_upstream_answers() {
    let nobody = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let unreachable = format!("http://{}/v1", nobody.local_addr().unwrap());
    drop(nobody);
    let able = Model::start(ABLE).await;
    for client in Wire::ALL {
        let [a, b] = [Wire::ALL[(client as usize + 1) % 3], Wire::ALL[(client as usize + 2) % 3]];
        let first_up = vec![upstream("first", &able.url, a), upstream("second", &unreachable, b)];
        let second_up = vec![upstream("first", &unreachable, a), upstream("second", &able.url, b)];
        let (first_up, second_up) =
            (RunningGateway::start(in_order(first_up)).await, RunningGateway::start(in_order(second_up)).await);
        // One upstream writes the program, the other one reads its result.
        for gateways in [[&first_up, &first_up, &second_up], [&second_up, &first_up, &first_up]] {
            let mut talk = ClientConversation::new(client, &[("price", &["item"])]);
            let (text, executed) = play(&mut talk, gateways).await;
            assert_eq!((text.as_str(), executed), ("The sum is 5.", vec!["tea".to_owned(), "rye".to_owned()]));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_streamed_is_not_taken_back_and_the_last_failure_is_the_clients() {
    let broken = Model::start("[[turn]]\ntext = 'One two three four.'\ncut_after = 3").await;
    let busy = Model::start("[[turn]]\nerror = { status = 429, message = 'Slow down.', retry_after = 3600 }").await;
    let able = Model::start(ABLE).await;
    let upstreams = vec![upstream("first", &broken.url, Wire::Chat), upstream("second", &able.url, Wire::Chat)];
    let gateway = RunningGateway::start(in_order(upstreams)).await;
    let ask = json!({"model": "m", "stream": true, "messages": [{"role": "user", "content": "Count."}],
        "tools": [crate::common::tool("price", &["item"])]});
    let answer = post_json(&gateway.url, &ask).await;
    assert!(answer.text.contains("One") && answer.text.contains("broke off"), "{}", answer.text);
    assert_eq!(able.asked().len(), 0);

    // On the way the status is that of the last, with what it says about coming back.
    for tools in [json!([]), ask["tools"].clone()] {
        let upstreams = vec![upstream("first", &broken.url, Wire::Messages), upstream("second", &busy.url, Wire::Chat)];
        let mut upstreams = in_order(upstreams);
        upstreams.models[0].ask.reverse();
        upstreams.models[0].ask.push(target("second", None));
        let gateway = RunningGateway::start(upstreams).await;
        let answer = post_json(&gateway.url, &json!({"model": "m", "tools": tools, "messages": ask["messages"]})).await;
        assert_eq!((answer.status, answer.headers["retry-after"].to_str().unwrap()), (429, "3600"));
        assert_eq!(answer.json()["error"]["message"], "Slow down.");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clients_own_key_is_not_given_to_the_provider_that_takes_over() {
    let busy = Model::start("[[turn]]\nerror = { status = 503, message = 'Overloaded.' }").await;
    let able = Model::start(ABLE).await;
    for wire in [Wire::Chat, Wire::Messages] {
        let upstreams = vec![upstream("first", &busy.url, Wire::Chat), upstream("second", &able.url, wire)];
        let gateway = RunningGateway::start(in_order(upstreams)).await;
        let body = json!({"model": "m", "messages": [{"role": "user", "content": "Who are you?"}]});
        let key = [("authorization", "Bearer sk-of-the-client")];
        assert_eq!(send_to(&format!("{}/chat/completions", gateway.url), &body, &key).await.status, 200);
        let keys =
            |model: &Model| -> Vec<String> { model.addressed.lock().unwrap().drain(..).map(|(_, key)| key).collect() };
        assert_eq!((keys(&busy), keys(&able)), (vec![key[0].1.to_owned()], vec![String::new()]));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_of_the_operators_own_stands_for_a_model_byte_for_byte() {
    let model = Model::start(ABLE).await;
    let mut options = options(&model);
    options.models = vec![
        ModelOptions { name: "fast".to_owned(), ask: vec![target("model", Some("other-name"))] },
        ModelOptions {
            name: "fast-*".to_owned(),
            ask: vec![TargetOptions { upstream: None, model: Some("other-name".to_owned()) }],
        },
    ];
    let gateway = RunningGateway::start(options).await;
    for name in ["fast", "fast-er"] {
        let url = format!("{}/chat/completions", gateway.url);
        let body = json!({"model": name, "messages": [{"role": "user", "content": "Who are you?"}]});
        let answer = send_to(&url, &body, &[]).await.json();
        assert_eq!(answer["choices"][0]["message"]["content"], "I am other-name.");
        assert_eq!(model.asked()[0], json!({"model": "other-name", "messages": body["messages"]}));
    }
    // In code mode as well.
    let mut talk = ClientConversation::new(Wire::Messages, &[("price", &["item"])]);
    talk.extra["model"] = json!("fast");
    assert_eq!(play(&mut talk, [&gateway; 3]).await.0, "The sum is 5.");
    assert!(model.asked().iter().all(|asked| asked["model"] == "other-name"));

    let client = reqwest::Client::builder().tls_certs_only([]).build().unwrap();
    let listed: Value = serde_json::from_str(
        &client.get(format!("{}/models", gateway.url)).send().await.unwrap().text().await.unwrap(),
    )
    .unwrap();
    let ids: Vec<&Value> = listed["data"].as_array().unwrap().iter().map(|model| &model["id"]).collect();
    assert_eq!(ids, ["fast", "demo"]);
}

#[test]
fn names_that_lead_nowhere_are_refused_at_the_start() {
    let mut options = in_order(vec![upstream("first", "http://127.0.0.1:1/v1", Wire::Chat)]);
    options.models.push(ModelOptions::default());
    options.models.push(ModelOptions {
        name: "m".to_owned(),
        ask: vec![
            target("secnod", None),
            TargetOptions::default(),
            TargetOptions { model: Some("unknown".to_owned()), upstream: None },
        ],
    });
    let mistakes = options.resolve(&Environment::default()).unwrap_err().to_string();
    insta::assert_snapshot!(mistakes);
}

/// A provider with routes that the gateway does not have. It notes what it is sent.
async fn other_provider() -> (String, Arc<Mutex<Vec<String>>>) {
    let seen: Arc<Mutex<Vec<String>>> = Arc::default();
    let note = |seen: &Arc<Mutex<Vec<String>>>| {
        let seen = Arc::clone(seen);
        move |method: axum::http::Method, uri: axum::http::Uri, body: String| {
            seen.lock().unwrap().push(format!("{method} {uri} {body}"));
            async { ([("x-ratelimit-remaining", "7")], "as it came") }
        }
    };
    let router = Router::new()
        .route("/v1/embeddings", post(note(&seen)))
        .route("/v1/files/{id}", get(note(&seen)).delete(note(&seen)))
        .route("/v1/audio/transcriptions", post(note(&seen)));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/v1", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    (url, seen)
}

#[tokio::test(flavor = "multi_thread")]
async fn other_routes_pass_to_an_upstream_as_they_came() {
    let (url, seen) = other_provider().await;
    let busy = Model::start("[[turn]]\ntext = 'x'").await;
    let mut options =
        in_order(vec![upstream("claude", &busy.url, Wire::Messages), upstream("other", &url, Wire::Chat)]);
    options.models[0].ask = vec![target("other", Some("text-embedding-3"))];
    let gateway = RunningGateway::start(options.clone()).await;
    let client = reqwest::Client::builder().tls_certs_only([]).build().unwrap();
    let send = async |method: reqwest::Method, path: &str, headers: &[(&str, &str)], body: &str| {
        let request = client.request(method, format!("{}{path}", gateway.url)).body(body.to_owned());
        let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
        let response = request.send().await.unwrap();
        let remaining = response.headers().get("x-ratelimit-remaining").map(|value| value.to_str().unwrap().to_owned());
        (response.status().as_u16(), remaining.unwrap_or_default(), response.text().await.unwrap())
    };
    let came = (200, "7".to_owned(), "as it came".to_owned());
    let form = "--b\r\ncontent-disposition: form-data; name=\"model\"\r\n\r\nother-whisper\r\n--b--\r\n";
    assert_eq!(send(reqwest::Method::POST, "/embeddings?x=1", &[], r#"{"model":"m", "input":1.0}"#).await, came);
    assert_eq!(send(reqwest::Method::POST, "/audio/transcriptions", &[], form).await, came);
    assert_eq!(send(reqwest::Method::GET, "/files/f1", &[], "").await, came, "the first that speaks the client's wire");
    assert_eq!(send(reqwest::Method::DELETE, "/files/f1", &[("x-dacapo-upstream", "other")], "").await, came);
    assert_eq!(
        *seen.lock().unwrap(),
        [
            r#"POST /v1/embeddings?x=1 {"model":"text-embedding-3", "input":1.0}"#.to_owned(),
            format!("POST /v1/audio/transcriptions {form}"),
            "GET /v1/files/f1 ".to_owned(),
            "DELETE /v1/files/f1 ".to_owned(),
        ]
    );
    assert_eq!(send(reqwest::Method::GET, "/files/f1", &[("x-dacapo-upstream", "nobody")], "").await.0, 400);
    assert_eq!(send(reqwest::Method::GET, "/files/f1", &[("upgrade", "websocket")], "").await.0, 501);
    // Clients put such paths right, so this is sent by hand.
    for path in ["/v1/files/%2E%2e/%2e./admin", "/v1/files/..\\..\\admin", "/v1/", "/v1"] {
        let mut raw = tokio::net::TcpStream::connect(gateway.url.split('/').nth(2).unwrap()).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
        raw.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        raw.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 404 "), "{path}: {answer}");
    }
    assert_eq!(send(reqwest::Method::POST, "/embeddings", &[], r#"{"model":"unknown"}"#).await.0, 404);
    assert_eq!(seen.lock().unwrap().len(), 4);

    options.other_routes = Some(vec!["/v1/audio/*".to_owned()]);
    let gateway = RunningGateway::start(options).await;
    let refused = send_to(&format!("{}/embeddings", gateway.url), &json!({"model": "m"}), &[]).await;
    assert_eq!(refused.status, 404);
    assert_eq!(
        refused.json()["error"]["message"],
        "there is nothing at /v1/embeddings; see POST /v1/chat/completions, /v1/responses and /v1/messages"
    );
}
