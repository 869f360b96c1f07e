//! Objects that get a name though their schemas have none for them: those that a tool
//! describes more than once, and long ones in results, which tools of one server often share.

use std::collections::{BTreeMap, BTreeSet};

use super::definitions::{Definitions, INLINE_BYTES_MAX};
use super::printer::Printer;
use super::reader::base_name;
use super::shape::{Type, TypeShape};

/// An object in a result that takes more room than this has a name even if it stands once.
const RESULT_BYTES_MAX: usize = 150;

/// The first root is what a tool takes, the second what it answers.
pub(super) fn name(definitions: &mut Definitions) {
    let old_names = definitions.names.clone();
    let printer = Printer { names: &old_names };
    let mut search = RepeatSearch { printer, seen: BTreeSet::new(), found: BTreeMap::new() };
    for (index, root) in definitions.roots.iter().enumerate() {
        let bytes_max = if index == 0 { usize::MAX } else { RESULT_BYTES_MAX };
        search.look_into(root, bytes_max);
    }
    definitions.bodies.iter().for_each(|body| search.look_into(body, usize::MAX));
    if search.found.is_empty() {
        return;
    }
    let mut naming = Naming { printer, places: search.found, definitions };
    let mut roots = std::mem::take(&mut naming.definitions.roots);
    for root in &mut roots {
        naming.name_parts(root, "Value");
    }
    naming.definitions.roots = roots;
    for (index, name) in old_names.iter().enumerate() {
        let mut body = std::mem::replace(&mut naming.definitions.bodies[index], Type::unknown());
        naming.name_parts(&mut body, name);
        naming.definitions.bodies[index] = body;
    }
}

struct RepeatSearch<'a> {
    printer: Printer<'a>,
    seen: BTreeSet<String>,
    /// The texts of objects that get a name.
    found: BTreeMap<String, Option<usize>>,
}

impl RepeatSearch<'_> {
    fn look_into(&mut self, ty: &Type, bytes_max: usize) {
        for part in ty.shape.parts() {
            if let Some(text) = long_object(self.printer, &part.shape) {
                let is_new = self.seen.insert(text.clone());
                if !is_new || text.len() > bytes_max {
                    self.found.insert(text, None);
                }
                if !is_new {
                    // What is inside a repeated object is no repetition of its own.
                    continue;
                }
            }
            self.look_into(part, bytes_max);
        }
    }
}

/// Objects are the same if they read the same.
fn long_object(printer: Printer, shape: &TypeShape) -> Option<String> {
    let TypeShape::Object(_) = shape else {
        return None;
    };
    Some(printer.shape(shape)).filter(|text| text.len() > INLINE_BYTES_MAX)
}

struct Naming<'a> {
    /// With the names from before, so that every object reads as it did when it was found.
    printer: Printer<'a>,
    /// Where each object is defined, once it is.
    places: BTreeMap<String, Option<usize>>,
    definitions: &'a mut Definitions,
}

impl Naming<'_> {
    fn name_parts(&mut self, ty: &mut Type, property: &str) {
        match &mut ty.shape {
            TypeShape::Object(object) => {
                for property in &mut object.properties {
                    self.name(&mut property.value, &property.name);
                }
                object.rest.part_mut().into_iter().for_each(|part| self.name(part, property));
            }
            TypeShape::Array(items) => self.name(items, &singular(property)),
            shape => shape.parts_mut().into_iter().for_each(|part| self.name(part, property)),
        }
    }

    fn name(&mut self, ty: &mut Type, property: &str) {
        let text = long_object(self.printer, &ty.shape);
        let Some(place) = text.and_then(|text| self.places.get_mut(&text)) else {
            return self.name_parts(ty, property);
        };
        let new = self.definitions.names.len();
        let index = *place.get_or_insert(new);
        let mut body = Type::of(std::mem::replace(&mut ty.shape, TypeShape::Named(index)));
        if index == new {
            self.definitions.names.push(base_name(property));
            self.definitions.bodies.push(Type::unknown());
            self.name_parts(&mut body, property);
            self.definitions.bodies[new] = body;
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
