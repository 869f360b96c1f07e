//! Types, in the terms of TypeScript.

/// Words past this are not added to.
const DOC_BYTES_MAX: usize = 2_048;

/// A type, and the words that belong to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Type {
    pub(super) shape: TypeShape,
    /// Safe to stand in a comment on one line; empty if the schema has no description.
    pub(super) doc: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum TypeShape {
    Unknown,
    Never,
    Null,
    Boolean,
    Number,
    String,
    Literal(Literal),
    Array(Box<Type>),
    Tuple(Tuple),
    Object(Object),
    /// Two or more, none of them a union.
    Union(Vec<Type>),
    /// Two or more, none of them an intersection.
    Intersection(Vec<Type>),
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
pub(super) struct Tuple {
    pub(super) items: Vec<Type>,
    /// How many of the items must be there.
    pub(super) required: usize,
    /// The items that may follow.
    pub(super) rest: Option<Box<Type>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Object {
    pub(super) properties: Vec<Property>,
    pub(super) rest: OtherProperties,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Property {
    pub(super) name: String,
    pub(super) presence: Presence,
    pub(super) value: Type,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Presence {
    Required,
    Optional,
}

/// The properties that are not named.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum OtherProperties {
    /// The schema does not mention them.
    Open,
    /// The schema explicitly allows any.
    Any,
    Closed,
    /// All of them have this type.
    Of(Box<Type>),
    /// Those that begin like this have this type.
    Prefixed(String, Box<Type>),
}

impl Type {
    pub(super) fn of(shape: TypeShape) -> Type {
        Type { shape, doc: String::new() }
    }

    pub(super) fn unknown() -> Type {
        Type::of(TypeShape::Unknown)
    }

    pub(super) fn never() -> Type {
        Type::of(TypeShape::Never)
    }

    pub(super) fn is_unknown(&self) -> bool {
        self.shape == TypeShape::Unknown
    }

    pub(super) fn is_never(&self) -> bool {
        self.shape == TypeShape::Never
    }

    /// A value of any of these types.
    pub(super) fn union(types: impl IntoIterator<Item = Type>) -> Type {
        let mut members: Vec<Type> = Vec::new();
        for ty in types {
            match ty.shape {
                TypeShape::Union(inner) => {
                    let mut doc = ty.doc;
                    for mut member in inner {
                        let own = std::mem::replace(&mut member.doc, std::mem::take(&mut doc));
                        member.add_doc(&own);
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

    pub(super) fn add_doc(&mut self, more: &str) {
        if self.doc.is_empty() {
            more.clone_into(&mut self.doc);
        } else if !more.is_empty() && self.doc != more && self.doc.len() < DOC_BYTES_MAX {
            self.doc.push_str("; ");
            self.doc.push_str(more);
        }
    }
}

impl TypeShape {
    /// Calls `each` with the types that this is made of, in the order of reading.
    pub(super) fn for_each_part<'t>(&'t self, each: &mut impl FnMut(&'t Type)) {
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
    pub(super) fn for_each_part_mut(&mut self, each: &mut impl FnMut(&mut Type)) {
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

impl OtherProperties {
    pub(super) fn part(&self) -> Option<&Type> {
        match self {
            OtherProperties::Of(ty) | OtherProperties::Prefixed(_, ty) => Some(ty),
            OtherProperties::Open | OtherProperties::Any | OtherProperties::Closed => None,
        }
    }

    pub(super) fn part_mut(&mut self) -> Option<&mut Type> {
        match self {
            OtherProperties::Of(ty) | OtherProperties::Prefixed(_, ty) => Some(ty),
            OtherProperties::Open | OtherProperties::Any | OtherProperties::Closed => None,
        }
    }

    /// The type of a property that has no type of its own.
    pub(super) fn value(&self) -> Type {
        match self {
            OtherProperties::Open | OtherProperties::Any | OtherProperties::Prefixed(..) => Type::unknown(),
            OtherProperties::Closed => Type::never(),
            OtherProperties::Of(ty) => Type::of(ty.shape.clone()),
        }
    }
}

impl Object {
    /// An object of which nothing is known.
    pub(super) fn any() -> Object {
        Object { properties: Vec::new(), rest: OtherProperties::Open }
    }

    /// Whether nothing is said about any property.
    pub(super) fn is_any(&self) -> bool {
        self.properties.is_empty() && matches!(self.rest, OtherProperties::Open | OtherProperties::Any)
    }
}

fn add_member(members: &mut Vec<Type>, ty: Type) {
    if ty.is_never() {
        return;
    }
    match members.iter_mut().find(|member| member.shape == ty.shape) {
        Some(member) => member.add_doc(&ty.doc),
        None => members.push(ty),
    }
}

/// Words about the only member that has any are words about the whole.
fn lone_doc(members: &mut [Type]) -> String {
    let mut documented = members.iter_mut().filter(|member| !member.doc.is_empty());
    match (documented.next(), documented.next()) {
        (Some(only), None) => std::mem::take(&mut only.doc),
        _ => String::new(),
    }
}
