//! Types and long comments that stand more than once are written once, under a name.

use std::collections::BTreeMap;

use super::definitions::{Definitions, INLINE_BYTES_MAX};
use super::fingerprint::{Part, Parts, comment_bytes};
use super::reader::base_name;
use super::shape::{Literal, Type, TypeShape};

/// A comment that takes no more room than this is repeated: a name would take almost as much.
const COMMENT_BYTES_MAX: usize = 60;
/// About what a name takes, and what its declaration takes beside the type.
const NAME_BYTES: usize = 16;
const DECLARATION_BYTES: usize = 12;

/// Names what is repeated among the roots and bodies. `named` are the fingerprints of the definitions.
pub(super) fn name(definitions: &mut Definitions, named: &[u64]) {
    if !may_repeat(definitions) {
        return;
    }
    let mut parts = Parts::default();
    definitions.roots.iter().chain(&definitions.bodies).for_each(|ty| {
        parts.read(ty, named);
    });
    let mut repeats = Repeats::default();
    for (index, fingerprint) in named.iter().enumerate() {
        repeats.found.insert(*fingerprint, Repeat { count: 1, bytes: 0, place: Some(index) });
    }
    let mut at = 0;
    for root in &definitions.roots {
        let standing = if has_few_properties(root) { Standing::Named } else { Standing::Unnamed };
        at = repeats.count(root, &parts.all, at, standing);
    }
    for body in &definitions.bodies {
        at = repeats.count(body, &parts.all, at, Standing::Named);
    }
    repeats.found.retain(|_, repeat| repeat.place.is_some() && repeat.count > 1 || repeat.saves());
    if repeats.found.is_empty() {
        return;
    }
    let mut naming = Naming { found: repeats.found, parts: &parts.all, definitions, at: 0 };
    let mut roots = std::mem::take(&mut naming.definitions.roots);
    for root in &mut roots {
        if has_few_properties(root) {
            naming.at += 1;
            naming.name_parts(root, "Value");
        } else {
            naming.name(root, "Fields");
        }
    }
    naming.definitions.roots = roots;
    for index in 0..named.len() {
        let mut body = std::mem::replace(&mut naming.definitions.bodies[index], Type::unknown());
        let name = naming.definitions.names[index].clone();
        naming.at += 1;
        naming.name_parts(&mut body, &name);
        naming.definitions.bodies[index] = body;
    }
}

/// Whether anything could stand twice, by what is seen at a glance: long comments of the same length, objects and unions
/// with as many parts.
fn may_repeat(definitions: &Definitions) -> bool {
    fn look_at(ty: &Type, seen: &mut Vec<(u8, usize)>) {
        if comment_bytes(&ty.doc) > COMMENT_BYTES_MAX {
            seen.push((0, ty.doc.len()));
        }
        match &ty.shape {
            TypeShape::Object(object) if !object.properties.is_empty() => seen.push((1, object.properties.len())),
            TypeShape::Object(_) => seen.push((2, 0)),
            TypeShape::Union(members) => seen.push((3, members.len())),
            TypeShape::Intersection(members) => seen.push((4, members.len())),
            TypeShape::Tuple(tuple) => seen.push((5, tuple.items.len())),
            TypeShape::Literal(Literal::String(text) | Literal::Number(text)) if text.len() > INLINE_BYTES_MAX => {
                seen.push((6, text.len()));
            }
            _ => {}
        }
        ty.shape.for_each_part(&mut |part| look_at(part, seen));
    }
    if !definitions.bodies.is_empty() {
        return true;
    }
    let mut seen = Vec::new();
    for root in &definitions.roots {
        look_at(root, &mut seen);
    }
    seen.sort_unstable();
    seen.windows(2).any(|pair| pair[0] == pair[1])
}

/// Of an object that wraps another, the other gets the name: that says more.
fn has_few_properties(root: &Type) -> bool {
    const FEW: usize = 2;
    matches!(&root.shape, TypeShape::Object(object) if object.properties.len() <= FEW)
}

/// Whether a type may get a name where it stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Standing {
    Unnamed,
    /// It has one already, or is to have none.
    Named,
}

#[derive(Debug)]
struct Repeat {
    count: usize,
    bytes: usize,
    /// The definition that it is.
    place: Option<usize>,
}

impl Repeat {
    /// Whether writing it once takes less room.
    fn saves(&self) -> bool {
        self.count > 1 && (self.count - 1) * self.bytes > (self.count + 1) * NAME_BYTES + DECLARATION_BYTES
    }
}

#[derive(Debug, Default)]
struct Repeats {
    /// By fingerprint.
    found: BTreeMap<u64, Repeat>,
}

