//! The gateway on a port of its own, with a model that is played from a script and overheard.

use std::net::SocketAddr;
use std::sync::mpsc;

use anyhow::{Context, bail};
use dacapo_gateway::{Environment, Gateway, GatewayOptions};
use dacapo_scripted::{ScriptedReply, ScriptedModel};
use serde_json::Value;
use tokio::net::TcpListener;

use super::tokens::count;

pub(crate) const MODEL: &str = "scripted";

pub(crate) struct House {
    pub address: SocketAddr,
    client: reqwest::Client,
    overheard: mpsc::Receiver<Exchange>,
}

/// What the model was sent and what it said.
pub(crate) struct Exchange {
    /// The tool results that are new to the model.
    pub told: Vec<String>,
    pub message: Value,
    pub usage: Value,
}

impl House {
    /// Serves for as long as the runtime lives.
    pub(crate) async fn open() -> anyhow::Result<House> {
        let (sender, overheard) = mpsc::channel();
        let script = ScriptedModel::parse(include_str!("model.toml")).context("demo/model.toml")?;
        let script = script.with_token_counter(count).with_observer(move |_, request, reply| {
            // Nobody listens any more when the demo is over.
            drop(sender.send(Exchange::read(request, reply)));
        });
        let config = GatewayOptions::default().resolve(&Environment::default())?.with_script(script);
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.context("cannot listen on 127.0.0.1")?;
        let address = listener.local_addr()?;
        tokio::spawn(dacapo_gateway::serve(Gateway::new(config)?, listener, std::future::pending()));
        // Neither proxies nor certificates of the surroundings have a part in it.
        let client = reqwest::Client::builder().no_proxy().tls_certs_only([]).build()?;
        Ok(House { address, client, overheard })
    }

    /// A request as any client of Chat Completions makes it.
    pub(crate) async fn complete(&self, messages: &[Value], tools: &[Value]) -> anyhow::Result<Value> {
        let body = serde_json::json!({"model": MODEL, "messages": messages, "tools": tools}).to_string();
        let url = format!("http://{}/v1/chat/completions", self.address);
        let sent = self.client.post(url).header("content-type", "application/json").body(body).send().await?;
        let status = sent.status();
        let text = sent.text().await?;
        if !status.is_success() {
            bail!("the gateway answered {status}: {text}");
        }
        serde_json::from_str(&text).context("the gateway's answer is not JSON")
    }

    /// What the model was asked since the last time.
    pub(crate) fn overheard(&self) -> impl Iterator<Item = Exchange> {
        self.overheard.try_iter()
    }
}

impl Exchange {
    fn read(request: &Value, reply: &ScriptedReply) -> Exchange {
        let bytes: Vec<u8> = reply.chunks.iter().flat_map(|piece| piece.bytes.iter().copied()).collect();
        let mut body: Value = serde_json::from_slice(&bytes).unwrap_or_default();
        let messages = request["messages"].as_array().map_or(&[][..], Vec::as_slice);
        let first = messages.iter().rposition(|message| message["role"] != "tool").map_or(0, |at| at + 1);
        let told = messages[first..].iter().filter_map(|message| message["content"].as_str().map(str::to_owned));
        Exchange {
            told: told.collect(),
            message: body.pointer_mut("/choices/0/message").map(Value::take).unwrap_or_default(),
            usage: body["usage"].take(),
        }
    }
}
