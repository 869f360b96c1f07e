//! What a client hears of a turn: at once, or piece by piece.

use std::sync::{Arc, OnceLock};

use axum::http::{HeaderMap, header};
use bytes::Bytes;
use dacapo_wire::chat::{Head, Reply};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::error::TurnError;

/// How a call is streamed. Some clients read only whole calls, and the loop in `OpenAI`'s own guide only calls whose
/// arguments come after their opening.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CallDeltas {
    Whole,
    /// As `OpenAI` does it, with the arguments in one piece.
    Opened,
}

impl CallDeltas {
    pub(crate) fn for_client(headers: &HeaderMap) -> CallDeltas {
        let agent = headers.get(header::USER_AGENT).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let is_openai = agent.contains("OpenAI/");
        if is_openai { CallDeltas::Opened } else { CallDeltas::Whole }
    }

    fn of(self, index: usize, mut call: Value) -> Vec<Value> {
        let Some(fields) = call.as_object_mut() else { return Vec::new() };
        fields.shift_insert(0, "index".to_owned(), json!(index));
        let arguments = fields.get_mut("function").and_then(|function| function.get_mut("arguments"));
        match (self, arguments) {
            (CallDeltas::Opened, Some(arguments)) => {
                let arguments = std::mem::replace(arguments, json!(""));
                vec![call, json!({"index": index, "function": {"arguments": arguments}})]
            }
            _ => vec![call],
        }
    }
}

/// A response on its way to the client.
#[derive(Debug)]
pub(crate) struct Stream {
    pub pieces: mpsc::Sender<Bytes>,
    /// Of the first upstream that was asked; set before the first piece.
    pub headers: Arc<OnceLock<HeaderMap>>,
}

/// Where a turn's answer goes.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each remembers one thing that was said")]
pub(crate) struct Outlet {
    stream: Option<Stream>,
    deltas: CallDeltas,
    explicit: bool,
    head: Option<Head>,
    reply: Reply,
    has_role: bool,
    /// Some of the present answer of the model has gone out.
    has_passed: bool,
    /// Something was sent: an error has to go the same way.
    has_begun: bool,
}

impl Outlet {
    pub(crate) fn new(stream: Option<Stream>, deltas: CallDeltas, explicit: bool) -> Outlet {
        Outlet {
            stream,
            deltas,
            explicit,
            head: None,
            reply: Reply::default(),
            has_role: false,
            has_passed: false,
            has_begun: false,
        }
    }

    pub(crate) fn has_begun(&self) -> bool {
        self.has_begun
    }

    pub(crate) fn is_stream(&self) -> bool {
        self.stream.is_some()
    }

    /// The first head of a stream stays; a whole answer has the last one.
    pub(crate) fn head(&mut self, head: Head) {
        if self.stream.is_none() {
            self.head = Some(head);
        } else {
            self.head.get_or_insert(head);
        }
    }

    /// An upstream begins to answer.
    pub(crate) fn begins(&mut self, headers: &HeaderMap) {
        self.has_passed = false;
        if let Some(stream) = &self.stream {
            stream.headers.get_or_init(|| headers.clone());
        }
    }

    /// A chunk of the model's, as it came but for what makes it part of this turn.
    pub(crate) async fn pass(&mut self, chunk: Value) -> Result<(), TurnError> {
        self.has_passed = true;
        let mut chunk = match &self.head {
            Some(head) => head.adopt(chunk),
            None => chunk,
        };
        if let Some(delta) = chunk.pointer_mut("/choices/0/delta").and_then(Value::as_object_mut)
            && delta.contains_key("role")
            && std::mem::replace(&mut self.has_role, true)
        {
            delta.shift_remove("role");
            if delta.values().all(|value| value.is_null() || value.as_str() == Some("")) {
                return Ok(());
            }
        }
        self.event(&chunk).await
    }

    /// A message that is new to a client which knows about programs.
    pub(crate) async fn message(&mut self, message: Value) -> Result<(), TurnError> {
        if self.explicit && self.is_stream() {
            self.delta(json!({"message": message}), None).await?;
        }
        self.reply.messages.push(message);
        Ok(())
    }

    /// The last message, which hands out calls.
    pub(crate) async fn calls(&mut self, message: Value) -> Result<(), TurnError> {
        if self.is_stream() {
            self.role().await?;
            let calls = message.get("tool_calls").and_then(Value::as_array).cloned().unwrap_or_default();
            for (index, call) in calls.into_iter().enumerate() {
                for piece in self.deltas.of(index, call) {
                    self.delta(json!({"tool_calls": [piece]}), None).await?;
                }
            }
        }
        self.message(message).await?;
        "tool_calls".clone_into(&mut self.reply.finish_reason);
        Ok(())
    }

    async fn role(&mut self) -> Result<(), TurnError> {
        if std::mem::replace(&mut self.has_role, true) {
            return Ok(());
        }
        self.delta(json!({"role": "assistant", "content": null}), None).await
    }

    /// The last message, of which the client has heard the text already if this is a stream.
    pub(crate) async fn answer(
        &mut self,
        mut choice: serde_json::Map<String, Value>,
        message: Value,
        finish_reason: &str,
    ) -> Result<(), TurnError> {
        if self.is_stream() && !self.has_passed {
            // It came whole, although a stream was asked for.
            let mut delta = message.clone();
            if let Some(fields) = delta.as_object_mut() {
                fields.shift_remove("tool_calls");
            }
            self.has_role = true;
            self.delta(delta, None).await?;
        }
        let mut message = message;
        if let Some(fields) = message.as_object_mut() {
            fields.shift_remove("tool_calls");
        }
        self.message(message).await?;
        choice.shift_remove("finish_reason");
        self.reply.choice = choice;
        finish_reason.clone_into(&mut self.reply.finish_reason);
        Ok(())
    }

    /// Ends the turn. The body, if it was not streamed.
    pub(crate) async fn finish(mut self, usage: Value, include_usage: bool) -> Result<Option<Value>, TurnError> {
        let reply = std::mem::take(&mut self.reply);
        if !self.is_stream() {
            let head = self.head.as_ref().ok_or_else(|| TurnError::upstream("nobody answered"))?;
            return Ok(Some(reply.body(head, usage, self.explicit)));
        }
        self.delta(json!({}), Some(&reply.finish_reason)).await?;
        if include_usage && let Some(head) = &self.head {
            let chunk = head.usage_chunk(usage);
            self.event(&chunk).await?;
        }
        self.send(Bytes::from_static(b"data: [DONE]\n\n")).await?;
        Ok(None)
    }

    /// Tells of an error where there is no status any more.
    pub(crate) async fn fail(&mut self, error: &TurnError) {
        // If nobody listens, nobody has to be told.
        self.event(&error.event()).await.unwrap_or_default();
    }

    async fn delta(&mut self, delta: Value, finish_reason: Option<&str>) -> Result<(), TurnError> {
        let chunk = self.head.as_ref().map(|head| head.chunk(&delta, finish_reason));
        match chunk {
            Some(chunk) => self.event(&chunk).await,
            None => Ok(()),
        }
    }

    async fn event(&mut self, data: &Value) -> Result<(), TurnError> {
        self.send(Bytes::from(format!("data: {data}\n\n"))).await
    }

    async fn send(&mut self, bytes: Bytes) -> Result<(), TurnError> {
        let Some(stream) = &self.stream else { return Ok(()) };
        self.has_begun = true;
        stream.pieces.send(bytes).await.map_err(|_gone| TurnError::upstream("the client is gone"))
    }
}
