//! TOML with the line of every key and value, in the order in which they were written.

use std::ops::{Range, RangeInclusive};

use serde::Deserialize;
use serde_json::Value;
use toml::Spanned;
use toml::de::{DeTable, DeValue, ValueDeserializer};

use super::ScriptError;

/// A value of the file.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) line: usize,
    pub(super) tree: Tree,
}

#[derive(Debug)]
pub(super) enum Tree {
    Scalar(Value),
    List(Vec<Node>),
    Table(Vec<Entry>),
}

#[derive(Debug)]
pub(super) struct Entry {
    line: usize,
    name: String,
    node: Node,
}

/// The keys of a table, taken one after the other.
#[derive(Debug)]
pub(super) struct Fields {
    line: usize,
    path: String,
    entries: Vec<Entry>,
}

/// Where the lines of the file end.
struct Lines(Vec<usize>);

impl Lines {
    fn of(text: &str) -> Lines {
        Lines(text.match_indices('\n').map(|(at, _)| at).collect())
    }

    fn line(&self, span: &Range<usize>) -> usize {
        1 + self.0.partition_point(|newline| *newline < span.start)
    }
}

impl Node {
    pub(super) fn parse(text: &str) -> Result<Node, ScriptError> {
        let lines = Lines::of(text);
        let line = |error: &toml::de::Error| error.span().map_or(1, |span| lines.line(&span));
        let root = DeTable::parse(text)
            .map_err(|error| ScriptError::new(line(&error), format!("this is not TOML: {}", error.message())))?;
        Ok(Node { line: 1, tree: table(root.into_inner(), &lines)? })
    }

    /// The value as JSON, dates as text.
    pub(super) fn into_json(self) -> Value {
        match self.tree {
            Tree::Scalar(value) => value,
            Tree::List(nodes) => nodes.into_iter().map(Node::into_json).collect(),
            Tree::Table(entries) => entries.into_iter().map(|entry| (entry.name, entry.node.into_json())).collect(),
        }
    }

    pub(super) fn into_text(self, path: &str) -> Result<String, ScriptError> {
        match self.tree {
            Tree::Scalar(Value::String(text)) => Ok(text),
            _ => Err(self.wrong(path, "text in quotes")),
        }
    }

    /// A list as it is, anything else as a list of one.
    pub(super) fn into_many(self) -> Vec<Node> {
        match self.tree {
            Tree::List(nodes) => nodes,
            _ => vec![self],
        }
    }

    pub(super) fn wrong(&self, path: &str, expected: &str) -> ScriptError {
        let found = match &self.tree {
            Tree::Scalar(Value::String(text)) => format!("the text {}", Value::from(super::conversation::clip(text))),
            Tree::Scalar(value) => value.to_string(),
            Tree::List(_) => "a list".into(),
            Tree::Table(_) => "a table".into(),
        };
        ScriptError::new(self.line, format!("{path}: expected {expected}, found {found}"))
    }
}

fn table(table: DeTable<'_>, lines: &Lines) -> Result<Tree, ScriptError> {
    let mut entries: Vec<_> = table.into_iter().collect();
    entries.sort_by_key(|(key, _)| key.span().start);
    let entry = |(key, value): (Spanned<_>, _)| {
        let line = lines.line(&key.span());
        Ok(Entry { line, name: String::from(key.into_inner()), node: node(value, line, lines)? })
    };
    Ok(Tree::Table(entries.into_iter().map(entry).collect::<Result<_, _>>()?))
}

fn node(value: Spanned<DeValue<'_>>, key_line: usize, lines: &Lines) -> Result<Node, ScriptError> {
    let span = value.span();
    // Arrays of tables have no place of their own.
    let line = if span.is_empty() { key_line } else { lines.line(&span) };
    let tree = match value.into_inner() {
        DeValue::Table(inner) => table(inner, lines)?,
        DeValue::Array(items) => {
            Tree::List(items.into_iter().map(|item| node(item, line, lines)).collect::<Result<_, _>>()?)
        }
        DeValue::Datetime(at) => Tree::Scalar(at.to_string().into()),
        scalar => match Value::deserialize(ValueDeserializer::from(Spanned::new(span, scalar))) {
            Ok(value) if !value.is_null() => Tree::Scalar(value),
            _ => return Err(ScriptError::new(line, "JSON has no such number; use another, or text in quotes")),
        },
    };
    Ok(Node { line, tree })
}

