//! Memory of one process with 2,000 conversations that stream at the same moment, and afterwards.
//!
//! Each conversation has a program with one call behind it when its answer begins to stream, and all answers stream for
//! some seconds, so that the middle of them is the same moment.

use std::convert::Infallible;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, ensure};
use axum::Router;
use axum::body::{Body, Bytes};
use axum::response::Response;
use axum::routing::post;
use futures_util::stream;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::soak::{Replica, ReplicaConfig};

const CONVERSATIONS: usize = 2_000;
const WORDS: usize = 60;
const WORD_TIME: Duration = Duration::from_millis(500);
const PEAK_MAX_MIB: u64 = 1_024;
const REST_MAX_MIB: u64 = 200;
/// For memory to be given back.
const REST: Duration = Duration::from_secs(20);
/// Conversations that begin at the same moment.
const STARTS_AT_ONCE: usize = 32;

pub(crate) fn run() -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(measure())
}

async fn measure() -> anyhow::Result<ExitCode> {
    let model = serve_model().await?;
    let config = ReplicaConfig {
        model: &model,
        redis: None,
        memory_bytes_max: None,
        turns_max: 2 * CONVERSATIONS,
        has_clients: false,
    };
    let replica = Replica::start(&config).await?;
    let memory = || replica.memory_bytes().context("the gateway has ended").map(|bytes| bytes >> 20);
    let before = memory()?;
    let http = reqwest::Client::builder().tls_certs_only([]).build()?;
    let starts = std::sync::Arc::new(tokio::sync::Semaphore::new(STARTS_AT_ONCE));
    let mut streaming = tokio::task::JoinSet::new();
    for _ in 0..CONVERSATIONS {
        let (http, url, starts) = (http.clone(), replica.url(), std::sync::Arc::clone(&starts));
        streaming.spawn(async move { converse(&http, &url, &starts).await });
    }
    let (mut peak, mut ended) = (0, 0);
    while !streaming.is_empty() {
        while let Ok(Some(done)) = tokio::time::timeout(Duration::from_millis(200), streaming.join_next()).await {
            let words = done??;
            ensure!(words == WORDS, "a stream has {words} of {WORDS} words");
            ended += 1;
        }
        peak = peak.max(memory()?);
    }
    ensure!(ended == CONVERSATIONS, "{ended} conversations ended");
    tokio::time::sleep(REST).await;
    let rest = memory()?;
    println!("{CONVERSATIONS} conversations that stream at the same moment, MiB of the process");
    println!("before {before}, at most {peak} (target ≤ {PEAK_MAX_MIB}), afterwards {rest} (target ≤ {REST_MAX_MIB})");
    Ok(if peak <= PEAK_MAX_MIB && rest <= REST_MAX_MIB { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Plays a conversation, and counts the words of its last answer.
async fn converse(http: &reqwest::Client, url: &str, starts: &tokio::sync::Semaphore) -> anyhow::Result<usize> {
    let tool = json!({"type": "function", "function": {"name": "get_page", "parameters": {"type": "object"}}});
    let mut messages = vec![json!({"role": "user", "content": "What does it say?"})];
    let url = format!("{url}/chat/completions");
    let body =
        |messages: &[Value]| json!({"model": "m", "stream": true, "messages": messages, "tools": [tool]}).to_string();
    let permit = starts.acquire().await?;
    let first = http.post(&url).body(body(&messages)).send().await?.text().await?;
    let chunks = first.lines().filter_map(|line| serde_json::from_str::<Value>(line.strip_prefix("data: ")?).ok());
    let calls: Vec<Value> =
        chunks.filter_map(|chunk| chunk.pointer("/choices/0/delta/tool_calls/0").cloned()).collect();
    let call = calls.first().with_context(|| format!("no call in {first}"))?;
    let call = json!({"id": call["id"], "type": "function", "function": call["function"]});
    messages.push(json!({"role": "assistant", "content": null, "tool_calls": [call]}));
    messages.push(json!({"role": "tool", "tool_call_id": call["id"], "content": "x".repeat(2_000)}));
    let mut response = http.post(&url).body(body(&messages)).send().await?.error_for_status()?;
    let mut text = String::new();
    let mut permit = Some(permit);
    while let Some(piece) = response.chunk().await? {
        drop(permit.take());
        text.push_str(std::str::from_utf8(&piece)?);
    }
    Ok(text.matches("word").count())
}

/// A model that writes a program, and then says some words, slowly.
async fn serve_model() -> anyhow::Result<String> {
    let reply = async |body: Bytes| {
        let has_result = String::from_utf8_lossy(&body).contains("\\\"status\\\"");
        let chunk = |delta: Value, reason: Value| {
            let choice = json!({"index": 0, "delta": delta, "finish_reason": reason});
            let chunk = json!({"id": "c", "object": "chat.completion.chunk", "created": 1_767_225_600, "model": "m", "choices": [choice]});
            format!("data: {chunk}\n\n")
        };
        let end = |reason: &str| format!("{}data: [DONE]\n\n", chunk(json!({}), json!(reason)));
        let pieces: Vec<String> = if has_result {
            let word = chunk(json!({"content": "word "}), Value::Null);
            std::iter::repeat_n(word, WORDS).chain([end("stop")]).collect()
        } else {
            let arguments = json!({"code": "return (await get_page({})).length"}).to_string();
            let function = json!({"name": "execute", "arguments": arguments});
            let call = json!({"index": 0, "id": "call_1", "type": "function", "function": function});
            vec![chunk(json!({"role": "assistant", "tool_calls": [call]}), Value::Null), end("tool_calls")]
        };
        let wait = if has_result { WORD_TIME } else { Duration::ZERO };
        let stream = stream::unfold(pieces.into_iter(), move |mut pieces| async move {
            let piece = pieces.next()?;
            tokio::time::sleep(wait).await;
            Some((Ok::<_, Infallible>(Bytes::from(piece)), pieces))
        });
        let mut response = Response::new(Body::from_stream(stream));
        response.headers_mut().insert("content-type", axum::http::HeaderValue::from_static("text/event-stream"));
        response
    };
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}/v1", listener.local_addr()?);
    let router = Router::new().route("/v1/chat/completions", post(reply));
    tokio::spawn(async move { axum::serve(listener, router).await });
    Ok(url)
}
