//! The rows of a simulated tool world.

use std::collections::BTreeMap;

use anyhow::{Context, ensure};
use serde::Deserialize;
use serde_json::{Map, Value};

pub(crate) type Row = Map<String, Value>;

/// All tables of a world, by name.
pub(crate) type Tables = BTreeMap<String, Vec<Row>>;

/// A table as its file has it: rows that are written down, then rows that are counted out.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TableData {
    columns: Vec<String>,
    #[serde(default)]
    rows: Vec<Vec<Value>>,
    generate: Option<GeneratedRows>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct GeneratedRows {
    count: u64,
    columns: BTreeMap<String, GeneratedColumn>,
}

/// The values of a column, as functions of the row's number. Nothing is random, so that every run has the same world.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
enum GeneratedColumn {
    /// A text in which `{n}` is the row's number, from 1.
    Text(String),
    /// Every value in turn; `step` rows have the same one.
    Cycle { values: Vec<Value>, step: Option<u64> },
    /// `start + (n × step) % modulo`, divided by `scale`.
    Number { start: u64, step: u64, modulo: u64, scale: Option<f64> },
}

impl TableData {
    pub(super) fn into_rows(self) -> anyhow::Result<Vec<Row>> {
        let mut rows = Vec::new();
        for values in self.rows {
            ensure!(values.len() == self.columns.len(), "a row has {} values: {values:?}", values.len());
            rows.push(self.columns.iter().cloned().zip(values).collect());
        }
        let Some(generated) = self.generate else { return Ok(rows) };
        for n in 1..=generated.count {
            let value = |column: &String| {
                let rule = generated.columns.get(column).with_context(|| format!("nothing generates `{column}`"))?;
                Ok((column.clone(), rule.value(n)?))
            };
            rows.push(self.columns.iter().map(value).collect::<anyhow::Result<Row>>()?);
        }
        Ok(rows)
    }
}

impl GeneratedColumn {
    fn value(&self, n: u64) -> anyhow::Result<Value> {
        Ok(match self {
            GeneratedColumn::Text(text) => Value::from(text.replace("{n}", &n.to_string())),
            GeneratedColumn::Cycle { values, step } => {
                let step = step.unwrap_or(1);
                ensure!(step > 0 && !values.is_empty(), "a cycle needs values and a step");
                values[((n - 1) / step) as usize % values.len()].clone()
            }
            GeneratedColumn::Number { start, step, modulo, scale } => {
                ensure!(*modulo > 0, "a number needs a modulo");
                let whole = start + (n * step) % modulo;
                #[expect(clippy::cast_precision_loss, reason = "the numbers of worlds are small")]
                scale.map_or_else(|| Value::from(whole), |scale| Value::from(whole as f64 / scale))
            }
        })
    }
}

/// Whether two cells hold the same: `40` and `40.0` do.
pub(super) fn is_same(a: &Value, b: &Value) -> bool {
    match (a.as_f64(), b.as_f64()) {
        (Some(a), Some(b)) => (a - b).abs() < 1e-6,
        _ => a == b,
    }
}
