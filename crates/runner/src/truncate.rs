//! Text and JSON cut to a budget. What is cut is marked, and never cut silently.

use std::borrow::Cow;

use serde_json::{Map, Value};

/// Both ends of a text, because either may be what matters, and how many characters are missing between them.
pub(crate) fn truncate_middle(text: &str, chars_max: usize) -> Cow<'_, str> {
    let count = text.chars().count();
    if count <= chars_max {
        return Cow::Borrowed(text);
    }
    let tail = chars_max / 3;
    let start: String = text.chars().take(chars_max - tail).collect();
    let end: String = text.chars().skip(count - tail).collect();
    Cow::Owned(format!("{start}… ({} more characters) …{end}", count - chars_max))
}

/// JSON within a budget of characters.
#[derive(Debug, Clone, PartialEq)]
pub struct TruncatedJson {
    /// What is left.
    pub value: Value,
    /// Where something was cut, for people and models: the first places, and how many more there are. `None` if nothing
    /// was cut.
    pub omitted: Option<String>,
}

/// The least budget that every JSON value can be cut to.
pub const JSON_CHARS_MIN: usize = 64;

/// A part that would get less room than this is left out instead of being cut. More than any number or literal takes.
const PART_CHARS_MIN: usize = 32;
/// Fields of an object are rather cut than left out, so this is the most that a field can claim before others go.
const FIELD_CHARS_CLAIM_MAX: usize = 200;
/// Items of an array are rather left out than cut, but at least so many stay.
const ITEMS_MIN: usize = 4;
const OMISSIONS_MAX: usize = 5;

/// Keeps the beginning of long strings and arrays, and every field of objects as long as there is room.
///
/// `name` is what the omissions call the value.
///
/// ```
/// # use dacapo_runner::truncate_json;
/// # use serde_json::json;
/// let truncated = truncate_json("data", json!({ "id": 7, "body": "x".repeat(1_000) }), 100);
/// assert_eq!(truncated.value["id"], 7);
/// assert_eq!(truncated.omitted.as_deref(), Some("data.body has only the first 80 of 1000 characters"));
/// ```
pub fn truncate_json(name: &str, value: Value, chars_max: usize) -> TruncatedJson {
    let mut truncator = JsonTruncator { path: name.to_owned(), omissions: Vec::new(), more: 0 };
    let value = truncator.fit(value, chars_max.max(JSON_CHARS_MIN));
    if truncator.more > 0 {
        truncator.omissions.push(format!("{} more places", truncator.more));
    }
    let omitted = (!truncator.omissions.is_empty()).then(|| truncator.omissions.join("; "));
    TruncatedJson { value, omitted }
}

struct JsonTruncator {
    path: String,
    omissions: Vec<String>,
    more: usize,
}

impl JsonTruncator {
    /// The budget is never less than what an empty value of the kind takes.
    fn fit(&mut self, value: Value, budget: usize) -> Value {
        if chars(&value) <= budget {
            return value;
        }
        match value {
            Value::String(text) => Value::String(self.string(&text, budget)),
            Value::Array(items) => Value::Array(self.array(items, budget)),
            Value::Object(fields) => Value::Object(self.object(fields, budget)),
            short => short,
        }
    }

    fn string(&mut self, text: &str, budget: usize) -> String {
        let mut left = budget.saturating_sub("\"…\"".chars().count());
        let fits = |letter: &char| {
            let fits = escaped(*letter) <= left;
            left = left.saturating_sub(escaped(*letter));
            fits
        };
        let mut kept: String = text.chars().take_while(fits).collect();
        self.note(kept.chars().count(), text.chars().count(), "characters");
        kept.push('…');
        kept
    }

    fn array(&mut self, items: Vec<Value>, budget: usize) -> Vec<Value> {
        let room = budget.saturating_sub("[]".len());
        let floor = (room / ITEMS_MIN).max(PART_CHARS_MIN);
        let sizes: Vec<usize> = items.iter().map(|item| chars(item) + ",".len()).collect();
        let shares = shares(&sizes, floor, room);
        self.note(shares.len(), items.len(), "items");
        let kept = items.into_iter().zip(shares).enumerate();
        kept.map(|(at, (item, share))| self.within(&format!("[{at}]"), item, share - ",".len())).collect()
    }

    fn object(&mut self, fields: Map<String, Value>, budget: usize) -> Map<String, Value> {
        let room = budget.saturating_sub("{}".len());
        let floor = (room / 16).clamp(PART_CHARS_MIN, FIELD_CHARS_CLAIM_MAX);
        let overhead = |key: &str| quoted(key) + ":,".len();
        let room = room.saturating_sub(fields.keys().map(|key| overhead(key)).sum());
        let sizes: Vec<usize> = fields.values().map(chars).collect();
        let mut shares_of = shares(&sizes, floor, room);
        if shares_of.len() < fields.len() {
            // Not all fields have room, so their names have to be paid for like their values.
            let whole: Vec<usize> = fields.iter().map(|(key, value)| overhead(key) + chars(value)).collect();
            let names_max = fields.keys().map(|key| overhead(key)).max().unwrap_or_default();
            let room = budget.saturating_sub("{}".len());
            shares_of = shares(&whole, floor + names_max, room)
                .into_iter()
                .zip(fields.keys())
                .map(|(share, key)| share.saturating_sub(overhead(key)))
                .collect();
        }
        self.note(shares_of.len(), fields.len(), "fields");
        let kept = fields.into_iter().zip(shares_of);
        kept.map(|((key, value), share)| {
            let value = self.within(&member(&key), value, share);
            (key, value)
        })
        .collect()
    }

