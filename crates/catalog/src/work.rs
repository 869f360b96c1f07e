//! How much work it is to check a value against a schema, counted before the validator sets out.
//!
//! The validator cannot be stopped, and its work grows with the product of schema and value: a union of 500
//! alternatives over a list of 5,000 items is 2.5 million steps. The count is an upper bound, so that whoever pays for
//! the work can refuse it in advance. It depends on nothing but schema and value.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::references::{self, DEPTH_MAX};

/// About a fifth of a second of checking.
const STEPS_MAX: u64 = 4_000_000;
/// Explaining keeps what it finds at each step, so it gets less.
const EXPLAINED_STEPS_MAX: u64 = 100_000;
/// Values that errors inside of unions may hold copies of, counted as in [`extent`].
const COPIED_MAX: u64 = 300_000;

/// Characters of text that are as much work as one step: for counting them, and for matching a pattern.
const COUNTED_BYTES_PER_STEP: u64 = 256;
const MATCHED_BYTES_PER_STEP: u64 = 16;
/// A pattern with look-around or back-references may try every way to match, up to the limit of backtracks.
const BACKTRACKING_STEPS: u64 = 1_000;
/// Small lists are compared item by item with each other.
const UNIQUE_FACTOR: u64 = 8;
/// Values that are compared with a constant in one step.
const COMPARISONS_PER_STEP: u64 = 8;
const COPIED_BYTES_PER_STEP: u64 = 64;

/// Steps that may still be spent on checking values. A step is about 50 nanoseconds.
///
/// ```
/// let mut budget = dacapo_catalog::WorkBudget::new(10);
/// assert!(budget.spend(7).is_ok());
/// assert!(budget.spend(4).is_err());
/// assert_eq!(budget.spent(), 7);
/// ```
#[derive(Debug, Clone)]
pub struct WorkBudget {
    left: u64,
    spent: u64,
}

/// The work costs more steps than are left. It was not done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("checking this value takes more steps than are left")]
pub struct OutOfBudget;

impl WorkBudget {
    /// No limit but those that hold for every check.
    pub const UNLIMITED: WorkBudget = WorkBudget { left: u64::MAX, spent: 0 };

    /// A budget of this many steps.
    pub fn new(steps: u64) -> WorkBudget {
        WorkBudget { left: steps, spent: 0 }
    }

    /// Takes steps before the work is done; `Err` takes none.
    pub fn spend(&mut self, steps: u64) -> Result<(), OutOfBudget> {
        self.left = self.left.checked_sub(steps).ok_or(OutOfBudget)?;
        self.spent += steps;
        Ok(())
    }

    /// Steps taken so far.
    pub fn spent(&self) -> u64 {
        self.spent
    }
}

/// A check that is too much work for any budget, or too deep for the stack.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TooMuchWork;

/// What may be found out about a value that is known to be wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ExplanationScope {
    AllErrors,
    FirstError,
    /// Even one error may hold too much.
    Nothing,
}

/// A schema, reduced to what its checks cost.
#[derive(Debug)]
pub(crate) struct WorkPlan {
    nodes: Vec<PlanNode>,
    /// The errors of unions hold the errors of their alternatives, with copies of the values.
    has_unions: bool,
    has_references: bool,
}

#[derive(Debug, Default)]
struct PlanNode {
    /// Steps for its own keywords, and for subschemas in place that look at nothing but the value itself.
    own: u64,
    /// Subschemas that see the same value.
    in_place: Vec<usize>,
    properties: BTreeMap<String, usize>,
    /// Subschemas that see every property, and those that see only unnamed ones.
    every_property: Vec<usize>,
    other_properties: Vec<usize>,
    property_names: Option<usize>,
    first_items: Vec<usize>,
    every_item: Vec<usize>,
    text: TextWork,
    /// Patterns that every name of a property is matched with.
    name_text: TextWork,
    unique_items: bool,
    /// `unevaluatedProperties` and `unevaluatedItems` try subschemas in place again for each property or item.
    unevaluated: bool,
    /// Levels of subschemas that were folded into it.
    folded_height: u32,
    /// References lead here, so it may be visited many times with the same value.
    is_shared: bool,
}

