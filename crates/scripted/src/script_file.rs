//! TOML with the line number of every key and value, in the order of the file.

use std::ops::{Range, RangeInclusive};

use dacapo_catalog::shorten;
use serde::Deserialize;
use serde_json::Value;
use toml::Spanned;
use toml::de::{DeTable, DeValue, ValueDeserializer};

use crate::ScriptFileError;
use crate::scripted_conversation::QUOTED_CHARS_MAX;

/// A value of the file, and its line.
#[derive(Debug)]
pub(crate) struct TomlNode {
    pub(crate) line: usize,
    pub(crate) value: TomlValue,
}

#[derive(Debug)]
pub(crate) enum TomlValue {
    Scalar(Value),
    List(Vec<TomlNode>),
    Table(Vec<TomlEntry>),
}

#[derive(Debug)]
pub(crate) struct TomlEntry {
    line: usize,
    name: String,
    node: TomlNode,
}

/// A table, from which keys are taken one after the other.
#[derive(Debug)]
pub(crate) struct TomlFields {
    line: usize,
    path: String,
    entries: Vec<TomlEntry>,
}

/// The offsets of the line ends, to find the line of an offset.
struct LineIndex(Vec<usize>);

impl LineIndex {
    fn of(text: &str) -> LineIndex {
        LineIndex(text.match_indices('\n').map(|(at, _)| at).collect())
    }

    fn line(&self, span: &Range<usize>) -> usize {
        1 + self.0.partition_point(|newline| *newline < span.start)
    }
}

impl TomlNode {
    pub(crate) fn parse(text: &str) -> Result<TomlNode, ScriptFileError> {
        let lines = LineIndex::of(text);
        let line = |error: &toml::de::Error| error.span().map_or(1, |span| lines.line(&span));
        let root = DeTable::parse(text)
            .map_err(|error| ScriptFileError::new(line(&error), format!("this is not TOML: {}", error.message())))?;
        Ok(TomlNode { line: 1, value: table(root.into_inner(), &lines)? })
    }

    /// The value as JSON. Dates become strings.
    pub(crate) fn into_json(self) -> Value {
        match self.value {
            TomlValue::Scalar(value) => value,
            TomlValue::List(nodes) => nodes.into_iter().map(TomlNode::into_json).collect(),
            TomlValue::Table(entries) => {
                entries.into_iter().map(|entry| (entry.name, entry.node.into_json())).collect()
            }
        }
    }

    pub(crate) fn into_text(self, path: &str) -> Result<String, ScriptFileError> {
        match self.value {
            TomlValue::Scalar(Value::String(text)) => Ok(text),
            _ => Err(self.wrong(path, "text in quotes")),
        }
    }

    /// The items of a list; any other value is a list of one.
    pub(crate) fn into_many(self) -> Vec<TomlNode> {
        match self.value {
            TomlValue::List(nodes) => nodes,
            _ => vec![self],
        }
    }

    pub(crate) fn wrong(&self, path: &str, expected: &str) -> ScriptFileError {
        let found = match &self.value {
            TomlValue::Scalar(Value::String(text)) => {
                format!("the text {}", Value::from(shorten(text, QUOTED_CHARS_MAX)))
            }
            TomlValue::Scalar(value) => value.to_string(),
            TomlValue::List(_) => "a list".into(),
            TomlValue::Table(_) => "a table".into(),
        };
        ScriptFileError::new(self.line, format!("{path}: expected {expected}, found {found}"))
    }
}

fn table(table: DeTable<'_>, lines: &LineIndex) -> Result<TomlValue, ScriptFileError> {
    let mut entries: Vec<_> = table.into_iter().collect();
    entries.sort_by_key(|(key, _)| key.span().start);
    let entry = |(key, value): (Spanned<_>, _)| {
        let line = lines.line(&key.span());
        Ok(TomlEntry { line, name: String::from(key.into_inner()), node: node(value, line, lines)? })
    };
    Ok(TomlValue::Table(entries.into_iter().map(entry).collect::<Result<_, _>>()?))
}