    fn within(&mut self, step: &str, value: Value, budget: usize) -> Value {
        let length = self.path.len();
        self.path.push_str(step);
        let value = self.fit(value, budget);
        self.path.truncate(length);
        value
    }

    fn note(&mut self, kept: usize, of: usize, what: &str) {
        if kept == of {
            return;
        }
        if self.omissions.len() < OMISSIONS_MAX {
            self.omissions.push(format!("{} has only the first {kept} of {of} {what}", self.path));
        } else {
            self.more += 1;
        }
    }
}

/// Divides the room among the first parts: as many as can have `floor` or, if that is less, all they need. Small parts
/// get all they need, large ones get equal shares of the rest.
pub(crate) fn shares(sizes: &[usize], floor: usize, room: usize) -> Vec<usize> {
    let mut needed = 0;
    let fits = |size: &&usize| {
        needed += floor.min(**size);
        needed <= room
    };
    let kept = sizes.iter().take_while(fits).count();
    let mut order: Vec<usize> = (0..kept).collect();
    order.sort_by_key(|at| sizes[*at]);
    let mut shares = vec![0; kept];
    let mut left = room;
    for (rank, at) in order.into_iter().enumerate() {
        shares[at] = sizes[at].min(left / (kept - rank));
        left -= shares[at];
    }
    shares
}

/// Characters of the JSON text without spaces.
fn chars(value: &Value) -> usize {
    match value {
        Value::String(text) => quoted(text),
        Value::Array(items) => "[]".len() + items.iter().map(chars).sum::<usize>() + items.len().saturating_sub(1),
        Value::Object(fields) => {
            let field = |(key, value): (&String, &Value)| quoted(key) + ":".len() + chars(value);
            "{}".len() + fields.iter().map(field).sum::<usize>() + fields.len().saturating_sub(1)
        }
        literal => literal.to_string().len(),
    }
}

fn quoted(text: &str) -> usize {
    "\"\"".len() + text.chars().map(escaped).sum::<usize>()
}

fn escaped(letter: char) -> usize {
    match letter {
        '"' | '\\' | '\n' | '\r' | '\t' | '\u{8}' | '\u{c}' => 2,
        '\u{0}'..='\u{1f}' => 6,
        _ => 1,
    }
}

/// How a program reaches a field: `.name`, or `["a name"]`.
fn member(key: &str) -> String {
    const KEY_CHARS_MAX: usize = 40;
    let plain = |letter: char| letter.is_alphanumeric() || letter == '_';
    if key.chars().all(plain) && !key.is_empty() && key.chars().count() <= KEY_CHARS_MAX {
        return format!(".{key}");
    }
    let start: String = key.chars().take(KEY_CHARS_MAX).collect();
    format!("[{}]", Value::from(start))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn what_fits_stays_as_it_is() {
        let value = json!({ "a": [1, 2.5, "three", null, true] });
        assert_eq!(truncate_json("data", value.clone(), 1_000), TruncatedJson { value, omitted: None });
    }

    #[test]
    fn rows_that_fit_are_kept_whole() {
        let rows: Vec<Value> = (0..1_000).map(|id| json!({ "id": id, "name": "x".repeat(50) })).collect();
        let truncated = truncate_json("data", json!({ "total": 1_000, "rows": rows.clone() }), 1_000);
        let kept = truncated.value["rows"].as_array().expect("rows are an array");
        assert_eq!(truncated.value["total"], 1_000);
        assert_eq!(kept[..], rows[..kept.len()]);
        assert_eq!(kept.len(), 14);
        assert_eq!(truncated.omitted.as_deref(), Some("data.rows has only the first 14 of 1000 items"));
    }

    #[test]
    fn a_long_text_leaves_room_for_the_short_ones_beside_it() {
        let truncated =
            truncate_json("data", json!({ "body": "b".repeat(10_000), "title": "t".repeat(100), "to be": true }), 500);
        assert_eq!(truncated.value["title"], "t".repeat(100));
        assert_eq!(truncated.value["to be"], true);
        assert_eq!(truncated.omitted.as_deref(), Some("data.body has only the first 363 of 10000 characters"));
    }

    #[test]
    fn many_places_are_counted() {
        let truncated = truncate_json("data", json!({ "a b": vec!["x".repeat(1_000); 40] }), 8_000);
        let omitted = truncated.omitted.expect("much is missing");
        assert!(omitted.starts_with("data[\"a b\"] has only the first "), "{omitted}");
        assert!(omitted.ends_with(" more places") || omitted.matches(';').count() < OMISSIONS_MAX, "{omitted}");
    }

    fn any_json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            "\\PC{0,300}".prop_map(Value::from),
            "[\\x00-\\x1f\"\\\\]{0,40}".prop_map(Value::from),
        ];
        leaf.prop_recursive(5, 200, 12, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..30).prop_map(Value::from),
                prop::collection::vec(("\\PC{0,60}", inner), 0..12)
                    .prop_map(|fields| Value::Object(fields.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn the_count_of_characters_is_right(value in any_json()) {
            prop_assert_eq!(chars(&value), value.to_string().chars().count());
        }

        #[test]
        fn the_text_is_within_the_budget_and_nothing_is_missing_unsaid(value in any_json(), budget in JSON_CHARS_MIN..3_000) {
            let truncated = truncate_json("data", value.clone(), budget);
            let text = truncated.value.to_string();
            prop_assert!(text.chars().count() <= budget, "{} > {budget}: {text}", text.chars().count());
            prop_assert_eq!(&serde_json::from_str::<Value>(&text).expect("it is JSON"), &truncated.value);
            prop_assert_eq!(truncated.omitted.is_none(), truncated.value == value);
        }
    }
}