/// Work that grows with the length of a text.
#[derive(Debug, Default, Clone, Copy)]
struct TextWork {
    counts: u64,
    patterns: u64,
    backtracking: u64,
}

impl TextWork {
    fn add_pattern(&mut self, pattern: &str) {
        self.patterns += 1;
        self.backtracking += u64::from(may_backtrack(pattern));
    }

    fn add(&mut self, other: TextWork) {
        self.counts += other.counts;
        self.patterns += other.patterns;
        self.backtracking += other.backtracking;
    }

    fn steps(self, bytes: usize) -> u64 {
        let bytes = bytes as u64;
        // A short text has few ways to be tried.
        let ways = 1_u64.checked_shl(u32::try_from(bytes).unwrap_or(u32::MAX)).unwrap_or(u64::MAX);
        self.counts * (bytes / COUNTED_BYTES_PER_STEP)
            + self.patterns * (bytes / MATCHED_BYTES_PER_STEP)
            + self.backtracking * ways.min(BACKTRACKING_STEPS)
    }
}

fn may_backtrack(pattern: &str) -> bool {
    ["(?=", "(?!", "(?<=", "(?<!", "(?>", "(?(", "\\k", "++", "*+", "?+", "}+"]
        .iter()
        .any(|part| pattern.contains(part))
        || pattern.as_bytes().windows(2).any(|pair| pair[0] == b'\\' && pair[1].is_ascii_digit())
}

impl WorkPlan {
    /// The plan of a schema that [`references::survey`] has accepted.
    pub(crate) fn new(root: &Value, has_references: bool) -> WorkPlan {
        let mut builder = PlanBuilder { root, nodes: Vec::new(), known: BTreeMap::new(), open: Vec::new() };
        builder.node(root);
        while let Some((index, fields)) = builder.open.pop() {
            builder.fill(index, fields);
        }
        let mut nodes = builder.nodes;
        fold_leaves(&mut nodes);
        WorkPlan { nodes, has_unions: has_unions(root), has_references }
    }

    /// Steps that the check of this value takes at most.
    pub(crate) fn steps(&self, value: &Value) -> Result<u64, TooMuchWork> {
        let mut count = Count { nodes: &self.nodes, known: BTreeMap::new(), copied: None };
        count.visit(0, value, 0).map(|cost| cost.steps).ok_or(TooMuchWork)
    }

    /// What may be found out about a value whose check takes `steps`, and the steps that this takes.
    pub(crate) fn explanation(&self, value: &Value, steps: u64) -> (ExplanationScope, u64) {
        let holds_copies = self.has_unions || self.has_references;
        if steps > EXPLAINED_STEPS_MAX {
            return if holds_copies { (ExplanationScope::Nothing, 0) } else { (ExplanationScope::FirstError, steps) };
        }
        if !self.has_unions {
            return (ExplanationScope::AllErrors, 4 * steps);
        }
        let mut count = Count { nodes: &self.nodes, known: BTreeMap::new(), copied: Some(0) };
        let fits = count.visit(0, value, 0).is_some();
        let copied = count.copied.unwrap_or_default();
        if fits { (ExplanationScope::AllErrors, 4 * steps + copied) } else { (ExplanationScope::Nothing, copied) }
    }
}

/// What a value takes when it is copied: one for each value in it, and more for long texts.
fn extent(value: &Value, most: u64) -> Option<u64> {
    let own = match value {
        Value::Array(items) => {
            return items.iter().try_fold(1, |sum: u64, item| Some(sum + extent(item, most.checked_sub(sum)?)?));
        }
        Value::Object(fields) => {
            return fields.iter().try_fold(1, |sum: u64, (name, field)| {
                let sum = sum + 1 + name.len() as u64 / COPIED_BYTES_PER_STEP;
                Some(sum + extent(field, most.checked_sub(sum)?)?)
            });
        }
        Value::String(text) => 1 + text.len() as u64 / COPIED_BYTES_PER_STEP,
        Value::Null | Value::Bool(_) | Value::Number(_) => 1,
    };
    (own <= most).then_some(own)
}

