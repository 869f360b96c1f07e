//! A message as a completion.

use serde_json::{Map, Value, json};

use super::super::draft::Draft;
use super::super::message::{Call, Ended, Outgoing, Tokens};
use super::super::quirk::Quirk;
use super::envelope;

pub(in super::super) fn body(outgoing: &Outgoing<'_>) -> Value {
    let mut body = envelope(outgoing, "chat.completion");
    body.insert("choices".into(), choices(outgoing));
    body.insert("usage".into(), usage(outgoing));
    body.into()
}

fn choices(outgoing: &Outgoing<'_>) -> Value {
    let (draft, said) = (outgoing.draft, outgoing.message);
    let mut message = Map::new();
    message.insert("role".into(), "assistant".into());
    let content = said.text.clone().filter(|text| !(text.is_empty() && draft.has(Quirk::NullContent)));
    message.insert("content".into(), content.into());
    message.extend(said.reasoning.iter().map(|text| (draft.reasoning_field.clone(), text.as_str().into())));
    message.extend(details(draft));
    if !said.calls.is_empty() {
        let calls = said.calls.iter().map(|call| whole(call, draft).into());
        message.insert("tool_calls".into(), Value::Array(calls.collect()));
    }
    let finish_reason = finish_reason(outgoing);
    let choice = |index| json!({"index": index, "message": message, "logprobs": null, "finish_reason": finish_reason});
    (0..outgoing.options.n).map(choice).collect()
}

pub(super) fn finish_reason<'a>(outgoing: &'a Outgoing<'_>) -> Option<&'a str> {
    outgoing.finish_reason(|ended| match ended {
        Ended::Said | Ended::Stop(_) => "stop",
        Ended::Calls => "tool_calls",
        Ended::Limit => "length",
    })
}

/// A field of the message, or of a delta.
pub(super) fn details(draft: &Draft) -> Option<(String, Value)> {
    Some(("reasoning_details".into(), draft.details.clone()?))
}

/// Tokens as counted, with what the script says instead.
pub(super) fn usage(outgoing: &Outgoing<'_>) -> Value {
    let Tokens { input, output, reasoning } = outgoing.tokens;
    let mut usage = json!({
        "prompt_tokens": input,
        "completion_tokens": output,
        "total_tokens": input + output,
        "prompt_tokens_details": {"cached_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": reasoning},
    });
    for (name, value) in &outgoing.draft.usage {
        usage[name] = value.clone();
    }
    let given = |name: &str| usage[name].as_u64();
    if !outgoing.draft.usage.contains_key("total_tokens")
        && let (Some(prompt), Some(completion)) = (given("prompt_tokens"), given("completion_tokens"))
    {
        usage["total_tokens"] = prompt.saturating_add(completion).into();
    }
    usage
}

/// A call with all its arguments.
pub(super) fn whole(call: &Call, draft: &Draft) -> Map<String, Value> {
    let mut whole = opening(call);
    let arguments = match serde_json::from_str::<Value>(&call.arguments) {
        Ok(arguments) if draft.has(Quirk::ObjectArguments) => arguments,
        _ => call.arguments.as_str().into(),
    };
    whole.insert("function".into(), json!({"name": call.name, "arguments": arguments}));
    whole
}

/// A call before its arguments.
pub(super) fn opening(call: &Call) -> Map<String, Value> {
    let mut opening = Map::new();
    opening.insert("id".into(), call.id.as_str().into());
    opening.insert("type".into(), "function".into());
    opening.insert("function".into(), json!({"name": call.name, "arguments": ""}));
    if let Some(signature) = &call.signature {
        opening.insert("extra_content".into(), json!({"google": {"thought_signature": signature}}));
    }
    opening
}
