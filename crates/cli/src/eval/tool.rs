//! A simulated tool: what it declares, what it does to the tables of its world, and how it fails.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::Write;

use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::run::Mode;
use super::table::{Row, Tables, is_same};

/// A tool as its world's file has it.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SimulatedTool {
    pub name: String,
    description: String,
    /// By name, `type: meaning`; a `?` after the type makes it optional. What is sent must have these types.
    #[serde(default)]
    parameters: BTreeMap<String, String>,
    /// Declared instead of what the parameters say: a tool whose schema is wrong.
    schema: Option<Value>,
    /// Declared, whether it is right or not.
    output_schema: Option<Value>,
    does: Operation,
    /// What must hold before it does anything.
    #[serde(default)]
    requires: Vec<Requirement>,
    #[serde(default)]
    faults: Vec<SimulatedFault>,
}

/// Conditions and values by column. A text such as `$id` is the argument `id` of the call, and `-$id` its negative.
type Cells = Map<String, Value>;

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
enum Operation {
    /// Answers with one row.
    Lookup {
        table: String,
        by: Cells,
        columns: Option<Vec<String>>,
        text: Option<String>,
    },
    /// Answers with the rows that meet all conditions whose arguments are given.
    List(ListOperation),
    /// Adds a row, and answers with it. `id` names the column that is numbered, and what stands before the number.
    Insert {
        table: String,
        values: Cells,
        id: Option<(String, String)>,
    },
    /// Changes the rows that it finds, and answers with the first. `add` adds to numbers.
    Update {
        table: String,
        by: Cells,
        #[serde(default)]
        set: Cells,
        #[serde(default)]
        add: Cells,
    },
    Delete {
        table: String,
        by: Cells,
    },
    /// Answers with the PNG in a column, as base64.
    Image {
        table: String,
        by: Cells,
        column: String,
    },
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct ListOperation {
    table: String,
    #[serde(default, rename = "where")]
    equal: Cells,
    /// Texts that contain the argument, whatever the case.
    #[serde(default)]
    contains: Cells,
    columns: Option<Vec<String>>,
    /// The key of the list in the answer.
    key: Option<String>,
    /// A line for each row instead of JSON.
    text: Option<String>,
    page: Option<ListPage>,
}

/// Pages by number, from 1, or by cursor.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
enum ListPage {
    Number { argument: String, size: usize },
    Cursor { argument: String, size: usize },
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Requirement {
    table: String,
    /// Some row has these values.
    #[serde(rename = "where")]
    equal: Cells,
    message: String,
}

/// A failure of the calls that have the arguments `when`: of all, of the `first` ones, or of those `after` so many.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct SimulatedFault {
    message: String,
    first: Option<u32>,
    after: Option<u32>,
    #[serde(default)]
    when: Cells,
    /// Calls are counted for each value of this argument.
    per: Option<String>,
    /// The tool has done what it was asked for; only its answer is lost.
    #[serde(default)]
    after_effect: bool,
}

/// What a tool answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum SimulatedAnswer {
    Text(String),
    /// A PNG, as base64.
    Image(String),
    Error(String),
}

/// Calls so far, by tool, fault and value of the argument that they are counted by.
pub(crate) type CallCounts = BTreeMap<(String, usize, String), u32>;

impl SimulatedTool {
    /// This tool, or, if its name has the variable `{app}`, one for each value of it.
    pub(super) fn expand(self, variables: &BTreeMap<String, Vec<String>>) -> Vec<SimulatedTool> {
        let placeholder = |(name, values)| (format!("{{{name}}}"), values);
        match variables.iter().map(placeholder).find(|(placeholder, _)| self.name.contains(placeholder)) {
            Some((placeholder, values)) => {
                values.iter().map(|value: &String| self.clone().with(&placeholder, value)).collect()
            }
            None => vec![self],
        }
    }

