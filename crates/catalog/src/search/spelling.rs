//! Words of the catalogue that are written almost like another, or are part of it.

use super::postings::{Posting, Postings};
use super::stop_words::is_stop_word;
use super::vocabulary::{TermId, Vocabulary};

/// Shorter words are like too many others.
const LETTERS_MIN: usize = 4;
/// From this length on, two mistakes are forgiven.
const TWO_MISTAKES_LETTERS_MIN: usize = 8;
/// A word that is less of the longer one says little about it.
const SHARE_MIN: f32 = 0.4;
/// A suggestion further away would puzzle.
const SUGGESTION_LIKENESS_MIN: f64 = 0.5;

/// The words of a catalogue, for looking them up by their letters.
#[derive(Debug)]
pub(super) struct Spelling {
    /// In the order of the alphabet.
    words: Vec<Spelled>,
    /// Words of names, spelled from the end, for what they end with.
    reversed: Vec<Spelled>,
    /// A word for each term, to show.
    shown: Vec<Box<str>>,
    /// Words that most tools are named by, most common first.
    common: Vec<Box<str>>,
}

#[derive(Debug)]
struct Spelled {
    text: Box<str>,
    letters: u32,
    term: TermId,
}

impl Spelling {
    pub(super) fn new(vocabulary: &Vocabulary, postings: &Postings) -> Spelling {
        let spelled = |(text, term): (&str, TermId)| Spelled { text: text.into(), letters: letters_of(text), term };
        let found = vocabulary.words().filter(|(_, term)| !postings.of(*term).is_empty());
        let mut words: Vec<Spelled> = found.map(spelled).collect();
        words.sort_unstable_by(|one, other| one.text.cmp(&other.text));

        let mut shown: Vec<Box<str>> = vec![Box::default(); vocabulary.term_count()];
        let mut reversed = Vec::new();
        for word in &words {
            let place = &mut shown[word.term.0 as usize];
            if place.is_empty() || word.text.len() < place.len() {
                place.clone_from(&word.text);
            }
            if word.text.len() > LETTERS_MIN && postings.of(word.term).iter().any(Posting::is_in_name) {
                reversed.push(Spelled { text: word.text.chars().rev().collect(), letters: 0, term: word.term });
            }
        }
        reversed.sort_unstable_by(|one, other| one.text.cmp(&other.text));
        let common = common_words(&shown, postings);
        Spelling { words, reversed, shown, common }
    }

    /// A word of the catalogue that counts as the term.
    pub(super) fn shown(&self, term: TermId) -> &str {
        &self.shown[term.0 as usize]
    }

    /// Terms with the fewest mistakes between them and the word, and how many those are.
    pub(super) fn mistaken(&self, word: &str) -> (usize, Vec<TermId>) {
        let length = word.chars().count();
        let mut found = Vec::new();
        let Some(first) = word.chars().next().filter(|_| length >= LETTERS_MIN) else {
            return (0, found);
        };
        let mut fewest = if length >= TWO_MISTAKES_LETTERS_MIN { 2 } else { 1 };
        let letters = letters_of(word);
        // Few people err in the first letter, and fewer words need to be compared.
        for near in starting_with(&self.words, first.encode_utf8(&mut [0; 4])) {
            // A mistake adds, drops or swaps a letter, so it changes at most two of them.
            let differing = (near.letters ^ letters).count_ones() as usize;
            if differing > 2 * fewest || near.text.len().abs_diff(word.len()) > fewest {
                continue;
            }
            let mistakes = strsim::osa_distance(&near.text, word);
            if mistakes < fewest {
                found.clear();
                fewest = mistakes;
            }
            if mistakes == fewest {
                found.push(near.term);
            }
        }
        (fewest, found)
    }

    /// Terms that have the word as their beginning or, in names, as their end; and how much of them it is.
    pub(super) fn containing(&self, word: &str, stem: &str) -> Vec<(TermId, f32)> {
        if stem.len() < LETTERS_MIN {
            return Vec::new();
        }
        let reversed: String = word.chars().rev().collect();
        let longer = starting_with(&self.words, stem).iter().chain(starting_with(&self.reversed, &reversed));
        let shares = longer.filter(|longer| longer.text.len() >= word.len() + 2).map(|longer| {
            // Words have at most a few dozen letters.
            (longer.term, f32::from(word.len() as u16) / f32::from(longer.text.len() as u16))
        });
        shares.filter(|(_, share)| *share > SHARE_MIN).collect()
    }

    /// Words of the catalogue to try instead, nearest first.
    pub(super) fn suggestions(&self, words: &[String], limit: usize) -> Vec<String> {
        let mut near: Vec<(f64, &str)> = Vec::new();
        for word in words {
            let letters = letters_of(word);
            for other in &self.words {
                let shared = (other.letters & letters).count_ones();
                if 2 * shared < letters.count_ones() || other.text.len() < LETTERS_MIN || is_stop_word(&other.text) {
                    continue;
                }
                let likeness = strsim::normalized_damerau_levenshtein(&other.text, word);
                if likeness >= SUGGESTION_LIKENESS_MIN {
                    near.push((likeness, &other.text));
                }
            }
        }
        near.sort_by(|(one, a), (other, b)| other.total_cmp(one).then_with(|| a.cmp(b)));
        let mut suggestions: Vec<String> = Vec::new();
        for word in near.iter().map(|(_, word)| *word).chain(self.common.iter().map(|word| &**word)) {
            if suggestions.len() == limit {
                break;
            }
            if !suggestions.iter().any(|suggestion| suggestion == word) {
                suggestions.push(word.to_owned());
            }
        }
        suggestions
    }
}

fn common_words(shown: &[Box<str>], postings: &Postings) -> Vec<Box<str>> {
    const KEPT: usize = 16;
    let counts = shown.iter().enumerate().map(|(term, word)| {
        let named = postings.of(TermId(term as u32)).iter().filter(|posting| posting.is_in_name());
        (named.count(), word)
    });
    let mut counts: Vec<(usize, &Box<str>)> =
        counts.filter(|(count, word)| *count > 0 && word.len() >= LETTERS_MIN && !is_stop_word(word)).collect();
    counts.sort_unstable_by(|(one, a), (other, b)| other.cmp(one).then_with(|| a.cmp(b)));
    counts.into_iter().take(KEPT).map(|(_, word)| word.clone()).collect()
}

fn starting_with<'a>(words: &'a [Spelled], prefix: &str) -> &'a [Spelled] {
    let start = words.partition_point(|word| &*word.text < prefix);
    let length = words[start..].partition_point(|word| word.text.starts_with(prefix));
    &words[start..start + length]
}

/// Which letters a word has, as bits.
fn letters_of(word: &str) -> u32 {
    word.bytes().fold(0, |letters, byte| letters | 1 << (byte & 31))
}
