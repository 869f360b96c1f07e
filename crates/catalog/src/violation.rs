//! Messages for arguments that do not match their schema, in words that help to write a correct call.

use std::{fmt, io};

use jsonschema::error::{TypeKind, ValidationErrorKind};
use jsonschema::paths::{Location, LocationSegment};
use jsonschema::{JsonType, JsonTypeSet, ValidationError};
use serde::Serialize;
use serde_json::Value;

use crate::closest::closest_text;
use crate::identifier::is_identifier;
use crate::text::shorten;
use crate::work::{OutOfBudget, WorkBudget};

const SHOWN_LETTERS_MAX: usize = 80;
/// The choices are what a corrected call is made from, so they may be longer than a found value.
const SHOWN_CHOICES_LETTERS_MAX: usize = 240;
/// More than are ever shown; looking for what was meant costs time.
const SUGGESTIONS_MAX: usize = 16;
/// Names that are compared for all suggestions of one refusal: a few milliseconds.
const COMPARISONS_MAX: u64 = 5_000;
const STEPS_PER_COMPARISON: u64 = 20;

/// One mismatch between arguments and schema.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Violation {
    /// Like `items[2].name`; empty for the arguments as a whole.
    pub path: String,
    /// What the schema asks for there, in words.
    pub expected: String,
    /// What stands there instead, shortened.
    pub found: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.path.is_empty() {
            write!(f, "{}: ", self.path)?;
        }
        write!(f, "expected {}, found {}", self.expected, self.found)
    }
}

/// All violations in the order of their paths, each once.
///
/// Looking for names that were probably meant is paid for from the budget.
pub(crate) fn explain(
    root: &Value,
    errors: &[ValidationError],
    budget: &mut WorkBudget,
) -> Result<Vec<Violation>, OutOfBudget> {
    let mut flaws = Flaws { found: Vec::new(), comparisons: 0 };
    for error in errors {
        collect(root, error, &mut flaws);
    }
    budget.spend(flaws.comparisons * STEPS_PER_COMPARISON)?;
    let mut flaws = flaws.found;
    flaws.sort();
    flaws.dedup();
    Ok(flaws.into_iter().map(Flaw::into_violation).collect())
}

/// The value with its kind: `number 3`.
pub(crate) fn found(value: &Value) -> String {
    let kind = match value {
        Value::Null => return "null".to_owned(),
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    format!("{kind} {}", shown(value, SHOWN_LETTERS_MAX))
}

/// The violations found so far.
struct Flaws {
    found: Vec<Flaw>,
    /// Names that were compared with an unknown one.
    comparisons: u64,
}

impl Flaws {
    fn push(&mut self, flaw: Flaw) {
        self.found.push(flaw);
    }

    /// The known name that was probably meant, as long as looking for it is little work.
    fn meant<'a>(&mut self, known: &[&'a str], name: &str) -> Option<&'a str> {
        if self.comparisons + known.len() as u64 > COMPARISONS_MAX {
            return None;
        }
        self.comparisons += known.len() as u64;
        closest_text(known, name)
    }
}

/// A violation whose path can still be compared step by step.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Flaw {
    path: Vec<PathSegment>,
    expected: String,
    found: String,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum PathSegment {
    Item(usize),
    Property(String),
}

impl Flaw {
    fn new(at: &Location, expected: impl Into<String>, found: impl Into<String>) -> Flaw {
        let path = at
            .segments()
            .map(|segment| match segment {
                LocationSegment::Property(name) => PathSegment::Property(name.into_owned()),
                LocationSegment::Index(index) => PathSegment::Item(index),
            })
            .collect();
        Flaw { path, expected: expected.into(), found: found.into() }
    }

