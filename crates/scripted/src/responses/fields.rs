//! Request fields that the Responses API rejects, with its error messages.

use serde_json::{Map, Value};

use crate::provider_failure::ProviderFailure;
use crate::scripted_conversation::given;

/// Fields of Chat Completions that have another name here.
const MOVED: [(&str, &str); 6] = [
    ("messages", "input"),
    ("max_tokens", "max_output_tokens"),
    ("max_completion_tokens", "max_output_tokens"),
    ("response_format", "text.format"),
    ("reasoning_effort", "reasoning.effort"),
    ("verbosity", "text.verbosity"),
];

/// Fields that only other APIs have.
const FOREIGN: [&str; 13] = [
    "frequency_penalty",
    "function_call",
    "functions",
    "logit_bias",
    "logprobs",
    "n",
    "presence_penalty",
    "seed",
    "stop",
    "stop_sequences",
    "system",
    "thinking",
    "top_k",
];

pub(super) fn check(request: &Map<String, Value>) -> Result<(), ProviderFailure> {
    for name in request.keys() {
        if let Some((_, target)) = MOVED.iter().find(|(moved, _)| moved == name) {
            let message = format!(
                "Unsupported parameter: '{name}'. In the Responses API, this parameter has moved to '{target}'. Try again with the new parameter."
            );
            return Err(ProviderFailure::invalid(message, Some(name.clone())).with_code("unsupported_parameter"));
        }
        if FOREIGN.contains(&name.as_str()) {
            return Err(unknown(name.clone()));
        }
    }
    if given(request, "stream_options").is_some_and(|options| options.get("include_usage").is_some()) {
        return Err(unknown("stream_options.include_usage".into()));
    }
    check_stored(request)
}

/// References to stored responses and conversations are not found, because nothing is stored.
fn check_stored(request: &Map<String, Value>) -> Result<(), ProviderFailure> {
    if let Some(id) = given(request, "previous_response_id") {
        let id = id.as_str().unwrap_or_default();
        let message = format!("Previous response with id '{id}' not found.");
        return Err(ProviderFailure::invalid(message, Some("previous_response_id".into()))
            .with_code("previous_response_not_found"));
    }
    if let Some(conversation) = given(request, "conversation") {
        let id = conversation.get("id").unwrap_or(conversation).as_str().unwrap_or_default();
        let message = format!("Conversation with id '{id}' not found.");
        return Err(ProviderFailure::invalid(message, Some("conversation".into())).with_status(404));
    }
    Ok(())
}

pub(super) fn unknown(path: String) -> ProviderFailure {
    ProviderFailure::invalid(format!("Unknown parameter: '{path}'."), Some(path)).with_code("unknown_parameter")
}
