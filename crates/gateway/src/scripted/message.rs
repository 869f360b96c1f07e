//! The assistant message that a turn gives to one request.

use serde_json::{Map, Value, json};

use super::conversation::Conversation;
use super::draft::Draft;
use super::ids::Ids;
use super::options::Options;
use super::quirk::Quirk;
use super::template::fill;
use super::turn::word_ends;

pub(super) struct Message {
    pub(super) text: Option<String>,
    pub(super) reasoning: Option<String>,
    pub(super) calls: Vec<Call>,
    pub(super) finish_reason: Option<String>,
}

pub(super) struct Call {
    pub(super) id: String,
    pub(super) name: String,
    pub(super) arguments: String,
    pub(super) signature: Option<String>,
}

impl Message {
    pub(super) fn compose(
        draft: &Draft,
        conversation: &Conversation<'_>,
        options: &Options,
        ids: &Ids,
        count: fn(&str) -> usize,
    ) -> Message {
        let filled = |template: &Option<String>| template.as_ref().map(|template| fill(template, conversation));
        let mut message = Message {
            text: filled(&draft.text),
            reasoning: filled(&draft.reasoning),
            calls: calls(draft, conversation, ids),
            finish_reason: None,
        };
        // What is cut says nothing more: calls come after the text.
        let ended = message.cut(options, count);
        if ended.is_some() {
            message.calls.clear();
        }
        let natural = ended.unwrap_or(if message.calls.is_empty() { "stop" } else { "tool_calls" });
        if !draft.has(Quirk::NoFinishReason) {
            message.finish_reason = Some(draft.finish_reason.clone().unwrap_or_else(|| natural.into()));
        }
        message
    }

    /// Applies `stop` and the token limits; says which of them ended the message.
    fn cut(&mut self, options: &Options, count: fn(&str) -> usize) -> Option<&'static str> {
        let mut ended = None;
        if let Some(text) = &mut self.text {
            let stops = options.stop.iter().filter(|stop| !stop.is_empty());
            if let Some(at) = stops.filter_map(|stop| text.find(stop.as_str())).min() {
                text.truncate(at);
                ended = Some("stop");
            }
        }
        let Some(mut budget) = options.tokens_max else { return ended };
        for text in [&mut self.reasoning, &mut self.text].into_iter().flatten() {
            let tokens = count(text);
            if tokens > budget {
                let ends = word_ends(text);
                let fitting = ends.partition_point(|end| count(&text[..*end]) <= budget);
                text.truncate(if fitting == 0 { 0 } else { ends[fitting - 1] });
                ended = Some("length");
                budget = 0;
            } else {
                budget -= tokens;
            }
        }
        ended
    }

    /// A field of the message, or of a delta.
    pub(super) fn details(draft: &Draft) -> Option<(String, Value)> {
        Some(("reasoning_details".into(), draft.details.clone()?))
    }

    pub(super) fn choices(&self, draft: &Draft, options: &Options) -> Value {
        let mut message = Map::new();
        message.insert("role".into(), "assistant".into());
        let content = self.text.clone().filter(|text| !(text.is_empty() && draft.has(Quirk::NullContent)));
        message.insert("content".into(), content.into());
        message.extend(self.reasoning.iter().map(|text| (draft.reasoning_field.clone(), text.as_str().into())));
        message.extend(Message::details(draft));
        if !self.calls.is_empty() {
            let calls = self.calls.iter().map(|call| call.whole(draft).into());
            message.insert("tool_calls".into(), Value::Array(calls.collect()));
        }
        let choice =
            |index| json!({"index": index, "message": message, "logprobs": null, "finish_reason": self.finish_reason});
        (0..options.n).map(choice).collect()
    }

    /// Tokens as counted, with what the script says instead.
    pub(super) fn usage(
        &self,
        draft: &Draft,
        conversation: &Conversation<'_>,
        options: &Options,
        count: fn(&str) -> usize,
    ) -> Value {
        let sent = |name: &str| conversation.request.get(name).filter(|value| !value.is_null());
        let prompt: usize =
            [sent("messages"), sent("tools")].into_iter().flatten().map(|part| count(&part.to_string())).sum();
        let reasoning = self.reasoning.as_deref().map_or(0, count) * options.n;
        let calls: usize = self.calls.iter().map(|call| count(&call.name) + count(&call.arguments)).sum();
        let completion = reasoning + (self.text.as_deref().map_or(0, count) + calls) * options.n;
        let mut usage = json!({
            "prompt_tokens": prompt,
            "completion_tokens": completion,
            "total_tokens": prompt + completion,
            "prompt_tokens_details": {"cached_tokens": 0},
            "completion_tokens_details": {"reasoning_tokens": reasoning},
        });
        for (name, value) in &draft.usage {
            usage[name] = value.clone();
        }
        let given = |name: &str| usage[name].as_u64();
        if !draft.usage.contains_key("total_tokens")
            && let (Some(prompt), Some(completion)) = (given("prompt_tokens"), given("completion_tokens"))
        {
            usage["total_tokens"] = prompt.saturating_add(completion).into();
        }
        usage
    }
}

impl Call {
    /// The call with all its arguments.
    pub(super) fn whole(&self, draft: &Draft) -> Map<String, Value> {
        let mut call = self.opening();
        let arguments = match serde_json::from_str::<Value>(&self.arguments) {
            Ok(arguments) if draft.has(Quirk::ObjectArguments) => arguments,
            _ => self.arguments.as_str().into(),
        };
        call.insert("function".into(), json!({"name": self.name, "arguments": arguments}));
        call
    }

    /// The call before its arguments.
    pub(super) fn opening(&self) -> Map<String, Value> {
        let mut call = Map::new();
        call.insert("id".into(), self.id.as_str().into());
        call.insert("type".into(), "function".into());
        call.insert("function".into(), json!({"name": self.name, "arguments": ""}));
        if let Some(signature) = &self.signature {
            call.insert("extra_content".into(), json!({"google": {"thought_signature": signature}}));
        }
        call
    }
}

/// Searches, then programs, then other calls, as the script has them.
fn calls(draft: &Draft, conversation: &Conversation<'_>, ids: &Ids) -> Vec<Call> {
    let mut calls: Vec<Call> = Vec::new();
    let mut push = |name: &str, arguments: String, id: Option<&String>, signature: Option<&String>| {
        let id = id.cloned().unwrap_or_else(|| ids.call(calls.len()));
        calls.push(Call { id, name: name.into(), arguments, signature: signature.cloned() });
    };
    for search in &draft.searches {
        let query = fill(&search.query, conversation);
        let arguments = match search.limit {
            Some(limit) => json!({"query": query, "limit": limit}),
            None => json!({"query": query}),
        };
        push("search", arguments.to_string(), None, None);
    }
    for program in &draft.programs {
        push("execute", json!({"code": fill(program, conversation)}).to_string(), None, None);
    }
    for call in &draft.calls {
        push(&call.name, call.arguments.clone(), call.id.as_ref(), call.signature.as_ref());
    }
    calls
}