    fn into_violation(self) -> Violation {
        let mut path = String::new();
        for step in self.path {
            let text = match step {
                PathSegment::Item(index) => format!("[{index}]"),
                PathSegment::Property(name) if !is_identifier(&name) => {
                    format!("[{}]", quoted(&name))
                }
                PathSegment::Property(name) if path.is_empty() => shorten(&name, SHOWN_LETTERS_MAX),
                PathSegment::Property(name) => format!(".{}", shorten(&name, SHOWN_LETTERS_MAX)),
            };
            path.push_str(&text);
        }
        Violation { path, expected: self.expected, found: self.found }
    }
}

fn collect(root: &Value, error: &ValidationError, flaws: &mut Flaws) {
    let at = error.instance_path();
    match error.kind() {
        ValidationErrorKind::AnyOf { context } | ValidationErrorKind::OneOfNotValid { context } => {
            collect_closest(root, error, context, flaws);
        }
        ValidationErrorKind::Required { property } => {
            let name = property.as_str().unwrap_or_default();
            let at = at.join(name);
            flaws.push(Flaw::new(&at, described_property(root, error, name), "nothing"));
        }
        ValidationErrorKind::AdditionalProperties { unexpected }
        | ValidationErrorKind::UnevaluatedProperties { unexpected } => {
            let known = known_properties(root, error);
            let only = only_known(&known);
            let mut names: Vec<&String> = unexpected.iter().collect();
            names.sort();
            for (index, name) in names.into_iter().enumerate() {
                let meant = if index < SUGGESTIONS_MAX { flaws.meant(&known, name) } else { None };
                flaws.push(unknown_property(at, name, meant, &only));
            }
        }
        ValidationErrorKind::PropertyNames { error } => {
            let name = shown(error.instance(), SHOWN_LETTERS_MAX);
            flaws.push(Flaw::new(at, format!("property names that are {}", expected(error)), name));
        }
        ValidationErrorKind::Type { .. } => {
            flaws.push(Flaw::new(at, expected(error), found(error.instance())));
        }
        _ => {
            let value = shown(error.instance(), SHOWN_LETTERS_MAX);
            flaws.push(Flaw::new(at, expected(error), value));
        }
    }
}

fn only_known(known: &[&str]) -> String {
    if known.is_empty() {
        return "no such property".to_owned();
    }
    // Each name is followed by a separator, so these are enough for all letters that are shown.
    let shown = &known[..known.len().min(SHOWN_CHOICES_LETTERS_MAX)];
    format!("only {}", shorten(&shown.join(", "), SHOWN_CHOICES_LETTERS_MAX))
}

fn unknown_property(at: &Location, name: &str, meant: Option<&str>, expected: &str) -> Flaw {
    let unknown = quoted(name);
    let found = match meant {
        Some(meant) => format!("unknown property {unknown} (did you mean {}?)", quoted(meant)),
        None => format!("unknown property {unknown}"),
    };
    Flaw::new(at, expected, found)
}

