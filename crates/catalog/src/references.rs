//! Where `$ref` leads in a schema, and references that cannot be followed.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

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

/// Whether the schema has references, and a reason not to use it if they cannot be followed.
pub(crate) fn survey(root: &Value) -> Result<bool, String> {
    let mut has_references = false;
    let mut has_inner_ids = false;
    let mut open = vec![root];
    while let Some(value) = open.pop() {
        match value {
            Value::Object(fields) => {
                for keyword in ["$dynamicRef", "$recursiveRef"] {
                    if fields.get(keyword).is_some_and(Value::is_string) {
                        return Err(format!("`{keyword}` is not supported; use `$ref`"));
                    }
                }
                if let Some(Value::String(reference)) = fields.get("$ref") {
                    has_references = true;
                    if resolve(root, reference).is_none() {
                        return Err(format!("`$ref` {reference:?} leads to no place in the same schema"));
                    }
                }
                let is_root = std::ptr::eq(value, root);
                has_inner_ids |= !is_root && fields.get("$id").is_some_and(Value::is_string);
                open.extend(fields.values());
            }
            Value::Array(items) => open.extend(items),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
    if has_references {
        if has_inner_ids {
            return Err("`$ref` beside an inner `$id` is not supported".to_owned());
        }
        Loops::new(root).search()?;
    }
    Ok(has_references)
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

    fn search(mut self) -> Result<(), String> {
        while let Some(schema) = self.open.pop() {
            self.visit(schema, 0)?;
        }
        Ok(())
    }

    fn visit(&mut self, schema: &'a Value, depth: u32) -> Result<(), String> {
        let Value::Object(fields) = schema else {
            return Ok(());
        };
        if depth > DEPTH_MAX {
            return Err(format!("its references are nested more than {DEPTH_MAX} deep"));
        }
        if self.done.contains(&std::ptr::from_ref(schema)) {
            return Ok(());
        }
        if !self.on_the_way.insert(schema) {
            return Err("a `$ref` leads back to itself".to_owned());
        }
        for inner in in_place(self.root, fields) {
            self.visit(inner, depth + 1)?;
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
