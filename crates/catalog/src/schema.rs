//! JSON Schemas of tools, compiled into validators on first use.

use std::sync::OnceLock;

use jsonschema::{JsonType, JsonTypeSet, PatternOptions, ValidationError, Validator};
use serde_json::Value;

use crate::references;
use crate::repair::{Fault, Repair, repair, widen_negations, without_draft};
use crate::work::{ExplanationScope, OutOfBudget, TooMuchWork, WorkBudget, WorkPlan};

/// Containers inside containers, which the validator is built from on the stack.
const SCHEMA_DEPTH_MAX: usize = 64;
/// As above, where one definition leads on to the next: up to nine of them are on the stack at once.
const SCHEMA_WITH_REFERENCES_DEPTH_MAX: usize = 24;
/// About half a millisecond, which every text with such a pattern may take.
const PATTERN_BACKTRACKS_MAX: usize = 20_000;
const PATTERN_BYTES_MAX: usize = 1 << 20;
/// How often a schema is repaired before it is given up: each round repairs all faults that it finds.
const REPAIR_ROUNDS_MAX: usize = 16;
const FAULTS_MAX: usize = 1_000;
/// Steps spent on finding out which kinds of value a schema allows.
const KINDS_STEPS_MAX: u32 = 1_000;

/// A schema of a tool, compiled when first needed.
#[derive(Debug, Default)]
pub(crate) struct Schema {
    /// Boxed, because of many tools few are called.
    compiled: OnceLock<Box<Result<CompiledSchema, String>>>,
}

#[derive(Debug)]
pub(crate) struct CompiledSchema {
    validator: Validator,
    work: WorkPlan,
    kinds: JsonTypeSet,
    /// The schema that the validator is made from, if it is not the tool's own.
    repaired: Option<Value>,
    losses: Vec<Fault>,
}

pub(crate) enum SchemaVerdict<'i> {
    Valid,
    Invalid(Vec<ValidationError<'i>>),
    /// Invalid, and finding more than the first error is too much work.
    InvalidFrom(ValidationError<'i>),
    /// Invalid, but finding out why is too much work.
    Unexplained,
    TooMuchWork,
}

impl Schema {
    /// The error says why the schema cannot be used. `json` is always the same for one schema.
    pub(crate) fn compiled(&self, json: &Value) -> Result<&CompiledSchema, &str> {
        let compiled = self.compiled.get_or_init(|| Box::new(CompiledSchema::new(json)));
        (**compiled).as_ref().map_err(String::as_str)
    }
}

impl CompiledSchema {
    /// A keyword that cannot be used is left out; `Err` if the schema cannot be used at all.
    fn new(json: &Value) -> Result<CompiledSchema, String> {
        if is_deeper_than(json, SCHEMA_DEPTH_MAX) {
            return Err(format!("it is nested more than {SCHEMA_DEPTH_MAX} deep"));
        }
        let mut repaired: Option<Value> = None;
        let mut losses = Vec::new();
        for _ in 0..REPAIR_ROUNDS_MAX {
            let faults = match usable(repaired.as_ref().unwrap_or(json))? {
                Ok((validator, has_references)) => {
                    let json = repaired.as_ref().unwrap_or(json);
                    let mut steps = KINDS_STEPS_MAX;
                    let kinds = kinds(json, json, &mut steps);
                    let work = WorkPlan::new(json, has_references);
                    return Ok(CompiledSchema { validator, work, kinds, repaired, losses });
                }
                Err(faults) => faults,
            };
            repair_all(repaired.get_or_insert_with(|| json.clone()), faults, &mut losses)?;
        }
        Err("too many of its keywords cannot be used".to_owned())
    }

    /// The schema that values are checked against, given the tool's own.
    pub(crate) fn json<'j>(&'j self, own: &'j Value) -> &'j Value {
        self.repaired.as_ref().unwrap_or(own)
    }

    /// Keywords that are left out, and why.
    pub(crate) fn losses(&self) -> &[Fault] {
        &self.losses
    }

    /// The kinds of value that can be valid, as far as `type`, `const` and the like tell without validation.
    pub(crate) fn kinds(&self) -> JsonTypeSet {
        self.kinds
    }

    /// A value that is too much work to check counts as not valid.
    pub(crate) fn is_valid(&self, instance: &Value, budget: &mut WorkBudget) -> Result<bool, OutOfBudget> {
        let Ok(steps) = self.work.steps(instance) else { return Ok(false) };
        budget.spend(steps)?;
        Ok(self.validator.is_valid(instance))
    }

    pub(crate) fn verdict<'i>(
        &'i self,
        instance: &'i Value,
        budget: &mut WorkBudget,
    ) -> Result<SchemaVerdict<'i>, OutOfBudget> {
        let steps = match self.work.steps(instance) {
            Ok(steps) => steps,
            Err(TooMuchWork) => return Ok(SchemaVerdict::TooMuchWork),
        };
        budget.spend(steps)?;
        if self.validator.is_valid(instance) {
            return Ok(SchemaVerdict::Valid);
        }
        let (scope, steps) = self.work.explanation(instance, steps);
        budget.spend(steps)?;
        Ok(match scope {
            ExplanationScope::AllErrors => SchemaVerdict::Invalid(self.validator.iter_errors(instance).collect()),
            ExplanationScope::FirstError => match self.validator.validate(instance) {
                Err(error) => SchemaVerdict::InvalidFrom(error),
                Ok(()) => SchemaVerdict::Unexplained,
            },
            ExplanationScope::Nothing => SchemaVerdict::Unexplained,
        })
    }
}

