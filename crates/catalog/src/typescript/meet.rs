//! The values that belong to two types at once, as one readable type.
//!
//! Where that would repeat much of either, the types stay as they are and are joined with TypeScript's `&`.

use std::borrow::Cow;

use super::shape::{Literal, Object, OtherProperties, Presence, Property, Type, TypeShape};

/// Pairs of members that are looked at to simplify two unions.
const PAIRS_MAX: usize = 64;

pub(super) fn meet<'s>(left: Type<'s>, right: Type<'s>) -> Type<'s> {
    let met = met(left.shape, right.shape);
    let mut both = Type { shape: met.shape, doc: left.doc };
    both.add_doc(right.doc);
    both.add_doc(met.doc);
    if both.is_never() {
        both.doc = Cow::Borrowed("");
    }
    both
}

fn met<'s>(left: TypeShape<'s>, right: TypeShape<'s>) -> Type<'s> {
    match (left, right) {
        (TypeShape::Unknown, other) | (other, TypeShape::Unknown) => Type::of(other),
        (TypeShape::Never, _) | (_, TypeShape::Never) => Type::never(),
        (left, right) if left == right => Type::of(left),
        (TypeShape::Union(members), other) | (other, TypeShape::Union(members)) => meet_union(members, other),
        (TypeShape::Intersection(members), other) | (other, TypeShape::Intersection(members)) => {
            intersect(members, other)
        }
        (TypeShape::Object(object), named @ TypeShape::Named(_))
        | (named @ TypeShape::Named(_), TypeShape::Object(object))
            if object.is_any() =>
        {
            Type::of(named)
        }
        (left @ TypeShape::Named(_), right)
        | (left, right @ TypeShape::Named(_))
        | (left @ TypeShape::Tuple(_), right @ TypeShape::Tuple(_)) => {
            Type::of(TypeShape::Intersection(vec![Type::of(left), Type::of(right)]))
        }
        (TypeShape::Object(left), TypeShape::Object(right)) => Type::of(meet_objects(left, right)),
        (TypeShape::Array(left), TypeShape::Array(right)) => Type::of(TypeShape::Array(Box::new(meet(*left, *right)))),
        (TypeShape::Array(items), tuple @ TypeShape::Tuple(_))
        | (tuple @ TypeShape::Tuple(_), TypeShape::Array(items)) => {
            if items.is_unknown() {
                return Type::of(tuple);
            }
            Type::of(TypeShape::Intersection(vec![Type::of(tuple), Type::of(TypeShape::Array(items))]))
        }
        (TypeShape::Literal(literal), kind) | (kind, TypeShape::Literal(literal)) if is_of(&literal, &kind) => {
            Type::of(TypeShape::Literal(literal))
        }
        _ => Type::never(),
    }
}

/// Whether every value of the first shape openly is one of the second.
pub(super) fn is_within(inner: &TypeShape, outer: &TypeShape) -> bool {
    match (inner, outer) {
        (inner, outer) if inner == outer => true,
        (_, TypeShape::Unknown) => true,
        (TypeShape::Literal(literal), TypeShape::Union(members)) => {
            members.iter().any(|member| is_of(literal, &member.shape) || member.shape == *inner)
        }
        (TypeShape::Union(inner), outer) => inner.iter().all(|member| is_within(&member.shape, outer)),
        (inner, TypeShape::Union(members)) => members.iter().any(|member| member.shape == *inner),
        (TypeShape::Literal(literal), kind) => is_of(literal, kind),
        _ => false,
    }
}

fn is_of(literal: &Literal, kind: &TypeShape) -> bool {
    matches!(
        (literal, kind),
        (Literal::String(_), TypeShape::String)
            | (Literal::Number(_), TypeShape::Number)
            | (Literal::Boolean(_), TypeShape::Boolean)
    )
}

/// `members` are what an intersection is made of, or will be.
fn intersect<'s>(mut members: Vec<Type<'s>>, other: TypeShape<'s>) -> Type<'s> {
    match other {
        TypeShape::Object(object) if object.is_any() => {}
        TypeShape::Object(_) => {
            let place = members.iter().position(|member| matches!(member.shape, TypeShape::Object(_)));
            let object = place.map_or_else(Type::unknown, |place| members.remove(place));
            members.push(meet(object, Type::of(other)));
        }
        TypeShape::Intersection(more) => {
            for ty in more {
                if !members.iter().any(|member| member.shape == ty.shape) {
                    members.push(ty);
                }
            }
        }
        other if members.iter().any(|member| member.shape == other) => {}
        other => members.push(Type::of(other)),
    }
    if members.iter().any(Type::is_never) {
        return Type::never();
    }
    match members.len() {
        1 => members.remove(0),
        _ => Type::of(TypeShape::Intersection(members)),
    }
}