fn expected(error: &ValidationError) -> String {
    use ValidationErrorKind as Kind;
    match error.kind() {
        Kind::Type { kind: TypeKind::Single(kind) } => kind.to_string(),
        Kind::Type { kind: TypeKind::Multiple(kinds) } => named(*kinds),
        Kind::Constant { expected_value } => shown(expected_value, SHOWN_LETTERS_MAX),
        Kind::Enum { options } => choices(options),
        Kind::Minimum { limit } => format!("a value ≥ {limit}"),
        Kind::Maximum { limit } => format!("a value ≤ {limit}"),
        Kind::ExclusiveMinimum { limit } => format!("a value > {limit}"),
        Kind::ExclusiveMaximum { limit } => format!("a value < {limit}"),
        Kind::MultipleOf { multiple_of } => format!("a multiple of {multiple_of}"),
        Kind::MinLength { limit } => format!("at least {}", counted(*limit, "character")),
        Kind::MaxLength { limit } => format!("at most {}", counted(*limit, "character")),
        Kind::MinItems { limit } => format!("at least {}", counted(*limit, "item")),
        Kind::MaxItems { limit } => format!("at most {}", counted(*limit, "item")),
        Kind::AdditionalItems { limit } => format!("at most {}", counted(*limit as u64, "item")),
        Kind::MinProperties { limit } => format!("at least {limit} properties"),
        Kind::MaxProperties { limit } => format!("at most {limit} properties"),
        Kind::UniqueItems => "items that differ from each other".to_owned(),
        Kind::Contains => "an item as `contains` describes".to_owned(),
        Kind::UnevaluatedItems { .. } => "no further items".to_owned(),
        Kind::Pattern { pattern } => {
            format!("text that matches /{}/", shorten(pattern, SHOWN_LETTERS_MAX))
        }
        Kind::BacktrackLimitExceeded { .. } | Kind::RegexEngineFailure { .. } => {
            "text that its pattern can be checked against".to_owned()
        }
        Kind::Not { schema } => {
            format!("anything but what {} allows", shown(schema, SHOWN_LETTERS_MAX))
        }
        Kind::OneOfMultipleValid { .. } => "exactly one of the alternatives to match".to_owned(),
        Kind::FalseSchema => "nothing here".to_owned(),
        _ => shorten(&error.masked().to_string(), SHOWN_CHOICES_LETTERS_MAX),
    }
}

/// Of several alternatives only the one that was probably meant is worth reading.
fn collect_closest(
    root: &Value,
    error: &ValidationError,
    context: &[Vec<ValidationError<'static>>],
    flaws: &mut Flaws,
) {
    let at = error.instance_path();
    let mut branches = Vec::new();
    flatten(at, context, &mut branches);

    // A branch with another kind of value, or another tag, was not meant if some branch fits so far.
    let fits = branches.iter().filter(|branch| mismatch(at, branch).is_none());
    let closest = fits.min_by_key(|branch| branch.len());
    let closest = closest.or_else(|| {
        let tagged = branches.iter().filter(|branch| mismatch(at, branch).is_some_and(|m| m.instance_path() != at));
        let mismatches: Vec<&ValidationError> = tagged.clone().filter_map(|branch| mismatch(at, branch)).collect();
        match mismatches.as_slice() {
            [first, rest @ ..] if rest.iter().any(|other| other.instance_path() != first.instance_path()) => {
                tagged.min_by_key(|branch| branch.len())
            }
            _ => None,
        }
    });
    if let Some(branch) = closest.filter(|branch| !branch.is_empty()) {
        for error in *branch {
            collect(root, error, flaws);
        }
        return;
    }
    flaws.push(merged(error, &branches));
}

/// `expected string or null`: what the alternatives want where they all want something else.
fn merged(error: &ValidationError, branches: &[&[ValidationError<'static>]]) -> Flaw {
    let at = error.instance_path();
    let mismatches: Vec<&ValidationError> = branches.iter().filter_map(|branch| mismatch(at, branch)).collect();
    let tagged = mismatches.iter().find(|mismatch| mismatch.instance_path() != at);
    let place = tagged.map_or(at, |mismatch| mismatch.instance_path());
    let mut wanted: Vec<String> = Vec::new();
    let mut value = error.instance().as_ref();
    for mismatch in mismatches.iter().filter(|mismatch| mismatch.instance_path() == place) {
        value = mismatch.instance();
        let expected = expected(mismatch);
        if !wanted.contains(&expected) {
            wanted.push(expected);
        }
    }
    if wanted.is_empty() {
        wanted.push("a value that one of the alternatives allows".to_owned());
    }
    Flaw::new(place, shorten(&wanted.join(" or "), SHOWN_CHOICES_LETTERS_MAX), found(value))
}

/// Alternatives of alternatives are alternatives.
fn flatten<'e>(
    at: &Location,
    context: &'e [Vec<ValidationError<'static>>],
    branches: &mut Vec<&'e [ValidationError<'static>]>,
) {
    for branch in context {
        match branch.as_slice() {
            [only] if only.instance_path() == at => match only.kind() {
                ValidationErrorKind::AnyOf { context } | ValidationErrorKind::OneOfNotValid { context } => {
                    flatten(at, context, branches);
                }
                _ => branches.push(branch),
            },
            _ => branches.push(branch),
        }
    }
}

