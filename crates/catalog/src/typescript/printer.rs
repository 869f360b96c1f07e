//! Writes types as TypeScript.
//!
//! Comments stand on their own lines, above a property, a member of a union or a declaration. Words about a part that has
//! no line of its own, such as an item of a tuple, join the comment above.

use std::borrow::Cow;
use std::fmt::Write;

use super::comment;
use super::literals::quoted;
use super::meet::is_within;
use super::shape::{Literal, Object, OtherProperties, Presence, Property, Tuple, Type, TypeShape};

/// An object without comments stays on one line up to here.
const LINE_BYTES_MAX: usize = 90;
/// What is known of unnamed properties, if it can be said shortly.
const INDEX_BYTES_MAX: usize = 200;

/// Writes types.
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
    /// The type as it stands at the margin.
    pub(super) fn ty(&self, ty: &Type) -> String {
        let mut out = String::new();
        self.shape(&mut out, &ty.shape, 0, TypePosition::Alone);
        out
    }

    /// `/** … */` and `type NAME = …;`
    pub(super) fn declaration(&self, out: &mut String, name: &str, ty: &Type) {
        self.comment(out, ty, 0);
        out.push_str("type ");
        out.push_str(name);
        out.push_str(" = ");
        self.shape(out, &ty.shape, 0, TypePosition::Alone);
        out.push_str(";\n");
    }

    /// What the comment above a type says: its own words, and those of parts that have no line of their own.
    pub(super) fn words<'t>(&self, ty: &'t Type<'_>) -> Cow<'t, str> {
        let mut inner = String::new();
        self.inner_words(&ty.shape, &mut inner);
        match (ty.doc.is_empty(), inner.is_empty()) {
            (_, true) => Cow::Borrowed(&ty.doc),
            (true, false) => Cow::Owned(inner),
            (false, false) => Cow::Owned(format!("{}; {inner}", ty.doc)),
        }
    }

    fn inner_words(&self, shape: &TypeShape, out: &mut String) {
        let mut add = |label: &dyn std::fmt::Display, ty: &Type| {
            let words = self.words(ty);
            if !words.is_empty() {
                let separator = if out.is_empty() { "" } else { "; " };
                // Writing to a string cannot fail.
                write!(out, "{separator}{label}: {words}").unwrap_or_default();
            }
        };
        match shape {
            TypeShape::Array(items) => add(&"each", items),
            TypeShape::Tuple(tuple) => {
                tuple.items.iter().enumerate().for_each(|(index, item)| add(&format_args!("[{index}]"), item));
                tuple.rest.iter().for_each(|rest| add(&"then each", rest));
            }
            TypeShape::Object(object) if object.properties.is_empty() => {
                object.rest.part().into_iter().for_each(|rest| add(&"each", rest));
            }
            TypeShape::Union(members) | TypeShape::Intersection(members) if !has_lines(members) => {
                for member in members.iter().filter(|member| has_words(member)) {
                    // A literal type may hold what ends a comment.
                    add(&comment::one_line(&self.ty(member)), member);
                }
            }
            _ => {}
        }
    }

    fn comment(&self, out: &mut String, ty: &Type, indent: usize) {
        let words = self.words(ty);
        if !words.is_empty() {
            out.push_str("/** ");
            out.push_str(&words);
            out.push_str(" */");
            line(out, indent);
        }
    }

    fn shape(&self, out: &mut String, shape: &TypeShape, indent: usize, place: TypePosition) {
        match shape {
            TypeShape::Array(items) => {
                self.shape(out, &items.shape, indent, TypePosition::BeforeBrackets);
                out.push_str("[]");
            }
            TypeShape::Tuple(tuple) => self.tuple(out, tuple, indent),
            TypeShape::Object(object) => self.object(out, object, indent),
            TypeShape::Union(members) => self.joined(out, members, '|', indent, TypePosition::InUnion, place),
            TypeShape::Intersection(members) => {
                self.joined(out, members, '&', indent, TypePosition::InIntersection, place);
            }
            TypeShape::Named(index) => out.push_str(&self.names[*index]),
            _ => out.push_str(word(shape)),
        }
    }

    fn joined(
        &self,
        out: &mut String,
        members: &[Type],
        operator: char,
        indent: usize,
        inner: TypePosition,
        outer: TypePosition,
    ) {
        let has_lines = has_lines(members);
        // On lines of their own, members begin with the operator, and two of them in a row are no type.
        let is_placed = outer > inner || has_lines && outer == inner;
        if is_placed {
            out.push('(');
        }
        if has_lines {
            // `name: ` goes on in the next line.
            out.truncate(out.trim_end_matches(' ').len());
            for member in members {
                line(out, indent + 1);
                self.comment(out, member, indent + 1);
                out.push(operator);
                out.push(' ');
                self.shape(out, &member.shape, indent + 1, inner);
            }
            if is_placed {
                line(out, indent);
            }
        } else {
            for (index, member) in members.iter().enumerate() {
                if index > 0 {
                    out.push(' ');
                    out.push(operator);
                    out.push(' ');
                }
                self.shape(out, &member.shape, indent, inner);
            }
        }
        if is_placed {
            out.push(')');
        }
    }

    fn tuple(&self, out: &mut String, tuple: &Tuple, indent: usize) {
        out.push('[');
        for (index, item) in tuple.items.iter().enumerate() {
            if index > 0 {
                out.push_str(", ");
            }
            if index < tuple.required {
                self.shape(out, &item.shape, indent, TypePosition::Alone);
            } else {
                self.shape(out, &item.shape, indent, TypePosition::BeforeBrackets);
                out.push('?');
            }
        }
        if let Some(rest) = &tuple.rest {
            out.push_str(if tuple.items.is_empty() { "..." } else { ", ..." });
            self.shape(out, &rest.shape, indent, TypePosition::BeforeBrackets);
            out.push_str("[]");
        }
        out.push(']');
    }

    fn object(&self, out: &mut String, object: &Object, indent: usize) {
        if object.properties.is_empty() {
            return self.record(out, &object.rest, indent);
        }
        let index = self.index(object);
        let is_line = self.room_after_object(object, index.as_deref(), LINE_BYTES_MAX).is_some();
        let inner = indent + 1;
        out.push('{');
        let begin = |out: &mut String| if is_line { out.push(' ') } else { line(out, inner) };
        for property in &object.properties {
            begin(out);
            self.comment(out, &property.value, inner);
            key(out, property.name);
            out.push_str(if property.presence == Presence::Optional { "?: " } else { ": " });
            self.shape(out, &property.value.shape, inner, TypePosition::Alone);
            out.push(';');
        }
        if let Some(index) = index {
            begin(out);
            object.rest.part().into_iter().for_each(|rest| self.comment(out, rest, inner));
            out.push_str(&index);
            out.push(';');
        }
        if is_line {
            // The last member of a line needs no separator.
            out.pop();
            out.push_str(" }");
        } else {
            line(out, indent);
            out.push('}');
        }
    }

    /// An object without named properties. A definition may not stand in its own `Record`.
    fn record(&self, out: &mut String, rest: &OtherProperties, indent: usize) {
        match rest {
            OtherProperties::Open | OtherProperties::Any => out.push_str("Record<string, unknown>"),
            OtherProperties::Closed => out.push_str("Record<string, never>"),
            OtherProperties::Of(ty) if has_names(&ty.shape) => {
                out.push_str("{ [key: string]: ");
                self.shape(out, &ty.shape, indent, TypePosition::Alone);
                out.push_str(" }");
            }
            OtherProperties::Of(ty) => {
                out.push_str("Record<string, ");
                self.shape(out, &ty.shape, indent, TypePosition::Alone);
                out.push('>');
            }
            OtherProperties::Prefixed(prefix, ty) => {
                out.push_str("{ ");
                self.prefixed(out, prefix, ty, indent);
                out.push_str(" }");
            }
        }
    }

    fn prefixed(&self, out: &mut String, prefix: &str, ty: &Type, indent: usize) {
        out.push_str("[key: `");
        out.push_str(prefix);
        out.push_str("${string}`]: ");
        self.shape(out, &ty.shape, indent, TypePosition::Alone);
    }

    /// TypeScript wants the type of unnamed properties to have room for the named ones.
    fn index(&self, object: &Object) -> Option<String> {
        let rest = match &object.rest {
            OtherProperties::Open | OtherProperties::Closed => return None,
            OtherProperties::Any => return Some("[key: string]: unknown".to_owned()),
            OtherProperties::Prefixed(prefix, ty) => {
                let mut text = String::new();
                self.prefixed(&mut text, prefix, ty, 0);
                return Some(text);
            }
            OtherProperties::Of(ty) => ty,
        };
        let mut members = vec![without_words(rest)];
        for property in &object.properties {
            if !members.iter().any(|member| is_within(&property.value.shape, &member.shape)) {
                members.push(without_words(&property.value));
            }
        }
        let union = Type::union(members);
        let mut text = self.ty(&union);
        if object.properties.iter().any(|property| property.presence == Presence::Optional) && !union.is_unknown() {
            text.push_str(" | undefined");
        }
        if text.len() > INDEX_BYTES_MAX {
            "unknown".clone_into(&mut text);
        }
        Some(format!("[key: string]: {text}"))
    }

    /// What is left of a line after this type; `None` if it takes more, or has words above a part of it.
    fn room_after(&self, shape: &TypeShape, room: usize) -> Option<usize> {
        match shape {
            TypeShape::Array(items) => self.room_after_type(items, room.checked_sub(4)?),
            TypeShape::Tuple(tuple) => {
                let items = tuple.items.iter().chain(tuple.rest.as_deref());
                items.into_iter().try_fold(room, |room, item| self.room_after_type(item, room.checked_sub(4)?))
            }
            TypeShape::Object(object) => {
                let index = if object.properties.is_empty() { None } else { self.index(object) };
                self.room_after_object(object, index.as_deref(), room)
            }
            TypeShape::Union(members) | TypeShape::Intersection(members) => {
                members.iter().try_fold(room, |room, member| self.room_after_type(member, room.checked_sub(3)?))
            }
            TypeShape::Named(index) => room.checked_sub(self.names[*index].len()),
            _ => room.checked_sub(word(shape).len()),
        }
    }

    fn room_after_type(&self, ty: &Type, room: usize) -> Option<usize> {
        if ty.doc.is_empty() { self.room_after(&ty.shape, room) } else { None }
    }

    fn room_after_object(&self, object: &Object, index: Option<&str>, room: usize) -> Option<usize> {
        let mut room = room;
        if object.properties.is_empty() {
            room = room.checked_sub("Record<string, unknown>".len())?;
        }
        for Property { name, value, .. } in &object.properties {
            room = self.room_after_type(value, room.checked_sub(name.len() + 4)?)?;
        }
        if let Some(part) = object.rest.part() {
            room = self.room_after_type(part, room)?;
        }
        room.checked_sub(index.map_or(0, |index| index.len() + 2))
    }
}

