//! What the client gets.

use dacapo_replay::Call;
use serde_json::{Map, Value, json};

use super::fields;
use crate::ids::{RunId, short_id};
use crate::saying::ModelCall;

/// The fields around the choices: id, time, model, and whatever else the provider says.
#[derive(Debug, Clone, PartialEq)]
pub struct Head(Map<String, Value>);

impl Head {
    pub(super) fn of(body: Value) -> Head {
        let mut fields = match body {
            Value::Object(fields) => fields,
            _ => Map::new(),
        };
        fields.shift_remove("choices");
        fields.shift_remove("usage");
        Head(fields)
    }

    /// For a turn in which no model was asked.
    pub fn resumed(run: RunId, round: u32, started_at_ms: u64, model: &str) -> Head {
        let mut fields = Map::new();
        fields.insert("id".to_owned(), Value::from(format!("chatcmpl-{run}-{round}")));
        fields.insert("object".to_owned(), Value::from("chat.completion"));
        fields.insert("created".to_owned(), Value::from(started_at_ms / 1000));
        fields.insert("model".to_owned(), Value::from(model));
        Head(fields)
    }

    /// The provider's name for this answer: where our chance comes from.
    pub fn id(&self) -> &str {
        self.0.get("id").and_then(Value::as_str).unwrap_or_default()
    }

    /// When the provider says it answered, in seconds since 1970.
    pub fn created(&self) -> Option<u64> {
        self.0.get("created").and_then(Value::as_u64)
    }

    /// A piece of a stream.
    pub fn chunk(&self, delta: &Value, finish_reason: Option<&str>) -> Value {
        let choice = json!({"index": 0, "delta": delta, "finish_reason": finish_reason});
        self.around(vec![choice], "chat.completion.chunk")
    }

    /// A chunk of a later answer in the same turn, as if it were part of the first.
    pub fn adopt(&self, mut chunk: Value) -> Value {
        if let Some(fields) = chunk.as_object_mut() {
            for key in ["id", "created", "model"] {
                if let Some(value) = self.0.get(key) {
                    fields.insert(key.to_owned(), value.clone());
                }
            }
        }
        chunk
    }

    pub fn usage_chunk(&self, usage: Value) -> Value {
        let mut chunk = self.around(Vec::new(), "chat.completion.chunk");
        if let Some(fields) = chunk.as_object_mut() {
            fields.insert("usage".to_owned(), usage);
        }
        chunk
    }

    fn around(&self, choices: Vec<Value>, object: &str) -> Value {
        let mut fields = self.0.clone();
        fields.insert("object".to_owned(), Value::from(object));
        fields.insert("choices".to_owned(), Value::Array(choices));
        Value::Object(fields)
    }
}

/// New messages of one turn, and why it ends.
#[derive(Debug, Default)]
pub struct Reply {
    /// In order; the last one is what every client reads.
    pub messages: Vec<Value>,
    /// Of the choice around the message: log probabilities and the like.
    pub choice: Map<String, Value>,
    pub finish_reason: String,
}

impl Reply {
    /// A message with calls for the client: those of a program, then those that the model made itself. `said` is the
    /// message of the model that they come from, if it was asked in this turn.
    pub fn calls(said: Option<&Value>, ids: &[String], calls: &[Call], direct: &[ModelCall]) -> Value {
        let of_program = ids.iter().zip(calls).map(|(id, call)| {
            let function =
                ModelCall { name: call.tool.clone(), arguments: call.args.to_string(), ..ModelCall::default() };
            fields::written(id, &function)
        });
        let calls: Vec<Value> = of_program.chain(direct.iter().map(Reply::direct_call)).collect();
        let mut message = match said {
            Some(Value::Object(fields)) => fields.clone(),
            _ => Map::new(),
        };
        message.insert("role".to_owned(), Value::from("assistant"));
        if !ids.is_empty() {
            message.insert("content".to_owned(), Value::Null);
        }
        message.insert("tool_calls".to_owned(), Value::Array(calls));
        Value::Object(message)
    }

    /// Some providers give their calls no id, but clients need one.
    fn direct_call(call: &ModelCall) -> Value {
        match call.id.as_str() {
            "" => fields::written(&format!("call_{}", short_id(&call.name, &call.arguments, 0)), call),
            id => fields::written(id, call),
        }
    }

    /// The whole response.
    pub fn body(self, head: &Head, usage: Value, explicit: bool) -> Value {
        let mut choice = self.choice;
        choice.insert("index".to_owned(), json!(0));
        choice.insert("message".to_owned(), self.messages.last().cloned().unwrap_or(Value::Null));
        if explicit {
            choice.insert("messages".to_owned(), Value::Array(self.messages));
        }
        choice.insert("finish_reason".to_owned(), Value::from(self.finish_reason));
        let mut body = head.around(vec![Value::Object(choice)], "chat.completion");
        if let Some(fields) = body.as_object_mut() {
            fields.insert("usage".to_owned(), usage);
        }
        body
    }
}

/// Tokens of all the model's answers in a turn, and our own figures.
#[derive(Debug, Clone, Default)]
pub struct Usage {
    sum: Map<String, Value>,
    pub model_calls: u64,
    pub programs: u64,
    pub rounds: u64,
    pub calls: u64,
    /// Of answers that the model did not have to read, about.
    pub tokens_kept_out: u64,
}

impl Usage {
    pub fn add(&mut self, usage: Option<&Value>) {
        self.model_calls += 1;
        if let Some(Value::Object(usage)) = usage {
            add(&mut self.sum, usage);
        }
    }

    pub fn to_json(&self) -> Value {
        let mut usage = self.sum.clone();
        for key in ["prompt_tokens", "completion_tokens", "total_tokens"] {
            usage.entry(key).or_insert(json!(0));
        }
        let ours = json!({
            "model_calls": self.model_calls,
            "programs": self.programs,
            "rounds": self.rounds,
            "calls": self.calls,
            "tokens_kept_out": self.tokens_kept_out,
        });
        usage.insert("dacapo".to_owned(), ours);
        Value::Object(usage)
    }
}

fn add(sum: &mut Map<String, Value>, usage: &Map<String, Value>) {
    for (key, value) in usage {
        match (sum.get_mut(key), value) {
            (Some(Value::Object(known)), Value::Object(more)) => add(known, more),
            (Some(known), Value::Number(_)) => *known = added(known, value),
            _ => _ = sum.insert(key.clone(), value.clone()),
        }
    }
}

fn added(a: &Value, b: &Value) -> Value {
    match (a.as_u64(), b.as_u64()) {
        (Some(a), Some(b)) => json!(a.saturating_add(b)),
        _ => json!(a.as_f64().unwrap_or(0.0) + b.as_f64().unwrap_or(0.0)),
    }
}
