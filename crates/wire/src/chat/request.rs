//! A client's request: what it asks for, and what of it we take over.

use std::collections::BTreeSet;
use std::sync::Arc;

use dacapo_replay::{Toolbox, Toolboxes};
use serde_json::{Map, Value, json};

use super::plain::Kept;
use super::{Transcript, explicit, fields, plain};
use crate::conversation::{Conversation, Item};
use crate::prompt::Offer;
use crate::seal::{Sealer, tools_digest};

/// A request that cannot be served, and where it is wrong.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{param}: {message}")]
pub struct BadRequest {
    pub param: String,
    pub message: String,
}

/// What the header `x-dacapo-mode` and the configuration say about code mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Switch {
    Off,
    Plain,
    Explicit,
}

impl Switch {
    pub fn parse(text: &str) -> Option<Switch> {
        match text {
            "off" => Some(Switch::Off),
            "plain" => Some(Switch::Plain),
            "explicit" => Some(Switch::Explicit),
            _ => None,
        }
    }
}

/// What holds where a request says nothing.
#[derive(Debug, Clone, Copy)]
pub struct Defaults {
    pub switch: Switch,
    pub declarations_tokens_max: usize,
}

/// What the client says about calls in the answer, whatever the model would rather do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Demand {
    Nothing,
    Calls,
    NoCalls,
}

/// How the client wants its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Delivery {
    Whole,
    Stream,
    StreamWithUsage,
}

/// A request, read.
#[derive(Debug)]
pub enum Reading {
    /// Code mode has no part in it. `None`: the body goes on byte for byte.
    PassThrough(Option<Value>),
    Turn(Box<Turn>),
}

/// A request in code mode.
#[derive(Debug)]
pub struct Turn {
    pub conversation: Conversation,
    pub offer: Offer,
    /// Stands for the tool list.
    pub tools: [u8; 8],
    pub explicit: bool,
    pub delivery: Delivery,
    /// The client takes one call at a time.
    pub one_call: bool,
    pub demand: Demand,
    /// The request with everything that we do not understand, in place.
    body: Map<String, Value>,
    /// Entries of `tools` that stay as they are.
    passed_tools: Vec<Value>,
}

const CODE_MODE: &str = "code_mode";

impl Turn {
    /// Reads a request body. `header` is what `x-dacapo-mode` says.
    pub fn read(
        body: Value,
        header: Option<Switch>,
        defaults: Defaults,
        sealer: &Sealer,
        kept: &Kept,
        toolboxes: &Toolboxes,
    ) -> Result<Reading, BadRequest> {
        let Value::Object(mut body) = body else {
            return Err(bad("body", "must be a JSON object"));
        };
        let switch = switch(&body, header, defaults.switch)?;
        let had_switch = body.shift_remove(CODE_MODE).is_some();
        let messages = match body.get("messages") {
            Some(Value::Array(messages)) => messages,
            Some(_) => return Err(bad("messages", "must be an array")),
            None => return Err(bad("messages", "is missing")),
        };
        if let Some(at) = messages.iter().position(|message| !message.is_object()) {
            return Err(bad(&format!("messages[{at}]"), "must be an object"));
        }
        let has_sealed = messages.iter().any(|message| {
            fields::tool_calls(message).iter().any(|call| Sealer::claims(fields::id(call)))
                || Sealer::claims(fields::tool_call_id(message))
        });
        let has_blocks =
            messages.iter().any(|message| matches!(fields::role(message), explicit::CODE | explicit::CODE_RESULT));
        let split = Split::of(&body)?;
        let unpromised = cannot_promise(&body);
        if has_blocks {
            if switch == Switch::Off {
                return Err(bad(CODE_MODE, "is off, but the history has `code` messages"));
            }
            if let Some(key) = unpromised {
                return Err(bad(key, "cannot be had together with `code` messages: a program cannot promise it"));
            }
        } else if switch == Switch::Off || split.tools.is_empty() || unpromised.is_some() {
            let is_changed = had_switch || has_sealed || split.has_callers;
            return Ok(Reading::PassThrough(is_changed.then(|| without_code_mode(body, has_sealed))));
        }
        let tools = serde_json::to_string(&split.tools).unwrap_or_default();
        let toolbox = toolboxes.get(&tools).map_err(|error| bad(&split.path(&error.path), error.message))?;
        let Split { direct, passed, .. } = split;
        // The model is shown others in their place.
        body.insert("tools".to_owned(), Value::Null);
        // A conversation that began in plain mode stays in it.
        let explicit = has_blocks || switch == Switch::Explicit && !has_sealed;
        let messages = match body.insert("messages".to_owned(), Value::Null) {
            Some(Value::Array(messages)) => messages,
            _ => Vec::new(),
        };
        let conversation = if explicit {
            explicit::read(messages, toolbox.catalog())?
        } else {
            plain::read(messages, sealer, kept, toolbox.catalog())
        };
        let flag = |key: &str| body.get(key).and_then(Value::as_bool);
        let include_usage = body.get("stream_options").and_then(|options| options.get("include_usage"));
        Ok(Reading::Turn(Box::new(Turn {
            conversation,
            offer: Offer::new(toolbox, direct, defaults.declarations_tokens_max),
            tools: if explicit { [0; 8] } else { tools_digest(&tools) },
            explicit,
            delivery: match (flag("stream"), include_usage) {
                (Some(true), Some(Value::Bool(true))) => Delivery::StreamWithUsage,
                (Some(true), _) => Delivery::Stream,
                _ => Delivery::Whole,
            },
            one_call: flag("parallel_tool_calls") == Some(false),
            demand: match body.get("tool_choice").and_then(Value::as_str) {
                Some("required") => Demand::Calls,
                Some("none") => Demand::NoCalls,
                _ => Demand::Nothing,
            },
            passed_tools: passed,
            body,
        })))
    }