    /// With a placeholder filled in names, descriptions and conditions.
    fn with(mut self, placeholder: &str, value: &str) -> SimulatedTool {
        self.name = self.name.replace(placeholder, value);
        self.description = self.description.replace(placeholder, value);
        for spec in self.parameters.values_mut() {
            *spec = spec.replace(placeholder, value);
        }
        let cells = match &mut self.does {
            Operation::Lookup { by, .. } | Operation::Delete { by, .. } | Operation::Image { by, .. } => vec![by],
            Operation::List(list) => vec![&mut list.equal],
            Operation::Insert { values, .. } => vec![values],
            Operation::Update { by, set, .. } => vec![by, set],
        };
        let texts = cells.into_iter().flat_map(Map::values_mut).filter_map(|cell| match cell {
            Value::String(text) => Some(text),
            _ => None,
        });
        texts.for_each(|text| *text = text.replace(placeholder, value));
        self
    }

    /// As a client declares it on the wire Messages. Its providers refuse output schemas; programs know what to do with
    /// them.
    pub(super) fn declaration(&self, mode: Mode) -> Value {
        let schema = self.schema.as_ref().map_or_else(|| Cow::Owned(self.true_schema()), Cow::Borrowed);
        let mut tool = json!({
            "name": self.name,
            "description": self.description,
            "input_schema": schema,
        });
        if let (Some(schema), Mode::Code) = (&self.output_schema, mode) {
            tool["output_schema"] = schema.clone();
        }
        tool
    }

    fn true_schema(&self) -> Value {
        let parameters = self.parameters.iter().map(|(name, spec)| (name, ParameterSpec::read(spec)));
        let mut properties = Map::new();
        let mut required = Vec::new();
        for (name, spec) in parameters {
            properties.insert(name.clone(), spec.schema());
            if !spec.is_optional {
                required.push(name);
            }
        }
        json!({"type": "object", "properties": properties, "required": required, "additionalProperties": false})
    }

    /// Executes a call.
    pub(super) fn call(&self, arguments: &Row, tables: &mut Tables, counts: &mut CallCounts) -> SimulatedAnswer {
        if let Err(error) = self.check(arguments, tables) {
            return SimulatedAnswer::Error(error);
        }
        let mut is_lost = None;
        for (at, fault) in self.faults.iter().enumerate() {
            if !fault.when.iter().all(|(name, wanted)| arguments.get(name).is_some_and(|given| is_same(given, wanted)))
            {
                continue;
            }
            let counted_by = fault.per.as_ref().and_then(|name| arguments.get(name)).map(Value::to_string);
            let count = counts.entry((self.name.clone(), at, counted_by.unwrap_or_default())).or_default();
            *count += 1;
            let is_always = fault.first.is_none() && fault.after.is_none();
            if is_always || fault.first.is_some_and(|first| *count <= first) || fault.after.is_some_and(|n| *count > n)
            {
                if !fault.after_effect {
                    return SimulatedAnswer::Error(fault.message.clone());
                }
                is_lost = Some(fault.message.clone());
            }
        }
        let answer = self.does.execute(arguments, tables);
        is_lost.map_or(answer, SimulatedAnswer::Error)
    }

    fn check(&self, arguments: &Row, tables: &Tables) -> Result<(), String> {
        if let Some(name) = arguments.keys().find(|name| !self.parameters.contains_key(*name)) {
            return Err(format!("`{name}` is not a parameter of {}", self.name));
        }
        for (name, spec) in &self.parameters {
            ParameterSpec::read(spec).check(name, arguments.get(name).filter(|value| !value.is_null()))?;
        }
        for Requirement { table, equal, message } in &self.requires {
            if !rows(tables, table).iter().any(|row| meets(row, equal, arguments)) {
                return Err(filled(message, arguments));
            }
        }
        Ok(())
    }
}

struct ParameterSpec<'a> {
    kind: &'a str,
    is_optional: bool,
    meaning: &'a str,
}

