//! Reads a JSON Schema into types.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::constraints::{Title, words};
use super::keywords::Keywords;
use super::kinds::Kinds;
use super::literals;
use super::meet::meet;
use super::shape::{Object, OtherProperties, Presence, Property, Tuple, Type, TypeShape};
use crate::references::resolve;
use crate::repair::ignores_beside_references;
use crate::schema::is_deeper_than;
use crate::text::prefix;
use crate::tool::json_type_name;

/// Types inside types. Real schemas reach twelve.
const DEPTH_MAX: u32 = 40;
/// Schemas inside one schema, each counted once however often it is referred to.
const NODES_MAX: u32 = 5_000;
const DEFINITIONS_MAX: usize = 500;
const NAME_BYTES_MAX: usize = 40;
/// A list of required properties that is searched from its beginning.
const REQUIRED_FEW: usize = 16;
/// Containers inside containers, which are not looked at past this.
const SCHEMA_DEPTH_MAX: usize = 128;

/// Makes types of one schema, and of the definitions that it refers to.
pub(super) struct SchemaReader<'s> {
    root: &'s Value,
    /// Longer lists of values become their kind, with the first few in words.
    values_max: usize,
    /// Up to draft 7, what stands beside a `$ref` says nothing.
    references_stand_alone: bool,
    definitions: Vec<Definition<'s>>,
    by_address: BTreeMap<*const Value, usize>,
    nodes_left: u32,
    warnings: BTreeSet<String>,
}

struct Definition<'s> {
    schema: &'s Value,
    reference: &'s str,
    body: Option<Type<'s>>,
}

/// A schema as types: its own, and those that it refers to by their positions.
pub(super) struct Read<'s> {
    pub(super) root: Type<'s>,
    /// With the names that the schema has for them.
    pub(super) definitions: Vec<(String, Type<'s>)>,
    /// What in the schema could not be used.
    pub(super) warnings: BTreeSet<String>,
}

impl Read<'_> {
    pub(super) fn nothing(kinds: Kinds, warning: String) -> Self {
        Read { root: of_kinds(kinds), definitions: Vec::new(), warnings: BTreeSet::from([warning]) }
    }
}