    pub fn toolbox(&self) -> &Arc<Toolbox> {
        self.offer.toolbox()
    }

    pub fn model(&self) -> &str {
        self.body.get("model").and_then(Value::as_str).unwrap_or_default()
    }

    /// The request for the model. `no_calls`: it has to come to an end.
    pub fn ask(&self, transcript: &Transcript, no_calls: bool) -> Value {
        let mut body = self.body.clone();
        body.insert("messages".to_owned(), Value::Array(transcript.messages().to_vec()));
        let ours = self.offer.tools().into_iter().map(|(name, description, parameters)| {
            json!({"type": "function", "function": {"name": name, "description": description, "parameters": parameters}})
        });
        body.insert("tools".to_owned(), ours.chain(self.passed_tools.iter().cloned()).collect());
        if no_calls {
            body.insert("tool_choice".to_owned(), Value::from("none"));
        }
        if self.delivery != Delivery::Whole {
            let options = body.entry("stream_options").or_insert_with(|| json!({}));
            if let Some(options) = options.as_object_mut() {
                options.insert("include_usage".to_owned(), Value::Bool(true));
            } else {
                *options = json!({"include_usage": true});
            }
        }
        Value::Object(body)
    }
}

/// The client's tools by who may call them.
#[derive(Default)]
struct Split<'a> {
    /// For programs.
    tools: Vec<&'a Value>,
    /// Names of those that the model may call by itself, the provider's included.
    direct: BTreeSet<String>,
    /// Entries that the model sees as they are.
    passed: Vec<Value>,
    /// Where the tools for programs stand in the request.
    places: Vec<usize>,
    /// Some entry says who may call it, which no provider understands.
    has_callers: bool,
}

impl Split<'_> {
    fn of(body: &Map<String, Value>) -> Result<Split<'_>, BadRequest> {
        let mut split = Split::default();
        let entries = match body.get("tools") {
            None | Some(Value::Null) => return Ok(split),
            Some(Value::Array(entries)) => entries,
            Some(_) => return Err(bad("tools", "must be an array")),
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
                Callers::of(entry).map_err(|message| bad(&format!("tools[{at}].allowed_callers"), message))?;
            split.has_callers |= callers.are_given;
            if callers.programs {
                split.tools.push(entry);
                split.places.push(at);
            }
            if callers.direct {
                split.direct.insert(fields::function_name(entry).to_owned());
                split.passed.push(without_callers(entry));
            }
        }
        Ok(split)
    }

    /// A place among the tools for programs, as a place in the request.
    fn path(&self, path: &str) -> String {
        let moved = || {
            let (number, rest) = path.strip_prefix("tools[")?.split_once(']')?;
            let place = self.places.get(number.parse::<usize>().ok()?)?;
            Some(format!("tools[{place}]{rest}"))
        };
        moved().unwrap_or_else(|| path.to_owned())
    }
}

