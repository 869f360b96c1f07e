//! Arguments in the one form in which they are compared: keys sorted, numbers normalised, no spaces.

use serde_json::{Number, Value};

/// Integers up to here are the same number whether they are written as integers or not.
const SAFE_INTEGER_MAX: f64 = 9_007_199_254_740_991.0;

/// Arguments as the text in which they are compared: keys sorted, numbers in one spelling, no spaces.
///
/// ```
/// let args = serde_json::json!({"b": 1.0, "a": [1e2]});
/// assert_eq!(dacapo_replay::canonical_args(&args), r#"{"a":[100],"b":1}"#);
/// ```
pub fn canonical(value: &Value) -> String {
    let mut text = String::new();
    write(value, &mut text);
    text
}

fn write(value: &Value, text: &mut String) {
    match value {
        Value::Object(fields) => {
            let mut fields: Vec<_> = fields.iter().collect();
            fields.sort_by_key(|(key, _)| *key);
            text.push('{');
            for (i, (key, value)) in fields.into_iter().enumerate() {
                if i > 0 {
                    text.push(',');
                }
                text.push_str(&Value::from(key.as_str()).to_string());
                text.push(':');
                write(value, text);
            }
            text.push('}');
        }
        Value::Array(items) => {
            text.push('[');
            for (i, item) in items.iter().enumerate() {
                if i > 0 {
                    text.push(',');
                }
                write(item, text);
            }
            text.push(']');
        }
        Value::Number(number) => write_number(number, text),
        Value::Null | Value::Bool(_) | Value::String(_) => text.push_str(&value.to_string()),
    }
}

fn write_number(number: &Number, text: &mut String) {
    match number.as_f64() {
        Some(double) if number.is_f64() && double.fract() == 0.0 && double.abs() <= SAFE_INTEGER_MAX => {
            text.push_str(&(double as i64).to_string());
        }
        _ => text.push_str(&number.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spelling_does_not_matter_and_meaning_does() {
        let same = [r#"{"b":1.0,"a":[1e2,-0.0,0.5]}"#, r#"{ "a": [100, 0, 5e-1], "b": 1 }"#];
        let texts = same.map(|text| canonical(&serde_json::from_str(text).expect("valid JSON")));
        assert_eq!(texts, [r#"{"a":[100,0,0.5],"b":1}"#; 2]);

        let exact: Value = serde_json::from_str("[9007199254740993, 18446744073709551615]").expect("valid JSON");
        assert_eq!(canonical(&exact), "[9007199254740993,18446744073709551615]");
    }
}