fn node(value: Spanned<DeValue<'_>>, key_line: usize, lines: &LineIndex) -> Result<TomlNode, ScriptFileError> {
    let span = value.span();
    // Arrays of tables have no span of their own.
    let line = if span.is_empty() { key_line } else { lines.line(&span) };
    let value = match value.into_inner() {
        DeValue::Table(inner) => table(inner, lines)?,
        DeValue::Array(items) => {
            TomlValue::List(items.into_iter().map(|item| node(item, line, lines)).collect::<Result<_, _>>()?)
        }
        DeValue::Datetime(at) => TomlValue::Scalar(at.to_string().into()),
        scalar => match Value::deserialize(ValueDeserializer::from(Spanned::new(span, scalar))) {
            Ok(value) if !value.is_null() => TomlValue::Scalar(value),
            _ => return Err(ScriptFileError::new(line, "JSON has no such number; use another, or text in quotes")),
        },
    };
    Ok(TomlNode { line, value })
}

impl TomlFields {
    /// Opens a table. A key that is not among `known` is an error.
    pub(crate) fn read(node: TomlNode, path: &str, known: &[&str]) -> Result<TomlFields, ScriptFileError> {
        let TomlValue::Table(entries) = node.value else {
            return Err(node.wrong(path, &format!("a table with {}", quoted_list(known))));
        };
        let fields = TomlFields { line: node.line, path: path.into(), entries };
        match fields.entries.iter().find(|entry| !known.contains(&entry.name.as_str())) {
            Some(TomlEntry { line, name, .. }) => {
                let message = format!("`{name}` is not known here; the keys are {}", quoted_list(known));
                Err(ScriptFileError::new(*line, fields.with_path(&message)))
            }
            None => Ok(fields),
        }
    }

    pub(crate) fn take(&mut self, name: &str) -> Option<TomlNode> {
        let at = self.entries.iter().position(|entry| entry.name == name)?;
        Some(self.entries.remove(at).node)
    }

    pub(crate) fn text(&mut self, name: &str) -> Result<Option<String>, ScriptFileError> {
        self.take(name).map(|node| node.into_text(&self.path_of(name))).transpose()
    }

    pub(crate) fn required_text(&mut self, name: &str) -> Result<String, ScriptFileError> {
        self.text(name)?.ok_or_else(|| self.error(&format!("needs `{name}`")))
    }

    pub(crate) fn texts(&mut self, name: &str) -> Result<Vec<String>, ScriptFileError> {
        let path = self.path_of(name);
        self.many(name).into_iter().map(|node| node.into_text(&path)).collect()
    }

    /// The items of a key whose value is a list or a single item.
    pub(crate) fn many(&mut self, name: &str) -> Vec<TomlNode> {
        self.take(name).map_or_else(Vec::new, TomlNode::into_many)
    }

    pub(crate) fn tables(&mut self, name: &str) -> Result<Vec<TomlNode>, ScriptFileError> {
        match self.take(name) {
            None => Ok(Vec::new()),
            Some(TomlNode { value: TomlValue::List(nodes), .. }) => Ok(nodes),
            Some(node) => Err(node.wrong(&self.path_of(name), "a list of tables")),
        }
    }

    pub(crate) fn whole(&mut self, name: &str, range: RangeInclusive<u64>) -> Result<Option<u64>, ScriptFileError> {
        let Some(node) = self.take(name) else { return Ok(None) };
        match &node.value {
            TomlValue::Scalar(Value::Number(number)) => number.as_u64().filter(|number| range.contains(number)),
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

    /// A table with arbitrary keys, and the line of each.
    pub(crate) fn open_table(&mut self, name: &str) -> Result<Vec<(usize, String, TomlNode)>, ScriptFileError> {
        match self.take(name) {
            None => Ok(Vec::new()),
            Some(TomlNode { value: TomlValue::Table(entries), .. }) => {
                Ok(entries.into_iter().map(|entry| (entry.line, entry.name, entry.node)).collect())
            }
            Some(node) => Err(node.wrong(&self.path_of(name), "a table")),
        }
    }

    /// The first of these keys that is present and not taken yet.
    pub(crate) fn any_of(&self, names: &[&str]) -> Option<&str> {
        self.entries.iter().map(|entry| entry.name.as_str()).find(|name| names.contains(name))
    }

    pub(crate) fn line(&self) -> usize {
        self.line
    }

    pub(crate) fn path_of(&self, name: &str) -> String {
        if self.path.is_empty() { name.into() } else { format!("{}, {name}", self.path) }
    }

    pub(crate) fn error(&self, message: &str) -> ScriptFileError {
        ScriptFileError::new(self.line, self.with_path(message))
    }

    fn with_path(&self, message: &str) -> String {
        if self.path.is_empty() { message.into() } else { format!("{}: {message}", self.path) }
    }
}

fn quoted_list(names: &[&str]) -> String {
    names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}
