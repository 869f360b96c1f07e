//! Whether a task was done: by what its world is in the end, and by the answers. Programs are not looked at.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::table::{Row, Tables, is_same};

/// What an answer must say.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct AnswerCheck {
    /// Words that are there, whatever their case. A list inside the list names alternatives.
    contains: Vec<OneOrMore>,
    /// Words that are not.
    omits: Vec<String>,
    /// Numbers that are there, to the hundredth.
    numbers: Vec<f64>,
    /// Words that are there in this order.
    in_order: Vec<String>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
enum OneOrMore {
    One(String),
    AnyOf(Vec<String>),
}

/// A change that a task makes to its world. Whatever no task names stays as it was.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum ExpectedChange {
    /// A row is added with these values. A text that begins with `~` is to be found in the value.
    Insert {
        table: String,
        row: Row,
    },
    Update {
        table: String,
        r#where: Row,
        set: Row,
    },
    Delete {
        table: String,
        r#where: Row,
    },
}

impl AnswerCheck {
    /// What is wrong with an answer.
    pub(crate) fn mistakes(&self, answer: &str) -> Vec<String> {
        let text = Words::of(answer);
        let mut mistakes = Vec::new();
        for wanted in &self.contains {
            let (is_there, name) = match wanted {
                OneOrMore::One(word) => (text.find(word, 0).is_some(), format!("`{word}`")),
                OneOrMore::AnyOf(words) => {
                    (words.iter().any(|word| text.find(word, 0).is_some()), format!("any of {words:?}"))
                }
            };
            if !is_there {
                mistakes.push(format!("the answer does not say {name}"));
            }
        }
        for word in self.omits.iter().filter(|word| text.find(word, 0).is_some()) {
            mistakes.push(format!("the answer says `{word}`"));
        }
        let numbers = numbers(answer);
        for wanted in self.numbers.iter().filter(|wanted| !numbers.iter().any(|found| (found - *wanted).abs() < 0.006))
        {
            mistakes.push(format!("the answer does not have the number {wanted}"));
        }
        let mut at = 0;
        for word in &self.in_order {
            match text.find(word, at) {
                Some(end) => at = end,
                None => mistakes.push(format!("the answer does not say `{word}` in its place")),
            }
        }
        mistakes
    }
}

/// A text without marks of Markdown, in lower case.
struct Words(String);

impl Words {
    fn of(text: &str) -> Words {
        Words(text.to_lowercase().chars().filter(|character| !matches!(character, '*' | '`')).collect())
    }

    /// Where a word ends that stands by itself: `o1` is not found in `o12`.
    fn find(&self, word: &str, from: usize) -> Option<usize> {
        let word = word.to_lowercase();
        let mut from = from;
        loop {
            let start = from + self.0.get(from..)?.find(&word)?;
            let end = start + word.len();
            let is_border = |character: Option<char>| character.is_none_or(|character| !character.is_alphanumeric());
            if is_border(self.0[..start].chars().next_back()) && is_border(self.0[end..].chars().next()) {
                return Some(end);
            }
            from = end;
        }
    }
}

/// All numbers of a text: `1,234.50` is one.
fn numbers(text: &str) -> Vec<f64> {
    let characters: Vec<char> = text.chars().collect();
    let is_digit = |at: usize| characters.get(at).is_some_and(char::is_ascii_digit);
    let mut numbers = Vec::new();
    let mut at = 0;
    while at < characters.len() {
        if !is_digit(at) {
            at += 1;
            continue;
        }
        let is_negative =
            at > 0 && matches!(characters[at - 1], '-' | '−') && !(at > 1 && characters[at - 2].is_alphanumeric());
        let mut digits = String::new();
        while is_digit(at) || matches!(characters.get(at), Some('.' | ',')) && is_digit(at + 1) {
            if characters[at] != ',' {
                digits.push(characters[at]);
            }
            at += 1;
        }
        numbers.extend(digits.parse::<f64>().ok().map(|number| if is_negative { -number } else { number }));
    }
    numbers
}

