//! What a step depends on, built from typed parts or read from JSON.
//!
//! JSON is read strictly: unknown keys, wrong types and values out of range are errors that name their path.

use std::sync::Arc;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::journal::{Answer, ArgsDigest, CallIndex, Journal, JournalEntry};
use crate::json_text::JsonText;
use crate::limits::{Limit, Limits};
use crate::program::Program;
use crate::record::CompletedCall;
use crate::stored::StoredValues;
use crate::toolbox::Toolbox;
use crate::toolboxes::Toolboxes;

/// Everything that a step depends on. Equal requests give equal steps, byte for byte.
///
/// ```
/// use dacapo_replay::{Journal, Limit, Limits, Program, StepRequest, Toolbox};
/// let mut limits = Limits::default();
/// limits.set(Limit::Calls, 20).unwrap();
/// let toolbox = Toolbox::read(r#"[{"name": "add"}]"#)?;
/// let request = StepRequest::new(Program::new("return add({a: 1, b: 2})"), toolbox).with_limits(limits);
/// assert_eq!(request.journal.entries(), []);
/// # Ok::<(), dacapo_replay::RequestError>(())
/// ```
#[derive(Debug, Clone)]
pub struct StepRequest {
    /// The program, which is run from its start.
    pub program: Program,
    /// The tools that it may call.
    pub toolbox: Arc<Toolbox>,
    /// The answers so far. To go on after a pause, append the answers to its calls and step again.
    pub journal: Journal,
    /// The record: calls of earlier programs that failed or were abandoned, oldest first.
    pub reuse: Vec<CompletedCall>,
    /// What earlier programs of the conversation have kept: the [`Step::stored`](crate::Step::stored) of the last one.
    pub stored: StoredValues,
    /// Calls that earlier steps handed out, needed only if the tools have changed since: they are accepted whatever the
    /// tools are now.
    pub handed_out: Vec<HandedOutCall>,
    /// What the program may use.
    pub limits: Limits,
    /// Whose request it is, in a service for several: what a step of one tenant left in memory never serves, nor
    /// hastens, a step of another. It does not change the outcome.
    pub tenant: String,
}

/// A call that a step handed out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HandedOutCall {
    /// Which call of the program it is.
    pub call: CallIndex,
    /// The tool's qualified name.
    pub tool: String,
    /// Digest of the arguments.
    pub args: ArgsDigest,
}

/// How a service reads the requests of its clients.
#[derive(Debug, Clone, Copy)]
pub struct ServiceRules<'a> {
    /// Tool lists that were seen before.
    pub toolboxes: &'a Toolboxes,
    /// Whose request it is.
    pub tenant: &'a str,
    /// What a program may use. A request may ask for less, but not for more.
    pub limits: &'a Limits,
}

/// What is wrong with a request, and where.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{path}{}{message}", if path.is_empty() { "" } else { ": " })]
pub struct RequestError {
    /// Like `journal[2].call`; empty for the request as a whole.
    pub path: String,
    /// What is wrong there, and what to write instead.
    pub message: String,
}

/// The latest moment that a JavaScript `Date` can hold.
const DATE_MAX_MS: f64 = 8.64e15;

impl StepRequest {
    /// A request for the first step of a program, with default limits.
    pub fn new(program: Program, toolbox: impl Into<Arc<Toolbox>>) -> StepRequest {
        let toolbox = toolbox.into();
        StepRequest {
            program,
            toolbox,
            journal: Journal::default(),
            reuse: Vec::new(),
            stored: StoredValues::default(),
            handed_out: Vec::new(),
            limits: Limits::default(),
            tenant: String::new(),
        }
    }

    /// The same request with these answers.
    #[must_use]
    pub fn with_journal(mut self, journal: Journal) -> StepRequest {
        self.journal = journal;
        self
    }

    /// The same request with these completed calls of earlier programs.
    #[must_use]
    pub fn with_reuse(mut self, reuse: Vec<CompletedCall>) -> StepRequest {
        self.reuse = reuse;
        self
    }