impl ParameterSpec<'_> {
    fn read(spec: &str) -> ParameterSpec<'_> {
        let (kind, meaning) = spec.split_once(':').unwrap_or((spec, ""));
        let (kind, is_optional) = kind.strip_suffix('?').map_or((kind, false), |kind| (kind, true));
        ParameterSpec { kind, is_optional, meaning: meaning.trim() }
    }

    fn schema(&self) -> Value {
        let mut schema = match self.kind {
            "date" => json!({"type": "string", "format": "date"}),
            kind if kind.contains('|') => json!({"type": "string", "enum": kind.split('|').collect::<Vec<_>>()}),
            kind => json!({"type": kind}),
        };
        if !self.meaning.is_empty() {
            schema["description"] = Value::from(self.meaning);
        }
        schema
    }

    fn check(&self, name: &str, given: Option<&Value>) -> Result<(), String> {
        let Some(given) = given else {
            return if self.is_optional { Ok(()) } else { Err(format!("`{name}` is missing: {}", self.meaning)) };
        };
        let is_right = match self.kind {
            "string" => given.is_string(),
            "integer" => given.is_i64() || given.is_u64(),
            "number" => given.is_number(),
            "boolean" => given.is_boolean(),
            "date" => given.as_str().is_some_and(is_date),
            kind => given.as_str().is_some_and(|given| kind.split('|').any(|known| known == given)),
        };
        let like = if self.kind == "date" { "a date like 2026-03-31" } else { self.kind };
        if is_right { Ok(()) } else { Err(format!("`{name}` must be {like}, not {given}")) }
    }
}

fn is_date(text: &str) -> bool {
    let is_digits = |range| text.get(range).is_some_and(|part: &str| part.bytes().all(|byte| byte.is_ascii_digit()));
    let bytes = text.as_bytes();
    text.len() == 10 && is_digits(0..4) && bytes[4] == b'-' && is_digits(5..7) && bytes[7] == b'-' && is_digits(8..10)
}

impl Operation {
    fn execute(&self, arguments: &Row, tables: &mut Tables) -> SimulatedAnswer {
        match self {
            Operation::Lookup { table, by, columns, text } => {
                let found = rows(tables, table).iter().find(|row| meets(row, by, arguments));
                found.map_or_else(
                    || not_found(table, by, arguments),
                    |row| one_row(row, columns.as_ref(), text.as_ref()),
                )
            }
            Operation::List(list) => list.answer(tables, arguments),
            Operation::Insert { table, values, id } => {
                let rows = tables.entry(table.clone()).or_default();
                let mut row = Row::new();
                if let Some((column, prefix)) = id {
                    row.insert(column.clone(), Value::from(format!("{prefix}{}", rows.len() + 1)));
                }
                row.extend(
                    values
                        .iter()
                        .map(|(column, cell)| (column.clone(), resolved(cell, arguments).map(Cow::into_owned).into())),
                );
                let answer = one_row(&row, None, None);
                rows.push(row);
                answer
            }
            Operation::Update { table, by, set, add } => {
                let found = tables.get_mut(table).into_iter().flatten();
                let mut changed = Vec::new();
                for row in found.filter(|row| meets(row, by, arguments)) {
                    for (column, cell) in set {
                        if let Some(value) = resolved(cell, arguments) {
                            row.insert(column.clone(), value.into_owned());
                        }
                    }
                    for (column, cell) in add {
                        let more = resolved(cell, arguments).and_then(|value| value.as_f64()).unwrap_or_default();
                        let before = row.get(column).and_then(Value::as_f64).unwrap_or_default();
                        row.insert(column.clone(), Value::from(before + more));
                    }
                    changed.push(one_row(row, None, None));
                }
                changed.into_iter().next().unwrap_or_else(|| not_found(table, by, arguments))
            }
            Operation::Delete { table, by } => {
                let deleted = tables.get_mut(table).map_or(0, |rows| {
                    let before = rows.len();
                    rows.retain(|row| !meets(row, by, arguments));
                    before - rows.len()
                });
                match deleted {
                    0 => not_found(table, by, arguments),
                    deleted => SimulatedAnswer::Text(json!({"deleted": deleted}).to_string()),
                }
            }
            Operation::Image { table, by, column } => {
                let found = rows(tables, table).iter().find(|row| meets(row, by, arguments));
                let image = found.and_then(|row| row.get(column)).and_then(Value::as_str);
                image.map_or_else(|| not_found(table, by, arguments), |image| SimulatedAnswer::Image(image.to_owned()))
            }
        }
    }
}

