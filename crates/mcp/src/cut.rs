//! Shortening of JSON that is longer than anybody wants to read.

use serde_json::{Map, Value};

/// JSON within a budget, and where something is missing.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Cut {
    pub(crate) value: Value,
    /// In words: the first places, and how many more there are. `None` if nothing is missing.
    pub(crate) missing: Option<String>,
}

/// The least budget that every value can be brought to.
pub(crate) const CHARS_LEAST: usize = 64;

/// Room below which it is better to leave a part out than to shorten it. More than any number or literal takes.
const FLOOR: usize = 32;
/// Fields are kept rather than shown in full; items are shown in full rather than kept.
const FIELD_FLOOR: usize = 200;
const ITEMS_AT_LEAST: usize = 4;
const PLACES_MAX: usize = 5;

/// Keeps the beginning of long strings and arrays, and every field of objects as long as there is room.
pub(crate) fn cut(name: &str, value: Value, chars_max: usize) -> Cut {
    let mut cutter = Cutter { path: name.to_owned(), places: Vec::new(), more: 0 };
    let value = cutter.fit(value, chars_max.max(CHARS_LEAST));
    if cutter.more > 0 {
        cutter.places.push(format!("{} more places", cutter.more));
    }
    let missing = (!cutter.places.is_empty()).then(|| cutter.places.join("; "));
    Cut { value, missing }
}

struct Cutter {
    path: String,
    places: Vec<String>,
    more: usize,
}

impl Cutter {
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
        let floor = (room / ITEMS_AT_LEAST).max(FLOOR);
        let sizes: Vec<usize> = items.iter().map(|item| chars(item) + ",".len()).collect();
        let shares = shares(&sizes, floor, room);
        self.note(shares.len(), items.len(), "items");
        let kept = items.into_iter().zip(shares).enumerate();
        kept.map(|(at, (item, share))| self.within(&format!("[{at}]"), item, share - ",".len())).collect()
    }

    fn object(&mut self, fields: Map<String, Value>, budget: usize) -> Map<String, Value> {
        let room = budget.saturating_sub("{}".len());
        let floor = (room / 16).clamp(FLOOR, FIELD_FLOOR);
        let overhead = |key: &str| quoted(key) + ":,".len();
        let room = room.saturating_sub(fields.keys().map(|key| overhead(key)).sum());
        let sizes: Vec<usize> = fields.values().map(chars).collect();
        let mut shares_of = shares(&sizes, floor, room);
        if shares_of.len() < fields.len() {
            // Not all fields have room, so that their names count as much as their values.
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
        if self.places.len() < PLACES_MAX {
            self.places.push(format!("{} has only the first {kept} of {of} {what}", self.path));
        } else {
            self.more += 1;
        }
    }
}

/// Room for the first parts, as many as can have the floor or all they need. Small ones get all, large ones the same.
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
        assert_eq!(cut("data", value.clone(), 1_000), Cut { value, missing: None });
    }

    #[test]
    fn rows_that_fit_are_kept_whole() {
        let rows: Vec<Value> = (0..1_000).map(|id| json!({ "id": id, "name": "x".repeat(50) })).collect();
        let cut = cut("data", json!({ "total": 1_000, "rows": rows.clone() }), 1_000);
        let kept = cut.value["rows"].as_array().expect("rows are an array");
        assert_eq!(cut.value["total"], 1_000);
        assert_eq!(kept[..], rows[..kept.len()]);
        assert_eq!(kept.len(), 14);
        assert_eq!(cut.missing.as_deref(), Some("data.rows has only the first 14 of 1000 items"));
    }

    #[test]
    fn a_long_text_leaves_room_for_the_short_ones_beside_it() {
        let cut = cut("data", json!({ "body": "b".repeat(10_000), "title": "t".repeat(100), "to be": true }), 500);
        assert_eq!(cut.value["title"], "t".repeat(100));
        assert_eq!(cut.value["to be"], true);
        assert_eq!(cut.missing.as_deref(), Some("data.body has only the first 363 of 10000 characters"));
    }

    #[test]
    fn many_places_are_counted() {
        let cut = cut("data", json!({ "a b": vec!["x".repeat(1_000); 40] }), 8_000);
        let missing = cut.missing.expect("much is missing");
        assert!(missing.starts_with("data[\"a b\"] has only the first "), "{missing}");
        assert!(missing.ends_with(" more places") || missing.matches(';').count() < PLACES_MAX, "{missing}");
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
        fn the_text_is_within_the_budget_and_nothing_is_missing_unsaid(value in any_json(), budget in CHARS_LEAST..3_000) {
            let cut = cut("data", value.clone(), budget);
            let text = cut.value.to_string();
            prop_assert!(text.chars().count() <= budget, "{} > {budget}: {text}", text.chars().count());
            prop_assert_eq!(&serde_json::from_str::<Value>(&text).expect("it is JSON"), &cut.value);
            prop_assert_eq!(cut.missing.is_none(), cut.value == value);
        }
    }
}
