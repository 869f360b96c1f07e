//! Reading a client's request: whether code mode has a part in it, and what it is to do.

use std::collections::BTreeSet;
use std::sync::Arc;

use dacapo_replay::Toolboxes;
use serde_json::{Map, Value};

use crate::conversation::{Conversation, Item};
use crate::dialect::Survey;
use crate::message::{Effort, Input, Tool};
use crate::plain::{Kept, Seals};
use crate::prompt::Offer;
use crate::seal::{Sealer, tools_digest};
use crate::transcript::Transcript;
use crate::turn::{Demand, Turn};
use crate::wire::Wire;

/// A request that cannot be served, and where it is wrong.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{param}: {message}")]
pub struct BadRequest {
    pub param: String,
    pub message: String,
}

impl BadRequest {
    pub(crate) fn new(param: impl Into<String>, message: impl Into<String>) -> BadRequest {
        BadRequest { param: param.into(), message: message.into() }
    }
}

/// The entries of a history that must be there.
pub(crate) fn entries<'a>(body: &'a Map<String, Value>, key: &str) -> Result<&'a [Value], BadRequest> {
    let entries = match body.get(key) {
        Some(Value::Array(entries)) => entries,
        Some(_) => return Err(BadRequest::new(key, "must be an array")),
        None => return Err(BadRequest::new(key, "is missing")),
    };
    match entries.iter().position(|entry| !entry.is_object()) {
        Some(at) => Err(BadRequest::new(format!("{key}[{at}]"), "must be an object")),
        None => Ok(entries),
    }
}

/// What the header `x-dacapo-mode` and the configuration say about code mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Switch {
    Off,
    Plain,
    Explicit,
    /// Clients that declare programs get those of the model's provider; for others it is [`Switch::Plain`].
    Native,
}

impl Switch {
    pub fn parse(text: &str) -> Option<Switch> {
        match text {
            "off" => Some(Switch::Off),
            "plain" => Some(Switch::Plain),
            "explicit" => Some(Switch::Explicit),
            "native" => Some(Switch::Native),
            _ => None,
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Switch::Off => "off",
            Switch::Plain => "plain",
            Switch::Explicit => "explicit",
            Switch::Native => "native",
        }
    }
}

/// What holds where a request says nothing.
#[derive(Debug, Clone, Copy)]
pub struct Defaults {
    pub switch: Switch,
    pub declarations_tokens_max: usize,
    /// Whether models write programs as plain text, where their wire has tools for that.
    pub custom_execute: bool,
}

/// What a request is read with.
#[derive(Debug, Clone, Copy)]
pub struct Reader<'a> {
    /// Of the model that will be asked.
    pub upstream: Wire,
    /// What `x-dacapo-mode` says.
    pub header: Option<Switch>,
    pub defaults: Defaults,
    pub sealer: &'a Sealer,
    pub kept: &'a Kept,
    pub toolboxes: &'a Toolboxes,
}

/// A request, read.
#[derive(Debug)]
pub enum Reading {
    /// Code mode has no part in it. `None`: the body goes on byte for byte.
    PassThrough(Option<Value>),
    Turn(Box<Turn>),
}

const CODE_MODE: &str = "code_mode";