impl<'s> SchemaReader<'s> {
    /// `kinds` are the kinds of value that a schema without a `type` is for.
    pub(super) fn read(root: &'s Value, kinds: Kinds, values_max: usize) -> Read<'s> {
        if is_deeper_than(root, SCHEMA_DEPTH_MAX) {
            return Read::nothing(kinds, format!("it is nested more than {SCHEMA_DEPTH_MAX} deep"));
        }
        let mut reader = SchemaReader {
            root,
            values_max,
            references_stand_alone: root.get("$schema").and_then(Value::as_str).is_some_and(ignores_beside_references),
            definitions: Vec::new(),
            by_address: BTreeMap::new(),
            nodes_left: NODES_MAX,
            warnings: BTreeSet::new(),
        };
        let mut ty = reader.ty(root, kinds, Title::Redundant, 0);
        let mut next = 0;
        while let Some(&Definition { schema, .. }) = reader.definitions.get(next) {
            reader.definitions[next].body = Some(reader.ty(schema, Kinds::ALL, Title::Redundant, 0));
            next += 1;
        }
        if reader.nodes_left == 0 {
            return Read::nothing(kinds, format!("it has more than {NODES_MAX} parts"));
        }
        if next > DEFINITIONS_MAX {
            return Read::nothing(kinds, format!("it has more than {DEFINITIONS_MAX} definitions"));
        }
        if let Some(&itself) = reader.by_address.get(&std::ptr::from_ref(root)) {
            ty = Type { shape: TypeShape::Named(itself), doc: ty.doc };
        }
        let definitions = reader.definitions.into_iter().map(|definition| {
            (base_name(definition.reference), definition.body.expect("the loop above reads every definition"))
        });
        Read { root: ty, definitions: definitions.collect(), warnings: reader.warnings }
    }

    fn ty(&mut self, schema: &'s Value, kinds: Kinds, title: Title, depth: u32) -> Type<'s> {
        self.nodes_left = self.nodes_left.saturating_sub(1);
        let fields = match schema {
            _ if self.nodes_left == 0 => return Type::unknown(),
            _ if depth > DEPTH_MAX => return self.unknown(format!("it is nested more than {DEPTH_MAX} deep")),
            Value::Bool(true) => return of_kinds(kinds),
            Value::Bool(false) => return Type::never(),
            Value::Object(fields) => fields,
            other => return self.unknown(format!("{} stands where a schema is expected", json_type_name(other))),
        };
        let keywords = Keywords::of(fields);
        if let Some(reference) = keywords.reference.filter(|_| self.references_stand_alone) {
            let shape = self.reference(reference).shape;
            return Type { shape, doc: words(fields, &keywords, title, kinds) };
        }
        let kinds = match Kinds::declared(&keywords) {
            Ok(Some(kinds)) => kinds,
            Err(reason) => {
                self.warnings.insert(reason);
                Kinds::implied_in(&keywords, kinds)
            }
            Ok(None) => Kinds::implied_in(&keywords, kinds),
        };
        let own = self.own(&keywords, kinds, depth);
        let mut ty = self.combined(own, &keywords, kinds, depth);
        if keywords.is_nullable() && keywords.types.is_none() {
            ty = Type::union([ty, Type::of(TypeShape::Null)]);
        }
        let mut doc = words(fields, &keywords, title, kinds);
        if let Some(values) = self.cut_values(&keywords) {
            doc = Cow::Owned(if doc.is_empty() { values } else { format!("{doc}; {values}") });
        }
        let inner = std::mem::replace(&mut ty.doc, doc);
        ty.add_doc(inner);
        ty
    }

    fn unknown(&mut self, warning: String) -> Type<'s> {
        self.warnings.insert(warning);
        Type::unknown()
    }

    /// What the schema says without the help of other schemas for the same value.
    fn own(&mut self, keywords: &Keywords<'s>, kinds: Kinds, depth: u32) -> Type<'s> {
        if let Some(value) = keywords.constant {
            return if kinds.contains(Kinds::of(value)) { literals::ty(value) } else { self.impossible("const") };
        }
        if let Some(Value::Array(values)) = keywords.enumeration {
            let mut values = values.iter().filter(|value| kinds.contains(Kinds::of(value))).peekable();
            if values.peek().is_none() {
                return self.impossible("enum");
            }
            return match self.cut_values(keywords) {
                Some(_) => of_kinds(values.fold(Kinds::NONE, |all, value| all.with(Kinds::of(value)))),
                None => Type::union(values.map(literals::ty)),
            };
        }
        match kinds {
            Kinds::ALL => return Type::unknown(),
            Kinds::STRING => return Type::of(TypeShape::String),
            Kinds::NUMBER => return Type::of(TypeShape::Number),
            Kinds::BOOLEAN => return Type::of(TypeShape::Boolean),
            Kinds::ARRAY => return self.array(keywords, depth),
            Kinds::OBJECT => return Type::of(self.object(keywords, depth)),
            _ => {}
        }
        let mut members = Vec::new();
        for (kind, shape) in [
            (Kinds::STRING, TypeShape::String),
            (Kinds::NUMBER, TypeShape::Number),
            (Kinds::BOOLEAN, TypeShape::Boolean),
            (Kinds::NULL, TypeShape::Null),
        ] {
            if kinds.contains(kind) {
                members.push(Type::of(shape));
            }
        }
        if kinds.contains(Kinds::ARRAY) {
            members.push(self.array(keywords, depth));
        }
        if kinds.contains(Kinds::OBJECT) {
            members.push(Type::of(self.object(keywords, depth)));
        }
        Type::union(members)
    }

    fn impossible(&mut self, keyword: &str) -> Type<'s> {
        self.warnings.insert(format!("its `type` allows no value of its `{keyword}`"));
        Type::never()
    }

    /// The words for a list of values that is too long to show.
    fn cut_values(&self, keywords: &Keywords) -> Option<String> {
        let values = keywords.enumeration?.as_array()?;
        (values.len() > self.values_max).then(|| literals::first_few(values))
    }

    /// Adds what the schemas for the same value say.
    fn combined(&mut self, own: Type<'s>, keywords: &Keywords<'s>, kinds: Kinds, depth: u32) -> Type<'s> {
        let mut ty = own;
        if let Some(reference) = keywords.reference {
            ty = meet(ty, self.reference(reference));
        }
        if let Some(keyword) = keywords.dynamic_reference {
            self.warnings.insert(format!("`{keyword}` is not supported"));
        }
        let all = branches(keywords.all_of);
        // What one branch is about, the others are about too.
        let kinds = match all
            .iter()
            .filter_map(Value::as_object)
            .find_map(|branch| Kinds::declared(&Keywords::of(branch)).ok()?)
        {
            Some(declared) if kinds == Kinds::ALL => declared,
            _ => kinds,
        };
        for branch in all {
            ty = meet(ty, self.ty(branch, kinds, Title::Redundant, depth + 1));
        }
        for list in [keywords.any_of, keywords.one_of] {
            let branches = branches(list);
            if !branches.is_empty() {
                let members: Vec<Type> =
                    branches.iter().map(|branch| self.ty(branch, kinds, Title::Redundant, depth + 1)).collect();
                ty = meet(ty, Type::union(members));
            }
        }
        if let (Some(condition), Some(then), Some(otherwise)) =
            (keywords.if_schema, keywords.then_schema, keywords.else_schema)
        {
            let condition = Type::of(self.ty(condition, kinds, Title::Redundant, depth + 1).shape);
            let then = self.ty(then, kinds, Title::Redundant, depth + 1);
            let otherwise = self.ty(otherwise, kinds, Title::Redundant, depth + 1);
            ty = meet(ty, Type::union([meet(condition, then), otherwise]));
        }
        if keywords.unevaluated_properties == Some(&Value::Bool(false))
            && let TypeShape::Object(object) = &mut ty.shape
            && object.rest == OtherProperties::Open
        {
            object.rest = OtherProperties::Closed;
        }
        ty
    }

