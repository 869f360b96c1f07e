//! Which types get a name, and what name.
//!
//! A name tells its content: it ends in a number made from it. So the same type has the same name in every tool and stands
//! once, and no further tool can change what a name means.

use std::collections::{BTreeMap, BTreeSet};

use super::fingerprint::{Parts, comment_bytes, mix, mix_text};
use super::meet::meet;
use super::reader::Read;
use super::repeats;
use super::shape::{Literal, Type, TypeShape};

/// A definition that takes no more room than this stands where it is used.
pub(super) const INLINE_BYTES_MAX: usize = 80;

/// The types of some schemas that are shown together, with the names by which they know each other.
#[derive(Debug, Default)]
pub(super) struct Definitions<'s> {
    /// One for each schema.
    pub(super) roots: Vec<Type<'s>>,
    pub(super) names: Vec<String>,
    pub(super) bodies: Vec<Type<'s>>,
    fingerprints: Vec<u64>,
    /// Whether the name is one that a schema has for the type.
    is_given: Vec<bool>,
    /// For each schema, what in it could not be used.
    pub(super) warnings: Vec<BTreeSet<String>>,
}

impl<'s> Definitions<'s> {
    /// The types of schemas that refer to nothing outside of themselves.
    pub(super) fn of(reads: impl IntoIterator<Item = Read<'s>>) -> Definitions<'s> {
        let mut definitions = Definitions::default();
        for mut read in reads {
            break_loops(&mut read);
            let offset = definitions.names.len();
            shift(&mut read.root, &|index| index + offset);
            definitions.roots.push(read.root);
            definitions.warnings.push(read.warnings);
            for (name, mut body) in read.definitions {
                shift(&mut body, &|index| index + offset);
                definitions.names.push(name);
                definitions.bodies.push(body);
                definitions.is_given.push(true);
            }
        }
        if !definitions.bodies.is_empty() {
            definitions.inline();
            definitions.fingerprints = definitions.fingerprinted();
        }
        definitions
    }

    /// About how many bytes the types take.
    pub(super) fn bytes(&self) -> usize {
        let used = self.used().into_iter().map(|index| &self.bodies[index]);
        self.roots.iter().chain(used).map(bytes_of).sum()
    }

    /// Adds types that are shown with these. What is defined here already is not defined again.
    pub(super) fn append(&mut self, more: Definitions<'s>, known: &mut BTreeMap<u64, usize>) {
        let mut places = Vec::with_capacity(more.names.len());
        for (name, fingerprint) in more.names.into_iter().zip(more.fingerprints) {
            let new = self.names.len();
            let place = *known.entry(fingerprint).or_insert(new);
            if place == new {
                self.names.push(name);
                self.fingerprints.push(fingerprint);
                self.is_given.push(true);
                self.bodies.push(Type::unknown());
            } else if is_better(&name, &self.names[place]) {
                self.names[place] = name;
            }
            places.push((place, place == new));
        }
        for (mut body, (place, is_new)) in more.bodies.into_iter().zip(&places) {
            if *is_new {
                shift(&mut body, &|index| places[index].0);
                self.bodies[*place] = body;
            }
        }
        for mut root in more.roots {
            shift(&mut root, &|index| places[index].0);
            self.roots.push(root);
        }
        self.warnings.extend(more.warnings);
    }

    /// Gives names to all that is shown more than once.
    pub(super) fn named(mut self) -> Definitions<'s> {
        let fingerprints = std::mem::take(&mut self.fingerprints);
        self.fingerprints.clone_from(&fingerprints);
        repeats::name(&mut self, &fingerprints);
        self.number();
        self
    }

    /// Adds a type that no schema has a name for.
    pub(super) fn add(&mut self, name: String, body: Type<'s>, fingerprint: u64) {
        self.names.push(name);
        self.bodies.push(body);
        self.fingerprints.push(fingerprint);
        self.is_given.push(false);
    }

    /// Of several names for one type the shortest is taken, whatever order the tools have; but first those of schemas.
    pub(super) fn rename(&mut self, index: usize, name: String) {
        if !self.is_given[index] && is_better(&name, &self.names[index]) {
            self.names[index] = name;
        }
    }

    /// The positions of the definitions that some of the roots lead to, in the order in which they do.
    pub(super) fn used_by(&self, roots: &[Type]) -> Vec<usize> {
        let mut from_roots = Vec::new();
        for root in roots {
            names_in(root, DefinitionReach::Everywhere, &mut from_roots);
        }
        let mut seen = BTreeSet::new();
        let mut order = Vec::new();
        from_roots.reverse();
        while let Some(index) = from_roots.pop() {
            if seen.insert(index) {
                order.push(index);
                let mut inner = Vec::new();
                names_in(&self.bodies[index], DefinitionReach::Everywhere, &mut inner);
                from_roots.extend(inner.into_iter().rev());
            }
        }
        order
    }

    fn used(&self) -> Vec<usize> {
        self.used_by(&self.roots)
    }