    /// The same request with these values of earlier programs.
    #[must_use]
    pub fn with_stored(mut self, stored: StoredValues) -> StepRequest {
        self.stored = stored;
        self
    }

    /// The same request with these limits.
    #[must_use]
    pub fn with_limits(mut self, limits: Limits) -> StepRequest {
        self.limits = limits;
        self
    }

    /// Reads the JSON that `dacapo step` takes.
    ///
    /// ```
    /// use dacapo_replay::StepRequest;
    /// let request = StepRequest::parse(r#"{"program": {"code": "return 1"}}"#).unwrap();
    /// assert_eq!(request.program.code, "return 1");
    /// let error = StepRequest::parse(r#"{"program": {"code": 1}}"#).unwrap_err();
    /// assert_eq!(error.path, "program.code");
    /// ```
    pub fn parse(text: &str) -> Result<StepRequest, RequestError> {
        StepRequest::read(text, &|tools| Toolbox::read(tools).map(Arc::new), None)
    }

    /// Like [`StepRequest::parse`], with tool lists that were seen before taken from a cache.
    pub fn parse_with(text: &str, toolboxes: &Toolboxes) -> Result<StepRequest, RequestError> {
        StepRequest::read(text, &|tools| toolboxes.get(tools), None)
    }

    /// Like [`StepRequest::parse`], by the rules of a service.
    ///
    /// ```
    /// use dacapo_replay::{Limits, ServiceRules, StepRequest, Toolboxes};
    /// let rules = ServiceRules { toolboxes: &Toolboxes::default(), tenant: "ann", limits: &Limits::default() };
    /// let greedy = r#"{"program": {"code": "return 1"}, "limits": {"calls": 10001}}"#;
    /// assert_eq!(StepRequest::parse_for(greedy, rules).unwrap_err().path, "limits.calls");
    /// ```
    pub fn parse_for(text: &str, rules: ServiceRules<'_>) -> Result<StepRequest, RequestError> {
        let toolbox = |tools: &str| rules.toolboxes.get_for(rules.tenant, tools);
        let request = StepRequest::read(text, &toolbox, Some(rules.limits))?;
        Ok(StepRequest { tenant: rules.tenant.to_owned(), ..request })
    }

    fn read(
        text: &str,
        toolbox: &dyn Fn(&str) -> Result<Arc<Toolbox>, RequestError>,
        ceilings: Option<&Limits>,
    ) -> Result<StepRequest, RequestError> {
        let raw: &RawValue = serde_json::from_str(text)
            .map_err(|error| RequestError::new("", format!("the request is not JSON: {error}")))?;
        let fields = ObjectFields::read(raw, "", &["program", "tools", "journal", "reuse", "stored", "limits"])?;
        let program = program(fields.raw("program").ok_or_else(|| RequestError::new("program", "is missing"))?)?;
        let toolbox = toolbox(fields.raw("tools").map_or("[]", RawValue::get))?;
        let limits = match fields.raw("limits") {
            Some(raw) => limits(raw, ceilings)?,
            None => ceilings.copied().unwrap_or_default(),
        };
        Ok(StepRequest {
            program,
            toolbox,
            journal: read_journal(&fields.list("journal")?, &["call", "tool", "args", "ok", "error"])?,
            reuse: reuse(&fields.list("reuse")?)?,
            stored: fields.raw("stored").map_or_else(|| Ok(StoredValues::default()), stored)?,
            handed_out: Vec::new(),
            limits,
            tenant: String::new(),
        })
    }
}

impl RequestError {
    pub(crate) fn new(path: impl Into<String>, message: impl Into<String>) -> RequestError {
        RequestError { path: path.into(), message: message.into() }
    }
}

