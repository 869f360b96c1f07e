//! A gateway on a loopback port, with a scripted model whose requests and replies are recorded.

use std::net::SocketAddr;
use std::sync::mpsc;

use anyhow::{Context, bail};
use dacapo_gateway::{Environment, Gateway, GatewayOptions};
use dacapo_scripted::{ScriptedModel, ScriptedReply};
use serde_json::Value;
use tokio::net::TcpListener;

use super::tokens::count;

pub(crate) const MODEL: &str = "scripted";
/// The same model, which may also call tools itself.
pub(crate) const BOTH_CALLERS_MODEL: &str = "scripted-both";

pub(crate) struct DemoServer {
    pub address: SocketAddr,
    /// Of the inspector page, if conversations are recorded for it.
    pub inspector: Option<String>,
    client: reqwest::Client,
    exchanges: mpsc::Receiver<ModelExchange>,
}

/// Whether conversations are recorded for the inspector page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Recording {
    On,
    Off,
}

/// A request to the model, and its reply.
pub(crate) struct ModelExchange {
    /// The tool results that are new to the model.
    pub tool_results: Vec<String>,
    pub message: Value,
    pub usage: Value,
}

/// Less than by default, so that fifty tools exceed it.
const DECLARATIONS_TOKENS_MAX: usize = 4_000;

impl DemoServer {
    /// Starts the gateway. It serves until the runtime ends.
    pub(crate) async fn start(recording: Recording) -> anyhow::Result<DemoServer> {
        let (sender, exchanges) = mpsc::channel();
        let script = ScriptedModel::parse(include_str!("model.toml")).context("demo/model.toml")?;
        let script = script.with_token_counter(count).with_observer(move |_, request, reply| {
            // The receiver is dropped when the demo ends.
            drop(sender.send(ModelExchange::read(request, reply)));
        });
        let mut options = GatewayOptions::default();
        // One of the scenarios shows what happens when the declarations do not fit.
        options.code_mode.declarations_tokens_max = Some(DECLARATIONS_TOKENS_MAX);
        options.code_mode.model_callers = [(BOTH_CALLERS_MODEL.to_owned(), "both".to_owned())].into();
        options.inspector.enabled = Some(recording == Recording::On);
        let config = options.resolve(&Environment::default())?.with_script(script);
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.context("cannot listen on 127.0.0.1")?;
        let address = listener.local_addr()?;
        let gateway = Gateway::new(config)?;
        let inspector = gateway.inspector_token().map(|token| format!("http://{address}/#token={token}"));
        tokio::spawn(dacapo_gateway::serve(gateway, listener, std::future::pending()));
        // The demo must not depend on proxies or certificates of the machine.
        let client = reqwest::Client::builder().no_proxy().tls_certs_only([]).build()?;
        Ok(DemoServer { address, inspector, client, exchanges })
    }

    /// Sends a Chat Completions request.
    pub(crate) async fn complete(&self, model: &str, messages: &[Value], tools: &[Value]) -> anyhow::Result<Value> {
        let body = serde_json::json!({"model": model, "messages": messages, "tools": tools}).to_string();
        let url = format!("http://{}/v1/chat/completions", self.address);
        let sent = self.client.post(url).header("content-type", "application/json").body(body).send().await?;
        let status = sent.status();
        let text = sent.text().await?;
        if !status.is_success() {
            bail!("the gateway answered {status}: {text}");
        }
        serde_json::from_str(&text).context("the gateway's answer is not JSON")
    }

    /// The exchanges with the model since the last call.
    pub(crate) fn exchanges(&self) -> impl Iterator<Item = ModelExchange> {
        self.exchanges.try_iter()
    }
}

impl ModelExchange {
    fn read(request: &Value, reply: &ScriptedReply) -> ModelExchange {
        let bytes: Vec<u8> = reply.chunks.iter().flat_map(|chunk| chunk.bytes.iter().copied()).collect();
        let mut body: Value = serde_json::from_slice(&bytes).unwrap_or_default();
        let messages = request["messages"].as_array().map_or(&[][..], Vec::as_slice);
        let first = messages.iter().rposition(|message| message["role"] != "tool").map_or(0, |at| at + 1);
        let tool_results =
            messages[first..].iter().filter_map(|message| message["content"].as_str().map(str::to_owned));
        ModelExchange {
            tool_results: tool_results.collect(),
            message: body.pointer_mut("/choices/0/message").map(Value::take).unwrap_or_default(),
            usage: body["usage"].take(),
        }
    }
}
