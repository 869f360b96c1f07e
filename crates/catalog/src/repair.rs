//! Schemas with keywords that cannot be used: forms of older drafts are rewritten, what remains is left out.
//!
//! One wrong keyword must not cost a tool the validation of all its arguments.

use serde_json::{Map, Value};

/// Keywords that hold a schema, and those that hold several by name or in a list.
const OF_SCHEMA: &[&str] = &[
    "additionalItems",
    "additionalProperties",
    "contains",
    "contentSchema",
    "else",
    "if",
    "items",
    "not",
    "propertyNames",
    "then",
    "unevaluatedItems",
    "unevaluatedProperties",
];
const OF_SCHEMAS: &[&str] = &[
    "$defs",
    "allOf",
    "anyOf",
    "definitions",
    "dependencies",
    "dependentSchemas",
    "oneOf",
    "patternProperties",
    "prefixItems",
    "properties",
];
/// Keywords that refuse more values if the schemas inside of them refuse less.
const NEGATIONS: &[&str] = &["if", "not", "oneOf"];
/// What may stand beside a `$ref` in drafts that ignore the rest there.
const BESIDE_REFERENCES: &[&str] = &["$defs", "$ref", "default", "definitions", "description", "title"];

/// What keeps a schema from being used, and the JSON pointer to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) at: String,
    pub(crate) reason: String,
}

impl Fault {
    /// A fault of the schema that is found at this address.
    pub(crate) fn at_address(root: &Value, place: &Value, keyword: &str, reason: String) -> Fault {
        let at = format!("{}/{keyword}", pointer_to(root, place).unwrap_or_default());
        Fault { at, reason }
    }
}

/// What a repair did to the schema.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Repair {
    /// The same is said in another form.
    Rewritten,
    /// A keyword is gone.
    LeftOut,
    /// The fault is in no keyword.
    Impossible,
}

/// Takes the faulty keyword out of the schema, or says the same in the form of the newest draft.
pub(crate) fn repair(root: &mut Value, at: &str) -> Repair {
    match FaultPlace::find(root, at) {
        Some(FaultPlace::Keyword { holder, keyword }) => {
            let Some(Value::Object(fields)) = root.pointer_mut(&holder) else { return Repair::Impossible };
            repair_keyword(fields, &keyword)
        }
        Some(FaultPlace::Schema) => match root.pointer_mut(at) {
            Some(schema) => {
                *schema = Value::Bool(true);
                Repair::LeftOut
            }
            None => Repair::Impossible,
        },
        None => Repair::Impossible,
    }
}

/// Makes a schema of any draft one of the newest, as far as the difference is in `$schema` and `$ref`.
pub(crate) fn without_draft(root: &mut Value) -> Repair {
    let Some(Value::String(draft)) = root.as_object_mut().and_then(|fields| fields.remove("$schema")) else {
        return Repair::Impossible;
    };
    if ignores_beside_references(&draft) {
        keep_references_alone(root);
    }
    if draft.contains("json-schema.org/") { Repair::Rewritten } else { Repair::LeftOut }
}

/// Whether this value of `$schema` names a draft in which `$ref` stands for the whole schema.
pub(crate) fn ignores_beside_references(draft: &str) -> bool {
    ["draft-03", "draft-04", "draft-06", "draft-07"].iter().any(|old| draft.contains(old))
}

fn keep_references_alone(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            if fields.get("$ref").is_some_and(Value::is_string) {
                fields.retain(|keyword, _| BESIDE_REFERENCES.contains(&keyword.as_str()));
            }
            fields.values_mut().for_each(keep_references_alone);
        }
        Value::Array(items) => items.iter_mut().for_each(keep_references_alone),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// The place that a JSON pointer leads to.
#[derive(Debug, PartialEq, Eq)]
enum FaultPlace {
    /// Inside the value of this keyword.
    Keyword { holder: String, keyword: String },
    /// At a schema that stands among others, by name or in a list.
    Schema,
}

