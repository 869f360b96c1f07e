//! Validation of the arguments of a call.

use std::fmt;

use jsonschema::JsonTypeSet;
use serde::Serialize;
use serde_json::{Map, Value};

use crate::identifier::is_identifier;
use crate::schema::{Schema, SchemaVerdict, is_deeper_than, kind_of};
use crate::violation::{Violation, explain, found};
use crate::work::{OutOfBudget, WorkBudget};

/// Common JSON parsers, which tools read their arguments with, refuse deeper nesting.
const ARGUMENTS_DEPTH_MAX: usize = 127;
const VIOLATIONS_MAX: usize = 5;

/// Why a call was refused, in words that help to write a correct one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct InvalidArguments {
    /// The function as the program may write it.
    pub function: String,
    /// In the order of their paths; at most five.
    pub violations: Vec<Violation>,
    /// How many more there are.
    pub more: usize,
    /// Whether all of the arguments were looked at.
    pub rest: RestOfArguments,
    /// How to write the call, where the argument is no object at all.
    pub call_form: Option<String>,
}

/// Whether the search for violations went on after the first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RestOfArguments {
    /// All violations were found.
    Checked,
    /// The arguments are so large that the search ended at the first violation.
    Unchecked,
}

impl std::error::Error for InvalidArguments {}

impl fmt::Display for InvalidArguments {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.function)?;
        if let (Some(form), Some(violation)) = (&self.call_form, self.violations.first()) {
            return write!(f, "takes one object argument, like {form}; found {}", violation.found);
        }
        f.write_str("invalid arguments: ")?;
        for (index, violation) in self.violations.iter().enumerate() {
            let separator = if index == 0 { "" } else { "; " };
            write!(f, "{separator}{violation}")?;
        }
        if self.more > 0 {
            write!(f, "; and {} more", self.more)?;
        }
        if self.rest == RestOfArguments::Unchecked {
            f.write_str("; the rest of these large arguments was not checked")?;
        }
        Ok(())
    }
}

/// `function` is called only when there is an error to report.
pub(crate) fn check(
    schema: &Schema,
    json: &Value,
    args: &Value,
    function: impl Fn() -> String,
    budget: &mut WorkBudget,
) -> Result<Result<(), InvalidArguments>, OutOfBudget> {
    let refuse_for = |violations: Vec<Violation>, rest: RestOfArguments| {
        let more = violations.len().saturating_sub(VIOLATIONS_MAX);
        let mut violations = violations;
        violations.truncate(VIOLATIONS_MAX);
        Ok(Err(InvalidArguments { function: function(), violations, more, rest, call_form: None }))
    };
    let refuse = |violations| refuse_for(violations, RestOfArguments::Checked);
    let at_root = |expected: &str, found: String| {
        refuse(vec![Violation { path: String::new(), expected: expected.to_owned(), found }])
    };
    if is_deeper_than(args, ARGUMENTS_DEPTH_MAX) {
        let expected = format!("at most {ARGUMENTS_DEPTH_MAX} levels of nesting");
        return at_root(&expected, "more".to_owned());
    }
    let compiled = schema.compiled(json);
    // A schema without a `type` was written for objects: tools take one object.
    let takes_this_kind = compiled
        .is_ok_and(|compiled| compiled.kinds() != JsonTypeSet::all() && compiled.kinds().contains(kind_of(args)));
    if !args.is_object() && !takes_this_kind {
        let function = function();
        let violation = Violation { path: String::new(), expected: "object".to_owned(), found: found(args) };
        let call_form = Some(call_form(&function, json));
        let rest = RestOfArguments::Checked;
        return Ok(Err(InvalidArguments { function, violations: vec![violation], more: 0, rest, call_form }));
    }
    let Ok(compiled) = compiled else {
        return Ok(Ok(()));
    };
    let json = compiled.json(json);
    match compiled.verdict(args, budget)? {
        SchemaVerdict::Valid => Ok(Ok(())),
        SchemaVerdict::Invalid(errors) => refuse(explain(json, &errors, budget)?),
        SchemaVerdict::InvalidFrom(error) => refuse_for(explain(json, &[error], budget)?, RestOfArguments::Unchecked),
        SchemaVerdict::Unexplained => at_root("arguments that match the schema", found(args)),
        SchemaVerdict::TooMuchWork => at_root("arguments small enough to check against the schema", found(args)),
    }
}