impl Reader<'_> {
    /// Reads a request body.
    pub fn read(&self, wire: Wire, body: Value) -> Result<Reading, BadRequest> {
        let dialect = wire.dialect();
        let Value::Object(mut body) = body else {
            return Err(BadRequest::new("body", "must be a JSON object"));
        };
        let switch = switch(&body, self.header, self.defaults.switch)?;
        let had_switch = body.shift_remove(CODE_MODE).is_some();
        if wire != self.upstream {
            check_wishes(&body)?;
        }
        let Survey { has_sealed, has_programs, declares_programs } = (dialect.survey)(&body)?;
        let is_native = switch == Switch::Native && declares_programs && wire == self.upstream;
        // A conversation that began in plain mode stays in it, unless its wire seals ids in both.
        let can_begin = !has_sealed || wire == Wire::Messages;
        let explicit = has_programs || declares_programs || switch == Switch::Explicit && can_begin;
        let split = (dialect.split)(&body, declares_programs)?;
        // Where nobody stops, nothing has to be promised.
        let is_moot = |key: &&str| key.starts_with("stop") && self.upstream == Wire::Responses;
        let unpromised = (dialect.unpromised)(&body).filter(|key| !is_moot(key));
        let is_explicit = has_programs || declares_programs && switch != Switch::Off && !is_native;
        if let Some(key) = unpromised.filter(|_| is_explicit) {
            return Err(BadRequest::new(
                key,
                "cannot be had together with programs, which cannot promise it; leave it out, or switch code mode off",
            ));
        }
        if has_programs && !declares_programs {
            if switch == Switch::Off {
                return Err(BadRequest::new(CODE_MODE, "is off, but the history has programs"));
            }
        } else if is_native
            || switch == Switch::Off
            || split.tools.is_empty() && !declares_programs
            || unpromised.is_some()
        {
            let passing = Passing { had_switch, has_sealed, has_ours: split.has_ours, is_native };
            return self.without_code_mode(wire, body, declares_programs, &passing);
        }
        let tools = serde_json::to_string(&split.tools).unwrap_or_default();
        let toolbox =
            self.toolboxes.get(&tools).map_err(|error| BadRequest::new(split.path(&error.path), error.message))?;
        let tokens_max = self.defaults.declarations_tokens_max;
        let mut offer =
            Offer::new(Arc::clone(&toolbox), split.direct, tokens_max).with_open_toolset(split.has_open_toolset);
        if !split.deferred.is_empty() {
            let declared = split.tools.iter().enumerate().filter(|(at, _)| !split.deferred.contains(at));
            let declared: Vec<&Value> = declared.map(|(_, tool)| tool.as_ref()).collect();
            let declared = serde_json::to_string(&declared).unwrap_or_default();
            let declared = self.toolboxes.get(&declared).map_err(|error| BadRequest::new("tools", error.message))?;
            offer = offer.declaring(declared, tokens_max);
        }
        let (passed, search_tool) = (split.passed, split.search_tool);
        let seals = Seals { sealer: self.sealer, kept: self.kept, catalog: toolbox.catalog() };
        let conversation = (dialect.conversation)(&mut body, explicit, Some(&seals))?;
        Ok(Reading::Turn(Box::new(Turn {
            search_tool,
            tools: if explicit { [0; 8] } else { tools_digest(&tools) },
            explicit,
            ..self.turn(wire, body, conversation, offer, passed)
        })))
    }

    fn turn(
        &self,
        wire: Wire,
        body: Map<String, Value>,
        conversation: Conversation,
        offer: Offer,
        passed_tools: Vec<Value>,
    ) -> Turn {
        let wanted = (wire.dialect().wanted)(&body);
        let is_text = |tool: &Tool| matches!(tool.input, Input::Text { .. });
        let custom = passed_tools.iter().filter_map(|entry| (wire.dialect().read_tool)(entry)).filter(is_text);
        let custom = if wire == self.upstream { BTreeSet::new() } else { custom.map(|tool| tool.name).collect() };
        let dropped =
            if wire == self.upstream { Vec::new() } else { dropped(wire, self.upstream, &body, &passed_tools) };
        Turn {
            wire,
            upstream: self.upstream,
            conversation,
            offer,
            tools: [0; 8],
            explicit: false,
            wanted,
            body,
            passed_tools,
            dropped,
            search_tool: None,
            custom,
            custom_execute: self.defaults.custom_execute && self.upstream == Wire::Responses,
        }
    }

    /// On the same wire the body goes on as it came, but for what only we understand.
    fn without_code_mode(
        &self,
        wire: Wire,
        mut body: Map<String, Value>,
        declares_programs: bool,
        passing: &Passing,
    ) -> Result<Reading, BadRequest> {
        let dialect = wire.dialect();
        let is_same_wire = wire == self.upstream;
        if is_same_wire && passing.is_native {
            return Ok(Reading::PassThrough(passing.had_switch.then_some(Value::Object(body))));
        }
        if let Demand::Tool(name) = (dialect.wanted)(&body).demand
            && !(dialect.ordinary_tools)(&body, declares_programs).iter().any(|tool| is_called(tool, &name))
            && passing.has_ours
        {
            let message = format!("`{name}` may only be called by programs, so that the model cannot be made to");
            return Err(BadRequest::new("tool_choice", message));
        }
        if is_same_wire && !passing.had_switch && !passing.has_sealed && !passing.has_ours {
            return Ok(Reading::PassThrough(None));
        }
        if is_same_wire {
            let history = if passing.has_sealed {
                let mut transcript = Transcript::new(wire, wire);
                for item in (dialect.conversation)(&mut body, false, None)?.items {
                    match item {
                        Item::Message(message) => transcript.message(message),
                        Item::Lost(calls) => transcript.off(&calls),
                        Item::Block(_) | Item::Search(_) => {}
                    }
                }
                Some(transcript.into_entries())
            } else {
                None
            };
            return Ok(Reading::PassThrough(Some((dialect.without_code_mode)(body, history))));
        }
        let tools = (dialect.ordinary_tools)(&body, declares_programs);
        let conversation = (dialect.conversation)(&mut body, false, None)?;
        let nothing = self.toolboxes.get("[]").map_err(|error| BadRequest::new("tools", error.message))?;
        Ok(Reading::Turn(Box::new(self.turn(wire, body, conversation, Offer::off(nothing), tools))))
    }
}