/// The error by which a branch of `anyOf` shows that it is meant for other values.
fn mismatch<'e>(at: &Location, branch: &'e [ValidationError<'static>]) -> Option<&'e ValidationError<'static>> {
    branch.iter().find(|error| match error.kind() {
        ValidationErrorKind::Type { .. } => error.instance_path() == at,
        ValidationErrorKind::Constant { .. } | ValidationErrorKind::Enum { .. } => true,
        _ => false,
    })
}

/// The schema object that holds the keyword which raised the error.
fn holder<'s>(root: &'s Value, error: &ValidationError) -> Option<&'s Value> {
    let (holder, _keyword) = error.schema_path().as_str().rsplit_once('/')?;
    root.pointer(holder)
}

fn known_properties<'s>(root: &'s Value, error: &ValidationError) -> Vec<&'s str> {
    let properties = holder(root, error).and_then(|holder| holder.get("properties")?.as_object());
    properties.into_iter().flat_map(|properties| properties.keys()).map(String::as_str).collect()
}

fn described_property(root: &Value, error: &ValidationError, name: &str) -> String {
    let property = holder(root, error).and_then(|holder| holder.get("properties")?.get(name));
    let Some(property) = property else {
        return "a value".to_owned();
    };
    match (property.get("const"), property.get("enum"), property.get("type")) {
        (Some(value), _, _) => shown(value, SHOWN_LETTERS_MAX),
        (_, Some(options), _) => choices(options),
        (_, _, Some(Value::String(kind))) => kind.clone(),
        (_, _, Some(Value::Array(kinds))) => kinds.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(" or "),
        _ => "a value".to_owned(),
    }
}

fn named(kinds: JsonTypeSet) -> String {
    kinds.iter().map(JsonType::as_str).collect::<Vec<_>>().join(" or ")
}

fn choices(options: &Value) -> String {
    let options = options.as_array().map(Vec::as_slice).unwrap_or_default();
    let mut list = String::new();
    for (index, option) in options.iter().enumerate() {
        let rest = options.len() - index;
        if list.len() > SHOWN_CHOICES_LETTERS_MAX {
            return format!("{list} or {rest} others");
        }
        let separator = match (index, rest) {
            (0, _) => "",
            (_, 1) => " or ",
            _ => ", ",
        };
        list.push_str(separator);
        list.push_str(&shown(option, SHOWN_LETTERS_MAX));
    }
    list
}

fn counted(count: u64, noun: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {noun}{plural}")
}

fn quoted(text: &str) -> String {
    format!("{:?}", shorten(text, SHOWN_LETTERS_MAX))
}

fn shown(value: &Value, letters_max: usize) -> String {
    let mut head = BoundedWriter { bytes: Vec::new(), bytes_max: 4 * letters_max + 4 };
    // An error only means that the head is full.
    if serde_json::to_writer(&mut head, value).is_err() {
        head.bytes.truncate(head.bytes_max);
    }
    shorten(&String::from_utf8_lossy(&head.bytes), letters_max)
}

/// Takes the beginning of what is written, and refuses the rest so that the writer stops.
struct BoundedWriter {
    bytes: Vec<u8>,
    bytes_max: usize,
}

impl io::Write for BoundedWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.bytes.len() >= self.bytes_max {
            return Err(io::ErrorKind::WriteZero.into());
        }
        let room = self.bytes_max - self.bytes.len();
        let taken = room.min(bytes.len());
        self.bytes.extend_from_slice(&bytes[..taken]);
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