fn meet_union<'s>(members: Vec<Type<'s>>, other: TypeShape<'s>) -> Type<'s> {
    if members.len() * alternatives(&other) > PAIRS_MAX {
        return intersect(vec![Type::of(other)], TypeShape::Union(members));
    }
    let met: Vec<Type> = members.iter().map(|member| meet(member.clone(), Type::of(other.clone()))).collect();
    let possible = met.iter().filter(|ty| !ty.is_never()).count();
    if possible <= 1 || !is_long(&other) {
        return Type::union(met);
    }
    let kept = members.into_iter().zip(met).filter(|(_, met)| !met.is_never()).map(|(member, _)| member);
    let union = Type::union(kept.map(|member| with_known_values(member, &other)));
    match union.shape {
        TypeShape::Union(members) => intersect(vec![Type::of(other)], TypeShape::Union(members)),
        shape => meet(Type { shape, doc: union.doc }, Type::of(other)),
    }
}

fn alternatives(shape: &TypeShape) -> usize {
    match shape {
        TypeShape::Union(members) => members.len(),
        _ => 1,
    }
}

/// Whether it would be a pity to write this once for each member of a union.
fn is_long(shape: &TypeShape) -> bool {
    match shape {
        TypeShape::Object(object) => !object.properties.is_empty(),
        TypeShape::Tuple(_) | TypeShape::Intersection(_) => true,
        TypeShape::Array(items) => is_long(&items.shape),
        TypeShape::Union(members) => members.iter().any(|member| is_long(&member.shape)),
        _ => false,
    }
}

/// `{ a: unknown }` beside `{ a?: string }` only says that `a` must be there.
fn with_known_values<'s>(mut member: Type<'s>, beside: &TypeShape<'s>) -> Type<'s> {
    let (TypeShape::Object(object), TypeShape::Object(beside)) = (&mut member.shape, beside) else {
        return member;
    };
    for property in object.properties.iter_mut().filter(|property| property.value.is_unknown()) {
        let known = beside.properties.iter().find(|known| known.name == property.name);
        if let Some(known) = known.filter(|known| is_one_word(&known.value.shape)) {
            property.value.shape = known.value.shape.clone();
        }
    }
    member
}

fn is_one_word(shape: &TypeShape) -> bool {
    matches!(
        shape,
        TypeShape::Null
            | TypeShape::Boolean
            | TypeShape::Number
            | TypeShape::String
            | TypeShape::Literal(_)
            | TypeShape::Named(_)
    )
}

fn meet_objects<'s>(left: Object<'s>, right: Object<'s>) -> TypeShape<'s> {
    let mut properties: Vec<Property> = Vec::new();
    let mut others = right.properties;
    for mut property in left.properties {
        match others.iter().position(|other| other.name == property.name) {
            Some(place) => {
                let other = others.remove(place);
                if other.presence == Presence::Required {
                    property.presence = Presence::Required;
                }
                property.value = meet(property.value, other.value);
            }
            None => property.value = meet_rest(property.value, &right.rest),
        }
        properties.push(property);
    }
    for mut property in others {
        property.value = meet_rest(property.value, &left.rest);
        properties.push(property);
    }
    let is_impossible = |property: &Property| property.value.is_never() && property.presence == Presence::Required;
    if properties.iter().any(is_impossible) {
        return TypeShape::Never;
    }
    let rest = match (left.rest, right.rest) {
        (OtherProperties::Closed, _) | (_, OtherProperties::Closed) => OtherProperties::Closed,
        (OtherProperties::Of(left), OtherProperties::Of(right)) => OtherProperties::Of(Box::new(meet(*left, *right))),
        (of @ OtherProperties::Of(_), _) | (_, of @ OtherProperties::Of(_)) => of,
        (prefixed @ OtherProperties::Prefixed(..), _) | (_, prefixed @ OtherProperties::Prefixed(..)) => prefixed,
        (OtherProperties::Any, _) | (_, OtherProperties::Any) => OtherProperties::Any,
        (OtherProperties::Open, OtherProperties::Open) => OtherProperties::Open,
    };
    if rest == OtherProperties::Closed {
        properties.retain(|property| !property.value.is_never());
    }
    TypeShape::Object(Object { properties, rest })
}

fn meet_rest<'s>(value: Type<'s>, rest: &OtherProperties<'s>) -> Type<'s> {
    meet(value, rest.value())
}