struct Callers {
    direct: bool,
    programs: bool,
    are_given: bool,
}

impl Callers {
    fn of(entry: &Value) -> Result<Callers, String> {
        let callers = entry.get("allowed_callers").or_else(|| entry.pointer("/function/allowed_callers"));
        let names = match callers {
            None | Some(Value::Null) => return Ok(Callers { direct: false, programs: true, are_given: false }),
            Some(Value::Array(names)) if !names.is_empty() => names,
            Some(_) => return Err("must be an array of \"direct\" and \"programmatic\"".to_owned()),
        };
        let mut callers = Callers { direct: false, programs: false, are_given: true };
        for name in names {
            match name.as_str() {
                Some("direct") => callers.direct = true,
                Some("programmatic" | "execute") => callers.programs = true,
                Some(name) if name.starts_with("code_execution") => callers.programs = true,
                _ => return Err(format!("{name} is not known; use \"direct\" or \"programmatic\"")),
            }
        }
        Ok(callers)
    }
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

/// What the request itself says goes before the header, and that before the configuration.
fn switch(body: &Map<String, Value>, header: Option<Switch>, default: Switch) -> Result<Switch, BadRequest> {
    let on = || match header.unwrap_or(default) {
        Switch::Off => Switch::Plain,
        on => on,
    };
    match body.get(CODE_MODE) {
        None | Some(Value::Null) => Ok(header.unwrap_or(default)),
        Some(Value::Bool(false)) => Ok(Switch::Off),
        Some(Value::Bool(true)) => Ok(on()),
        Some(Value::Object(fields)) => {
            if let Some(key) = fields.keys().find(|key| *key != "explicit") {
                return Err(bad(&format!("{CODE_MODE}.{key}"), "is not known; the only key is `explicit`"));
            }
            match fields.get("explicit") {
                Some(Value::Bool(true)) => Ok(Switch::Explicit),
                Some(Value::Bool(false)) => Ok(Switch::Plain),
                None => Ok(on()),
                Some(_) => Err(bad("code_mode.explicit", "must be true or false")),
            }
        }
        Some(_) => Err(bad(CODE_MODE, "must be true, false or {\"explicit\": true}")),
    }
}

/// What a program cannot promise: such a request goes to the model with the client's own tools.
fn cannot_promise(body: &Map<String, Value>) -> Option<&'static str> {
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

/// The body for a model without programs: their calls are ordinary ones, and tools that only programs may call are not
/// there.
fn without_code_mode(mut body: Map<String, Value>, has_sealed: bool) -> Value {
    if let Some(Value::Array(tools)) = body.get_mut("tools") {
        tools.retain(|tool| Callers::of(tool).is_ok_and(|callers| callers.direct || !callers.are_given));
        for tool in tools {
            *tool = without_callers(tool);
        }
    }
    if has_sealed {
        let messages = match body.get_mut("messages") {
            Some(Value::Array(messages)) => std::mem::take(messages),
            _ => Vec::new(),
        };
        let mut transcript = Transcript::default();
        for item in plain::as_ordinary(messages).items {
            match item {
                Item::Message(message) => transcript.message(message),
                Item::Lost(calls) => transcript.off(&calls),
                Item::Block(_) => {}
            }
        }
        body.insert("messages".to_owned(), Value::Array(transcript.messages().to_vec()));
    }
    Value::Object(body)
}

fn bad(param: &str, message: impl Into<String>) -> BadRequest {
    BadRequest { param: param.to_owned(), message: message.into() }
}