impl ListOperation {
    fn answer(&self, tables: &Tables, arguments: &Row) -> SimulatedAnswer {
        let contains = |row: &Row| {
            self.contains.iter().all(|(column, cell)| {
                let Some(wanted) = resolved(cell, arguments) else { return true };
                let lower = |value: Option<&Value>| value.and_then(Value::as_str).unwrap_or_default().to_lowercase();
                lower(row.get(column)).contains(&lower(Some(&wanted)))
            })
        };
        let all = rows(tables, &self.table).iter().filter(|row| meets(row, &self.equal, arguments) && contains(row));
        let all: Vec<&Row> = all.collect();
        let mut answer = Row::new();
        let shown = match &self.page {
            None => &all[..],
            Some(ListPage::Number { argument, size }) => {
                let page = arguments.get(argument).and_then(Value::as_u64).unwrap_or(1).max(1) as usize;
                let start = all.len().min((page - 1).saturating_mul(*size));
                let end = all.len().min(start + size);
                answer.insert("pages".to_owned(), Value::from(all.len().div_ceil(*size)));
                &all[start..end]
            }
            Some(ListPage::Cursor { argument, size }) => {
                let cursor = arguments.get(argument).and_then(Value::as_str);
                let start = match cursor.map(|cursor| cursor.strip_prefix("after-").and_then(|n| n.parse().ok())) {
                    None => 0,
                    Some(None) => return SimulatedAnswer::Error(format!("`{argument}` is not a cursor of this list")),
                    Some(Some(start)) => all.len().min(start),
                };
                let end = all.len().min(start + size);
                let next = (end < all.len()).then(|| format!("after-{end}"));
                answer.insert("next_cursor".to_owned(), Value::from(next));
                &all[start..end]
            }
        };
        if let Some(text) = &self.text {
            let lines = shown.iter().fold(String::new(), |mut lines, row| {
                // Writing to a text cannot fail.
                _ = writeln!(lines, "{}", filled(text, row));
                lines
            });
            return SimulatedAnswer::Text(lines);
        }
        let shown = shown.iter().map(|row| Value::from(selected(row, self.columns.as_ref())));
        answer.insert(self.key.clone().unwrap_or_else(|| self.table.clone()), shown.collect());
        SimulatedAnswer::Text(Value::from(answer).to_string())
    }
}

fn rows<'a>(tables: &'a Tables, table: &str) -> &'a [Row] {
    tables.get(table).map_or(&[], Vec::as_slice)
}

/// The value of a cell. An argument that is not given has none.
fn resolved<'a>(cell: &'a Value, arguments: &'a Row) -> Option<Cow<'a, Value>> {
    let argument = |name: &str| arguments.get(name).filter(|value| !value.is_null());
    let text = cell.as_str().unwrap_or_default();
    match (text.strip_prefix('$'), text.strip_prefix("-$")) {
        (Some(name), _) => argument(name).map(Cow::Borrowed),
        (_, Some(name)) => Some(Cow::Owned(Value::from(-argument(name)?.as_f64()?))),
        _ => Some(Cow::Borrowed(cell)),
    }
}

/// Whether a row has these values. Conditions whose arguments are not given are met.
fn meets(row: &Row, conditions: &Cells, arguments: &Row) -> bool {
    conditions.iter().all(|(column, cell)| {
        resolved(cell, arguments).is_none_or(|wanted| row.get(column).is_some_and(|value| is_same(value, &wanted)))
    })
}

fn one_row(row: &Row, columns: Option<&Vec<String>>, text: Option<&String>) -> SimulatedAnswer {
    SimulatedAnswer::Text(
        text.map_or_else(|| Value::from(selected(row, columns)).to_string(), |template| filled(template, row)),
    )
}

fn selected(row: &Row, columns: Option<&Vec<String>>) -> Row {
    let is_shown = |column: &String| columns.is_none_or(|columns| columns.contains(column));
    row.iter().filter(|(column, _)| is_shown(column)).map(|(column, value)| (column.clone(), value.clone())).collect()
}

fn not_found(table: &str, by: &Cells, arguments: &Row) -> SimulatedAnswer {
    let wanted: Cells = by
        .iter()
        .filter_map(|(column, cell)| Some((column.clone(), resolved(cell, arguments)?.into_owned())))
        .collect();
    SimulatedAnswer::Error(format!("nothing found in {table} for {}", Value::from(wanted)))
}

/// A text with `{column}` replaced by values.
fn filled(template: &str, values: &Row) -> String {
    values.iter().fold(template.to_owned(), |text, (name, value)| {
        let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        text.replace(&format!("{{{name}}}"), &value)
    })
}
