//! Embeds the gateway, with a scripted model behind it: `cargo run -p dacapo-gateway --example embed_gateway`.
//!
//! The model writes a program. The client sees an ordinary tool call, answers it, and gets the final answer.

use std::error::Error;
use std::io::{self, Write};

use dacapo_gateway::{Environment, Gateway, GatewayOptions, serve};
use dacapo_scripted::ScriptedModel;
use serde_json::{Value, json};
use tokio::net::TcpListener;

const SCRIPT: &str = r#"
    [[turn]]
    when = { after = "user" }
    program = "return { cents: 3 * await price({ item: 'pen' }) }"

    [[turn]]
    when = { after = "tool" }
    text = "Three pens cost {{result/data/cents}} cents."
"#;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    run(&mut io::stdout()).await
}

async fn run(out: &mut impl Write) -> Result<(), Box<dyn Error>> {
    let config = GatewayOptions::default().resolve(&Environment::default())?.with_script(ScriptedModel::parse(SCRIPT)?);
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}/v1/chat/completions", listener.local_addr()?);
    tokio::spawn(serve(Gateway::new(config)?, listener, std::future::pending()));

    // From here on it is any client of Chat Completions.
    let client = reqwest::Client::builder().no_proxy().tls_certs_only([]).build()?;
    let tools = json!([{"type": "function", "function": {"name": "price", "parameters": {"type": "object"}}}]);
    let mut messages = vec![json!({"role": "user", "content": "What do three pens cost?"})];
    loop {
        let body = json!({"model": "scripted", "messages": messages, "tools": tools}).to_string();
        let request = client.post(&url).header("content-type", "application/json").body(body);
        let text = request.send().await?.error_for_status()?.text().await?;
        let message = serde_json::from_str::<Value>(&text)?["choices"][0]["message"].take();
        let Some(calls) = message["tool_calls"].as_array() else {
            return Ok(writeln!(out, "{}", message["content"].as_str().unwrap_or_default())?);
        };
        let mut results = Vec::new();
        for call in calls {
            writeln!(out, "{} {}", call["function"]["name"], call["function"]["arguments"])?;
            results.push(json!({"role": "tool", "tool_call_id": call["id"], "content": "200"}));
        }
        messages.push(message);
        messages.append(&mut results);
    }
}

#[tokio::test]
async fn the_client_answers_one_call_and_gets_the_final_answer() {
    let mut out = Vec::new();
    run(&mut out).await.unwrap();
    let lines = "\"price\" \"{\\\"item\\\":\\\"pen\\\"}\"\nThree pens cost 600 cents.\n";
    assert_eq!(String::from_utf8(out).unwrap(), lines);
}