fn program(raw: &RawValue) -> Result<Program, RequestError> {
    let fields = ObjectFields::read(raw, "program", &["code", "id", "seed", "started_at"])?;
    let mut program = Program::new(fields.required::<String>("code")?);
    if let Some(id) = fields.optional::<String>("id")? {
        program.seed.clone_from(&id);
        program.id = id;
    }
    if let Some(seed) = fields.optional("seed")? {
        program.seed = seed;
    }
    if let Some(started_at) = fields.optional::<f64>("started_at")? {
        if !(0.0..=DATE_MAX_MS).contains(&started_at) {
            return Err(fields.error("started_at", "must be milliseconds since 1970"));
        }
        program.started_at_ms = started_at.trunc();
    }
    Ok(program)
}

/// Reads answered calls. `known` are the fields that an entry may have.
pub(crate) fn read_journal(items: &[ListItem<'_>], known: &[&str]) -> Result<Journal, RequestError> {
    let mut journal = Journal::default();
    let mut answered = std::collections::BTreeMap::new();
    for item in items {
        let fields = ObjectFields::read(item.raw, &item.path, known)?;
        let call = CallIndex(fields.required("call")?);
        if let Some(earlier) = answered.insert(call, item.path.as_str()) {
            return Err(fields.error("call", format!("{call} is answered already by {earlier}")));
        }
        let (tool, answer) = (fields.required::<String>("tool")?, answer(&fields)?);
        let args = fields.optional::<Value>("args")?;
        journal.push(match (args, fields.optional::<String>("args_digest")?) {
            (args, None) => JournalEntry::new(call, tool, args.as_ref(), answer),
            (None, Some(digest)) => {
                let bytes = u32::from_str_radix(&digest, 16).ok().filter(|_| digest.len() == 8);
                let bytes = bytes.ok_or_else(|| fields.error("args_digest", "must have eight hexadecimal digits"))?;
                JournalEntry::with_digest(call, tool, ArgsDigest(bytes.to_be_bytes()), answer)
            }
            (Some(_), Some(_)) => return Err(fields.error("args_digest", "goes only without `args`")),
        });
    }
    Ok(journal)
}

fn answer(fields: &ObjectFields<'_>) -> Result<Answer, RequestError> {
    match (fields.raw("ok"), fields.raw("error")) {
        (Some(ok), None) => Ok(Answer::Ok(JsonText::from(ok))),
        (None, Some(error)) => {
            let fields = ObjectFields::read(error, &fields.path_of("error"), &["message", "data"])?;
            let data = fields.raw("data").map(JsonText::from);
            Ok(Answer::Error { message: fields.required("message")?, data })
        }
        (None, None) => Err(RequestError::new(&fields.path, "needs `ok` or `error`")),
        (Some(_), Some(_)) => {
            Err(RequestError::new(&fields.path, "has both `ok` and `error`; an answer is one of them"))
        }
    }
}

fn reuse(items: &[ListItem<'_>]) -> Result<Vec<CompletedCall>, RequestError> {
    let record = |item: &ListItem<'_>| {
        let fields = ObjectFields::read(item.raw, &item.path, &["tool", "args", "ok"])?;
        let ok =
            fields.raw("ok").ok_or_else(|| fields.error("ok", "is missing; only successful answers are reused"))?;
        Ok(CompletedCall::new(
            fields.required::<String>("tool")?,
            &fields.required::<Value>("args")?,
            JsonText::from(ok),
        ))
    };
    items.iter().map(record).collect()
}

fn stored(raw: &RawValue) -> Result<StoredValues, RequestError> {
    let ObjectText(fields) =
        serde_json::from_str(raw.get()).map_err(|error| RequestError::new("stored", plain(&error)))?;
    let mut stored = StoredValues::default();
    for (name, value) in fields {
        if name.is_empty() {
            return Err(RequestError::new("stored", "has an empty name"));
        }
        if stored.get(&name).is_some() {
            return Err(RequestError::new(format!("stored.{name}"), "stands twice"));
        }
        stored.insert(name, JsonText::from(value));
    }
    Ok(stored)
}

/// The limits of a request. None may be above its ceiling, and one that is not given is at its ceiling.
fn limits(raw: &RawValue, ceilings: Option<&Limits>) -> Result<Limits, RequestError> {
    let fields = ObjectFields::read(raw, "limits", &Limit::ALL.map(Limit::name))?;
    let mut limits = ceilings.copied().unwrap_or_default();
    for limit in Limit::ALL {
        if let Some(value) = fields.optional::<u64>(limit.name())? {
            if let Some(ceiling) = ceilings.map(|ceilings| ceilings.get(limit)).filter(|ceiling| value > *ceiling) {
                let message = format!("{value} is more than is allowed here; ask for at most {ceiling}");
                return Err(fields.error(limit.name(), message));
            }
            limits.set(limit, value).map_err(|range| {
                fields.error(
                    limit.name(),
                    format!("{value} is out of range; {} to {} are possible", range.start(), range.end()),
                )
            })?;
        }
    }
    Ok(limits)
}

/// The fields of one JSON object, still as text.
pub(crate) struct ObjectFields<'a> {
    path: String,
    fields: Vec<(String, &'a RawValue)>,
}

pub(crate) struct ListItem<'a> {
    path: String,
    raw: &'a RawValue,
}