    /// Puts short definitions where they are used, beginning with those that use no other.
    fn inline(&mut self) {
        let edges = edges(self.bodies.iter(), DefinitionReach::Everywhere);
        let reaches: Vec<Vec<usize>> = edges.iter().map(|from| reached(from, &edges)).collect();
        let mut order: Vec<usize> = (0..self.bodies.len()).collect();
        // A definition reaches more than each one it uses, unless that one leads back to it.
        order.sort_by_key(|&index| reaches[index].len());
        let mut short: Vec<Option<Type<'s>>> = self.bodies.iter().map(|_| None).collect();
        let unnumbered = vec![0; self.bodies.len()];
        for index in order {
            let body = replaced(std::mem::replace(&mut self.bodies[index], Type::unknown()), &short);
            let is_recursive = reaches[index].contains(&index);
            if !is_recursive && Parts::default().read(&body, &unnumbered).bytes <= INLINE_BYTES_MAX {
                short[index] = Some(body);
            } else {
                self.bodies[index] = body;
            }
        }
        for root in &mut self.roots {
            *root = replaced(std::mem::replace(root, Type::unknown()), &short);
        }
    }

    /// The same number for definitions that read the same. Those that lead back to themselves are distinguished by their
    /// names too.
    fn fingerprinted(&self) -> Vec<u64> {
        let edges = edges(self.bodies.iter(), DefinitionReach::Everywhere);
        let reaches: Vec<Vec<usize>> = edges.iter().map(|from| reached(from, &edges)).collect();
        let by_name: Vec<u64> = self.names.iter().map(|name| mix_text(17, name)).collect();
        let local: Vec<u64> = self.bodies.iter().map(|body| Parts::default().read(body, &by_name).whole).collect();
        let mut fingerprints = by_name.clone();
        let mut order: Vec<usize> = (0..self.bodies.len()).collect();
        order.sort_by_key(|&index| (!reaches[index].contains(&index), reaches[index].len()));
        for index in order {
            fingerprints[index] = if reaches[index].contains(&index) {
                reaches[index].iter().fold(mix(by_name[index], local[index]), |hash, inner| {
                    mix(mix(hash, by_name[*inner]), local[*inner])
                })
            } else {
                Parts::default().read(&self.bodies[index], &fingerprints).whole
            };
        }
        fingerprints
    }

    /// Adds the numbers to the names.
    fn number(&mut self) {
        let mut taken: BTreeMap<String, u64> = BTreeMap::new();
        for (name, fingerprint) in self.names.iter_mut().zip(&self.fingerprints) {
            let short = format!("{name}_{:06}", fingerprint % 1_000_000);
            let is_free = *taken.entry(short.clone()).or_insert(*fingerprint) == *fingerprint;
            *name = if is_free { short } else { format!("{name}_{fingerprint}") };
        }
    }
}

fn bytes_of(ty: &Type) -> usize {
    let own = match &ty.shape {
        TypeShape::Literal(Literal::Number(text) | Literal::String(text)) => text.len(),
        TypeShape::Object(object) => object.properties.iter().map(|property| property.name.len() + 8).sum(),
        _ => 8,
    };
    let mut bytes = comment_bytes(&ty.doc) + own;
    ty.shape.for_each_part(&mut |part| bytes += bytes_of(part));
    bytes
}

fn is_better(name: &str, other: &str) -> bool {
    (name.len(), name) < (other.len(), other)
}

/// A definition that contains itself for the same value, such as `type A = A | B`, has no meaning, and TypeScript refuses
/// it.
fn break_loops(read: &mut Read) {
    let edges = edges(read.definitions.iter().map(|(_, body)| body), DefinitionReach::SameValue);
    for (index, from) in edges.iter().enumerate() {
        if reached(from, &edges).contains(&index) {
            read.definitions[index].1 = Type::unknown();
            read.warnings.insert("a `$ref` leads back to itself".to_owned());
        }
    }
}

fn shift(ty: &mut Type, place: &impl Fn(usize) -> usize) {
    if let TypeShape::Named(index) = &mut ty.shape {
        *index = place(*index);
    }
    ty.shape.for_each_part_mut(&mut |part| shift(part, place));
}

/// Which definitions inside a type count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DefinitionReach {
    Everywhere,
    /// Those for the very value that the type is for.
    SameValue,
}

fn edges<'a, 's: 'a>(bodies: impl Iterator<Item = &'a Type<'s>>, reach: DefinitionReach) -> Vec<Vec<usize>> {
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
    ty.shape.for_each_part(&mut |part| names_in(part, reach, names));
}

/// Everything that the edges lead to from there, in the order of reading.
fn reached(from: &[usize], edges: &[Vec<usize>]) -> Vec<usize> {
    let mut seen = BTreeSet::new();
    let mut order = Vec::new();
    let mut open: Vec<usize> = from.iter().rev().copied().collect();
    while let Some(index) = open.pop() {
        if seen.insert(index) {
            order.push(index);
            open.extend(edges[index].iter().rev());
        }
    }
    order
}

/// The type with short definitions in the place of their names.
fn replaced<'s>(mut ty: Type<'s>, short: &[Option<Type<'s>>]) -> Type<'s> {
    ty.shape.for_each_part_mut(&mut |part| *part = replaced(std::mem::replace(part, Type::unknown()), short));
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
    ty.add_doc(inner);
    ty
}
