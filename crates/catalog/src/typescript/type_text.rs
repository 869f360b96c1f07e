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

/// What most declarations have room in.
const TEXT_BYTES: usize = 1_024;

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
    let expressions = Expressions::of([[(schema, Kinds::ALL)]], VALUES_MAX);
    let mut text = String::with_capacity(TEXT_BYTES);
    for Expression { ty, uses, .. } in &expressions.types {
        let mut names: Vec<&NamedType> = uses.iter().map(|index| &expressions.definitions[*index]).collect();
        names.sort_unstable_by_key(|definition| &definition.name);
        text.extend(names.into_iter().map(|definition| definition.text.as_str()));
        expressions.printer().declaration(&mut text, name, ty);
    }
    TypeText { text, warnings: expressions.warnings.into_iter().flatten().collect() }
}

/// Schemas as types that are shown together.
pub(super) struct Expressions<'s> {
    /// One for each schema.
    pub(super) types: Vec<Expression<'s>>,
    /// The declarations that they need.
    pub(super) definitions: Vec<NamedType>,
    names: Vec<String>,
    /// For each schema, what in it could not be used.
    pub(super) warnings: Vec<BTreeSet<String>>,
}

pub(super) struct Expression<'s> {
    pub(super) ty: Type<'s>,
    /// The definitions that it needs, by position.
    pub(super) uses: Vec<usize>,
    /// Whether an object without properties is a value of the type.
    pub(super) takes_empty_object: bool,
}

pub(super) struct NamedType {
    pub(super) name: String,
    /// Its declaration.
    pub(super) text: String,
}

impl<'s> Expressions<'s> {
    /// The schemas of some tools, those of each tool together. `Kinds` are the kinds of value that a schema without a
    /// `type` is for.
    pub(super) fn of<S: IntoIterator<Item = (&'s Value, Kinds), IntoIter: Clone>>(
        tools: impl IntoIterator<Item = S>,
        values_max: usize,
    ) -> Expressions<'s> {
        let mut all = Definitions::default();
        let mut known = BTreeMap::new();
        for schemas in tools {
            all.append(of_tool(schemas.into_iter(), values_max), &mut known);
        }
        Expressions::written(all.named())
    }

    /// Writes the types.
    pub(super) fn printer(&self) -> Printer<'_> {
        Printer { names: &self.names }
    }

    fn written(definitions: Definitions<'s>) -> Expressions<'s> {
        let mut empty_object = EmptyObject { bodies: &definitions.bodies, known: BTreeMap::new() };
        let takes_empty_object: Vec<bool> = definitions.roots.iter().map(|root| empty_object.is_in(root)).collect();
        let uses: Vec<Vec<usize>> =
            definitions.roots.iter().map(|root| definitions.used_by(std::slice::from_ref(root))).collect();
        let printer = Printer { names: &definitions.names };
        let named = definitions.names.iter().zip(&definitions.bodies);
        let named = named.map(|(name, body)| {
            let mut text = String::new();
            printer.declaration(&mut text, name, body);
            NamedType { name: name.clone(), text }
        });
        let named = named.collect();
        let types = definitions.roots.into_iter().zip(uses).zip(takes_empty_object);
        let types = types.map(|((ty, uses), takes_empty_object)| Expression { ty, uses, takes_empty_object });
        Expressions {
            types: types.collect(),
            definitions: named,
            names: definitions.names,
            warnings: definitions.warnings,
        }
    }
}

fn of_tool<'s>(schemas: impl Iterator<Item = (&'s Value, Kinds)> + Clone, values_max: usize) -> Definitions<'s> {
    let read = || Definitions::of(schemas.clone().map(|(schema, kinds)| SchemaReader::read(schema, kinds, values_max)));
    let definitions = read();
    if definitions.bytes() <= TYPES_BYTES_MAX {
        return definitions;
    }
    // It may repeat much, which is written once.
    if definitions.named().bytes() <= TYPES_BYTES_MAX {
        return read();
    }
    let warning = || format!("its types take more than {TYPES_BYTES_MAX} bytes");
    Definitions::of(schemas.map(|(_, kinds)| Read::nothing(kinds, warning())))
}

/// Answers whether an object without properties is a value of a type, once for each definition.
struct EmptyObject<'a> {
    bodies: &'a [Type<'a>],
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
