//! Where `$ref` leads in a schema, and references that cannot be followed.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use crate::repair::Fault;

/// References are repaired in rounds of so many.
const FAULTS_MAX: usize = 100;
/// Schemas inside schemas, counted along the way from the root of schema and instance.
pub(crate) const DEPTH_MAX: u32 = 256;
/// Keywords whose subschemas see the same instance as the schema they stand in.
const IN_PLACE: &[&str] = &["allOf", "anyOf", "else", "if", "not", "oneOf", "then"];
const IN_PLACE_BY_PROPERTY: &[&str] = &["dependencies", "dependentSchemas"];
/// Keywords whose subschemas see the properties or items of the instance.
const INSIDE: &[&str] = &[
    "additionalItems",
    "additionalProperties",
    "contains",
    "items",
    "prefixItems",
    "propertyNames",
    "unevaluatedItems",
    "unevaluatedProperties",
];
const INSIDE_BY_PROPERTY: &[&str] = &["patternProperties", "properties"];

/// The subschema that a reference within the same document means.
pub(crate) fn resolve<'a>(root: &'a Value, reference: &str) -> Option<&'a Value> {
    let pointer = reference.strip_prefix('#')?;
    if pointer.contains('%') { root.pointer(&percent_decoded(pointer)?) } else { root.pointer(pointer) }
}

fn percent_decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        rest = tail;
        if *first == b'%' {
            let digits = std::str::from_utf8(rest.get(..2)?).ok()?;
            bytes.push(u8::from_str_radix(digits, 16).ok()?);
            rest = &rest[2..];
        } else {
            bytes.push(*first);
        }
    }
    String::from_utf8(bytes).ok()
}

/// Whether the schema has references; or the keywords without which they can be followed.
pub(crate) fn survey(root: &Value) -> Result<bool, Vec<Fault>> {
    let mut has_references = false;
    let mut inner_ids = Vec::new();
    let mut faults = Vec::new();
    let mut open = vec![root];
    while let Some(value) = open.pop() {
        match value {
            Value::Object(fields) => {
                for keyword in ["$dynamicRef", "$recursiveRef"] {
                    if fields.get(keyword).is_some_and(Value::is_string) {
                        let reason = format!("`{keyword}` is not supported; use `$ref`");
                        faults.push(Fault::at_address(root, value, keyword, reason));
                    }
                }
                if let Some(Value::String(reference)) = fields.get("$ref") {
                    has_references = true;
                    if resolve(root, reference).is_none() {
                        let reason = format!("`$ref` {reference:?} leads to no place in the same schema");
                        faults.push(Fault::at_address(root, value, "$ref", reason));
                    }
                }
                if !std::ptr::eq(value, root) && fields.get("$id").is_some_and(Value::is_string) {
                    inner_ids.push(value);
                }
                open.extend(fields.values());
            }
            Value::Array(items) => open.extend(items),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
        if faults.len() >= FAULTS_MAX {
            break;
        }
    }
    if has_references {
        let reason = "an inner `$id` is not supported beside `$ref`";
        let ids = inner_ids.into_iter().take(FAULTS_MAX);
        faults.extend(ids.map(|schema| Fault::at_address(root, schema, "$id", reason.to_owned())));
        if faults.is_empty() {
            Loops::new(root).search().map_err(|fault| vec![fault])?;
        }
    }
    if faults.is_empty() { Ok(has_references) } else { Err(faults) }
}

/// Looks for references that lead back to themselves without entering a property or an item.
/// They add no constraint, and validators that follow them all do not end.
struct Loops<'a> {
    root: &'a Value,
    on_the_way: BTreeSet<*const Value>,
    done: BTreeSet<*const Value>,
    open: Vec<&'a Value>,
}

impl<'a> Loops<'a> {
    fn new(root: &'a Value) -> Loops<'a> {
        Loops { root, on_the_way: BTreeSet::new(), done: BTreeSet::new(), open: vec![root] }
    }

    fn search(mut self) -> Result<(), Fault> {
        while let Some(schema) = self.open.pop() {
            self.visit(schema, schema, 0)?;
        }
        Ok(())
    }

    /// `referring` is the schema with the `$ref` that was followed last.
    fn visit(&mut self, schema: &'a Value, referring: &'a Value, depth: u32) -> Result<(), Fault> {
        let Value::Object(fields) = schema else {
            return Ok(());
        };
        let fault = |reason| Fault::at_address(self.root, referring, "$ref", reason);
        if depth > DEPTH_MAX {
            return Err(fault(format!("its references are nested more than {DEPTH_MAX} deep")));
        }
        if self.done.contains(&std::ptr::from_ref(schema)) {
            return Ok(());
        }
        if self.on_the_way.contains(&std::ptr::from_ref(schema)) {
            return Err(fault("a `$ref` leads back to itself".to_owned()));
        }
        self.on_the_way.insert(schema);
        let target = target(self.root, fields);
        for inner in in_place(self.root, fields) {
            let is_target = target.is_some_and(|target| std::ptr::eq(target, inner));
            self.visit(inner, if is_target { schema } else { referring }, depth + 1)?;
        }
        self.on_the_way.remove(&std::ptr::from_ref(schema));
        self.done.insert(schema);
        self.open.extend(subschemas(fields, INSIDE, INSIDE_BY_PROPERTY));
        Ok(())
    }
}

/// Subschemas that see the same instance as the schema with these fields.
pub(crate) fn in_place<'a>(root: &'a Value, fields: &'a Map<String, Value>) -> impl Iterator<Item = &'a Value> {
    target(root, fields).into_iter().chain(subschemas(fields, IN_PLACE, IN_PLACE_BY_PROPERTY))
}

/// The schema that the `$ref` of the schema with these fields means.
pub(crate) fn target<'a>(root: &'a Value, fields: &Map<String, Value>) -> Option<&'a Value> {
    resolve(root, fields.get("$ref")?.as_str()?)
}

fn subschemas<'a>(
    fields: &'a Map<String, Value>,
    keywords: &'static [&'static str],
    by_property: &'static [&'static str],
) -> impl Iterator<Item = &'a Value> {
    let direct = keywords.iter().filter_map(|keyword| fields.get(*keyword));
    let direct = direct.flat_map(|value| match value {
        Value::Array(schemas) => schemas.as_slice(),
        schema => std::slice::from_ref(schema),
    });
    let named = by_property.iter().filter_map(|keyword| fields.get(*keyword)?.as_object());
    direct.chain(named.flat_map(Map::values))
}
