//! Similar names, for "did you mean" in messages.

use std::ops::Range;

use crate::Function;

/// Below this, a suggestion is noise.
const LIKENESS_MIN: f64 = 0.6;
/// Longer names are compared by their beginnings.
const COMPARED_LETTERS_MAX: usize = 64;

/// The functions whose names are most like `name`, best first, as a program would write them.
pub(crate) fn closest(functions: &[Function], name: &str, limit: usize) -> Vec<String> {
    let wanted = Form::new(name);
    let mut found: Vec<(f64, String)> = Vec::new();
    for function in functions {
        // Identifier and aliases differ from the exact name in style only.
        let mut likeness = wanted.likeness(&Form::new(&function.exact_name));
        if let Some(namespace) = &function.namespace {
            let qualified = format!("{namespace}.{}", function.exact_name);
            likeness = likeness.max(wanted.likeness(&Form::new(&qualified)));
        }
        if likeness >= LIKENESS_MIN {
            found.push((likeness, function.expression()));
        }
    }
    found.sort_by(|(one, a), (other, b)| other.total_cmp(one).then_with(|| a.cmp(b)));
    found.into_iter().take(limit).map(|(_, expression)| expression).collect()
}

/// The one that was probably meant: the most similar, or the only one that begins like it.
pub(crate) fn closest_text<'a>(texts: &[&'a str], wanted: &str) -> Option<&'a str> {
    let form = Form::new(wanted);
    let likeness = texts.iter().map(|text| (form.likeness(&Form::new(text)), *text));
    let near = likeness.filter(|(likeness, _)| *likeness >= LIKENESS_MIN);
    // The first of equals, which `max_by` would not give.
    let best = near.reduce(|best, next| if next.0 > best.0 { next } else { best });
    best.map(|(_, text)| text).or_else(|| {
        let mut longer = texts.iter().filter(|text| text.starts_with(wanted));
        longer.next().filter(|_| longer.next().is_none()).copied()
    })
}

/// A name without the choices of style: its letters in one case, and its words.
struct Form {
    letters: String,
    length: usize,
    /// Where the words begin and end among the letters.
    words: Vec<Range<usize>>,
}

impl Form {
    fn new(name: &str) -> Form {
        let mut form = Form { letters: String::new(), length: 0, words: Vec::new() };
        let mut starts_word = true;
        let mut after_lower = false;
        for letter in name.chars().take(COMPARED_LETTERS_MAX) {
            starts_word |= letter.is_uppercase() && after_lower;
            after_lower = !letter.is_uppercase();
            if !letter.is_alphanumeric() {
                starts_word = true;
                continue;
            }
            let start = form.letters.len();
            form.letters.extend(letter.to_lowercase());
            form.length += 1;
            let end = form.letters.len();
            match form.words.last_mut() {
                Some(word) if !starts_word => word.end = end,
                _ => form.words.push(start..end),
            }
            starts_word = false;
        }
        form
    }

    fn has_word(&self, wanted: &str) -> bool {
        self.words.iter().any(|word| self.letters[word.clone()] == *wanted)
    }

    /// From 0 to 1: the share of letters in place, or the share of words in common.
    fn likeness(&self, other: &Form) -> f64 {
        let words = self.words.iter().map(|word| &self.letters[word.clone()]);
        let shared = words.filter(|word| other.has_word(word)).count();
        let by_words = ratio(2 * shared, self.words.len() + other.words.len());
        // Words in another order are a little further away than the very same name.
        self.spelling_likeness(other).max(0.95 * by_words.min(1.0))
    }

    fn spelling_likeness(&self, other: &Form) -> f64 {
        let shorter = self.length.min(other.length);
        let longer = self.length.max(other.length);
        // The difference in length alone is too far, so the letters need no comparison.
        if ratio(shorter, longer) < LIKENESS_MIN {
            return 0.0;
        }
        let edits = strsim::osa_distance(&self.letters, &other.letters);
        ratio(longer - edits.min(longer), longer)
    }
}

#[expect(clippy::cast_precision_loss, reason = "the counts are below a hundred")]
fn ratio(part: usize, whole: usize) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}