struct PlanBuilder<'a> {
    root: &'a Value,
    nodes: Vec<PlanNode>,
    known: BTreeMap<*const Value, usize>,
    /// Nodes to be filled. A list, because chains of references can be longer than the stack is deep.
    open: Vec<(usize, &'a Map<String, Value>)>,
}

impl<'a> PlanBuilder<'a> {
    fn node(&mut self, schema: &'a Value) -> usize {
        if let Some(index) = self.known.get(&std::ptr::from_ref(schema)) {
            return *index;
        }
        let index = self.nodes.len();
        self.known.insert(schema, index);
        self.nodes.push(PlanNode { own: 1, ..PlanNode::default() });
        if let Value::Object(fields) = schema {
            self.open.push((index, fields));
        }
        index
    }

    fn fill(&mut self, index: usize, fields: &'a Map<String, Value>) {
        let root = self.root;
        let mut node = PlanNode { own: 1, is_shared: self.nodes[index].is_shared, ..PlanNode::default() };
        for inner in references::in_place(root, fields) {
            node.in_place.push(self.node(inner));
        }
        if let Some(target) = references::target(root, fields) {
            let target = self.node(target);
            self.nodes[target].is_shared = true;
            node.is_shared |= target == index;
        }
        for (keyword, value) in fields {
            match (keyword.as_str(), value) {
                ("properties", Value::Object(schemas)) => {
                    node.properties = schemas.iter().map(|(name, schema)| (name.clone(), self.node(schema))).collect();
                }
                ("patternProperties", Value::Object(schemas)) => {
                    for (pattern, schema) in schemas {
                        node.name_text.add_pattern(pattern);
                        node.every_property.push(self.node(schema));
                    }
                }
                ("propertyNames", schema) => node.property_names = Some(self.node(schema)),
                ("additionalProperties", schema) => node.other_properties.push(self.node(schema)),
                ("unevaluatedProperties", schema) => {
                    node.unevaluated = true;
                    node.other_properties.push(self.node(schema));
                }
                ("unevaluatedItems", schema) => {
                    node.unevaluated = true;
                    node.every_item.push(self.node(schema));
                }
                ("prefixItems" | "items", Value::Array(schemas)) => {
                    node.first_items.extend(schemas.iter().map(|schema| self.node(schema)));
                }
                ("items" | "additionalItems" | "contains", schema) => node.every_item.push(self.node(schema)),
                ("uniqueItems", Value::Bool(true)) => node.unique_items = true,
                ("pattern", Value::String(pattern)) => node.text.add_pattern(pattern),
                ("minLength" | "maxLength", _) => node.text.counts += 1,
                ("required", Value::Array(names)) => node.own += names.len() as u64,
                ("enum" | "const" | "dependentRequired" | "dependencies", value) => {
                    node.own += extent(value, STEPS_MAX).unwrap_or(STEPS_MAX) / COMPARISONS_PER_STEP;
                }
                _ => {}
            }
        }
        self.nodes[index] = node;
    }
}

/// Adds leaves in place to the schemas that they stand in, so that a union of 500 constants is counted at once.
fn fold_leaves(nodes: &mut [PlanNode]) {
    for index in 0..nodes.len() {
        let inner = std::mem::take(&mut nodes[index].in_place);
        let (leaves, others): (Vec<usize>, Vec<usize>) = inner.into_iter().partition(|inner| nodes[*inner].is_leaf());
        for leaf in leaves {
            let (own, text, height) = (nodes[leaf].own, nodes[leaf].text, nodes[leaf].folded_height);
            let node = &mut nodes[index];
            node.own += own;
            node.text.add(text);
            node.folded_height = node.folded_height.max(height + 1);
        }
        nodes[index].in_place = others;
    }
}

impl PlanNode {
    /// Whether it looks at nothing but the value itself.
    fn is_leaf(&self) -> bool {
        self.in_place.is_empty()
            && self.properties.is_empty()
            && self.every_property.is_empty()
            && self.other_properties.is_empty()
            && self.property_names.is_none()
            && self.first_items.is_empty()
            && self.every_item.is_empty()
            && !self.unique_items
    }
}

