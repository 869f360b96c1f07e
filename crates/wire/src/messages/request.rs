//! What a body asks for, and what the model is asked with.

use serde_json::{Map, Value, json};

use super::{fields, history, tools};
use crate::conversation::Conversation;
use crate::dialect::{Ask, Survey};
use crate::plain::Seals;
use crate::reader::{BadRequest, entries};
use crate::seal::Sealer;
use crate::turn::{Demand, Wanted};

/// What the names of our containers begin with. There is nothing in them.
pub(super) const CONTAINER_PREFIX: &str = "container_dc_";

pub(super) fn survey(body: &Map<String, Value>) -> Result<Survey, BadRequest> {
    let messages = entries(body, "messages")?;
    let is_sealed = |block: &Value| {
        Sealer::claims(fields::id(block))
            || Sealer::claims(fields::tool_use_id(block))
            || fields::is_our_program(block)
            || fields::is_our_search(block)
            || fields::is_carrier(block)
    };
    let has_sealed = messages.iter().flat_map(fields::blocks).any(is_sealed);
    let declares_programs = tools::declares_programs(body);
    // Programs in the history of a client that does not declare them any more are read all the same, but demand
    // nothing of the request.
    let is_program = |block: &Value| fields::is_program(block) || fields::kind(block) == fields::PROGRAM_RESULT;
    let has_programs = declares_programs && messages.iter().flat_map(fields::blocks).any(is_program);
    Ok(Survey { has_sealed, has_programs, declares_programs })
}

/// What a program cannot promise: such a request goes to the model with the client's own tools.
pub(super) fn unpromised(body: &Map<String, Value>) -> Option<&'static str> {
    if chosen_tool(body).is_some_and(|name| tools::is_only_for_programs(body, name)) {
        return Some("tool_choice");
    }
    // They would cut the program.
    let stops = body.get("stop_sequences").and_then(Value::as_array);
    stops.is_some_and(|stops| !stops.is_empty()).then_some("stop_sequences")
}

fn chosen_tool(body: &Map<String, Value>) -> Option<&str> {
    let choice = body.get("tool_choice")?;
    (fields::kind(choice) == "tool").then(|| fields::name(choice))
}

pub(super) fn wanted(body: &Map<String, Value>) -> Wanted {
    let choice = body.get("tool_choice");
    let demand = match choice.map(fields::kind) {
        Some("any") => Demand::Calls,
        Some("none") => Demand::NoCalls,
        _ => match chosen_tool(body) {
            Some(fields::PROGRAM) if tools::declares_programs(body) => Demand::Program,
            Some(name) => Demand::Tool(name.to_owned()),
            None => Demand::Nothing,
        },
    };
    Wanted {
        is_stream: body.get("stream") == Some(&Value::Bool(true)),
        include_usage: true,
        one_call: choice.is_some_and(takes_one_call),
        demand,
    }
}

fn takes_one_call(choice: &Value) -> bool {
    choice.get("disable_parallel_tool_use") == Some(&Value::Bool(true))
}

/// The body for a model without programs of ours.
pub(super) fn without_code_mode(mut body: Map<String, Value>, history: Option<Vec<Value>>) -> Value {
    tools::without_code_mode(&mut body);
    body.shift_remove("thread");
    if let Some(history) = history {
        body.insert("messages".to_owned(), Value::Array(history.into_iter().filter_map(without_carriers).collect()));
    }
    Value::Object(body)
}

/// A message without what clients carry for us.
fn without_carriers(mut message: Value) -> Option<Value> {
    if !fields::blocks(&message).iter().any(fields::is_carrier) {
        return Some(message);
    }
    let content = message.get_mut("content").and_then(Value::as_array_mut)?;
    content.retain(|block| !fields::is_carrier(block));
    if content.is_empty() { None } else { Some(message) }
}

pub(super) fn conversation(body: &mut Map<String, Value>, seals: Option<&Seals<'_>>) -> Conversation {
    let messages = match body.insert("messages".to_owned(), Value::Null) {
        Some(Value::Array(messages)) => messages,
        _ => Vec::new(),
    };
    match seals {
        Some(seals) => history::read(messages, body, seals),
        None => history::read_off(messages),
    }
}

pub(super) fn call_ids(body: &Value) -> Vec<Vec<String>> {
    let messages = body.get("messages").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let ids = |message: &Value| {
        let calls = fields::blocks(message).iter().filter(|block| fields::kind(block) == fields::TOOL_USE);
        calls.map(|call| fields::id(call).to_owned()).collect()
    };
    messages.iter().map(ids).collect()
}

