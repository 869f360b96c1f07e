//! Requests as clients send them: compressed, from web pages, and to the routes beside the three wires.

use std::io::Write;

use axum::Router;
use axum::routing::{get, post};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use dacapo_gateway::{Environment, GatewayOptions};
use dacapo_wire::Wire;
use flate2::Compression;
use flate2::write::{DeflateEncoder, GzEncoder, ZlibEncoder};
use reqwest::{Method, Response, StatusCode};
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::client_conversation::ClientConversation;
use crate::common::{Model, RunningGateway, SECRET, options, post_to};

const SCRIPT: &str = r#"
[[turn]]
when = { after = "user", tool = "execute" }
program = "return await web_search({ query: 'x' });"

[[turn]]
text = "hello"
"#;

/// `{"model":"m","messages":[{"role":"user","content":"What is it?"}]}`, and a megabyte of blanks in brackets, as Node.js
/// compresses them.
const BROTLI: &str = "G0EAcBwHdozjxSMI9mfWoRbZ2/qZfW1dqcNCBw45YA08aztIGAQbcJLR4xL4TnssYnnUYEIC+CLmEQ==";
const ZSTD: &str =
    "KLUv/SBCEQIAeyJtb2RlbCI6Im0iLCJtZXNzYWdlcyI6W3sicm9sZSI6InVzZXIiLCJjb250ZW50IjoiV2hhdCBpcyBpdD8ifV19";
const BROTLI_LARGE: &str = "mwEAEPglQba6SpHLAoG59w8x";
const ZSTD_LARGE: &str = "KLUv/aACABAAVAAAEFsgAQD7/znAAgIAECACABAgAgAQIAIAECACABAgAgAQIAIAECARAAAgXQ==";

async fn request(method: Method, url: &str, headers: &[(&str, &str)], body: Vec<u8>) -> Response {
    let client = reqwest::Client::builder().tls_certs_only([]).build().unwrap();
    let request =
        headers.iter().fold(client.request(method, url), |request, (name, value)| request.header(*name, *value));
    request.body(body).send().await.unwrap()
}

fn header<'a>(response: &'a Response, name: &str) -> &'a str {
    response.headers().get(name).map_or("", |value| value.to_str().unwrap())
}

async fn json_of(response: Response) -> Value {
    serde_json::from_str(&response.text().await.unwrap()).unwrap()
}

async fn error_of(response: Response) -> String {
    json_of(response).await["error"]["message"].as_str().unwrap().to_owned()
}

