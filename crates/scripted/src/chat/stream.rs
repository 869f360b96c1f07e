//! Encodes a message as a stream of `chat.completion.chunk`.

use dacapo_wire::Wire;
use serde_json::{Map, Value, json};

use super::completion::{details, finish_reason, opening, usage, whole};
use super::envelope;
use crate::message_template::MessageTemplate;
use crate::quirk::Quirk;
use crate::reply_message::{OutgoingMessage, ReplyCall, ReplyMessage};
use crate::request_options::UsageChunk;
use crate::script_turn::{EarlyEnd, Pace};
use crate::stream::event;

/// The `delta` of a chunk.
type Delta = Map<String, Value>;

pub(crate) fn events(outgoing: &OutgoingMessage<'_>) -> Vec<String> {
    let OutgoingMessage { message, template, turn, options, .. } = *outgoing;
    let envelope = envelope(outgoing, "chat.completion.chunk");
    let usage = &usage(outgoing);
    let finish_reason = finish_reason(outgoing);
    let chunk = |choices: Value, usage: Option<&Value>| {
        let mut chunk = envelope.clone();
        chunk.insert("choices".into(), choices);
        if let Some(usage) = usage {
            chunk.insert("usage".into(), usage.clone());
        }
        Value::from(chunk)
    };
    let asked_for_usage = options.usage_chunk == UsageChunk::Sent;
    let no_usage = asked_for_usage.then_some(&Value::Null);
    let mut chunks = Vec::new();
    if template.has(Quirk::EmptyFirstChoice) {
        let filter = json!([{"prompt_index": 0, "content_filter_results": {}}]);
        let azure =
            json!({"id": "", "object": "", "created": 0, "model": "", "choices": [], "prompt_filter_results": filter});
        chunks.push(azure);
    }
    for delta in deltas(message, template, &turn.pace) {
        for index in 0..options.n {
            let choice = json!({"index": index, "delta": delta, "logprobs": null, "finish_reason": null});
            chunks.push(chunk(json!([choice]), no_usage));
        }
    }
    let in_choice = template.has(Quirk::UsageInLastChoice);
    let in_chunk = template.has(Quirk::UsageInLastChunk);
    for index in 0..options.n {
        let last = index + 1 == options.n;
        let delta = with_quirks(Delta::new(), template);
        let mut choice = json!({"index": index, "delta": delta, "logprobs": null, "finish_reason": finish_reason});
        if in_choice && last {
            choice["usage"] = usage.clone();
        }
        chunks.push(chunk(json!([choice]), if in_chunk && last { Some(usage) } else { no_usage }));
    }
    if asked_for_usage && !in_choice && !in_chunk {
        chunks.push(chunk(json!([]), Some(usage)));
    }

    let mut events: Vec<_> = chunks.iter().map(|chunk| event(None, &chunk.to_string(), template)).collect();
    if let EarlyEnd::Error(after, failure) = &turn.early_end {
        events.truncate(*after);
        events.push(event(None, &failure.body(Wire::Chat, outgoing.ids).to_string(), template));
    } else if !template.has(Quirk::NoDone) {
        events.push(event(None, "[DONE]", template));
    }
    events
}

fn deltas(message: &ReplyMessage, template: &MessageTemplate, pace: &Pace) -> Vec<Delta> {
    let one = |name: &str, value: Value| Delta::from_iter([(name.to_owned(), value)]);
    // In the first delta, providers send an empty string if text follows, and null otherwise.
    let content = if message.text.is_some() && !template.has(Quirk::NullContent) { "".into() } else { Value::Null };
    let mut deltas = vec![Delta::from_iter([("role".into(), "assistant".into()), ("content".into(), content)])];
    if let Some(reasoning) = &message.reasoning {
        deltas.extend(pace.split_text(reasoning).into_iter().map(|text| one(&template.reasoning_field, text.into())));
    }
    deltas.extend(details(template).map(|details| Delta::from_iter([details])));
    if let Some(text) = &message.text {
        deltas.extend(pace.split_text(text).into_iter().map(|text| one("content", text.into())));
    }
    let calls = message.calls.iter().enumerate();
    if template.has(Quirk::ManyCallsInOneDelta) {
        let calls: Vec<Value> = calls.map(|(index, call)| indexed(index, whole(call, template), template)).collect();
        if !calls.is_empty() {
            deltas.push(one("tool_calls", calls.into()));
        }
    } else {
        let parts = calls.flat_map(|(index, call)| parts(index, call, template, pace));
        deltas.extend(parts.map(|part| one("tool_calls", json!([part]))));
    }
    deltas.into_iter().map(|delta| with_quirks(delta, template)).collect()
}

/// The deltas of a call: its id and name, then pieces of its arguments.
fn parts(index: usize, call: &ReplyCall, template: &MessageTemplate, pace: &Pace) -> Vec<Value> {
    if template.has(Quirk::ObjectArguments) {
        return vec![indexed(index, whole(call, template), template)];
    }
    let mut parts = vec![indexed(index, opening(call), template)];
    for arguments in pace.split_arguments(&call.arguments) {
        let mut part = Map::new();
        if template.has(Quirk::RepeatId) {
            part.insert("id".into(), call.id.as_str().into());
            part.insert("type".into(), "function".into());
        }
        let mut function = Map::new();
        if template.has(Quirk::RepeatName) {
            function.insert("name".into(), call.name.as_str().into());
        }
        function.insert("arguments".into(), arguments.into());
        part.insert("function".into(), function.into());
        parts.push(indexed(index, part, template));
    }
    parts
}

fn indexed(index: usize, part: Map<String, Value>, template: &MessageTemplate) -> Value {
    let index = (!template.has(Quirk::NoIndex)).then(|| ("index".to_owned(), Value::from(index)));
    index.into_iter().chain(part).collect::<Map<_, _>>().into()
}

/// Adds the fields that quirks put into every delta.
fn with_quirks(delta: Delta, template: &MessageTemplate) -> Delta {
    let role = template.has(Quirk::RoleInEveryDelta) && !delta.contains_key("role");
    let null = template.has(Quirk::NullContent) && !delta.contains_key("content");
    let role = role.then(|| ("role".to_owned(), Value::from("assistant")));
    let null = null.then(|| ("content".to_owned(), Value::Null));
    role.into_iter().chain(null).chain(delta).collect()
}