impl Repeats {
    /// Counts the type and its parts, which begin at `at`; answers where those of the next type begin.
    fn count(&mut self, ty: &Type, parts: &[Part], at: usize, standing: Standing) -> usize {
        let part = parts[at];
        if standing == Standing::Unnamed {
            for (fingerprint, bytes) in candidates(ty, part) {
                let repeat = self.found.entry(fingerprint).or_insert(Repeat { count: 0, bytes, place: None });
                repeat.count += 1;
                if repeat.count > 1 {
                    // What is inside of a repeated type is no repetition of its own.
                    return at + part.inner + 1;
                }
            }
        }
        let mut next = at + 1;
        ty.shape.for_each_part(&mut |inner| next = self.count(inner, parts, next, Standing::Unnamed));
        next
    }
}

/// What of a type may have a name, by its fingerprint, and the room that this would save: the type with its comment if
/// that is long, and the type alone.
fn candidates(ty: &Type, part: Part) -> impl Iterator<Item = (u64, usize)> {
    // Of a list, its items get the name.
    let is_long = !matches!(ty.shape, TypeShape::Named(_) | TypeShape::Array(_)) && part.bytes > INLINE_BYTES_MAX;
    let has_long_comment = comment_bytes(&ty.doc) > COMMENT_BYTES_MAX;
    let is_whole = !ty.doc.is_empty() && (has_long_comment || is_long);
    let whole = is_whole.then_some((part.whole, part.bytes + comment_bytes(&ty.doc)));
    let shape = is_long.then_some((part.shape, part.bytes));
    whole.into_iter().chain(shape)
}

struct Naming<'a, 's> {
    found: BTreeMap<u64, Repeat>,
    parts: &'a [Part],
    definitions: &'a mut Definitions<'s>,
    /// Where the parts of the next type begin.
    at: usize,
}

impl<'s> Naming<'_, 's> {
    /// `property` is what the type would be called.
    fn name(&mut self, ty: &mut Type<'s>, property: &str) {
        let part = self.parts[self.at];
        let end = self.at + part.inner + 1;
        self.at += 1;
        let is_found = |fingerprint| {
            let mut candidates = candidates(ty, part);
            candidates.any(|(candidate, _)| candidate == fingerprint) && self.found.contains_key(&fingerprint)
        };
        let (whole, shape) = (is_found(part.whole), is_found(part.shape));
        if whole && !ty.doc.is_empty() {
            let mut body = std::mem::replace(ty, Type::unknown());
            let (index, is_new) = self.place(part.whole, property);
            ty.shape = TypeShape::Named(index);
            if is_new {
                if shape {
                    self.name_shape(&mut body, part, property);
                } else {
                    self.name_parts(&mut body, property);
                }
                self.definitions.bodies[index] = body;
            }
        } else if shape {
            self.name_shape(ty, part, property);
        } else {
            self.name_parts(ty, property);
        }
        self.at = end;
    }

    fn name_shape(&mut self, ty: &mut Type<'s>, part: Part, property: &str) {
        let (index, is_new) = self.place(part.shape, property);
        let mut body = Type::of(std::mem::replace(&mut ty.shape, TypeShape::Named(index)));
        if is_new {
            self.name_parts(&mut body, property);
            self.definitions.bodies[index] = body;
        }
    }

    /// The definition of a repeated type, and whether it is new.
    fn place(&mut self, fingerprint: u64, property: &str) -> (usize, bool) {
        let new = self.definitions.names.len();
        let repeat = self.found.get_mut(&fingerprint).expect("only found types are named");
        let index = *repeat.place.get_or_insert(new);
        if index == new {
            self.definitions.add(base_name(property), Type::unknown(), fingerprint);
        } else {
            self.definitions.rename(index, base_name(property));
        }
        (index, index == new)
    }

    fn name_parts(&mut self, ty: &mut Type<'s>, property: &str) {
        match &mut ty.shape {
            TypeShape::Object(object) => {
                for property in &mut object.properties {
                    self.name(&mut property.value, property.name);
                }
                object.rest.part_mut().into_iter().for_each(|part| self.name(part, property));
            }
            TypeShape::Array(items) => self.name(items, &singular(property)),
            shape => shape.for_each_part_mut(&mut |part| self.name(part, property)),
        }
    }
}

/// One of the `entities` is an `entity`, as far as a few rules know.
fn singular(name: &str) -> String {
    match name.strip_suffix("ies") {
        Some(stem) if stem.len() > 1 => format!("{stem}y"),
        _ if name.len() > 3 && !name.ends_with("ss") => name.strip_suffix('s').unwrap_or(name).to_owned(),
        _ => name.to_owned(),
    }
}