/// The validator, and whether the schema has references; or what is wrong with it.
fn usable(json: &Value) -> Result<Result<(Validator, bool), Vec<Fault>>, String> {
    let has_references = match references::survey(json) {
        Ok(has_references) => has_references,
        Err(faults) => return Ok(Err(faults)),
    };
    if has_references && is_deeper_than(json, SCHEMA_WITH_REFERENCES_DEPTH_MAX) {
        return Err(format!("it has references and is nested more than {SCHEMA_WITH_REFERENCES_DEPTH_MAX} deep"));
    }
    let patterns = PatternOptions::fancy_regex()
        .backtrack_limit(PATTERN_BACKTRACKS_MAX)
        .size_limit(PATTERN_BYTES_MAX)
        .dfa_size_limit(PATTERN_BYTES_MAX);
    let built = jsonschema::options()
        .offline()
        .should_validate_formats(false)
        .without_content_encoding_support("base64")
        .without_content_media_type_support("application/json")
        .with_pattern_options(patterns)
        .build(json);
    let error = match built {
        Ok(validator) => return Ok(Ok((validator, has_references))),
        Err(error) => error,
    };
    let meta_schema = jsonschema::draft202012::meta::validator();
    let mut faults: Vec<Fault> = meta_schema.iter_errors(json).take(FAULTS_MAX).map(|error| fault(&error)).collect();
    if faults.is_empty() {
        faults.push(fault(&error));
    }
    faults.sort_by(|one, other| one.at.cmp(&other.at));
    faults.dedup_by(|one, other| one.at == other.at);
    Ok(Err(faults))
}

fn fault(error: &ValidationError) -> Fault {
    Fault { at: error.instance_path().as_str().to_owned(), reason: error.to_string() }
}

/// Repairs what can be repaired; `Err` if that is nothing.
fn repair_all(schema: &mut Value, faults: Vec<Fault>, losses: &mut Vec<Fault>) -> Result<(), String> {
    // Another draft may have no such fault, so this goes first.
    match without_draft(schema) {
        Repair::Rewritten => return Ok(()),
        Repair::LeftOut => {
            let reason = "it names no draft of JSON Schema that is known".to_owned();
            losses.push(Fault { at: "/$schema".to_owned(), reason });
            return Ok(());
        }
        Repair::Impossible => {}
    }
    let mut is_changed = false;
    for fault in &faults {
        let repair = repair(schema, &fault.at);
        is_changed |= repair != Repair::Impossible;
        if repair == Repair::LeftOut {
            losses.push(fault.clone());
            widen_negations(schema);
        }
    }
    match faults.into_iter().next() {
        Some(fault) if !is_changed && fault.at.is_empty() => Err(fault.reason),
        Some(fault) if !is_changed => Err(format!("{}: {}", fault.at, fault.reason)),
        _ => Ok(()),
    }
}

pub(crate) fn is_deeper_than(value: &Value, levels: usize) -> bool {
    let mut open = vec![(value, 0)];
    while let Some((value, level)) = open.pop() {
        if level > levels {
            return true;
        }
        match value {
            Value::Array(items) => open.extend(items.iter().map(|item| (item, level + 1))),
            Value::Object(fields) => open.extend(fields.values().map(|field| (field, level + 1))),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
    false
}

/// `Number` never stands without `Integer`, so that sets of kinds can be intersected.
fn kinds(root: &Value, schema: &Value, steps: &mut u32) -> JsonTypeSet {
    let fields = match schema {
        Value::Bool(false) => return JsonTypeSet::empty(),
        Value::Object(fields) if *steps > 0 => fields,
        _ => return JsonTypeSet::all(),
    };
    *steps -= 1;
    let mut possible = JsonTypeSet::all();
    for (keyword, value) in fields {
        let allowed = match (keyword.as_str(), value) {
            ("type", Value::String(name)) => kinds_named(name),
            ("type", Value::Array(names)) => union(names.iter().filter_map(Value::as_str).map(kinds_named)),
            ("const", value) => kind_of(value).into(),
            ("enum", Value::Array(values)) => union(values.iter().map(|value| kind_of(value).into())),
            ("anyOf" | "oneOf", Value::Array(branches)) => {
                union(branches.iter().map(|branch| kinds(root, branch, steps)))
            }
            ("allOf", Value::Array(branches)) => {
                branches.iter().fold(JsonTypeSet::all(), |all, branch| all.intersect(kinds(root, branch, steps)))
            }
            ("$ref", Value::String(reference)) => match references::resolve(root, reference) {
                Some(target) => kinds(root, target, steps),
                None => JsonTypeSet::all(),
            },
            _ => JsonTypeSet::all(),
        };
        possible = possible.intersect(allowed);
    }
    possible
}

fn union(sets: impl Iterator<Item = JsonTypeSet>) -> JsonTypeSet {
    sets.fold(JsonTypeSet::empty(), JsonTypeSet::union)
}

fn kinds_named(name: &str) -> JsonTypeSet {
    match name.parse() {
        Ok(JsonType::Number) => JsonType::Number | JsonType::Integer,
        Ok(kind) => kind.into(),
        // The meta-schema refuses other names before anything is asked of the kinds.
        Err(()) => JsonTypeSet::empty(),
    }
}

pub(crate) fn kind_of(value: &Value) -> JsonType {
    match value {
        Value::Number(number) if is_whole(number.as_f64()) => JsonType::Integer,
        other => other.into(),
    }
}

pub(crate) fn is_whole(number: Option<f64>) -> bool {
    number.is_some_and(|number| number.fract() == 0.0)
}
