//! Request fields that Anthropic rejects, with its error messages.

use serde_json::{Map, Value};

use super::refusal;
use crate::provider_failure::ProviderFailure;

/// Fields that only `OpenAI`'s APIs have.
const FOREIGN: [&str; 21] = [
    "frequency_penalty",
    "function_call",
    "functions",
    "include",
    "input",
    "instructions",
    "logit_bias",
    "logprobs",
    "max_completion_tokens",
    "max_output_tokens",
    "n",
    "parallel_tool_calls",
    "presence_penalty",
    "reasoning",
    "reasoning_effort",
    "response_format",
    "seed",
    "stop",
    "store",
    "stream_options",
    "user",
];

pub(super) fn check(request: &Map<String, Value>) -> Result<(), ProviderFailure> {
    if let Some(foreign) = request.keys().find(|name| FOREIGN.contains(&name.as_str())) {
        return Err(refusal(format!("{foreign}: Extra inputs are not permitted")));
    }
    // The scripted model stores nothing between requests.
    if request.get("thread").is_some_and(|thread| thread["type"] == "continue") {
        let message = "thread: no thread has the message `previous_message_id`";
        return Err(refusal(message).with_status(404).with_code("thread_not_found"));
    }
    Ok(())
}