/// What is known of a request without code mode.
#[expect(clippy::struct_excessive_bools, reason = "each says whether one thing is there")]
struct Passing {
    had_switch: bool,
    has_sealed: bool,
    has_ours: bool,
    is_native: bool,
}

fn is_called(tool: &Value, name: &str) -> bool {
    let names = [tool.get("name"), tool.pointer("/function/name"), tool.pointer("/custom/name")];
    names.into_iter().flatten().any(|known| known == name)
}

/// Of a request that we write anew nobody else would say what is wrong.
fn check_wishes(body: &Map<String, Value>) -> Result<(), BadRequest> {
    let is_wrong = |key: &&str, is_right: fn(&Value) -> bool| {
        body.get(*key).is_some_and(|value| !value.is_null() && !is_right(value))
    };
    let tokens = ["max_tokens", "max_completion_tokens", "max_output_tokens"];
    let is_count = |value: &Value| value.as_u64().is_some_and(|count| count > 0);
    if let Some(key) = tokens.into_iter().find(|key| is_wrong(key, is_count)) {
        return Err(BadRequest::new(key, "must be a whole number above 0"));
    }
    if let Some(key) = ["temperature", "top_p"].into_iter().find(|key| is_wrong(key, Value::is_number)) {
        return Err(BadRequest::new(key, "must be a number"));
    }
    if is_wrong(&"stream", Value::is_boolean) {
        return Err(BadRequest::new("stream", "must be true or false"));
    }
    let inner = |key: &str, name: &str| body.get(key).and_then(|value| value.get(name));
    let efforts = [
        ("reasoning_effort", body.get("reasoning_effort")),
        ("reasoning.effort", inner("reasoning", "effort")),
        ("output_config.effort", inner("output_config", "effort")),
    ];
    let is_unknown = |value: &Value| !value.is_null() && value.as_str().and_then(Effort::parse).is_none();
    match efforts.into_iter().find(|(_, value)| value.is_some_and(is_unknown)) {
        Some((key, _)) => Err(BadRequest::new(key, "must be none, minimal, low, medium, high, xhigh or max")),
        None => Ok(()),
    }
}

/// Fields and tools that the model's wire cannot carry.
fn dropped(client: Wire, upstream: Wire, body: &Map<String, Value>, passed_tools: &[Value]) -> Vec<String> {
    let (client, upstream) = (client.dialect(), upstream.dialect());
    let wishes = (client.wishes)(body);
    // What is not there any more when it is read back has no place.
    let carried = (upstream.wishes)(&(upstream.body)(&wishes));
    let lost = [
        (wishes.temperature.is_some() && carried.temperature.is_none(), "temperature"),
        (wishes.top_p.is_some() && carried.top_p.is_none(), "top_p"),
        (wishes.stops != carried.stops, "stop"),
        (wishes.effort > Some(Effort::None) && carried.effort.is_none(), "reasoning effort"),
        (wishes.format.is_some() && carried.format.is_none(), "response format"),
        (wishes.user.is_some() && carried.user.is_none(), "user"),
    ];
    let is_choice_lost =
        body.get("tool_choice").is_some_and(Value::is_object) && (client.wanted)(body).demand == Demand::Nothing;
    let is_auto = body.get("tool_choice").is_some_and(|choice| choice["type"] == "auto");
    let lost = lost.into_iter().chain([(is_choice_lost && !is_auto, "tool_choice")]);
    let lost = lost.filter(|(is_lost, _)| *is_lost).map(|(_, name)| name.to_owned());
    let tools = passed_tools.iter().filter(|entry| (client.read_tool)(entry).is_none());
    let tools = tools.map(|entry| {
        let name = entry.get("type").or_else(|| entry.get("name")).and_then(Value::as_str).unwrap_or("?");
        format!("tools: {name}")
    });
    wishes.dropped.iter().cloned().chain(lost).chain(tools).collect()
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
                return Err(BadRequest::new(format!("{CODE_MODE}.{key}"), "is not known; the only key is `explicit`"));
            }
            match fields.get("explicit") {
                Some(Value::Bool(true)) => Ok(Switch::Explicit),
                Some(Value::Bool(false)) => Ok(Switch::Plain),
                None => Ok(on()),
                Some(_) => Err(BadRequest::new("code_mode.explicit", "must be true or false")),
            }
        }
        Some(_) => Err(BadRequest::new(CODE_MODE, "must be true, false or {\"explicit\": true}")),
    }
}