impl Fields {
    /// A table that has no keys but the known ones.
    pub(super) fn read(node: Node, path: &str, known: &[&str]) -> Result<Fields, ScriptError> {
        let Tree::Table(entries) = node.tree else {
            return Err(node.wrong(path, &format!("a table with {}", listed(known))));
        };
        let fields = Fields { line: node.line, path: path.into(), entries };
        match fields.entries.iter().find(|entry| !known.contains(&entry.name.as_str())) {
            Some(Entry { line, name, .. }) => {
                let message = format!("`{name}` is not known here; the keys are {}", listed(known));
                Err(ScriptError::new(*line, fields.placed(&message)))
            }
            None => Ok(fields),
        }
    }

    pub(super) fn take(&mut self, name: &str) -> Option<Node> {
        let at = self.entries.iter().position(|entry| entry.name == name)?;
        Some(self.entries.remove(at).node)
    }

    pub(super) fn text(&mut self, name: &str) -> Result<Option<String>, ScriptError> {
        self.take(name).map(|node| node.into_text(&self.path_of(name))).transpose()
    }

    pub(super) fn required_text(&mut self, name: &str) -> Result<String, ScriptError> {
        self.text(name)?.ok_or_else(|| self.error(&format!("needs `{name}`")))
    }

    pub(super) fn texts(&mut self, name: &str) -> Result<Vec<String>, ScriptError> {
        let path = self.path_of(name);
        self.many(name).into_iter().map(|node| node.into_text(&path)).collect()
    }

    /// A value or a list of them.
    pub(super) fn many(&mut self, name: &str) -> Vec<Node> {
        self.take(name).map_or_else(Vec::new, Node::into_many)
    }

    pub(super) fn tables(&mut self, name: &str) -> Result<Vec<Node>, ScriptError> {
        match self.take(name) {
            None => Ok(Vec::new()),
            Some(Node { tree: Tree::List(nodes), .. }) => Ok(nodes),
            Some(node) => Err(node.wrong(&self.path_of(name), "a list of tables")),
        }
    }

    pub(super) fn whole(&mut self, name: &str, range: RangeInclusive<u64>) -> Result<Option<u64>, ScriptError> {
        let Some(node) = self.take(name) else { return Ok(None) };
        match &node.tree {
            Tree::Scalar(Value::Number(number)) => number.as_u64().filter(|number| range.contains(number)),
            _ => None,
        }
        .map(Some)
        .ok_or_else(|| {
            let expected = match (range.start(), range.end()) {
                (start, &u64::MAX) => format!("a whole number from {start}"),
                (start, end) => format!("a whole number from {start} to {end}"),
            };
            node.wrong(&self.path_of(name), &expected)
        })
    }

    /// A table of any keys, with the line of each.
    pub(super) fn open_table(&mut self, name: &str) -> Result<Vec<(usize, String, Node)>, ScriptError> {
        match self.take(name) {
            None => Ok(Vec::new()),
            Some(Node { tree: Tree::Table(entries), .. }) => {
                Ok(entries.into_iter().map(|entry| (entry.line, entry.name, entry.node)).collect())
            }
            Some(node) => Err(node.wrong(&self.path_of(name), "a table")),
        }
    }

    /// The first key of these that is there and has not been taken.
    pub(super) fn any_of(&self, names: &[&str]) -> Option<&str> {
        self.entries.iter().map(|entry| entry.name.as_str()).find(|name| names.contains(name))
    }

    pub(super) fn line(&self) -> usize {
        self.line
    }

    pub(super) fn path_of(&self, name: &str) -> String {
        if self.path.is_empty() { name.into() } else { format!("{}, {name}", self.path) }
    }

    pub(super) fn error(&self, message: &str) -> ScriptError {
        ScriptError::new(self.line, self.placed(message))
    }

    fn placed(&self, message: &str) -> String {
        if self.path.is_empty() { message.into() } else { format!("{}: {message}", self.path) }
    }
}

fn listed(names: &[&str]) -> String {
    names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}