/// What is wrong with a world, in the end. Rows that are added may come in any order.
pub(crate) fn world_mistakes(before: &Tables, changes: &[ExpectedChange], after: &Tables) -> Vec<String> {
    // Only those that change.
    let mut expected: BTreeMap<&str, Vec<Row>> = BTreeMap::new();
    let rows_of = |table: &str| before.get(table).map_or(&[][..], Vec::as_slice);
    let mut added: Vec<(&str, &Row)> = Vec::new();
    let has = |row: &Row, wanted: &Row| {
        wanted.iter().all(|(column, value)| row.get(column).is_some_and(|found| is_same(found, value)))
    };
    for change in changes {
        match change {
            ExpectedChange::Insert { table, row } => added.push((table, row)),
            ExpectedChange::Update { table, r#where, set } => {
                let rows = expected.entry(table).or_insert_with(|| rows_of(table).to_vec()).iter_mut();
                for row in rows.filter(|row| has(row, r#where)) {
                    row.extend(set.iter().map(|(column, value)| (column.clone(), value.clone())));
                }
            }
            ExpectedChange::Delete { table, r#where } => {
                expected.entry(table).or_insert_with(|| rows_of(table).to_vec()).retain(|row| !has(row, r#where));
            }
        }
    }
    let mut mistakes = Vec::new();
    for (table, found) in after {
        let kept = expected.get(table.as_str()).map_or_else(|| rows_of(table), Vec::as_slice);
        for (wanted, row) in kept.iter().zip(found) {
            if !wanted.iter().all(|(column, value)| row.get(column).is_some_and(|found| is_same(found, value))) {
                mistakes.push(format!("{table} has {} and not {}", text(row), text(wanted)));
            }
        }
        mistakes.extend(kept.iter().skip(found.len()).map(|wanted| format!("{table} has lost {}", text(wanted))));
        let mut new: Vec<&Row> = found.iter().skip(kept.len()).collect();
        for (_, wanted) in added.iter().filter(|(of, _)| of == table) {
            match new.iter().position(|row| is_as_added(row, wanted)) {
                Some(at) => drop(new.swap_remove(at)),
                None => mistakes.push(format!("{table} lacks {}", text(wanted))),
            }
        }
        mistakes.extend(new.into_iter().map(|row| format!("{table} has {} too much", text(row))));
    }
    for (table, row) in added.into_iter().filter(|(table, _)| !after.contains_key(*table)) {
        mistakes.push(format!("{table} lacks {}", text(row)));
    }
    mistakes
}

fn is_as_added(row: &Row, wanted: &Row) -> bool {
    wanted.iter().all(|(column, wanted)| {
        let Some(found) = row.get(column) else { return false };
        match wanted.as_str().and_then(|text| text.strip_prefix('~')) {
            Some(part) => found.as_str().is_some_and(|found| found.to_lowercase().contains(&part.to_lowercase())),
            None => is_same(found, wanted),
        }
    })
}

fn text(row: &Row) -> String {
    serde_json::to_string(row).expect("a row has text keys and finite numbers")
}

#[cfg(test)]
mod tests {
    use super::{AnswerCheck, numbers};

    fn mistakes(check: &str, answer: &str) -> Vec<String> {
        toml::from_str::<AnswerCheck>(check).expect("a check").mistakes(answer)
    }

    #[test]
    fn numbers_are_found_in_prose() {
        let text = "On 2026-04-14 it was €1,234.50, not -7 but 8.";
        assert_eq!(numbers(text), [2026.0, 4.0, 14.0, 1234.5, -7.0, 8.0]);
    }

    #[test]
    fn words_stand_by_themselves_whatever_their_case_and_marks() {
        assert_eq!(mistakes("contains = ['o1', ['ready', 'done']]", "**O1** is done."), Vec::<String>::new());
        assert_eq!(mistakes("contains = ['o1']", "o12"), ["the answer does not say `o1`"]);
        assert_eq!(mistakes("omits = ['hose']", "a hose"), ["the answer says `hose`"]);
        assert_eq!(mistakes("in_order = ['a', 'b']", "b, then a"), ["the answer does not say `b` in its place"]);
        assert_eq!(mistakes("numbers = [9143.47]", "9,143.5"), ["the answer does not have the number 9143.47"]);
    }
}
