//! What a body asks for, and what the model is asked with.

use std::borrow::Cow;

use serde_json::{Map, Value, json};

use super::{explicit, fields};
use crate::callers::{Callers, Split};
use crate::conversation::{Conversation, Item};
use crate::dialect::{Ask, Survey};
use crate::plain::{self, AnswerOf, CallOf, Exchange, Seals};
use crate::reader::{BadRequest, entries};
use crate::seal::Sealer;
use crate::turn::{Demand, Wanted};

pub(super) fn survey(body: &Map<String, Value>) -> Result<Survey, BadRequest> {
    let messages = entries(body, "messages")?;
    let has_sealed = messages.iter().any(|message| {
        fields::tool_calls(message).iter().any(|call| Sealer::claims(fields::id(call)))
            || Sealer::claims(fields::tool_call_id(message))
    });
    let has_programs =
        messages.iter().any(|message| matches!(fields::role(message), explicit::CODE | explicit::CODE_RESULT));
    Ok(Survey { has_sealed, has_programs, declares_programs: false })
}

pub(super) fn split(body: &Map<String, Value>) -> Result<Split<'_>, BadRequest> {
    let mut split = Split::default();
    let entries = match body.get("tools") {
        None | Some(Value::Null) => return Ok(split),
        Some(Value::Array(entries)) => entries,
        Some(_) => return Err(BadRequest::new("tools", "must be an array")),
    };
    for (at, entry) in entries.iter().enumerate() {
        let is_function = entry.get("type").and_then(Value::as_str) == Some("function");
        if !is_function {
            let name = entry.pointer("/custom/name").or_else(|| entry.get("name")).and_then(Value::as_str);
            split.direct.extend(name.map(str::to_owned));
            split.passed.push(entry.clone());
            continue;
        }
        let callers =
            callers(entry).map_err(|message| BadRequest::new(format!("tools[{at}].allowed_callers"), message))?;
        split.has_ours |= callers.are_given;
        if callers.programs {
            split.tools.push(Cow::Borrowed(entry));
            split.places.push(format!("tools[{at}]"));
        }
        if callers.direct {
            split.direct.insert(fields::function_name(entry).to_owned());
            split.passed.push(without_callers(entry));
        }
    }
    Ok(split)
}

pub(super) fn ordinary_tools(body: &Map<String, Value>) -> Vec<Value> {
    let entries = body.get("tools").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let is_ordinary = |tool: &&Value| callers(tool).is_ok_and(|callers| callers.direct || !callers.are_given);
    entries.iter().filter(is_ordinary).map(without_callers).collect()
}

fn callers(entry: &Value) -> Result<Callers, String> {
    let callers = entry.get("allowed_callers").or_else(|| entry.pointer("/function/allowed_callers"));
    Callers::of(callers, Callers::PROGRAMS)
}

fn without_callers(entry: &Value) -> Value {
    let mut entry = entry.clone();
    if let Some(fields) = entry.as_object_mut() {
        fields.shift_remove("allowed_callers");
    }
    if let Some(function) = entry.get_mut("function").and_then(Value::as_object_mut) {
        function.shift_remove("allowed_callers");
    }
    entry
}

/// What a program cannot promise: such a request goes to the model with the client's own tools.
pub(super) fn unpromised(body: &Map<String, Value>) -> Option<&'static str> {
    let asks = |key: &&'static str| match body.get(*key) {
        None | Some(Value::Null) => false,
        // A function that must be called.
        Some(choice) if *key == "tool_choice" => choice.is_object(),
        Some(n) if *key == "n" => n.as_u64() != Some(1),
        // It would cut the program.
        Some(Value::Array(stops)) if *key == "stop" => !stops.is_empty(),
        Some(_) => true,
    };
    ["tool_choice", "n", "stop", "functions", "function_call"].into_iter().find(asks)
}

pub(super) fn wanted(body: &Map<String, Value>) -> Wanted {
    let flag = |key: &str| body.get(key).and_then(Value::as_bool);
    let include_usage = body.get("stream_options").and_then(|options| options.get("include_usage"));
    let choice = body.get("tool_choice");
    Wanted {
        is_stream: flag("stream") == Some(true),
        include_usage: include_usage == Some(&Value::Bool(true)),
        one_call: flag("parallel_tool_calls") == Some(false),
        demand: match choice.and_then(Value::as_str) {
            Some("required") => Demand::Calls,
            Some("none") => Demand::NoCalls,
            _ => match choice
                .and_then(|choice| choice.pointer("/function/name").or_else(|| choice.pointer("/custom/name")))
                .and_then(Value::as_str)
            {
                Some(name) => Demand::Tool(name.to_owned()),
                None => Demand::Nothing,
            },
        },
    }
}

