//! The words of a catalogue, each with the term it counts as.

use std::collections::BTreeMap;

use rust_stemmers::{Algorithm, Stemmer};

use super::stop_words::is_stop_word;

/// A set of words that differ only in their endings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct TermId(pub(super) u32);

#[derive(Debug, Default)]
pub(super) struct Vocabulary {
    words: Interner,
    /// What each word counts as.
    known: Vec<Known>,
    stems: Interner,
}

/// What a word counts as.
#[derive(Debug, Clone, Copy)]
pub(super) struct Known {
    pub(super) term: TermId,
    pub(super) is_stop_word: bool,
}

/// A vocabulary in the making.
#[derive(Debug)]
pub(super) struct Learner {
    vocabulary: Vocabulary,
    /// Short words met lately, by a part of their bytes: most of a text is made of few words.
    lately: Vec<(u128, Known)>,
}

impl Learner {
    pub(super) fn new() -> Learner {
        const NOTHING: (u128, Known) = (0, Known { term: TermId(0), is_stop_word: false });
        Learner { vocabulary: Vocabulary::default(), lately: vec![NOTHING; LATELY_MAX] }
    }

    /// What a word counts as. It becomes part of the vocabulary.
    pub(super) fn learn(&mut self, word: &str) -> Known {
        let Some(key) = packed(word) else {
            return self.vocabulary.learn(word);
        };
        let lately = &mut self.lately[place(key)];
        if lately.0 != key {
            *lately = (key, self.vocabulary.learn(word));
        }
        lately.1
    }

    pub(super) fn finish(self) -> Vocabulary {
        self.vocabulary
    }
}

const LATELY_MAX: usize = 1 << 12;

fn place(key: u128) -> usize {
    const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;
    let folded = (key as u64) ^ ((key >> 64) as u64);
    (folded.wrapping_mul(GOLDEN) >> (64 - LATELY_MAX.ilog2())) as usize
}

impl Vocabulary {
    fn learn(&mut self, word: &str) -> Known {
        let number = self.words.intern(word);
        if let Some(known) = self.known.get(number as usize) {
            return *known;
        }
        let known = Known { term: TermId(self.stems.intern(&stem(word))), is_stop_word: is_stop_word(word) };
        self.known.push(known);
        known
    }

    /// The term of a word, if the catalogue has it in any form.
    pub(super) fn term(&self, word: &str) -> Option<TermId> {
        match self.words.find(word) {
            Some(number) => Some(self.known[number as usize].term),
            None => self.term_of_stem(&stem(word)),
        }
    }

    pub(super) fn term_of_stem(&self, stem: &str) -> Option<TermId> {
        self.stems.find(stem).map(TermId)
    }

    pub(super) fn term_count(&self) -> usize {
        self.stems.texts.len()
    }

    /// Every word as it was written, with its term.
    pub(super) fn words(&self) -> impl Iterator<Item = (&str, TermId)> {
        self.words.texts.iter().map(|text| &**text).zip(self.known.iter().map(|known| known.term))
    }
}

/// A word without its ending. Only words of plain letters have endings we know.
pub(super) fn stem(word: &str) -> String {
    if word.len() < 3 || !word.bytes().all(|byte| byte.is_ascii_lowercase()) {
        return word.to_owned();
    }
    Stemmer::create(Algorithm::English).stem(word).into_owned()
}

/// Numbers for texts, in the order of their first appearance.
#[derive(Debug, Default)]
struct Interner {
    texts: Vec<Box<str>>,
    /// Texts of up to sixteen bytes by their bytes: numbers are compared faster than texts.
    short: BTreeMap<u128, u32>,
    long: BTreeMap<Box<str>, u32>,
}

impl Interner {
    fn intern(&mut self, text: &str) -> u32 {
        if let Some(number) = self.find(text) {
            return number;
        }
        let number = self.texts.len() as u32;
        self.texts.push(text.into());
        match packed(text) {
            Some(key) => self.short.insert(key, number),
            None => self.long.insert(text.into(), number),
        };
        number
    }

    fn find(&self, text: &str) -> Option<u32> {
        match packed(text) {
            Some(key) => self.short.get(&key).copied(),
            None => self.long.get(text).copied(),
        }
    }
}

/// The bytes of a short text as one number. Words are not empty and hold no zero bytes, so no two of
/// them share a number, and none has the number zero.
fn packed(text: &str) -> Option<u128> {
    let mut bytes = [0; 16];
    bytes.get_mut(..text.len())?.copy_from_slice(text.as_bytes());
    Some(u128::from_be_bytes(bytes))
}
