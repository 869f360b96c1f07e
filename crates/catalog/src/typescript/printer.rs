//! Writes types as TypeScript.

use super::literals::quoted;
use super::meet::is_within;
use super::shape::{Literal, Object, OtherProperties, Presence, Property, Tuple, Type, TypeShape};

/// An object without comments stays on one line up to here.
const LINE_BYTES_MAX: usize = 90;
/// What is known of unnamed properties, if it can be said shortly.
const INDEX_BYTES_MAX: usize = 200;

/// Writes types. Lines after the first are indented as if the first began at the margin.
#[derive(Debug, Clone, Copy)]
pub(super) struct Printer<'a> {
    /// The names of definitions, by their positions.
    pub(super) names: &'a [String],
}

/// Where a type stands, which decides whether it needs parentheses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum TypePosition {
    Alone,
    InUnion,
    InIntersection,
    BeforeBrackets,
}

impl Printer<'_> {
    pub(super) fn ty(&self, ty: &Type) -> String {
        self.shape(&ty.shape)
    }

    pub(super) fn shape(&self, shape: &TypeShape) -> String {
        self.placed(shape, TypePosition::Alone)
    }

    fn placed(&self, shape: &TypeShape, place: TypePosition) -> String {
        match shape {
            TypeShape::Unknown => "unknown".to_owned(),
            TypeShape::Never => "never".to_owned(),
            TypeShape::Null => "null".to_owned(),
            TypeShape::Boolean => "boolean".to_owned(),
            TypeShape::Number => "number".to_owned(),
            TypeShape::String => "string".to_owned(),
            TypeShape::Literal(Literal::Boolean(value)) => value.to_string(),
            TypeShape::Literal(Literal::Number(text) | Literal::String(text)) => text.clone(),
            TypeShape::Array(items) => format!("{}[]", self.placed(&items.shape, TypePosition::BeforeBrackets)),
            TypeShape::Tuple(tuple) => self.tuple(tuple),
            TypeShape::Object(object) => self.object(object),
            TypeShape::Union(members) => self.joined(members, " | ", TypePosition::InUnion, place),
            TypeShape::Intersection(members) => self.joined(members, " & ", TypePosition::InIntersection, place),
            TypeShape::Named(index) => self.names[*index].clone(),
        }
    }

    fn joined(&self, members: &[Type], operator: &str, inner: TypePosition, outer: TypePosition) -> String {
        let members = members.iter().map(|member| {
            let text = self.placed(&member.shape, inner);
            if member.doc.is_empty() { text } else { format!("/** {} */ {text}", member.doc) }
        });
        let text = members.collect::<Vec<_>>().join(operator);
        if outer > inner { format!("({text})") } else { text }
    }

    fn tuple(&self, tuple: &Tuple) -> String {
        let mut items: Vec<String> = Vec::new();
        for (index, item) in tuple.items.iter().enumerate() {
            let doc = if item.doc.is_empty() { String::new() } else { format!("/** {} */ ", item.doc) };
            items.push(if index < tuple.required {
                format!("{doc}{}", self.ty(item))
            } else {
                format!("{doc}{}?", self.placed(&item.shape, TypePosition::BeforeBrackets))
            });
        }
        if let Some(rest) = &tuple.rest {
            items.push(format!("...{}[]", self.placed(&rest.shape, TypePosition::BeforeBrackets)));
        }
        format!("[{}]", items.join(", "))
    }

    fn object(&self, object: &Object) -> String {
        if object.properties.is_empty() {
            return self.record(&object.rest);
        }
        let mut members: Vec<String> = object.properties.iter().map(|property| self.property(property)).collect();
        members.extend(self.index(object));
        let has_docs = object.properties.iter().any(|property| !property.value.doc.is_empty());
        let bytes: usize = members.iter().map(|member| member.len() + 2).sum();
        if !has_docs && bytes <= LINE_BYTES_MAX && !members.iter().any(|member| member.contains('\n')) {
            return format!("{{ {} }}", members.join("; "));
        }
        format!("{{\n  {};\n}}", indented(&members.join(";\n")))
    }

    fn property(&self, property: &Property) -> String {
        let doc = &property.value.doc;
        let doc = if doc.is_empty() { String::new() } else { format!("/** {doc} */\n") };
        let mark = if property.presence == Presence::Optional { "?" } else { "" };
        format!("{doc}{}{mark}: {}", key(&property.name), self.ty(&property.value))
    }

    /// An object without named properties. A definition may not stand in its own `Record`.
    fn record(&self, rest: &OtherProperties) -> String {
        match rest {
            OtherProperties::Open | OtherProperties::Any => "Record<string, unknown>".to_owned(),
            OtherProperties::Closed => "Record<string, never>".to_owned(),
            OtherProperties::Of(ty) if has_names(&ty.shape) => format!("{{ [key: string]: {} }}", self.ty(ty)),
            OtherProperties::Of(ty) => format!("Record<string, {}>", self.ty(ty)),
            OtherProperties::Prefixed(prefix, ty) => format!("{{ {} }}", self.prefixed(prefix, ty)),
        }
    }

    fn prefixed(&self, prefix: &str, ty: &Type) -> String {
        format!("[key: `{prefix}${{string}}`]: {}", self.ty(ty))
    }

    /// TypeScript wants the type of unnamed properties to have room for the named ones.
    fn index(&self, object: &Object) -> Option<String> {
        let rest = match &object.rest {
            OtherProperties::Open | OtherProperties::Closed => return None,
            OtherProperties::Any => return Some("[key: string]: unknown".to_owned()),
            OtherProperties::Prefixed(prefix, ty) => return Some(self.prefixed(prefix, ty)),
            OtherProperties::Of(ty) => ty,
        };
        let mut members = vec![(**rest).clone()];
        for property in &object.properties {
            if !members.iter().any(|member| is_within(&property.value.shape, &member.shape)) {
                members.push(Type::of(property.value.shape.clone()));
            }
        }
        let mut union = Type::union(members);
        union.doc.clear();
        let mut text = self.ty(&union);
        if object.properties.iter().any(|property| property.presence == Presence::Optional) && !union.is_unknown() {
            text.push_str(" | undefined");
        }
        if text.len() > INDEX_BYTES_MAX {
            "unknown".clone_into(&mut text);
        }
        Some(format!("[key: string]: {text}"))
    }
}

/// The text as it stands inside braces.
pub(super) fn indented(text: &str) -> String {
    text.replace('\n', "\n  ")
}

fn key(name: &str) -> String {
    let is_word = |letter: char| letter.is_ascii_alphanumeric() || letter == '_' || letter == '$';
    let is_plain = name.chars().all(is_word) && name.chars().next().is_some_and(|first| !first.is_ascii_digit());
    if is_plain { name.to_owned() } else { quoted(name) }
}

fn has_names(shape: &TypeShape) -> bool {
    match shape {
        TypeShape::Named(_) => true,
        TypeShape::Union(members) | TypeShape::Intersection(members) => {
            members.iter().any(|member| has_names(&member.shape))
        }
        TypeShape::Object(object) if object.properties.is_empty() => match &object.rest {
            OtherProperties::Of(ty) | OtherProperties::Prefixed(_, ty) => has_names(&ty.shape),
            OtherProperties::Open | OtherProperties::Any | OtherProperties::Closed => false,
        },
        _ => false,
    }
}
