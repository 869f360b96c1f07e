//! What a body asks for, and what the model is asked with.

use serde_json::{Map, Value, json};

use super::tools::{self, Named};
use super::{explicit, fields, history, marks, references};
use crate::conversation::Conversation;
use crate::dialect::{Ask, Survey};
use crate::plain::Seals;
use crate::reader::BadRequest;
use crate::turn::{Demand, Wanted};

const ENCRYPTED: &str = "reasoning.encrypted_content";

const NOT_STORED: &str = "nothing is stored here: send the whole history as `input`, with `store: false` and \
`include: [\"reasoning.encrypted_content\"]`. With openai-python that is `input += response.output`, with the AI SDK \
`providerOptions: {openai: {store: false}}`. Or turn on `[store]` in the gateway";

pub(super) fn survey(body: &Map<String, Value>) -> Result<Survey, BadRequest> {
    let nothing = Vec::new();
    let items = match body.get("input") {
        Some(Value::Array(items)) => items,
        Some(Value::String(_)) => &nothing,
        None | Some(Value::Null) if body.get("prompt").is_some_and(Value::is_object) => &nothing,
        None | Some(Value::Null) => return Err(BadRequest::new("input", "is missing")),
        Some(_) => return Err(BadRequest::new("input", "must be a string or an array of items")),
    };
    if let Some(at) = items.iter().position(|item| !item.is_object()) {
        return Err(BadRequest::new(format!("input[{at}]"), "must be an object"));
    }
    Ok(Survey {
        has_sealed: items.iter().any(marks::is_sealed),
        has_programs: items.iter().any(marks::is_program),
        declares_programs: tools::declares_programs(body),
    })
}

/// Items that no provider understands as they are.
pub(super) fn has_ours(body: &Map<String, Value>) -> bool {
    body.get("input").and_then(Value::as_array).is_some_and(|items| items.iter().any(marks::is_ours))
}

/// What a program cannot promise: such a request goes to the model with the client's own tools.
pub(super) fn unpromised(body: &Map<String, Value>) -> Option<&'static str> {
    let choice = body.get("tool_choice")?;
    let is_unpromised = match fields::text_of(choice, "type") {
        "function" => !tools::is_direct(body, choice),
        "allowed_tools" => true,
        _ => false,
    };
    is_unpromised.then_some("tool_choice")
}

pub(super) fn wanted(body: &Map<String, Value>) -> Wanted {
    let flag = |key: &str| body.get(key).and_then(Value::as_bool);
    let choice = body.get("tool_choice").unwrap_or(&Value::Null);
    Wanted {
        is_stream: flag("stream") == Some(true),
        include_usage: true,
        one_call: flag("parallel_tool_calls") == Some(false),
        demand: match (choice.as_str(), fields::text_of(choice, "type")) {
            (Some("required"), _) => Demand::Calls,
            (Some("none"), _) => Demand::NoCalls,
            (_, tools::PROGRAMS) => Demand::Program,
            (_, "function" | "custom") => Demand::Tool(Named::of(choice).to_string()),
            _ => Demand::Nothing,
        },
    }
}

pub(super) fn conversation(
    body: &mut Map<String, Value>,
    explicit: bool,
    seals: Option<&Seals<'_>>,
) -> Result<Conversation, BadRequest> {
    for key in ["previous_response_id", "conversation"] {
        if body.get(key).is_some_and(|value| !value.is_null()) {
            return Err(BadRequest::new(key, NOT_STORED));
        }
    }
    if body.get("background") == Some(&Value::Bool(true)) {
        return Err(BadRequest::new(
            "background",
            "cannot be had here: nothing is stored that could be asked for later; leave it out, and set `stream` if the answer takes long",
        ));
    }
    if seals.is_some() {
        tools::check_callers(body)?;
    }
    let items = match body.insert("input".to_owned(), Value::Null) {
        Some(Value::Array(items)) => items,
        Some(Value::String(text)) => vec![json!({"type": "message", "role": "user", "content": text})],
        _ => Vec::new(),
    };
    match seals {
        Some(seals) if explicit => explicit::read(references::resolved(items)?, seals),
        seals => Ok(history::walk(references::resolved(items)?.into_iter().map(|(_, item)| item), seals)),
    }
}

pub(super) fn call_ids(body: &Value) -> Vec<Vec<String>> {
    let items = body.get("input").and_then(Value::as_array).cloned().unwrap_or_default();
    // What is wrong with it is said when it is read.
    let items = references::resolved(items).unwrap_or_default();
    history::call_ids(items.into_iter().map(|(_, item)| item))
}

/// All that tools say of programs is this wire's own: they stay as they are.
pub(super) fn without_code_mode(mut body: Map<String, Value>, history: Option<Vec<Value>>) -> Value {
    let history = history.or_else(|| match body.get("input") {
        Some(Value::Array(items)) => Some(items.clone()),
        _ => None,
    });
    if let Some(items) = history {
        let items = references::resolved_ours(items).into_iter();
        body.insert("input".to_owned(), items.filter_map(marks::without_programs).collect());
    }
    Value::Object(body)
}

/// Drops thoughts that nothing follows any more: no provider takes them.
fn without_idle_thoughts(items: Vec<Value>) -> Vec<Value> {
    let mut leads = false;
    let mut kept: Vec<Value> = Vec::new();
    for item in items.into_iter().rev() {
        if !fields::is_reasoning(&item) {
            let is_others = fields::is_message(&item) && !fields::is_said(&item);
            leads = !is_others && !fields::is_output(&item) && !fields::is_client_output(&item);
        } else if !leads {
            continue;
        }
        kept.push(item);
    }
    kept.reverse();
    kept
}

pub(super) fn ask(mut body: Map<String, Value>, ask: Ask<'_>) -> Value {
    let history = ask.history.iter().cloned().filter_map(marks::cleaned).collect();
    body.insert("input".to_owned(), Value::Array(without_idle_thoughts(history)));
    if ask.is_same_wire || !ask.tools.is_empty() {
        body.insert("tools".to_owned(), Value::Array(ask.tools));
    }
    match ask.demand {
        Demand::Nothing => {}
        Demand::NoCalls => _ = body.insert("tool_choice".to_owned(), Value::from("none")),
        Demand::Calls | Demand::Program => _ = body.insert("tool_choice".to_owned(), Value::from("required")),
        Demand::Tool(name) => _ = body.insert("tool_choice".to_owned(), json!({"type": "function", "name": name})),
    }
    for key in ["previous_response_id", "conversation"] {
        body.shift_remove(key);
    }
    // Whoever stores it could only give back what the client never saw.
    body.insert("store".to_owned(), Value::Bool(false));
    // Models that do not think refuse it.
    if body.get("reasoning").is_some_and(Value::is_object) {
        let include = body.entry("include").or_insert_with(|| json!([]));
        match include {
            Value::Array(names) if names.iter().any(|name| name == ENCRYPTED) => {}
            Value::Array(names) => names.push(Value::from(ENCRYPTED)),
            other => *other = json!([ENCRYPTED]),
        }
    }
    if ask.is_stream {
        body.insert("stream".to_owned(), Value::Bool(true));
    }
    if !ask.is_same_wire && ask.one_call {
        body.insert("parallel_tool_calls".to_owned(), Value::Bool(false));
    }
    Value::Object(body)
}
