//! Words of the catalogue that are written almost like another.

use super::vocabulary::{TermId, Vocabulary};

/// Shorter words are like too many others.
const TYPO_LETTERS_MIN: usize = 4;
/// From this length on, two mistakes are forgiven.
const TWO_TYPOS_LETTERS_MIN: usize = 8;
const PART_LETTERS_MIN: usize = 4;

/// The words of a catalogue in the order of the alphabet.
#[derive(Debug, Default)]
pub(super) struct Spelling {
    words: Vec<Spelled>,
    /// The words of names, spelled from the end, for what they end with.
    reversed: Vec<Spelled>,
}

#[derive(Debug)]
struct Spelled {
    text: Box<str>,
    letters: u32,
    term: TermId,
}

impl Spelling {
    pub(super) fn new(vocabulary: &Vocabulary, in_name: impl Fn(TermId) -> bool) -> Spelling {
        let mut words: Vec<Spelled> = vocabulary
            .forms()
            .map(|(text, term)| Spelled { text: text.into(), letters: letters_of(text), term })
            .collect();
        words.sort_unstable_by(|one, other| one.text.cmp(&other.text));
        let mut reversed: Vec<Spelled> = words
            .iter()
            .filter(|word| word.text.len() > PART_LETTERS_MIN && in_name(word.term))
            .map(|word| Spelled { text: word.text.chars().rev().collect(), letters: 0, term: word.term })
            .collect();
        reversed.sort_unstable_by(|one, other| one.text.cmp(&other.text));
        Spelling { words, reversed }
    }

    /// Words one or two mistakes away, with the number of mistakes.
    pub(super) fn typos(&self, word: &str) -> Vec<(TermId, usize)> {
        let length = word.chars().count();
        let Some(first) = word.chars().next().filter(|_| length >= TYPO_LETTERS_MIN) else {
            return Vec::new();
        };
        let edits_max = if length >= TWO_TYPOS_LETTERS_MIN { 2 } else { 1 };
        let letters = letters_of(word);
        let mut found: Vec<(TermId, usize)> = Vec::new();
        for near in self.starting_with(first.encode_utf8(&mut [0; 4])) {
            // One edit adds, drops or swaps one letter each.
            if (near.letters ^ letters).count_ones() as usize > 2 * edits_max
                || near.text.len().abs_diff(word.len()) > edits_max
            {
                continue;
            }
            let edits = strsim::osa_distance(&near.text, word);
            if edits <= edits_max {
                found.push((near.term, edits));
            }
        }
        let least = found.iter().map(|(_, edits)| *edits).min();
        found.retain(|(_, edits)| Some(*edits) == least);
        found
    }

    /// Words that go on where this one ends: `config`, `configuration`.
    pub(super) fn longer(&self, word: &str) -> impl Iterator<Item = (TermId, usize)> {
        let long = word.len() >= PART_LETTERS_MIN;
        self.starting_with(word).iter().filter(move |_| long).map(|near| (near.term, near.text.len()))
    }

    /// Words of names that end with this one: `chord`, `uberchord`.
    pub(super) fn ending_with(&self, word: &str) -> impl Iterator<Item = (TermId, usize)> {
        let long = word.len() >= PART_LETTERS_MIN;
        let reversed: String = word.chars().rev().collect();
        range(&self.reversed, &reversed).iter().filter(move |_| long).map(|near| (near.term, near.text.len()))
    }

    fn starting_with(&self, prefix: &str) -> &[Spelled] {
        range(&self.words, prefix)
    }
}

fn range<'a>(words: &'a [Spelled], prefix: &str) -> &'a [Spelled] {
    let start = words.partition_point(|word| &*word.text < prefix);
    let length = words[start..].partition_point(|word| word.text.starts_with(prefix));
    &words[start..start + length]
}

/// Which letters a word has, as bits.
fn letters_of(word: &str) -> u32 {
    word.bytes().fold(0, |letters, byte| letters | 1 << (byte & 31))
}
