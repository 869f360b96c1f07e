//! Encodes a message as one `chat.completion`.

use serde_json::{Map, Value, json};

use super::envelope;
use crate::message_template::MessageTemplate;
use crate::quirk::Quirk;
use crate::reply_message::{FinishCause, OutgoingMessage, ReplyCall, ReplyTokens};

pub(crate) fn body(outgoing: &OutgoingMessage<'_>) -> Value {
    let mut body = envelope(outgoing, "chat.completion");
    body.insert("choices".into(), choices(outgoing));
    body.insert("usage".into(), usage(outgoing));
    body.into()
}

fn choices(outgoing: &OutgoingMessage<'_>) -> Value {
    let (template, reply) = (outgoing.template, outgoing.message);
    let mut message = Map::new();
    message.insert("role".into(), "assistant".into());
    let content = reply.text.as_deref().filter(|text| !(text.is_empty() && template.has(Quirk::NullContent)));
    message.insert("content".into(), content.into());
    message.extend(reply.reasoning.iter().map(|text| (template.reasoning_field.clone(), text.as_str().into())));
    message.extend(details(template));
    if !reply.calls.is_empty() {
        let calls = reply.calls.iter().map(|call| whole(call, template).into());
        message.insert("tool_calls".into(), Value::Array(calls.collect()));
    }
    let finish_reason = finish_reason(outgoing);
    let choice = |index| json!({"index": index, "message": message, "logprobs": null, "finish_reason": finish_reason});
    (0..outgoing.options.n).map(choice).collect()
}

pub(super) fn finish_reason<'a>(outgoing: &'a OutgoingMessage<'_>) -> Option<&'a str> {
    outgoing.finish_reason(|cause| match cause {
        FinishCause::Complete | FinishCause::Stop(_) => "stop",
        FinishCause::ToolCalls => "tool_calls",
        FinishCause::TokenLimit => "length",
    })
}

/// `reasoning_details`, a field of the message or of a delta.
pub(super) fn details(template: &MessageTemplate) -> Option<(String, Value)> {
    Some(("reasoning_details".into(), template.details.clone()?))
}

/// The token counts; values of the script replace them.
pub(super) fn usage(outgoing: &OutgoingMessage<'_>) -> Value {
    let ReplyTokens { input, output, reasoning } = outgoing.tokens;
    let mut usage = json!({
        "prompt_tokens": input,
        "completion_tokens": output,
        "total_tokens": input + output,
        "prompt_tokens_details": {"cached_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": reasoning},
    });
    outgoing.override_usage(&mut usage, |name, value| Some((name, value)));
    let given = |name: &str| usage[name].as_u64();
    if !outgoing.template.usage.contains_key("total_tokens")
        && let (Some(prompt), Some(completion)) = (given("prompt_tokens"), given("completion_tokens"))
    {
        usage["total_tokens"] = prompt.saturating_add(completion).into();
    }
    usage
}

/// A call with all its arguments.
pub(super) fn whole(call: &ReplyCall, template: &MessageTemplate) -> Map<String, Value> {
    let mut whole = opening(call);
    let arguments = match serde_json::from_str::<Value>(&call.arguments) {
        Ok(arguments) if template.has(Quirk::ObjectArguments) => arguments,
        _ => call.arguments.as_str().into(),
    };
    whole.insert("function".into(), json!({"name": call.name, "arguments": arguments}));
    whole
}

/// A call before its arguments.
pub(super) fn opening(call: &ReplyCall) -> Map<String, Value> {
    let mut opening = Map::new();
    opening.insert("id".into(), call.id.as_str().into());
    opening.insert("type".into(), "function".into());
    opening.insert("function".into(), json!({"name": call.name, "arguments": ""}));
    if let Some(signature) = &call.signature {
        opening.insert("extra_content".into(), json!({"google": {"thought_signature": signature}}));
    }
    opening
}