pub(super) fn conversation(
    body: &mut Map<String, Value>,
    explicit: bool,
    seals: Option<&Seals<'_>>,
) -> Result<Conversation, BadRequest> {
    let messages = match body.insert("messages".to_owned(), Value::Null) {
        Some(Value::Array(messages)) => messages,
        _ => Vec::new(),
    };
    match seals {
        Some(seals) if explicit => explicit::read(messages, seals.catalog),
        seals => Ok(walk(messages, seals)),
    }
}

pub(super) fn call_ids(body: &Value) -> Vec<Vec<String>> {
    let messages = body.get("messages").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let ids = |message: &Value| fields::tool_calls(message).iter().map(|call| fields::id(call).to_owned()).collect();
    messages.iter().map(ids).collect()
}

/// Reads the programs of plain mode. Without `seals` their calls are calls like others.
pub(super) fn walk(messages: Vec<Value>, seals: Option<&Seals<'_>>) -> Conversation {
    let mut conversation = Conversation::default();
    let mut messages = messages.into_iter().peekable();
    while let Some(message) = messages.next() {
        if fields::tool_calls(&message).iter().any(|call| Sealer::claims(fields::id(call))) {
            let mut answers = Vec::new();
            while let Some(answer) = messages.next_if(|next| fields::role(next) == "tool") {
                let (id, said) = (fields::tool_call_id(&answer).to_owned(), fields::answer(&answer));
                answers.push(AnswerOf { id, said, answer });
            }
            let call = |call: &Value| CallOf {
                id: fields::id(call).to_owned(),
                name: fields::function_name(call).to_owned(),
                call: call.clone(),
            };
            let calls = fields::tool_calls(&message).iter().map(call).collect();
            Exchange { message, calls, answers, remarks: Vec::new() }.add_to(&mut conversation, seals);
        } else if fields::role(&message) == "tool" && Sealer::claims(fields::tool_call_id(&message)) {
            plain::hear_late(&mut conversation, fields::tool_call_id(&message), fields::answer(&message));
        } else {
            conversation.items.push(Item::Message(message));
        }
    }
    conversation
}

/// The body for a model without programs: tools that only programs may call are not there.
pub(super) fn without_code_mode(mut body: Map<String, Value>, history: Option<Vec<Value>>) -> Value {
    if matches!(body.get("tools"), Some(Value::Array(_))) {
        let tools = ordinary_tools(&body);
        body.insert("tools".to_owned(), Value::Array(tools));
    }
    if let Some(history) = history {
        body.insert("messages".to_owned(), Value::Array(history));
    }
    Value::Object(body)
}

pub(super) fn ask(mut body: Map<String, Value>, ask: Ask<'_>) -> Value {
    body.insert("messages".to_owned(), Value::Array(ask.history.to_vec()));
    if ask.is_same_wire || !ask.tools.is_empty() {
        body.insert("tools".to_owned(), Value::Array(ask.tools));
    }
    match ask.demand {
        Demand::Nothing => {}
        Demand::NoCalls => _ = body.insert("tool_choice".to_owned(), Value::from("none")),
        Demand::Calls | Demand::Program => _ = body.insert("tool_choice".to_owned(), Value::from("required")),
        Demand::Tool(name) => {
            let is_custom = body["tools"].as_array().into_iter().flatten().any(|tool| tool["custom"]["name"] == name);
            let kind = if is_custom { "custom" } else { "function" };
            let choice = json!({"type": kind, kind: {"name": name}});
            body.insert("tool_choice".to_owned(), choice);
        }
    }
    if ask.is_stream {
        body.insert("stream".to_owned(), Value::Bool(true));
        let options = body.entry("stream_options").or_insert_with(|| json!({}));
        if let Some(options) = options.as_object_mut() {
            options.insert("include_usage".to_owned(), Value::Bool(true));
        } else {
            *options = json!({"include_usage": true});
        }
    }
    if !ask.is_same_wire && ask.one_call {
        body.insert("parallel_tool_calls".to_owned(), Value::Bool(false));
    }
    Value::Object(body)
}
