//! Encodes a message as named events.

use dacapo_wire::Wire;
use serde_json::{Value, json};

use super::{content, envelope, stop, usage};
use crate::reply_message::OutgoingMessage;
use crate::stream::named;

pub(crate) fn events(outgoing: &OutgoingMessage<'_>) -> Vec<String> {
    let content = content::blocks(outgoing);
    let [reason, sequence] = stop(outgoing, &content);
    let usage = usage(outgoing);
    let mut opening = usage.clone();
    opening["output_tokens"] = 0.into();
    let message = envelope(outgoing, &[], &[Value::Null, Value::Null], &opening);
    let mut events = vec![json!({"type": "message_start", "message": message})];
    for (index, block) in content.iter().enumerate() {
        events.push(json!({"type": "content_block_start", "index": index, "content_block": block.opening()}));
        if index == 0 {
            events.push(json!({"type": "ping"}));
        }
        let deltas = block.deltas(&outgoing.turn.pace).into_iter();
        events.extend(deltas.map(|delta| json!({"type": "content_block_delta", "index": index, "delta": delta})));
        events.push(json!({"type": "content_block_stop", "index": index}));
    }
    let delta = json!({"stop_reason": reason, "stop_sequence": sequence});
    events.push(json!({"type": "message_delta", "delta": delta, "usage": usage}));
    events.push(json!({"type": "message_stop"}));
    named(outgoing, events, |failure, _| failure.body(Wire::Messages, outgoing.ids))
}
