//! What two types have in common if they read the same, and how much room they take.

use super::shape::{Literal, Object, OtherProperties, Presence, Type, TypeShape};

/// One part of a type, as it is met when the type is read from its beginning.
#[derive(Debug, Clone, Copy)]
pub(super) struct Part {
    /// The same for types that read the same below their comments.
    pub(super) shape: u64,
    /// The same for types that read the same, comment included.
    pub(super) whole: u64,
    /// About how many bytes the type takes, without its own comment.
    pub(super) bytes: usize,
    /// How many parts it has, all levels counted.
    pub(super) inner: usize,
}

/// Reads types into parts, in the order of reading.
#[derive(Debug, Default)]
pub(super) struct Parts {
    pub(super) all: Vec<Part>,
}

impl Parts {
    /// Adds the parts of a type, itself first; `named` are the definitions that it may lead to.
    pub(super) fn read(&mut self, ty: &Type, named: &[u64]) -> Part {
        let place = self.all.len();
        self.all.push(Part { shape: 0, whole: 0, bytes: 0, inner: 0 });
        let (shape, bytes) = self.shape(&ty.shape, named);
        let whole = if ty.doc.is_empty() { shape } else { mix_text(shape, &ty.doc) };
        let part = Part { shape, whole, bytes, inner: self.all.len() - place - 1 };
        self.all[place] = part;
        part
    }

    fn shape(&mut self, shape: &TypeShape, named: &[u64]) -> (u64, usize) {
        const NAME_BYTES: usize = 14;
        let mut inner = |hash: u64, ty: &Type| {
            let part = self.read(ty, named);
            (mix(hash, part.whole), part.bytes + comment_bytes(&ty.doc))
        };
        match shape {
            TypeShape::Unknown => (1, 7),
            TypeShape::Never => (2, 5),
            TypeShape::Null => (3, 4),
            TypeShape::Boolean => (4, 7),
            TypeShape::Number => (5, 6),
            TypeShape::String => (6, 6),
            TypeShape::Literal(Literal::Boolean(value)) => (7 + u64::from(*value), 5),
            TypeShape::Literal(Literal::Number(text)) => (mix_text(9, text), text.len()),
            TypeShape::Literal(Literal::String(text)) => (mix_text(10, text), text.len()),
            TypeShape::Named(index) => (named[*index], NAME_BYTES),
            TypeShape::Array(items) => {
                let (hash, bytes) = inner(11, items);
                (hash, bytes + 2)
            }
            TypeShape::Tuple(tuple) => {
                let start = mix(mix(12, tuple.items.len() as u64), tuple.required as u64);
                tuple.items.iter().chain(tuple.rest.as_deref()).fold((start, 2), |(hash, bytes), item| {
                    let (hash, more) = inner(hash, item);
                    (hash, bytes + more + 2)
                })
            }
            TypeShape::Union(members) | TypeShape::Intersection(members) => {
                let kind = if let TypeShape::Union(_) = shape { 13 } else { 14 };
                members.iter().fold((mix(kind, members.len() as u64), 0), |(hash, bytes), member| {
                    let (hash, more) = inner(hash, member);
                    (hash, bytes + more + 3)
                })
            }
            TypeShape::Object(Object { properties, rest }) => {
                let (mut hash, mut bytes) = (mix(15, properties.len() as u64), 4);
                for property in properties {
                    let start = mix_text(mix(hash, property.presence as u64), property.name);
                    let (next, more) = inner(start, &property.value);
                    hash = next;
                    bytes += property.name.len() + 5 + usize::from(property.presence == Presence::Optional) + more;
                }
                match rest {
                    // Beside named properties, TypeScript writes both in the same way.
                    OtherProperties::Open => (mix(hash, 1), bytes),
                    OtherProperties::Closed => (mix(hash, if properties.is_empty() { 2 } else { 1 }), bytes),
                    OtherProperties::Any => (mix(hash, 3), bytes + 24),
                    OtherProperties::Of(ty) => {
                        let (hash, more) = inner(mix(hash, 4), ty);
                        (hash, bytes + more + 16)
                    }
                    OtherProperties::Prefixed(prefix, ty) => {
                        let (hash, more) = inner(mix_text(mix(hash, 5), prefix), ty);
                        (hash, bytes + more + 24)
                    }
                }
            }
        }
    }
}

/// What a comment adds to a line.
pub(super) fn comment_bytes(doc: &str) -> usize {
    if doc.is_empty() { 0 } else { doc.len() + 8 }
}

/// The numbers are part of what models see, so they must be the same everywhere and always.
pub(super) fn mix(hash: u64, value: u64) -> u64 {
    let mixed = (hash.rotate_left(23) ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed ^ (mixed >> 32)
}

pub(super) fn mix_text(hash: u64, text: &str) -> u64 {
    let (words, rest) = text.as_bytes().as_chunks::<8>();
    let hash = words.iter().fold(mix(hash, text.len() as u64), |hash, word| mix(hash, u64::from_le_bytes(*word)));
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    mix(hash, u64::from_le_bytes(last))
}