pub(super) fn ask(mut body: Map<String, Value>, ask: Ask<'_>) -> Value {
    let mut tools = ask.tools;
    let history = ask.history.to_vec();
    let is_forced = matches!(ask.demand, Demand::Calls | Demand::Program | Demand::Tool(_));
    let history = if ask.is_same_wire {
        tools::keep_cache_breakpoint(ask.client, &mut tools);
        if tools::declares_programs(ask.client) || has_our_container(&body) {
            body.shift_remove("container");
        }
        history.into_iter().filter_map(without_carriers).collect()
    } else {
        if let Some(last) = tools.last_mut() {
            last["cache_control"] = json!({"type": "ephemeral"});
        }
        let (system, history) = lifted(history);
        if !system.is_empty() {
            body.insert("system".to_owned(), Value::Array(system));
        }
        if is_forced {
            body.shift_remove("thinking");
        }
        history
    };
    if needs_thoughts(&body) && lacks_thoughts(&history) {
        body.shift_remove("thinking");
    }
    body.shift_remove("thread");
    body.insert("messages".to_owned(), Value::Array(history));
    if !tools.is_empty() {
        let given = body.get("tool_choice");
        let one_call = given.map_or(ask.one_call && !ask.is_same_wire, takes_one_call);
        if given.is_none() || ask.demand != Demand::Nothing {
            let choice = choice(&ask.demand, one_call);
            choice.map(|choice| body.insert("tool_choice".to_owned(), choice));
        }
    }
    if ask.is_same_wire || !tools.is_empty() {
        body.insert("tools".to_owned(), Value::Array(tools));
    }
    if ask.is_stream {
        body.insert("stream".to_owned(), Value::Bool(true));
    }
    Value::Object(body)
}

/// What has to stand in the body, unless what is there already says it.
fn choice(demand: &Demand, one_call: bool) -> Option<Value> {
    let mut choice = match demand {
        Demand::NoCalls => return Some(json!({"type": "none"})),
        Demand::Nothing if one_call => json!({"type": "auto"}),
        Demand::Nothing => return None,
        Demand::Calls | Demand::Program => json!({"type": "any"}),
        Demand::Tool(name) => json!({"type": "tool", "name": name}),
    };
    if one_call {
        choice["disable_parallel_tool_use"] = Value::Bool(true);
    }
    Some(choice)
}

fn has_our_container(body: &Map<String, Value>) -> bool {
    let container = body.get("container");
    let id = container.and_then(|container| container.as_str().or_else(|| container.get("id")?.as_str()));
    id.is_some_and(|id| id.starts_with(CONTAINER_PREFIX))
}

/// Such models refuse calls whose message does not begin with a thought. Those that decide for themselves when to
/// think do not.
fn needs_thoughts(body: &Map<String, Value>) -> bool {
    body.get("thinking").is_some_and(|thinking| fields::kind(thinking) == "enabled")
}

/// The results at the end answer a message without thoughts.
fn lacks_thoughts(history: &[Value]) -> bool {
    let asked = history.iter().rposition(|message| fields::role(message) == "assistant");
    let Some(asked) = asked else { return false };
    let after = history[asked + 1..].iter().flat_map(fields::blocks);
    let is_open = after.into_iter().any(|block| fields::kind(block) == fields::TOOL_RESULT);
    is_open && !fields::blocks(&history[asked]).first().is_some_and(fields::is_thought)
}

/// A history from another wire: what its system messages say at its beginning, and the others. Neighbours of one role
/// are one message, in which results come first.
fn lifted(history: Vec<Value>) -> (Vec<Value>, Vec<Value>) {
    let mut system = Vec::new();
    let mut lifted: Vec<(&'static str, Vec<Value>)> = Vec::new();
    for entry in history {
        let content = fields::content(&entry).into_owned();
        let role = match fields::role(&entry) {
            "system" if lifted.is_empty() => {
                system.extend(content);
                continue;
            }
            "assistant" => "assistant",
            _ => "user",
        };
        match lifted.last_mut() {
            Some((last, known)) if *last == role => known.extend(content),
            _ => lifted.push((role, content)),
        }
    }
    for (role, content) in &mut lifted {
        if *role == "user" {
            // It keeps the order otherwise.
            content.sort_by_key(|block| fields::kind(block) != fields::TOOL_RESULT);
        }
    }
    let messages = lifted.into_iter().map(|(role, content)| json!({"role": role, "content": content}));
    (system, messages.collect())
}
