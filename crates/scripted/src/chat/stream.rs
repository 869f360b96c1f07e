//! A message as chunks of a completion.

use dacapo_wire::Wire;
use serde_json::{Map, Value, json};

use super::super::draft::Draft;
use super::super::message::{Call, Message, Outgoing};
use super::super::quirk::Quirk;
use super::super::stream::event;
use super::super::turn::{Break, Pace};
use super::completion::{details, finish_reason, opening, usage, whole};
use super::envelope;

/// What a delta adds to the message.
type Delta = Map<String, Value>;

pub(in super::super) fn events(outgoing: &Outgoing<'_>) -> Vec<String> {
    let Outgoing { message, draft, turn, options, .. } = *outgoing;
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
    let no_usage = options.include_usage.then_some(&Value::Null);
    let mut chunks = Vec::new();
    if draft.has(Quirk::EmptyFirstChoice) {
        let filter = json!([{"prompt_index": 0, "content_filter_results": {}}]);
        let azure =
            json!({"id": "", "object": "", "created": 0, "model": "", "choices": [], "prompt_filter_results": filter});
        chunks.push(azure);
    }
    for delta in deltas(message, draft, &turn.pace) {
        for index in 0..options.n {
            let choice = json!({"index": index, "delta": delta, "logprobs": null, "finish_reason": null});
            chunks.push(chunk(json!([choice]), no_usage));
        }
    }
    let inside = draft.has(Quirk::UsageInLastChoice);
    let beside = draft.has(Quirk::UsageInLastChunk);
    for index in 0..options.n {
        let last = index + 1 == options.n;
        let delta = dressed(Delta::new(), draft);
        let mut choice = json!({"index": index, "delta": delta, "logprobs": null, "finish_reason": finish_reason});
        if inside && last {
            choice["usage"] = usage.clone();
        }
        chunks.push(chunk(json!([choice]), if beside && last { Some(usage) } else { no_usage }));
    }
    if options.include_usage && !inside && !beside {
        chunks.push(chunk(json!([]), Some(usage)));
    }

    let mut events: Vec<_> = chunks.iter().map(|chunk| event(None, &chunk.to_string(), draft)).collect();
    if let Break::Error(after, failure) = &turn.breaks {
        events.truncate(*after);
        events.push(event(None, &failure.body(Wire::Chat, outgoing.ids).to_string(), draft));
    } else if !draft.has(Quirk::NoDone) {
        events.push(event(None, "[DONE]", draft));
    }
    events
}

fn deltas(message: &Message, draft: &Draft, pace: &Pace) -> Vec<Delta> {
    let one = |name: &str, value: Value| Delta::from_iter([(name.to_owned(), value)]);
    // Providers open a text with an empty one, and anything else with null.
    let content = if message.text.is_some() && !draft.has(Quirk::NullContent) { "".into() } else { Value::Null };
    let mut deltas = vec![Delta::from_iter([("role".into(), "assistant".into()), ("content".into(), content)])];
    if let Some(reasoning) = &message.reasoning {
        deltas.extend(pace.split_text(reasoning).into_iter().map(|text| one(&draft.reasoning_field, text.into())));
    }
    deltas.extend(details(draft).map(|details| Delta::from_iter([details])));
    if let Some(text) = &message.text {
        deltas.extend(pace.split_text(text).into_iter().map(|text| one("content", text.into())));
    }
    let calls = message.calls.iter().enumerate();
    if draft.has(Quirk::ManyCallsInOneDelta) {
        let calls: Vec<Value> = calls.map(|(index, call)| indexed(index, whole(call, draft), draft)).collect();
        if !calls.is_empty() {
            deltas.push(one("tool_calls", calls.into()));
        }
    } else {
        let parts = calls.flat_map(|(index, call)| parts(index, call, draft, pace));
        deltas.extend(parts.map(|part| one("tool_calls", json!([part]))));
    }
    deltas.into_iter().map(|delta| dressed(delta, draft)).collect()
}

/// A call as its opening and its arguments, bit by bit.
fn parts(index: usize, call: &Call, draft: &Draft, pace: &Pace) -> Vec<Value> {
    if draft.has(Quirk::ObjectArguments) {
        return vec![indexed(index, whole(call, draft), draft)];
    }
    let mut parts = vec![indexed(index, opening(call), draft)];
    for arguments in pace.split_arguments(&call.arguments) {
        let mut part = Map::new();
        if draft.has(Quirk::RepeatId) {
            part.insert("id".into(), call.id.as_str().into());
            part.insert("type".into(), "function".into());
        }
        let mut function = Map::new();
        if draft.has(Quirk::RepeatName) {
            function.insert("name".into(), call.name.as_str().into());
        }
        function.insert("arguments".into(), arguments.into());
        part.insert("function".into(), function.into());
        parts.push(indexed(index, part, draft));
    }
    parts
}

fn indexed(index: usize, part: Map<String, Value>, draft: &Draft) -> Value {
    let index = (!draft.has(Quirk::NoIndex)).then(|| ("index".to_owned(), Value::from(index)));
    index.into_iter().chain(part).collect::<Map<_, _>>().into()
}

fn dressed(delta: Delta, draft: &Draft) -> Delta {
    let role = draft.has(Quirk::RoleInEveryDelta) && !delta.contains_key("role");
    let null = draft.has(Quirk::NullContent) && !delta.contains_key("content");
    let role = role.then(|| ("role".to_owned(), Value::from("assistant")));
    let null = null.then(|| ("content".to_owned(), Value::Null));
    role.into_iter().chain(null).chain(delta).collect()
}
