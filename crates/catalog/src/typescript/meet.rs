//! The values that belong to two types at once, as one readable type.
//!
//! Where that would repeat much of either, the types stay as they are and TypeScript's `&` says it.

use super::shape::{Literal, Object, Presence, Property, Rest, Shape, Type};

/// Pairs of members that are looked at to simplify two unions.
const PAIRS_MAX: usize = 64;

pub(super) fn meet(left: Type, right: Type) -> Type {
    let met = met(left.shape, right.shape);
    let mut both = Type { shape: met.shape, doc: left.doc };
    both.add_doc(&right.doc);
    both.add_doc(&met.doc);
    if both.is_never() {
        both.doc.clear();
    }
    both
}

fn met(left: Shape, right: Shape) -> Type {
    match (left, right) {
        (Shape::Unknown, other) | (other, Shape::Unknown) => Type::of(other),
        (Shape::Never, _) | (_, Shape::Never) => Type::never(),
        (left, right) if left == right => Type::of(left),
        (Shape::Union(members), other) | (other, Shape::Union(members)) => meet_union(members, other),
        (Shape::Intersection(members), other) | (other, Shape::Intersection(members)) => intersect(members, other),
        (Shape::Object(object), named @ Shape::Named(_)) | (named @ Shape::Named(_), Shape::Object(object))
            if object.is_any() =>
        {
            Type::of(named)
        }
        (left @ Shape::Named(_), right)
        | (left, right @ Shape::Named(_))
        | (left @ Shape::Tuple(_), right @ Shape::Tuple(_)) => {
            Type::of(Shape::Intersection(vec![Type::of(left), Type::of(right)]))
        }
        (Shape::Object(left), Shape::Object(right)) => Type::of(meet_objects(left, right)),
        (Shape::Array(left), Shape::Array(right)) => Type::of(Shape::Array(Box::new(meet(*left, *right)))),
        (Shape::Array(items), tuple @ Shape::Tuple(_)) | (tuple @ Shape::Tuple(_), Shape::Array(items)) => {
            if items.is_unknown() {
                return Type::of(tuple);
            }
            Type::of(Shape::Intersection(vec![Type::of(tuple), Type::of(Shape::Array(items))]))
        }
        (Shape::Literal(literal), kind) | (kind, Shape::Literal(literal)) if is_of(&literal, &kind) => {
            Type::of(Shape::Literal(literal))
        }
        _ => Type::never(),
    }
}

/// Whether every value of the first shape openly is one of the second.
pub(super) fn is_within(inner: &Shape, outer: &Shape) -> bool {
    match (inner, outer) {
        (inner, outer) if inner == outer => true,
        (_, Shape::Unknown) => true,
        (Shape::Literal(literal), Shape::Union(members)) => {
            members.iter().any(|member| is_of(literal, &member.shape) || member.shape == *inner)
        }
        (Shape::Union(inner), outer) => inner.iter().all(|member| is_within(&member.shape, outer)),
        (inner, Shape::Union(members)) => members.iter().any(|member| member.shape == *inner),
        (Shape::Literal(literal), kind) => is_of(literal, kind),
        _ => false,
    }
}

fn is_of(literal: &Literal, kind: &Shape) -> bool {
    matches!(
        (literal, kind),
        (Literal::String(_), Shape::String)
            | (Literal::Number(_), Shape::Number)
            | (Literal::Boolean(_), Shape::Boolean)
    )
}

/// `members` are what an intersection is made of, or will be.
fn intersect(mut members: Vec<Type>, other: Shape) -> Type {
    match other {
        Shape::Object(object) if object.is_any() => {}
        Shape::Object(_) => {
            let place = members.iter().position(|member| matches!(member.shape, Shape::Object(_)));
            let object = place.map_or_else(Type::unknown, |place| members.remove(place));
            members.push(meet(object, Type::of(other)));
        }
        Shape::Intersection(more) => {
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
        _ => Type::of(Shape::Intersection(members)),
    }
}

fn meet_union(members: Vec<Type>, other: Shape) -> Type {
    if members.len() * alternatives(&other) > PAIRS_MAX {
        return intersect(vec![Type::of(other)], Shape::Union(members));
    }
    let met: Vec<Type> = members.iter().map(|member| meet(member.clone(), Type::of(other.clone()))).collect();
    let possible = met.iter().filter(|ty| !ty.is_never()).count();
    if possible <= 1 || !is_long(&other) {
        return Type::union(met);
    }
    let kept = members.into_iter().zip(met).filter(|(_, met)| !met.is_never()).map(|(member, _)| member);
    let union = Type::union(kept.map(|member| with_known_values(member, &other)));
    match union.shape {
        Shape::Union(members) => intersect(vec![Type::of(other)], Shape::Union(members)),
        shape => meet(Type { shape, doc: union.doc }, Type::of(other)),
    }
}

fn alternatives(shape: &Shape) -> usize {
    match shape {
        Shape::Union(members) => members.len(),
        _ => 1,
    }
}

/// Whether it would be a pity to write this once for each member of a union.
fn is_long(shape: &Shape) -> bool {
    match shape {
        Shape::Object(object) => !object.properties.is_empty(),
        Shape::Tuple(_) | Shape::Intersection(_) => true,
        Shape::Array(items) => is_long(&items.shape),
        Shape::Union(members) => members.iter().any(|member| is_long(&member.shape)),
        _ => false,
    }
}

/// `{ a: unknown }` beside `{ a?: string }` only says that `a` must be there.
fn with_known_values(mut member: Type, beside: &Shape) -> Type {
    let (Shape::Object(object), Shape::Object(beside)) = (&mut member.shape, beside) else {
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

fn is_one_word(shape: &Shape) -> bool {
    matches!(shape, Shape::Null | Shape::Boolean | Shape::Number | Shape::String | Shape::Literal(_) | Shape::Named(_))
}

fn meet_objects(left: Object, right: Object) -> Shape {
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
        return Shape::Never;
    }
    let rest = match (left.rest, right.rest) {
        (Rest::Closed, _) | (_, Rest::Closed) => Rest::Closed,
        (Rest::Of(left), Rest::Of(right)) => Rest::Of(Box::new(meet(*left, *right))),
        (of @ Rest::Of(_), _) | (_, of @ Rest::Of(_)) => of,
        (prefixed @ Rest::Prefixed(..), _) | (_, prefixed @ Rest::Prefixed(..)) => prefixed,
        (Rest::Any, _) | (_, Rest::Any) => Rest::Any,
        (Rest::Open, Rest::Open) => Rest::Open,
    };
    if rest == Rest::Closed {
        properties.retain(|property| !property.value.is_never());
    }
    Shape::Object(Object { properties, rest })
}

fn meet_rest(value: Type, rest: &Rest) -> Type {
    meet(value, rest.value())
}
