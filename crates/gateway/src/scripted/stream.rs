//! A message as server-sent events.

use serde_json::{Map, Value, json};

use super::draft::Draft;
use super::message::{Call, Message};
use super::options::Options;
use super::quirk::Quirk;
use super::turn::{Break, Pace, Turn};

/// What a delta adds to the message.
type Delta = Map<String, Value>;

pub(super) fn events(
    message: &Message,
    draft: &Draft,
    turn: &Turn,
    options: &Options,
    envelope: &Map<String, Value>,
    usage: &Value,
) -> Vec<String> {
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
        let mut choice =
            json!({"index": index, "delta": delta, "logprobs": null, "finish_reason": message.finish_reason});
        if inside && last {
            choice["usage"] = usage.clone();
        }
        chunks.push(chunk(json!([choice]), if beside && last { Some(usage) } else { no_usage }));
    }
    if options.include_usage && !inside && !beside {
        chunks.push(chunk(json!([]), Some(usage)));
    }

    let mut events: Vec<_> = chunks.iter().map(|chunk| event(&chunk.to_string(), draft)).collect();
    if let Break::Error(after, failure) = &turn.breaks {
        events.truncate(*after);
        events.push(event(&failure.body().to_string(), draft));
    } else if !draft.has(Quirk::NoDone) {
        events.push(event("[DONE]", draft));
    }
    events
}

fn event(data: &str, draft: &Draft) -> String {
    let end = if draft.has(Quirk::Crlf) { "\r\n" } else { "\n" };
    let comment = if draft.has(Quirk::Comments) { format!(": keep-alive{end}{end}") } else { String::new() };
    format!("{comment}data: {data}{end}{end}")
}

fn deltas(message: &Message, draft: &Draft, pace: &Pace) -> Vec<Delta> {
    let one = |name: &str, value: Value| Delta::from_iter([(name.to_owned(), value)]);
    // Providers open a text with an empty one, and anything else with null.
    let content = if message.text.is_some() && !draft.has(Quirk::NullContent) { "".into() } else { Value::Null };
    let mut deltas = vec![Delta::from_iter([("role".into(), "assistant".into()), ("content".into(), content)])];
    if let Some(reasoning) = &message.reasoning {
        deltas.extend(pace.split_text(reasoning).into_iter().map(|text| one(&draft.reasoning_field, text.into())));
    }
    deltas.extend(Message::details(draft).map(|details| Delta::from_iter([details])));
    if let Some(text) = &message.text {
        deltas.extend(pace.split_text(text).into_iter().map(|text| one("content", text.into())));
    }
    let calls = message.calls.iter().enumerate();
    if draft.has(Quirk::ManyCallsInOneDelta) {
        let whole: Vec<Value> = calls.map(|(index, call)| indexed(index, call.whole(draft), draft)).collect();
        if !whole.is_empty() {
            deltas.push(one("tool_calls", whole.into()));
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
        return vec![indexed(index, call.whole(draft), draft)];
    }
    let mut parts = vec![indexed(index, call.opening(), draft)];
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