fn has_unions(schema: &Value) -> bool {
    let mut open = vec![schema];
    while let Some(value) = open.pop() {
        match value {
            Value::Object(fields) => {
                if ["anyOf", "oneOf", "propertyNames"].iter().any(|keyword| fields.contains_key(*keyword)) {
                    return true;
                }
                open.extend(fields.values());
            }
            Value::Array(items) => open.extend(items),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
    false
}

#[derive(Clone, Copy)]
struct VisitCost {
    steps: u64,
    height: u32,
}

impl VisitCost {
    /// `None` for more than any limit allows.
    fn add(&mut self, inner: VisitCost) -> Option<()> {
        self.steps += inner.steps;
        self.height = self.height.max(inner.height + 1);
        (self.steps <= STEPS_MAX).then_some(())
    }
}

struct Count<'p> {
    nodes: &'p [PlanNode],
    known: BTreeMap<(usize, *const Value), VisitCost>,
    /// Copies that errors may hold, where they are counted.
    copied: Option<u64>,
}

impl<'p> Count<'p> {
    /// `None` for more than any limit allows.
    fn visit(&mut self, index: usize, value: &Value, depth: u32) -> Option<VisitCost> {
        let nodes: &'p [PlanNode] = self.nodes;
        let node = &nodes[index];
        self.count_copies(node, value)?;
        let text = if let Value::String(text) = value { node.text.steps(text.len()) } else { 0 };
        let mut total = VisitCost { steps: node.own + text, height: node.folded_height };
        if total.steps > STEPS_MAX || depth + total.height > DEPTH_MAX {
            return None;
        }
        if node.is_leaf() {
            return Some(total);
        }
        let key = (index, std::ptr::from_ref(value));
        // Copies are counted at every visit.
        let is_remembered = node.is_shared && self.copied.is_none();
        if is_remembered && let Some(&cost) = self.known.get(&key) {
            return (depth + cost.height <= DEPTH_MAX).then_some(cost);
        }
        for inner in &node.in_place {
            total.add(self.visit(*inner, value, depth + 1)?)?;
        }
        if node.unevaluated {
            let parts = value.as_object().map_or(0, Map::len) + value.as_array().map_or(0, Vec::len);
            total.steps = total.steps.saturating_mul(1 + parts as u64).min(STEPS_MAX + 1);
        }
        match value {
            Value::Object(fields) => {
                for (name, field) in fields {
                    total.steps += node.name_text.steps(name.len());
                    if let Some(names) = node.property_names {
                        total.add(self.visit_name(names, name, depth + 1)?)?;
                    }
                    let named = node.properties.get(name);
                    let others = if named.is_some() { &[][..] } else { &node.other_properties };
                    for inner in named.into_iter().chain(&node.every_property).chain(others) {
                        total.add(self.visit(*inner, field, depth + 1)?)?;
                    }
                }
            }
            Value::Array(items) => {
                if node.unique_items {
                    total.steps += UNIQUE_FACTOR * extent(value, STEPS_MAX)?;
                }
                for (position, item) in items.iter().enumerate() {
                    for inner in node.first_items.get(position).into_iter().chain(&node.every_item) {
                        total.add(self.visit(*inner, item, depth + 1)?)?;
                    }
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
        if total.steps > STEPS_MAX {
            return None;
        }
        if is_remembered {
            self.known.insert(key, total);
        }
        Some(total)
    }

    /// The name of a property, as a value of its own.
    fn visit_name(&mut self, index: usize, name: &str, depth: u32) -> Option<VisitCost> {
        let nodes: &'p [PlanNode] = self.nodes;
        let node = &nodes[index];
        if depth > DEPTH_MAX {
            return None;
        }
        let mut total = VisitCost { steps: node.own + node.text.steps(name.len()), height: 0 };
        for inner in &node.in_place {
            total.add(self.visit_name(*inner, name, depth + 1)?)?;
        }
        (total.steps <= STEPS_MAX).then_some(total)
    }

    fn count_copies(&mut self, node: &PlanNode, value: &Value) -> Option<()> {
        let Some(copied) = self.copied else { return Some(()) };
        let once = extent(value, COPIED_MAX - copied)?;
        let sum = node.own.saturating_mul(once).saturating_add(copied);
        self.copied = Some(sum.min(COPIED_MAX));
        (sum <= COPIED_MAX).then_some(())
    }
}