/// The root of the gateway, without `/v1`.
fn root(gateway: &RunningGateway) -> &str {
    gateway.url.strip_suffix("/v1").unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn bodies_may_be_compressed_and_are_limited_by_what_they_become() {
    let model = Model::start(SCRIPT).await;
    let mut options = options(&model);
    options.body_bytes_max = Some(100_000);
    let gateway = RunningGateway::start(options).await;
    let url = format!("{}/chat/completions", gateway.url);
    let text = br#"{"model":"m","messages":[{"role":"user","content":"What is it?"}]}"#;
    let large = format!("[{}]", " ".repeat(1 << 20)).into_bytes();
    let gzip = |text: &[u8]| {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(text).unwrap();
        encoder.finish().unwrap()
    };
    let zlib = |text: &[u8]| {
        let mut encoder = ZlibEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(text).unwrap();
        encoder.finish().unwrap()
    };
    let raw = |text: &[u8]| {
        let mut encoder = DeflateEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(text).unwrap();
        encoder.finish().unwrap()
    };
    let known = |text: &str| STANDARD.decode(text).unwrap();
    let encoded = [
        ("gzip", gzip(text), gzip(&large)),
        ("deflate", zlib(text), zlib(&large)),
        ("Deflate", raw(text), raw(&large)),
        ("br", known(BROTLI), known(BROTLI_LARGE)),
        ("zstd", known(ZSTD), known(ZSTD_LARGE)),
        ("identity, gzip, gzip", gzip(&gzip(text)), gzip(&gzip(&large))),
    ];
    for (encoding, body, large) in encoded {
        let answered = request(Method::POST, &url, &[("content-encoding", encoding)], body).await;
        assert_eq!(answered.status(), StatusCode::OK, "{encoding}");
        assert_eq!(model.asked()[0]["messages"][0]["content"], "What is it?", "{encoding}");
        let refused = request(Method::POST, &url, &[("content-encoding", encoding)], large).await;
        assert_eq!(refused.status(), StatusCode::PAYLOAD_TOO_LARGE, "{encoding}");
        assert!(error_of(refused).await.contains("more than 100000 bytes when decoded"), "{encoding}");
        let broken = request(Method::POST, &url, &[("content-encoding", encoding)], b"\x1f\x8b{not it}".to_vec()).await;
        assert_eq!(broken.status(), StatusCode::BAD_REQUEST, "{encoding}");
        assert!(error_of(broken).await.starts_with("content-encoding: the body cannot be decoded"), "{encoding}");
    }
    let unknown = request(Method::POST, &url, &[("content-encoding", "lzma")], text.to_vec()).await;
    assert_eq!(unknown.status(), StatusCode::UNSUPPORTED_MEDIA_TYPE);
    let expected = "content-encoding: `lzma` is not known; use gzip, deflate, br, zstd, or send the body as it is";
    assert_eq!(error_of(unknown).await, expected);
    let often = request(Method::POST, &url, &[("content-encoding", "br, br, br")], text.to_vec()).await;
    assert_eq!(often.status(), StatusCode::UNSUPPORTED_MEDIA_TYPE);
}

#[tokio::test(flavor = "multi_thread")]
async fn web_pages_are_let_in_by_a_list_that_is_empty_by_default() {
    let model = Model::start(SCRIPT).await;
    let page = "https://app.example.com";
    let question = [
        ("origin", page),
        ("access-control-request-method", "POST"),
        ("access-control-request-headers", "authorization,content-type,x-stainless-os"),
    ];
    let body = br#"{"model":"m","messages":[{"role":"user","content":"hi"}]}"#;
    let closed = RunningGateway::start(options(&model)).await;
    let url = format!("{}/chat/completions", closed.url);
    let preflight = request(Method::OPTIONS, &url, &question, Vec::new()).await;
    assert_eq!((preflight.status(), header(&preflight, "access-control-allow-origin")), (StatusCode::NO_CONTENT, ""));
    let refused = request(Method::POST, &url, &[("origin", page)], body.to_vec()).await;
    assert_eq!((refused.status(), header(&refused, "access-control-allow-origin")), (StatusCode::FORBIDDEN, ""));

    let mut open = options(&model);
    open.cors_origins = vec![page.to_owned()];
    let open = RunningGateway::start(open).await;
    let url = format!("{}/chat/completions", open.url);
    let preflight = request(Method::OPTIONS, &url, &question, Vec::new()).await;
    assert_eq!(preflight.status(), StatusCode::NO_CONTENT);
    let allowed =
        ["origin", "methods", "headers"].map(|what| header(&preflight, &format!("access-control-allow-{what}")));
    assert_eq!(allowed, [page, "GET, POST, DELETE", "authorization,content-type,x-stainless-os"]);
    let answered = request(Method::POST, &url, &[("origin", page)], body.to_vec()).await;
    assert_eq!((answered.status(), header(&answered, "access-control-allow-origin")), (StatusCode::OK, page));
    assert_eq!(header(&answered, "vary"), "origin");
    let other = request(Method::POST, &url, &[("origin", "https://evil.example.com")], body.to_vec()).await;
    assert_eq!((other.status(), header(&other, "access-control-allow-origin")), (StatusCode::FORBIDDEN, ""));

    let mistakes = |origins: &[&str]| {
        let cors_origins = origins.iter().map(|origin| (*origin).to_owned()).collect();
        let options = GatewayOptions { secret: Some(SECRET.to_owned()), cors_origins, ..GatewayOptions::default() };
        options.resolve(&Environment::default()).unwrap_err().to_string()
    };
    assert_eq!(
        mistakes(&["app.example.com"]),
        "cors_origins: `app.example.com` is not an origin; write it like https://app.example.com"
    );
    assert!(mistakes(&["*"]).starts_with("cors_origins: with `*` and no [[client]] every web page could use your"));
}

#[tokio::test(flavor = "multi_thread")]
async fn methods_that_only_ask_are_answered() {
    let model = Model::start(SCRIPT).await;
    let gateway = RunningGateway::start(options(&model)).await;
    let options = request(Method::OPTIONS, &format!("{}/messages", gateway.url), &[], Vec::new()).await;
    assert_eq!((options.status(), header(&options, "allow")), (StatusCode::NO_CONTENT, "POST"));
    for path in ["/", "/healthz", "/v1/models"] {
        let head = request(Method::HEAD, &format!("{}{path}", root(&gateway)), &[], Vec::new()).await;
        assert_eq!((head.status(), head.text().await.unwrap().as_str()), (StatusCode::OK, ""), "{path}");
    }
    let head = request(Method::HEAD, &format!("{}/messages", gateway.url), &[], Vec::new()).await;
    assert_eq!((head.status(), header(&head, "allow")), (StatusCode::METHOD_NOT_ALLOWED, "POST"));

    // Codex tries a websocket first, and goes on over HTTP when it reads this status.
    let upgrade = [("connection", "upgrade"), ("upgrade", "websocket"), ("sec-websocket-version", "13")];
    let socket = request(Method::GET, &format!("{}/responses", gateway.url), &upgrade, Vec::new()).await;
    assert_eq!(socket.status(), StatusCode::UPGRADE_REQUIRED);
    let expected = "responses are not served over websockets here; send POST /v1/responses, with \"stream\": true";
    assert_eq!(error_of(socket).await, expected);
}

/// A provider that lists its models and has text completions.
async fn old_provider() -> String {
    let models = || async {
        axum::Json(json!({"object": "list", "data": [{"id": "org/m-1", "object": "model", "owned_by": "org"}]}))
    };
    let complete = |body: String| async move { format!("{{\"object\":\"text_completion\",\"asked\":{body}}}") };
    let router = Router::new().route("/v1/models", get(models)).route("/v1/completions", post(complete));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/v1", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    url
}

#[tokio::test(flavor = "multi_thread")]
async fn one_model_can_be_asked_for_and_old_completions_pass_through() {
    let model = Model::start(SCRIPT).await;
    let mut options = options(&model);
    options.upstreams[0].base_url = Some(old_provider().await);
    options.upstreams[0].models = vec!["org/*".to_owned()];
    options.upstreams[0].name = "org".to_owned();
    let gateway = RunningGateway::start(options).await;
    let get = async |id: &str| request(Method::GET, &format!("{}/models/{id}", gateway.url), &[], Vec::new()).await;
    let listed = json_of(get("org/m-1").await).await;
    assert_eq!(listed, json!({"id": "org/m-1", "object": "model", "owned_by": "org"}));
    let unlisted = json_of(get("org%2Fm-2").await).await;
    assert_eq!(unlisted, json!({"id": "org/m-2", "object": "model", "created": 0, "owned_by": "org"}));
    let missing = get("other").await;
    assert_eq!(missing.status(), StatusCode::NOT_FOUND);
    assert!(error_of(missing).await.starts_with("no upstream has the model `other`"));

    let url = format!("{}/completions", gateway.url);
    let old = request(Method::POST, &url, &[], br#"{"model":"org/m-1", "prompt":"Once"}"#.to_vec()).await;
    let expected = r#"{"object":"text_completion","asked":{"model":"org/m-1", "prompt":"Once"}}"#;
    assert_eq!(old.text().await.unwrap(), expected);
    let scripted = request(Method::POST, &url, &[], br#"{"model":"demo","prompt":"Once"}"#.to_vec()).await;
    assert_eq!(scripted.status(), StatusCode::NOT_FOUND);
    let expected = "the upstream of `demo` has no text completions; send POST /v1/chat/completions";
    assert_eq!(error_of(scripted).await, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn stored_responses_can_be_read_and_deleted() {
    let model = Model::start(SCRIPT).await;
    let stateless = RunningGateway::start(options(&model)).await;
    let mut keeping = options(&model);
    keeping.store.kind = Some("memory".to_owned());
    let gateway = RunningGateway::start(keeping).await;
    let mut talk = ClientConversation::new(Wire::Responses, &[("web_search", &["query"])]);
    talk.user("What is it?");
    let (path, mut body) = talk.request();
    body["store"] = json!(true);
    let url = format!("{}{path}", gateway.url);
    let made = post_to(&url, &body).await.json();
    let id = made["id"].as_str().unwrap();

    let read = request(Method::GET, &format!("{url}/{id}"), &[], Vec::new()).await;
    assert_eq!(json_of(read).await, made, "as it was sent");
    let cancelled = request(Method::POST, &format!("{url}/{id}/cancel"), &[], Vec::new()).await;
    assert_eq!(cancelled.status(), StatusCode::BAD_REQUEST);
    assert!(error_of(cancelled).await.ends_with("only a response in the background can be cancelled"));
    let deleted = request(Method::DELETE, &format!("{url}/{id}"), &[], Vec::new()).await;
    assert_eq!(json_of(deleted).await, json!({"id": id, "object": "response", "deleted": true}));
    for method in [Method::GET, Method::DELETE] {
        let gone = request(method, &format!("{url}/{id}"), &[], Vec::new()).await;
        assert_eq!(gone.status(), StatusCode::NOT_FOUND);
        assert!(error_of(gone).await.starts_with(&format!("no response `{id}` is kept here")));
    }
    body["previous_response_id"] = json!(id);
    let refused = post_to(&url, &body).await;
    assert_eq!(refused.status, 400, "nothing of it is left");
    assert!(refused.text.contains("no response with this id is stored here"), "{}", refused.text);

    let nowhere = request(Method::GET, &format!("{}{path}/{id}", stateless.url), &[], Vec::new()).await;
    assert_eq!(nowhere.status(), StatusCode::NOT_FOUND);
    assert!(error_of(nowhere).await.contains("[store]"));
}