/// One space for each level: tokenizers take it together with the word after it.
fn line(out: &mut String, indent: usize) {
    out.push('\n');
    (0..indent).for_each(|_| out.push(' '));
}

/// The text as it stands inside braces.
pub(super) fn indented(text: &str) -> String {
    text.replace('\n', "\n ")
}

/// Types that are one word, or a literal.
fn word<'t>(shape: &'t TypeShape<'_>) -> &'t str {
    match shape {
        TypeShape::Never => "never",
        TypeShape::Null => "null",
        TypeShape::Boolean => "boolean",
        TypeShape::Number => "number",
        TypeShape::String => "string",
        TypeShape::Literal(Literal::Boolean(true)) => "true",
        TypeShape::Literal(Literal::Boolean(false)) => "false",
        TypeShape::Literal(Literal::Number(text) | Literal::String(text)) => text,
        _ => "unknown",
    }
}

/// Whether the type may stand in words about itself.
fn is_short(shape: &TypeShape) -> bool {
    match shape {
        TypeShape::Array(items) => is_short(&items.shape),
        TypeShape::Object(object) => object.is_any(),
        TypeShape::Tuple(_) | TypeShape::Union(_) | TypeShape::Intersection(_) => false,
        _ => true,
    }
}

/// Whether members of a union stand on lines of their own, below comments.
fn has_lines(members: &[Type]) -> bool {
    members.iter().any(|member| !is_short(&member.shape) && has_words(member))
}

/// Whether there are words about the type, or about a part that has no line of its own.
fn has_words(ty: &Type) -> bool {
    !ty.doc.is_empty()
        || match &ty.shape {
            TypeShape::Array(items) => has_words(items),
            TypeShape::Tuple(tuple) => tuple.items.iter().chain(tuple.rest.as_deref()).any(has_words),
            TypeShape::Object(object) if object.properties.is_empty() => object.rest.part().is_some_and(has_words),
            TypeShape::Union(members) | TypeShape::Intersection(members) => members.iter().any(has_words),
            _ => false,
        }
}

/// The type without comments anywhere in it.
fn without_words<'s>(ty: &Type<'s>) -> Type<'s> {
    let mut ty = Type::of(ty.shape.clone());
    ty.shape.for_each_part_mut(&mut |part| *part = without_words(part));
    ty
}

fn key(out: &mut String, name: &str) {
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'$';
    let is_plain = name.bytes().all(is_word) && name.bytes().next().is_some_and(|first| !first.is_ascii_digit());
    if is_plain { out.push_str(name) } else { out.push_str(&quoted(name)) }
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