impl FaultPlace {
    fn find(root: &Value, at: &str) -> Option<FaultPlace> {
        let mut segments = at.strip_prefix('/')?.split('/');
        let mut holder = String::new();
        loop {
            let keyword = segments.next()?.to_owned();
            if NEGATIONS.contains(&keyword.as_str()) {
                return Some(FaultPlace::Keyword { holder, keyword });
            }
            let value = root.pointer(&format!("{holder}/{keyword}"))?;
            let is_list_of_items = keyword == "items" && value.is_array();
            if OF_SCHEMAS.contains(&keyword.as_str()) || is_list_of_items {
                let Some(name) = segments.next() else {
                    return Some(FaultPlace::Keyword { holder, keyword });
                };
                holder = format!("{holder}/{keyword}/{name}");
                if segments.clone().next().is_none() {
                    return Some(FaultPlace::Schema);
                }
            } else if OF_SCHEMA.contains(&keyword.as_str()) && segments.clone().next().is_some() {
                holder = format!("{holder}/{keyword}");
            } else {
                return Some(FaultPlace::Keyword { holder, keyword });
            }
        }
    }
}

fn repair_keyword(fields: &mut Map<String, Value>, keyword: &str) -> Repair {
    let Some(value) = fields.remove(keyword) else { return Repair::Impossible };
    match (keyword, value) {
        // Draft 4: the bound stands in another keyword.
        ("exclusiveMinimum" | "exclusiveMaximum", Value::Bool(is_exclusive)) => {
            let inclusive = if keyword == "exclusiveMinimum" { "minimum" } else { "maximum" };
            if is_exclusive && let Some(bound) = fields.remove(inclusive) {
                fields.insert(keyword.to_owned(), bound);
            }
            Repair::Rewritten
        }
        // Up to draft 2019-09: a tuple.
        ("items", Value::Array(first)) if !fields.contains_key("prefixItems") => {
            if let Some(rest) = fields.remove("additionalItems") {
                fields.insert("items".to_owned(), rest);
            }
            if !first.is_empty() {
                fields.insert("prefixItems".to_owned(), Value::Array(first));
            }
            Repair::Rewritten
        }
        // One of several that match is more than exactly one of them.
        ("oneOf", Value::Array(branches)) if !fields.contains_key("anyOf") => {
            fields.insert("anyOf".to_owned(), Value::Array(branches));
            Repair::Rewritten
        }
        // They are for people, and refuse no value.
        ("$comment" | "deprecated" | "description" | "examples" | "readOnly" | "title" | "writeOnly", _) => {
            Repair::Rewritten
        }
        _ => Repair::LeftOut,
    }
}

/// A definition that lost a keyword accepts more, and so what stands in a negation by reference would refuse more than
/// its author wrote.
pub(crate) fn widen_negations(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for keyword in NEGATIONS {
                if fields.get(*keyword).is_some_and(has_reference) {
                    repair_keyword(fields, keyword);
                }
            }
            fields.values_mut().for_each(widen_negations);
        }
        Value::Array(items) => items.iter_mut().for_each(widen_negations),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn has_reference(value: &Value) -> bool {
    match value {
        Value::Object(fields) => fields.get("$ref").is_some_and(Value::is_string) || fields.values().any(has_reference),
        Value::Array(items) => items.iter().any(has_reference),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

/// The JSON pointer to a value, which is found by its address.
fn pointer_to(root: &Value, place: &Value) -> Option<String> {
    let mut open = vec![(root, String::new())];
    while let Some((value, pointer)) = open.pop() {
        if std::ptr::eq(value, place) {
            return Some(pointer);
        }
        match value {
            Value::Object(fields) => {
                let escaped = |name: &str| name.replace('~', "~0").replace('/', "~1");
                open.extend(fields.iter().map(|(name, field)| (field, format!("{pointer}/{}", escaped(name)))));
            }
            Value::Array(items) => {
                open.extend(items.iter().enumerate().map(|(index, item)| (item, format!("{pointer}/{index}"))));
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
    None
}