    fn reference(&mut self, reference: &'s Value) -> Type<'s> {
        let Value::String(reference) = reference else {
            return self.unknown("`$ref` is no string".to_owned());
        };
        let Some(schema) = resolve(self.root, reference) else {
            return self.unknown(format!("`$ref` {reference:?} leads to no place in the same schema"));
        };
        let address = std::ptr::from_ref(schema);
        let next = self.definitions.len();
        let index = *self.by_address.entry(address).or_insert(next);
        if index == next {
            self.definitions.push(Definition { schema, reference, body: None });
        }
        Type::of(TypeShape::Named(index))
    }

    fn array(&mut self, keywords: &Keywords<'s>, depth: u32) -> Type<'s> {
        let (first, rest) = match (keywords.prefix_items, keywords.items) {
            (Some(Value::Array(first)), rest) => (first.as_slice(), rest),
            (None, Some(Value::Array(first))) => (first.as_slice(), keywords.additional_items),
            (_, rest) => (&[][..], rest),
        };
        let mut rest = rest.map_or_else(Type::unknown, |rest| self.ty(rest, Kinds::ALL, Title::Redundant, depth + 1));
        if first.is_empty() {
            let doc = std::mem::take(&mut rest.doc);
            let doc = if doc.is_empty() { doc } else { Cow::Owned(format!("each: {doc}")) };
            return Type { shape: TypeShape::Array(Box::new(rest)), doc };
        }
        let items: Vec<Type> =
            first.iter().map(|item| self.ty(item, Kinds::ALL, Title::Redundant, depth + 1)).collect();
        let bound = |bound: Option<&Value>| bound.and_then(Value::as_u64).and_then(|bound| bound.try_into().ok());
        let required = bound(keywords.min_items).unwrap_or(0).min(items.len());
        let is_full = bound(keywords.max_items).is_some_and(|items_max: usize| items_max <= items.len());
        let rest = (!rest.is_never() && !is_full).then(|| Box::new(rest));
        Type::of(TypeShape::Tuple(Tuple { items, required, rest }))
    }

    fn object(&mut self, keywords: &Keywords<'s>, depth: u32) -> TypeShape<'s> {
        let required: &[Value] = match keywords.required {
            Some(Value::Array(names)) => names,
            Some(_) => {
                self.warnings.insert("`required` is no list of names".to_owned());
                &[]
            }
            None => &[],
        };
        let named = match keywords.properties {
            Some(Value::Object(named)) => Some(named),
            Some(_) => {
                self.warnings.insert("`properties` is no object".to_owned());
                None
            }
            None => None,
        };
        // Lists are short as a rule; a long one would be searched for each property.
        let sorted: BTreeSet<&str> = match required.len() {
            0..=REQUIRED_FEW => BTreeSet::new(),
            _ => required.iter().filter_map(Value::as_str).collect(),
        };
        let is_required = |name: &str| match required.len() {
            0..=REQUIRED_FEW => required.iter().any(|required| required == name),
            _ => sorted.contains(name),
        };
        let presence = |name: &str| if is_required(name) { Presence::Required } else { Presence::Optional };
        let mut properties = Vec::with_capacity(named.map_or(0, serde_json::Map::len));
        for (name, schema) in named.into_iter().flatten() {
            let value = self.ty(schema, Kinds::ALL, Title::OfProperty(name), depth + 1);
            properties.push(Property { name, presence: presence(name), value });
        }
        let (patterns, mut rest) = self.rest(keywords, &properties, depth);
        let mut unnamed: BTreeSet<&str> = BTreeSet::new();
        let mut is_new = |name: &'s str| !named.is_some_and(|named| named.contains_key(name)) && unnamed.insert(name);
        if let Some(Value::Array(names)) = keywords.property_names.and_then(|names| names.get("enum"))
            && patterns == 0
        {
            for name in names.iter().filter_map(Value::as_str) {
                self.nodes_left = self.nodes_left.saturating_sub(1);
                if self.nodes_left > 0 && is_new(name) {
                    let property = Property { name, presence: presence(name), value: rest.value() };
                    properties.push(property);
                }
            }
            rest = OtherProperties::Closed;
        }
        for name in required.iter().filter_map(Value::as_str) {
            self.nodes_left = self.nodes_left.saturating_sub(1);
            if self.nodes_left > 0 && is_new(name) {
                let value = rest.value();
                if value.is_never() {
                    self.warnings.insert(format!("it requires the property {name:?} and forbids it"));
                    return TypeShape::Never;
                }
                properties.push(Property { name, presence: Presence::Required, value });
            }
        }
        TypeShape::Object(Object { properties, rest })
    }

    /// The properties without names, and how many patterns there are for them.
    fn rest(&mut self, keywords: &Keywords<'s>, properties: &[Property], depth: u32) -> (usize, OtherProperties<'s>) {
        let others = match keywords.additional_properties {
            None => OtherProperties::Open,
            Some(Value::Bool(true)) => OtherProperties::Any,
            Some(Value::Bool(false)) => OtherProperties::Closed,
            Some(schema) => match self.ty(schema, Kinds::ALL, Title::Redundant, depth + 1) {
                unknown if unknown.is_unknown() => OtherProperties::Any,
                ty => OtherProperties::Of(Box::new(ty)),
            },
        };
        let Some(Value::Object(patterns)) = keywords.pattern_properties else {
            return (0, others);
        };
        let mut types = Vec::new();
        for schema in patterns.values() {
            types.push(self.ty(schema, Kinds::ALL, Title::Redundant, depth + 1));
        }
        let prefix = match patterns.keys().next() {
            Some(pattern) if patterns.len() == 1 => literals::prefix(pattern),
            _ => None,
        };
        let rest = match (others, prefix) {
            (others, _) if types.is_empty() => others,
            (OtherProperties::Open | OtherProperties::Closed, Some(prefix))
                if !properties.iter().any(|property| property.name.starts_with(prefix)) =>
            {
                OtherProperties::Prefixed(prefix, Box::new(types.remove(0)))
            }
            (OtherProperties::Open | OtherProperties::Any, _) => OtherProperties::Any,
            (OtherProperties::Of(others), _) => {
                OtherProperties::Of(Box::new(Type::union(types.into_iter().chain([*others]))))
            }
            (_, _) => OtherProperties::Of(Box::new(Type::union(types))),
        };
        (patterns.len(), rest)
    }
}

fn branches(list: Option<&Value>) -> &[Value] {
    list.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

fn of_kinds<'s>(kinds: Kinds) -> Type<'s> {
    if kinds == Kinds::ALL {
        return Type::unknown();
    }
    let shapes = [
        (Kinds::STRING, TypeShape::String),
        (Kinds::NUMBER, TypeShape::Number),
        (Kinds::BOOLEAN, TypeShape::Boolean),
        (Kinds::ARRAY, TypeShape::Array(Box::new(Type::unknown()))),
        (Kinds::OBJECT, TypeShape::Object(Object::any())),
        (Kinds::NULL, TypeShape::Null),
    ];
    Type::union(shapes.into_iter().filter(|(kind, _)| kinds.contains(*kind)).map(|(_, shape)| Type::of(shape)))
}

/// The last name in a reference, as types are named: `RichText` for `#/$defs/rich_text`.
pub(super) fn base_name(reference: &str) -> String {
    const KEYWORDS: &[&str] = &["$defs", "additionalProperties", "definitions", "items", "properties"];
    let is_name = |part: &&str| !KEYWORDS.contains(part) && part.chars().any(|letter| letter.is_ascii_alphabetic());
    let last = reference.trim_start_matches('#').split('/').rev().find(is_name).unwrap_or("Value");
    let mut name = String::new();
    for word in last.split(|letter: char| !letter.is_ascii_alphanumeric()).filter(|word| !word.is_empty()) {
        let (first, rest) = word.split_at(1);
        name.push_str(&first.to_ascii_uppercase());
        name.push_str(rest);
    }
    match name.trim_start_matches(|letter: char| letter.is_ascii_digit()) {
        "" => "Value".to_owned(),
        name => prefix(name, NAME_BYTES_MAX).to_owned(),
    }
}
