//! Types, in the terms of TypeScript. Texts of a schema are borrowed from it where they stand as they are.

use std::borrow::Cow;

/// Words past this are not added to.
const DOC_BYTES_MAX: usize = 2_048;

/// A type, and the words that belong to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Type<'s> {
    pub(super) shape: TypeShape<'s>,
    /// Safe to stand in a comment on one line; empty if the schema has no description.
    pub(super) doc: Cow<'s, str>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum TypeShape<'s> {
    Unknown,
    Never,
    Null,
    Boolean,
    Number,
    String,
    Literal(Literal),
    Array(Box<Type<'s>>),
    Tuple(Tuple<'s>),
    Object(Object<'s>),
    /// Two or more, none of them a union.
    Union(Vec<Type<'s>>),
    /// Two or more, none of them an intersection.
    Intersection(Vec<Type<'s>>),
    /// A definition of the schema, by its position in the list of definitions.
    Named(usize),
}

/// A value as TypeScript writes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Literal {
    Boolean(bool),
    Number(String),
    String(String),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Tuple<'s> {
    pub(super) items: Vec<Type<'s>>,
    /// How many of the items must be there.
    pub(super) required: usize,
    /// The items that may follow.
    pub(super) rest: Option<Box<Type<'s>>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Object<'s> {
    pub(super) properties: Vec<Property<'s>>,
    pub(super) rest: OtherProperties<'s>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Property<'s> {
    pub(super) name: &'s str,
    pub(super) presence: Presence,
    pub(super) value: Type<'s>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Presence {
    Required,
    Optional,
}

/// The properties that are not named.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum OtherProperties<'s> {
    /// The schema does not mention them.
    Open,
    /// The schema explicitly allows any.
    Any,
    Closed,
    /// All of them have this type.
    Of(Box<Type<'s>>),
    /// Those that begin like this have this type.
    Prefixed(&'s str, Box<Type<'s>>),
}

impl<'s> Type<'s> {
    pub(super) fn of(shape: TypeShape<'s>) -> Type<'s> {
        Type { shape, doc: Cow::Borrowed("") }
    }

    pub(super) fn unknown() -> Type<'s> {
        Type::of(TypeShape::Unknown)
    }

    pub(super) fn never() -> Type<'s> {
        Type::of(TypeShape::Never)
    }

    pub(super) fn is_unknown(&self) -> bool {
        self.shape == TypeShape::Unknown
    }

    pub(super) fn is_never(&self) -> bool {
        self.shape == TypeShape::Never
    }

    /// A value of any of these types.
    pub(super) fn union(types: impl IntoIterator<Item = Type<'s>>) -> Type<'s> {
        let mut members: Vec<Type<'s>> = Vec::new();
        for ty in types {
            match ty.shape {
                TypeShape::Union(inner) => {
                    let mut doc = ty.doc;
                    for mut member in inner {
                        let own = std::mem::replace(&mut member.doc, std::mem::take(&mut doc));
                        member.add_doc(own);
                        add_member(&mut members, member);
                    }
                }
                _ => add_member(&mut members, ty),
            }
        }
        if members.iter().any(Type::is_unknown) {
            return Type::unknown();
        }
        let has = |value| members.iter().any(|member| member.shape == TypeShape::Literal(Literal::Boolean(value)));
        if has(true) && has(false) {
            members.retain(|member| !matches!(member.shape, TypeShape::Literal(Literal::Boolean(_))));
            add_member(&mut members, Type::of(TypeShape::Boolean));
        }
        // Null stands last, as people write it.
        members.sort_by_key(|member| member.shape == TypeShape::Null);
        match members.len() {
            0 => Type::never(),
            1 => members.remove(0),
            _ => Type { doc: lone_doc(&mut members), shape: TypeShape::Union(members) },
        }
    }

    pub(super) fn add_doc(&mut self, more: Cow<'s, str>) {
        if self.doc.is_empty() {
            self.doc = more;
        } else if !more.is_empty() && self.doc != more && self.doc.len() < DOC_BYTES_MAX {
            let doc = self.doc.to_mut();
            doc.push_str("; ");
            doc.push_str(&more);
        }
    }
}

impl<'s> TypeShape<'s> {
    /// Calls `each` with the types that this is made of, in the order of reading.
    pub(super) fn for_each_part<'t>(&'t self, each: &mut impl FnMut(&'t Type<'s>)) {
        match self {
            TypeShape::Array(items) => each(items),
            TypeShape::Tuple(tuple) => tuple.items.iter().chain(tuple.rest.as_deref()).for_each(each),
            TypeShape::Object(object) => {
                let named = object.properties.iter().map(|property| &property.value);
                named.chain(object.rest.part()).for_each(each);
            }
            TypeShape::Union(members) | TypeShape::Intersection(members) => members.iter().for_each(each),
            _ => {}
        }
    }

    /// The same, for changing them.
    pub(super) fn for_each_part_mut(&mut self, each: &mut impl FnMut(&mut Type<'s>)) {
        match self {
            TypeShape::Array(items) => each(items),
            TypeShape::Tuple(tuple) => tuple.items.iter_mut().chain(tuple.rest.as_deref_mut()).for_each(each),
            TypeShape::Object(object) => {
                let named = object.properties.iter_mut().map(|property| &mut property.value);
                named.chain(object.rest.part_mut()).for_each(each);
            }
            TypeShape::Union(members) | TypeShape::Intersection(members) => members.iter_mut().for_each(each),
            _ => {}
        }
    }
}

impl<'s> OtherProperties<'s> {
    pub(super) fn part(&self) -> Option<&Type<'s>> {
        match self {
            OtherProperties::Of(ty) | OtherProperties::Prefixed(_, ty) => Some(ty),
            OtherProperties::Open | OtherProperties::Any | OtherProperties::Closed => None,
        }
    }

    pub(super) fn part_mut(&mut self) -> Option<&mut Type<'s>> {
        match self {
            OtherProperties::Of(ty) | OtherProperties::Prefixed(_, ty) => Some(ty),
            OtherProperties::Open | OtherProperties::Any | OtherProperties::Closed => None,
        }
    }

    /// The type of a property that has no type of its own.
    pub(super) fn value(&self) -> Type<'s> {
        match self {
            OtherProperties::Open | OtherProperties::Any | OtherProperties::Prefixed(..) => Type::unknown(),
            OtherProperties::Closed => Type::never(),
            OtherProperties::Of(ty) => Type::of(ty.shape.clone()),
        }
    }
}

impl Object<'_> {
    /// An object of which nothing is known.
    pub(super) fn any() -> Self {
        Object { properties: Vec::new(), rest: OtherProperties::Open }
    }

    /// Whether nothing is said about any property.
    pub(super) fn is_any(&self) -> bool {
        self.properties.is_empty() && matches!(self.rest, OtherProperties::Open | OtherProperties::Any)
    }
}

fn add_member<'s>(members: &mut Vec<Type<'s>>, ty: Type<'s>) {
    if ty.is_never() {
        return;
    }
    match members.iter_mut().find(|member| member.shape == ty.shape) {
        Some(member) => member.add_doc(ty.doc),
        None => members.push(ty),
    }
}

/// Words about the only member that has any are words about the whole.
fn lone_doc<'s>(members: &mut [Type<'s>]) -> Cow<'s, str> {
    let mut documented = members.iter_mut().filter(|member| !member.doc.is_empty());
    match (documented.next(), documented.next()) {
        (Some(only), None) => std::mem::take(&mut only.doc),
        _ => Cow::Borrowed(""),
    }
}
