//! JSON from fuzz data: whatever fits, with the keys that the readers look for.

use libfuzzer_sys::arbitrary::{Result, Unstructured};
use serde_json::{Map, Value};

/// Deep enough to be wrong in every place.
const DEPTH_MAX: usize = 5;

pub(crate) fn any(input: &mut Unstructured<'_>, keys: &[&str]) -> Result<Value> {
    nested(input, keys, 0)
}

pub(crate) fn object(input: &mut Unstructured<'_>, keys: &[&str]) -> Result<Map<String, Value>> {
    let mut fields = Map::new();
    while input.ratio(3, 4)? && !input.is_empty() {
        fields.insert(key(input, keys)?, nested(input, keys, 1)?);
    }
    Ok(fields)
}

fn nested(input: &mut Unstructured<'_>, keys: &[&str], depth: usize) -> Result<Value> {
    let kinds = if depth < DEPTH_MAX { 7 } else { 5 };
    Ok(match input.int_in_range(0..=kinds)? {
        0 => Value::Null,
        1 => Value::from(input.arbitrary::<bool>()?),
        2 => Value::from(input.arbitrary::<i64>()?),
        3 => Value::from(input.arbitrary::<f64>()?),
        4 => Value::from(input.arbitrary::<&str>()?),
        5 => Value::from(key(input, keys)?),
        6 => {
            let mut items = Vec::new();
            while input.ratio(2, 3)? && !input.is_empty() {
                items.push(nested(input, keys, depth + 1)?);
            }
            Value::Array(items)
        }
        _ => {
            let mut fields = Map::new();
            while input.ratio(2, 3)? && !input.is_empty() {
                fields.insert(key(input, keys)?, nested(input, keys, depth + 1)?);
            }
            Value::Object(fields)
        }
    })
}

fn key(input: &mut Unstructured<'_>, keys: &[&str]) -> Result<String> {
    if keys.is_empty() || input.ratio(1, 8)? {
        return Ok(input.arbitrary::<&str>()?.to_owned());
    }
    Ok((*input.choose(keys)?).to_owned())
}
