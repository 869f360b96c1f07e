//! Owners of tools that do what a test says.

#![allow(dead_code, reason = "each test uses its part")]
#![allow(clippy::allow_attributes, reason = "whether the lint fires depends on the test")]

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use dacapo_mcp::{Ask, Attachment, Owners, Refusal, Servers, Told};
use dacapo_replay::{Answer, JsonText, Toolbox, read_tools};
use futures_util::future::BoxFuture;
use serde_json::{Map, Value, json};
use tokio_util::sync::CancellationToken;

/// A server `desk` with these tools:
/// - `echo({value, after_ms?})` answers with the value, after some time
/// - `fail({message})` rejects
/// - `hang()` never answers; counted when it is cancelled
/// - `draw({name})` answers with a handle
/// - `erase({what})` is marked as destructive
pub(crate) struct Desk {
    pub(crate) toolbox: Arc<Toolbox>,
    pub(crate) asked: Mutex<Vec<Ask>>,
    pub(crate) running: AtomicUsize,
    pub(crate) running_most: AtomicUsize,
    pub(crate) cancelled: AtomicUsize,
    /// It says nothing of its tools now.
    pub(crate) silent: AtomicBool,
    /// It speaks again when its list is asked for.
    pub(crate) speaks_when_asked: bool,
}

impl Desk {
    pub(crate) fn new() -> Desk {
        let tool = |name: &str| json!({ "name": name, "server": "desk", "input_schema": { "type": "object" } });
        let tools = json!([tool("echo"), tool("fail"), tool("hang"), tool("draw"), tool("erase")]);
        let tools = read_tools(&tools).expect("it is a tool list");
        Desk {
            toolbox: Arc::new(Toolbox::new(tools).expect("there are few tools")),
            asked: Mutex::default(),
            running: AtomicUsize::new(0),
            running_most: AtomicUsize::new(0),
            cancelled: AtomicUsize::new(0),
            silent: AtomicBool::new(false),
            speaks_when_asked: false,
        }
    }

    /// How often each tool was asked.
    pub(crate) fn asked(&self) -> BTreeMap<String, usize> {
        let mut counts = BTreeMap::new();
        for ask in self.asked.lock().expect("no test panics in here").iter() {
            *counts.entry(ask.tool.clone()).or_default() += 1;
        }
        counts
    }

    async fn answer(&self, ask: &Ask, cancel: &CancellationToken) -> Result<Told, Refusal> {
        let ok = |value: &Value| Ok(Told { answer: Answer::Ok(JsonText::from(value)), attachments: Vec::new() });
        match ask.tool.as_str() {
            "echo" => {
                let after = ask.args.get("after_ms").and_then(Value::as_u64).unwrap_or_default();
                tokio::select! {
                    biased;
                    () = async {}, if after == 0 => {}
                    () = tokio::time::sleep(Duration::from_millis(after)) => {}
                    () = cancel.cancelled() => {
                        self.cancelled.fetch_add(1, Ordering::SeqCst);
                        return Err(Refusal("cancelled".to_owned()));
                    }
                }
                ok(ask.args.get("value").unwrap_or(&Value::Null))
            }
            "fail" => Err(Refusal(ask.args["message"].as_str().unwrap_or_default().to_owned())),
            "hang" => {
                cancel.cancelled().await;
                self.cancelled.fetch_add(1, Ordering::SeqCst);
                Err(Refusal("cancelled".to_owned()))
            }
            "draw" => {
                let name = ask.args["name"].as_str().unwrap_or_default();
                let kind = if name == "odd" { "hologram" } else { "image" };
                let block = json!({ "type": kind, "data": "aGk=", "mimeType": "image/png" });
                let handle = format!("picture-{name}");
                let answer = json!({ "type": "image", "handle": handle });
                let attachments = vec![Attachment { handle, block }];
                Ok(Told { answer: Answer::Ok(JsonText::from(&answer)), attachments })
            }
            _ => ok(&json!("erased")),
        }
    }
}

impl Owners for Desk {
    fn toolbox(&self) -> Arc<Toolbox> {
        Arc::clone(&self.toolbox)
    }

    fn annotations(&self, _server: &str, tool: &str) -> Map<String, Value> {
        match tool {
            "erase" if !self.silent.load(Ordering::SeqCst) => {
                Map::from_iter([("destructiveHint".to_owned(), true.into())])
            }
            _ => Map::new(),
        }
    }

    fn confirmed<'a>(&'a self, _: &'a str, _: &'a CancellationToken) -> Pin<Box<dyn Future<Output = ()> + Send + 'a>> {
        if self.speaks_when_asked {
            self.silent.store(false, Ordering::SeqCst);
        }
        Box::pin(std::future::ready(()))
    }

    fn call<'a>(
        &'a self,
        ask: &'a Ask,
        cancel: &'a CancellationToken,
    ) -> Pin<Box<dyn Future<Output = Result<Told, Refusal>> + Send + 'a>> {
        Box::pin(async move {
            self.asked.lock().expect("no test panics in here").push(ask.clone());
            let running = self.running.fetch_add(1, Ordering::SeqCst) + 1;
            self.running_most.fetch_max(running, Ordering::SeqCst);
            let told = self.answer(ask, cancel).await;
            self.running.fetch_sub(1, Ordering::SeqCst);
            told
        })
    }
}

/// The desk as the servers behind ours, beside one that cannot be started.
pub(crate) struct Room(pub(crate) Arc<Desk>);

impl Owners for Room {
    fn toolbox(&self) -> Arc<Toolbox> {
        self.0.toolbox()
    }

    fn annotations(&self, server: &str, tool: &str) -> Map<String, Value> {
        self.0.annotations(server, tool)
    }

    fn call<'a>(
        &'a self,
        ask: &'a Ask,
        cancel: &'a CancellationToken,
    ) -> Pin<Box<dyn Future<Output = Result<Told, Refusal>> + Send + 'a>> {
        self.0.call(ask, cancel)
    }
}

impl Servers for Room {
    fn names(&self) -> Vec<String> {
        vec!["desk".to_owned()]
    }

    fn ready(&self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::ready(()))
    }

    fn unavailable(&self) -> Vec<String> {
        vec!["attic (no such file)".to_owned()]
    }
}