/// Arguments that a program wrote one by one, as the object that the tool takes.
#[derive(Debug, Clone, PartialEq)]
pub struct PlacedArguments {
    /// What to call the tool with.
    pub args: Value,
    /// How many arguments after the first were not used, because the first is all that the tool takes.
    pub ignored: usize,
}

/// Fills the properties in their order, required ones first. An object at the end may hold further ones by name.
pub(crate) fn place(
    schema: &Schema,
    json: &Value,
    values: &[Value],
    function: impl Fn() -> String,
    budget: &mut WorkBudget,
) -> Result<Result<PlacedArguments, InvalidArguments>, OutOfBudget> {
    let (first, last) = (values.first(), values.last());
    let named = match values {
        [before @ .., Value::Object(rest)] if !before.is_empty() => fill(json, before)
            .filter(|args| rest.keys().all(|name| has_property(json, name) && !args.contains_key(name))),
        _ => None,
    };
    let named = named.map(|mut args| {
        args.extend(last.and_then(Value::as_object).cloned().unwrap_or_default());
        Value::Object(args)
    });
    let filled = fill(json, values).map(Value::Object);
    let alone = first.filter(|_| values.len() == 1).cloned();
    for args in [alone, filled, named].into_iter().flatten() {
        if check(schema, json, &args, &function, budget)?.is_ok() {
            return Ok(Ok(PlacedArguments { args, ignored: 0 }));
        }
    }
    if let Some(args) = first.filter(|first| first.is_object() && values.len() > 1) {
        let checked = check(schema, json, args, &function, budget)?;
        return Ok(checked.map(|()| PlacedArguments { args: args.clone(), ignored: values.len() - 1 }));
    }
    let function = function();
    let found = values.iter().map(found).collect::<Vec<_>>().join(", ");
    let violation = Violation { path: String::new(), expected: "object".to_owned(), found };
    let call_form = Some(call_form(&function, json));
    let rest = RestOfArguments::Checked;
    Ok(Err(InvalidArguments { function, violations: vec![violation], more: 0, rest, call_form }))
}

/// `None` if there are more values than properties.
fn fill(schema: &Value, values: &[Value]) -> Option<Map<String, Value>> {
    let properties = schema.get("properties")?.as_object()?;
    let required = schema.get("required").and_then(Value::as_array);
    let is_required = |name: &str| required.is_some_and(|names| names.iter().any(|it| it == name));
    let (first, then): (Vec<_>, Vec<_>) = properties.keys().partition(|name| is_required(name));
    (values.len() <= properties.len())
        .then(|| first.into_iter().chain(then).cloned().zip(values.iter().cloned()).collect())
}

fn has_property(schema: &Value, name: &str) -> bool {
    schema.get("properties").and_then(Value::as_object).is_some_and(|properties| properties.contains_key(name))
}

fn call_form(function: &str, schema: &Value) -> String {
    let required = schema.get("required").and_then(Value::as_array);
    let names: Vec<String> = required
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .map(|name| if is_identifier(name) { format!("{name}: …") } else { format!("{name:?}: …") })
        .collect();
    let has_optional =
        schema.get("properties").and_then(Value::as_object).is_some_and(|properties| !properties.is_empty());
    match (names.is_empty(), has_optional) {
        (true, false) => format!("{function}({{}})"),
        (true, true) => format!("{function}({{ … }})"),
        (false, _) => format!("{function}({{ {} }})", names.join(", ")),
    }
}
