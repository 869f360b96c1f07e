//! Which types get a name, and what name.
//!
//! A name tells its content: it ends in a number made from the text. So the same type has the
//! same name in every tool and stands once, and no further tool can change what a name means.

use std::collections::BTreeSet;

use super::meet::meet;
use super::printer::Printer;
use super::reader::Read;
use super::repeats;
use super::shape::{Type, TypeShape};

/// A definition that takes no more room than this stands where it is used.
pub(super) const INLINE_BYTES_MAX: usize = 80;

/// The types of some schemas that are shown together, with the names by which they know each other.
pub(super) struct Definitions {
    /// One for each schema.
    pub(super) roots: Vec<Type>,
    pub(super) names: Vec<String>,
    pub(super) bodies: Vec<Type>,
    /// For each schema, what in it could not be used.
    pub(super) warnings: Vec<BTreeSet<String>>,
}

impl Definitions {
    pub(super) fn of(reads: Vec<Read>) -> Definitions {
        let mut definitions =
            Definitions { roots: Vec::new(), names: Vec::new(), bodies: Vec::new(), warnings: Vec::new() };
        for mut read in reads {
            break_loops(&mut read);
            let offset = definitions.names.len();
            shift(&mut read.root, offset);
            definitions.roots.push(read.root);
            definitions.warnings.push(read.warnings);
            for (name, mut body) in read.definitions {
                shift(&mut body, offset);
                definitions.names.push(name);
                definitions.bodies.push(body);
            }
        }
        definitions.inline();
        repeats::name(&mut definitions);
        definitions.number();
        definitions
    }

    /// The positions of the definitions that the roots lead to, in the order in which they do.
    pub(super) fn used(&self) -> Vec<usize> {
        let mut from_roots = Vec::new();
        self.roots.iter().for_each(|root| names_in(root, DefinitionReach::Everywhere, &mut from_roots));
        reached(from_roots, &edges(self.bodies.iter(), DefinitionReach::Everywhere))
    }

    /// Puts short definitions where they are used, beginning with those that use no other.
    fn inline(&mut self) {
        let edges = edges(self.bodies.iter(), DefinitionReach::Everywhere);
        let reaches: Vec<Vec<usize>> = edges.iter().map(|from| reached(from.clone(), &edges)).collect();
        let mut order: Vec<usize> = (0..self.bodies.len()).collect();
        // A definition reaches more than each one it uses, unless that one leads back to it.
        order.sort_by_key(|&index| reaches[index].len());
        let mut short: Vec<Option<Type>> = self.bodies.iter().map(|_| None).collect();
        for index in order {
            let body = replaced(std::mem::replace(&mut self.bodies[index], Type::unknown()), &short);
            let is_recursive = reaches[index].contains(&index);
            if !is_recursive && (Printer { names: &self.names }).ty(&body).len() <= INLINE_BYTES_MAX {
                short[index] = Some(body);
            } else {
                self.bodies[index] = body;
            }
        }
        for root in &mut self.roots {
            *root = replaced(std::mem::replace(root, Type::unknown()), &short);
        }
    }

    /// Adds the numbers to the names.
    fn number(&mut self) {
        let printer = Printer { names: &self.names };
        let texts: Vec<String> = self.bodies.iter().map(|body| format!("{}={}", body.doc, printer.ty(body))).collect();
        let edges = edges(self.bodies.iter(), DefinitionReach::Everywhere);
        let mut numbers = Vec::new();
        for index in 0..self.names.len() {
            let mut hash = fnv(FNV_OFFSET, &texts[index]);
            for inner in reached(edges[index].clone(), &edges) {
                hash = fnv(fnv(hash, &self.names[inner]), &texts[inner]);
            }
            numbers.push(hash % 1_000_000);
        }
        for (name, number) in self.names.iter_mut().zip(numbers) {
            *name = format!("{name}_{number:06}");
        }
    }
}

/// A definition that contains itself for the same value, such as `type A = A | B`, has no meaning, and TypeScript refuses
/// it.
fn break_loops(read: &mut Read) {
    let edges = edges(read.definitions.iter().map(|(_, body)| body), DefinitionReach::SameValue);
    for (index, from) in edges.iter().enumerate() {
        if reached(from.clone(), &edges).contains(&index) {
            read.definitions[index].1 = Type::unknown();
            read.warnings.insert("a `$ref` leads back to itself".to_owned());
        }
    }
}

fn shift(ty: &mut Type, offset: usize) {
    if let TypeShape::Named(index) = &mut ty.shape {
        *index += offset;
    }
    ty.shape.parts_mut().into_iter().for_each(|part| shift(part, offset));
}

/// Which definitions inside a type count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DefinitionReach {
    Everywhere,
    /// Those for the very value that the type is for.
    SameValue,
}

fn edges<'a>(bodies: impl Iterator<Item = &'a Type>, reach: DefinitionReach) -> Vec<Vec<usize>> {
    let edges = bodies.map(|body| {
        let mut names = Vec::new();
        names_in(body, reach, &mut names);
        names
    });
    edges.collect()
}

fn names_in(ty: &Type, reach: DefinitionReach, names: &mut Vec<usize>) {
    match &ty.shape {
        TypeShape::Named(index) => names.push(*index),
        TypeShape::Union(_) | TypeShape::Intersection(_) => {}
        _ if reach == DefinitionReach::SameValue => return,
        _ => {}
    }
    ty.shape.parts().into_iter().for_each(|part| names_in(part, reach, names));
}

/// Everything that the edges lead to from there, in the order of reading.
fn reached(mut open: Vec<usize>, edges: &[Vec<usize>]) -> Vec<usize> {
    let mut seen = BTreeSet::new();
    let mut order = Vec::new();
    open.reverse();
    while let Some(index) = open.pop() {
        if seen.insert(index) {
            order.push(index);
            open.extend(edges[index].iter().rev());
        }
    }
    order
}

/// The type with short definitions in the place of their names.
fn replaced(mut ty: Type, short: &[Option<Type>]) -> Type {
    for part in ty.shape.parts_mut() {
        *part = replaced(std::mem::replace(part, Type::unknown()), short);
    }
    let doc = ty.doc;
    let mut ty = match ty.shape {
        TypeShape::Named(index) => match &short[index] {
            Some(body) if doc.is_empty() => body.clone(),
            Some(body) => Type::of(body.shape.clone()),
            None => Type::of(TypeShape::Named(index)),
        },
        TypeShape::Union(members) => Type::union(members),
        TypeShape::Intersection(members) => members.into_iter().reduce(meet).unwrap_or_else(Type::unknown),
        shape => Type::of(shape),
    };
    let inner = std::mem::replace(&mut ty.doc, doc);
    ty.add_doc(&inner);
    ty
}

const FNV_OFFSET: u64 = 0xcbf2_9ce4_8422_2325;

/// FNV-1a: the number is part of what models see, so it must be the same everywhere and always.
fn fnv(hash: u64, text: &str) -> u64 {
    let bytes = text.bytes().chain([0]);
    bytes.fold(hash, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}
