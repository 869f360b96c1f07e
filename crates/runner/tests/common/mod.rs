//! A tool host that does what a test asks of it.

#![allow(dead_code, reason = "each test uses its part")]
#![allow(clippy::allow_attributes, reason = "whether the lint fires depends on the test")]

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use dacapo_replay::{Answer, JsonText, Toolbox, read_tools};
use dacapo_runner::{Attachment, BoxFuture, CallError, ToolCall, ToolDigest, ToolHost, ToolOutput};
use serde_json::{Map, Value, json};
use tokio_util::sync::CancellationToken;

/// A server `desk` with these tools:
/// - `echo({value, after_ms?})` answers with the value, after some time
/// - `fail({message})` rejects
/// - `hang()` never answers; counted when it is cancelled
/// - `draw({name})` answers with the handle of a picture
/// - `erase({what})` is marked as destructive
pub(crate) struct Desk {
    pub(crate) toolbox: Arc<Toolbox>,
    pub(crate) calls: Mutex<Vec<ToolCall>>,
    pub(crate) running: AtomicUsize,
    pub(crate) running_most: AtomicUsize,
    pub(crate) cancelled: AtomicUsize,
    /// Its tools have no annotations now.
    pub(crate) without_annotations: AtomicBool,
    /// They have annotations again when they are confirmed.
    pub(crate) annotates_when_confirmed: bool,
    /// Its tools are described differently when this changes.
    pub(crate) revision: AtomicUsize,
}

impl Desk {
    pub(crate) fn new() -> Desk {
        let tool = |name: &str| json!({ "name": name, "server": "desk", "input_schema": { "type": "object" } });
        let tools = json!([tool("echo"), tool("fail"), tool("hang"), tool("draw"), tool("erase")]);
        let tools = read_tools(&tools).expect("it is a tool list");
        Desk {
            toolbox: Arc::new(Toolbox::new(tools).expect("there are few tools")),
            calls: Mutex::default(),
            running: AtomicUsize::new(0),
            running_most: AtomicUsize::new(0),
            cancelled: AtomicUsize::new(0),
            without_annotations: AtomicBool::new(false),
            annotates_when_confirmed: false,
            revision: AtomicUsize::new(0),
        }
    }

    /// How often each tool was called.
    pub(crate) fn call_counts(&self) -> BTreeMap<String, usize> {
        let mut counts = BTreeMap::new();
        for call in self.calls.lock().expect("no test panics in here").iter() {
            *counts.entry(call.tool.clone()).or_default() += 1;
        }
        counts
    }

    async fn answer(&self, call: &ToolCall, cancel: &CancellationToken) -> Result<ToolOutput, CallError> {
        let ok = |value: &Value| Ok(ToolOutput { answer: Answer::Ok(JsonText::from(value)), attachments: Vec::new() });
        match call.tool.as_str() {
            "echo" => {
                let after = call.args.get("after_ms").and_then(Value::as_u64).unwrap_or_default();
                tokio::select! {
                    biased;
                    () = async {}, if after == 0 => {}
                    () = tokio::time::sleep(Duration::from_millis(after)) => {}
                    () = cancel.cancelled() => {
                        self.cancelled.fetch_add(1, Ordering::SeqCst);
                        return Err(CallError("cancelled".to_owned()));
                    }
                }
                ok(call.args.get("value").unwrap_or(&Value::Null))
            }
            "fail" => Err(CallError(call.args["message"].as_str().unwrap_or_default().to_owned())),
            "hang" => {
                cancel.cancelled().await;
                self.cancelled.fetch_add(1, Ordering::SeqCst);
                Err(CallError("cancelled".to_owned()))
            }
            "draw" => {
                let name = call.args["name"].as_str().unwrap_or_default();
                let kind = if name == "odd" { "hologram" } else { "image" };
                let block = json!({ "type": kind, "data": "aGk=", "mimeType": "image/png" });
                let handle = Attachment::handle(name, 0);
                let answer = json!({ "type": "image", "handle": handle });
                let attachments = vec![Attachment { handle, block }];
                Ok(ToolOutput { answer: Answer::Ok(JsonText::from(&answer)), attachments })
            }
            _ => ok(&json!("erased")),
        }
    }
}

impl ToolHost for Desk {
    fn toolbox(&self) -> Arc<Toolbox> {
        Arc::clone(&self.toolbox)
    }

    fn annotations(&self, _server: &str, tool: &str) -> Map<String, Value> {
        match tool {
            "erase" if !self.without_annotations.load(Ordering::SeqCst) => {
                Map::from_iter([("destructiveHint".to_owned(), true.into())])
            }
            _ => Map::new(),
        }
    }

    fn definition(&self, _server: &str, tool: &str) -> Option<ToolDigest> {
        Some(ToolDigest::of(&json!([tool, self.revision.load(Ordering::SeqCst)])))
    }

    fn tools_confirmed<'a>(&'a self, _: &'a str, _: &'a CancellationToken) -> BoxFuture<'a, ()> {
        if self.annotates_when_confirmed {
            self.without_annotations.store(false, Ordering::SeqCst);
        }
        Box::pin(std::future::ready(()))
    }

    fn call<'a>(
        &'a self,
        call: &'a ToolCall,
        cancel: &'a CancellationToken,
    ) -> BoxFuture<'a, Result<ToolOutput, CallError>> {
        Box::pin(async move {
            self.calls.lock().expect("no test panics in here").push(call.clone());
            let running = self.running.fetch_add(1, Ordering::SeqCst) + 1;
            self.running_most.fetch_max(running, Ordering::SeqCst);
            let output = self.answer(call, cancel).await;
            self.running.fetch_sub(1, Ordering::SeqCst);
            output
        })
    }
}
