//! What is wrong with a table of settings: all of it, not only the first mistake.

use serde::Deserialize;
use toml::{Table, Value};

use super::GatewayOptions;

/// The way from the whole table to one value.
enum PathStep {
    Key(String),
    Index(usize),
}

/// Takes everything out of a table that is no setting or has the wrong type, and says so. Every value is tried by itself,
/// which is possible because none is required: whoever checks the settings says what is missing.
pub(super) fn remove_mistakes(table: &mut Table, mistakes: &mut Vec<SettingMistake>) {
    let mut path = Vec::new();
    retain_settings(table, &mut path, mistakes);
}

/// Something that is wrong with one setting.
#[derive(Debug)]
pub(super) struct SettingMistake {
    /// As the checks of settings name it: `upstream[0].wires`.
    pub key: String,
    pub message: String,
}

impl SettingMistake {
    /// Whether a mistake that was found later, because this setting is not there, says nothing new.
    pub(super) fn explains(&self, later: &str) -> bool {
        let Some((key, _)) = later.split_once(": ") else { return false };
        let inner = self.key.strip_prefix(key);
        inner.is_some_and(|inner| inner.is_empty() || inner.starts_with(['.', '[']))
    }
}

fn retain_settings(table: &mut Table, path: &mut Vec<PathStep>, mistakes: &mut Vec<SettingMistake>) {
    table.retain(|key, value| {
        path.push(PathStep::Key(key.to_owned()));
        let is_setting = check(value, path, mistakes);
        path.pop();
        is_setting
    });
}

/// Whether a value can stay, perhaps without some of what is in it.
fn check(value: &mut Value, path: &mut Vec<PathStep>, mistakes: &mut Vec<SettingMistake>) -> bool {
    let outer = match &*value {
        Value::Table(_) => Value::Table(Table::new()),
        Value::Array(items) if items.iter().any(Value::is_table) => Value::Array(Vec::new()),
        plain => plain.clone(),
    };
    if let Err(error) = GatewayOptions::deserialize(nested(path, outer)) {
        let message = describe(error.message(), value);
        mistakes.push(SettingMistake { key: written(path), message });
        return false;
    }
    match value {
        Value::Table(table) => retain_settings(table, path, mistakes),
        Value::Array(items) if items.iter().any(Value::is_table) => {
            for (at, item) in items.iter_mut().enumerate() {
                path.push(PathStep::Index(at));
                if !check(item, path, mistakes) {
                    // The others keep their places.
                    *item = Value::Table(Table::new());
                }
                path.pop();
            }
        }
        _ => {}
    }
    true
}

/// A table with nothing but this value.
fn nested(path: &[PathStep], value: Value) -> Table {
    let nested = path.iter().rev().fold(value, |value, step| match step {
        PathStep::Key(key) => Value::Table(Table::from_iter([(key.clone(), value)])),
        PathStep::Index(_) => Value::Array(vec![value]),
    });
    match nested {
        Value::Table(table) => table,
        _ => Table::new(),
    }
}

fn written(path: &[PathStep]) -> String {
    let mut written = String::new();
    for step in path {
        match step {
            PathStep::Key(key) if written.is_empty() => written.push_str(key),
            PathStep::Key(key) => written.extend([".", key]),
            PathStep::Index(at) => written.extend(["[", &at.to_string(), "]"]),
        }
    }
    written
}

/// Without the value: it may be a secret.
fn describe(message: &str, value: &Value) -> String {
    if let Some(names) = message.strip_prefix("unknown field ") {
        return unknown(names);
    }
    let is_of_type = message.starts_with("invalid type: ") || message.starts_with("invalid value: ");
    let Some((_, expected)) = message.rsplit_once(", expected ").filter(|_| is_of_type) else {
        return message.to_owned();
    };
    let expected = match expected {
        "usize" | "u64" => "a whole number that is not negative",
        "u32" => "a whole number from 0 to 4294967295",
        "a sequence" => "a list",
        "a boolean" => "true or false",
        "a map" => "a table",
        structure if structure.starts_with("struct ") => "a table",
        other => other,
    };
    match value {
        Value::Integer(_) if message.starts_with("invalid value") => format!("is out of range; expected {expected}"),
        Value::Array(_) if !message.starts_with("invalid type: sequence") => {
            format!("has an item of another type; expected {expected}")
        }
        value => format!("is of type {}; expected {expected}", value.type_str()),
    }
}

/// Of a message that has the unknown name in backticks, and then all that are known.
fn unknown(names: &str) -> String {
    const EDITS_MAX: usize = 2;
    let mut names = names.split('`').skip(1).step_by(2);
    let name = names.next().unwrap_or_default();
    let known: Vec<&str> = names.collect();
    let near = known.iter().map(|known| (strsim::osa_distance(known, name), *known));
    match near.min().filter(|(edits, _)| *edits <= EDITS_MAX) {
        Some((_, meant)) => format!("is no setting; did you mean `{meant}`?"),
        None => format!("is no setting; there are {}", known.join(", ")),
    }
}