impl<'a> ObjectFields<'a> {
    pub(crate) fn read(raw: &'a RawValue, path: &str, known: &[&str]) -> Result<ObjectFields<'a>, RequestError> {
        let ObjectText(fields) =
            serde_json::from_str(raw.get()).map_err(|error| RequestError::new(path, plain(&error)))?;
        let fields = ObjectFields { path: path.to_owned(), fields };
        for (at, (name, _)) in fields.fields.iter().enumerate() {
            if !known.contains(&name.as_str()) {
                return Err(fields.error(name, format!("is not known here; known are {}", known.join(", "))));
            }
            if fields.fields[..at].iter().any(|(earlier, _)| earlier == name) {
                return Err(fields.error(name, "stands twice"));
            }
        }
        Ok(fields)
    }

    fn path_of(&self, name: &str) -> String {
        if self.path.is_empty() { name.to_owned() } else { format!("{}.{name}", self.path) }
    }

    fn error(&self, name: &str, message: impl Into<String>) -> RequestError {
        RequestError::new(self.path_of(name), message)
    }

    fn raw(&self, name: &str) -> Option<&'a RawValue> {
        self.fields.iter().find(|(field, _)| field == name).map(|(_, raw)| *raw)
    }

    fn optional<T: DeserializeOwned>(&self, name: &str) -> Result<Option<T>, RequestError> {
        let read = |raw: &RawValue| serde_json::from_str(raw.get()).map_err(|error| self.error(name, plain(&error)));
        self.raw(name).map(read).transpose()
    }

    pub(crate) fn required<T: DeserializeOwned>(&self, name: &str) -> Result<T, RequestError> {
        self.optional(name)?.ok_or_else(|| self.error(name, "is missing"))
    }

    /// The items of an array; none when the field is absent.
    pub(crate) fn list(&self, name: &str) -> Result<Vec<ListItem<'a>>, RequestError> {
        let Some(raw) = self.raw(name) else { return Ok(Vec::new()) };
        let items: Vec<&'a RawValue> =
            serde_json::from_str(raw.get()).map_err(|error| self.error(name, plain(&error)))?;
        let item = |(at, raw)| ListItem { path: format!("{}[{at}]", self.path_of(name)), raw };
        Ok(items.into_iter().enumerate().map(item).collect())
    }
}

/// An object with its fields in order, duplicates included.
struct ObjectText<'a>(Vec<(String, &'a RawValue)>);

impl<'de> Deserialize<'de> for ObjectText<'de> {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl<'de> serde::de::Visitor<'de> for Visitor {
            type Value = ObjectText<'de>;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: serde::de::MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut fields = Vec::new();
                while let Some(field) = map.next_entry()? {
                    fields.push(field);
                }
                Ok(ObjectText(fields))
            }
        }
        deserializer.deserialize_map(Visitor)
    }
}

/// The message without line and column, which count from the start of a part of the request and would mislead.
pub(crate) fn plain(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let place = format!(" at line {} column {}", error.line(), error.column());
    text.strip_suffix(&place).unwrap_or(&text).to_owned()
}
