//! Schemas as TypeScript type declarations.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::definitions::Definitions;
use super::kinds::Kinds;
use super::printer::Printer;
use super::reader::{Read, SchemaReader};
use super::shape::{Object, Presence, Type, TypeShape};

/// Types that take more room than this are not shown.
const TYPES_BYTES_MAX: usize = 64 * 1024;
/// Longer lists of values are no types.
const VALUES_MAX: usize = 1_000;

/// A schema as a type declaration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TypeText {
    /// The types that it needs, then `type NAME = …;`.
    pub text: String,
    /// What in the schema could not be used.
    pub warnings: Vec<String>,
}

/// Writes any schema as `type NAME = …;`. `name` must be an identifier.
///
/// ```
/// let schema = serde_json::json!({"type": "array", "items": {"enum": ["a", 1]}});
/// assert_eq!(dacapo_catalog::type_of(&schema, "List").text, "type List = (\"a\" | 1)[];\n");
/// ```
pub fn type_of(schema: &Value, name: &str) -> TypeText {
    let Expressions { types, definitions, warnings } = Expressions::of(&[(schema, Kinds::ALL)], VALUES_MAX);
    let mut text: String = definitions.into_values().collect();
    for Expression { doc, text: body, .. } in types {
        text.push_str(&declaration(&doc, name, &body));
    }
    TypeText { text, warnings: warnings.into_iter().flatten().collect() }
}

/// Schemas as types that are shown together.
pub(super) struct Expressions {
    /// One for each schema.
    pub(super) types: Vec<Expression>,
    /// The declarations that they need, by name.
    pub(super) definitions: BTreeMap<String, String>,
    /// For each schema, what in it could not be used.
    pub(super) warnings: Vec<BTreeSet<String>>,
}

pub(super) struct Expression {
    pub(super) text: String,
    /// What the schema says of itself, on one line.
    pub(super) doc: String,
    /// Whether an object without properties is a value of the type.
    pub(super) takes_empty_object: bool,
}

impl Expressions {
    /// `Kinds` are the kinds of value that a schema without a `type` is for.
    pub(super) fn of(schemas: &[(&Value, Kinds)], values_max: usize) -> Expressions {
        let read = schemas.iter().map(|(schema, kinds)| SchemaReader::read(schema, *kinds, values_max));
        let expressions = Expressions::written(Definitions::of(read.collect()));
        if expressions.bytes() <= TYPES_BYTES_MAX {
            return expressions;
        }
        let warning = || format!("its types take more than {TYPES_BYTES_MAX} bytes");
        let nothing = schemas.iter().map(|(_, kinds)| Read::nothing(*kinds, warning()));
        Expressions::written(Definitions::of(nothing.collect()))
    }

    fn written(definitions: Definitions) -> Expressions {
        let printer = Printer { names: &definitions.names };
        let mut empty_object = EmptyObject { bodies: &definitions.bodies, known: BTreeMap::new() };
        let types = definitions.roots.iter().map(|root| Expression {
            text: printer.ty(root),
            doc: root.doc.clone(),
            takes_empty_object: empty_object.is_in(root),
        });
        let types = types.collect();
        let used = definitions.used().into_iter().map(|index| {
            let (name, body) = (&definitions.names[index], &definitions.bodies[index]);
            (name.clone(), declaration(&body.doc, name, &printer.ty(body)))
        });
        Expressions { types, definitions: used.collect(), warnings: definitions.warnings }
    }

    fn bytes(&self) -> usize {
        let types = self.types.iter().map(|ty| ty.text.len());
        types.chain(self.definitions.values().map(String::len)).sum()
    }
}

fn declaration(doc: &str, name: &str, body: &str) -> String {
    let doc = if doc.is_empty() { String::new() } else { format!("/** {doc} */\n") };
    format!("{doc}type {name} = {body};\n")
}

/// Answers whether an object without properties is a value of a type, once for each definition.
struct EmptyObject<'a> {
    bodies: &'a [Type],
    known: BTreeMap<usize, bool>,
}

impl EmptyObject<'_> {
    fn is_in(&mut self, ty: &Type) -> bool {
        match &ty.shape {
            TypeShape::Unknown => true,
            TypeShape::Object(Object { properties, .. }) => {
                properties.iter().all(|property| property.presence == Presence::Optional)
            }
            TypeShape::Union(members) => members.iter().any(|member| self.is_in(member)),
            TypeShape::Intersection(members) => members.iter().all(|member| self.is_in(member)),
            TypeShape::Named(index) => {
                if let Some(&known) = self.known.get(index) {
                    return known;
                }
                // Definitions that lead to themselves for the same value have been taken out.
                let bodies = self.bodies;
                let answer = self.is_in(&bodies[*index]);
                self.known.insert(*index, answer);
                answer
            }
            _ => false,
        }
    }
}
