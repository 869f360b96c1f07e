//! The words of a catalogue, each with the term it counts as.

use std::collections::BTreeMap;

use rust_stemmers::{Algorithm, Stemmer};

/// A set of words that differ only in their endings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct TermId(pub(super) u32);

#[derive(Debug, Default)]
pub(super) struct Vocabulary {
    forms: Interner,
    /// The term of each form.
    terms_of_forms: Vec<TermId>,
    stems: Interner,
}

impl Vocabulary {
    /// The term of a word, which becomes part of the vocabulary.
    pub(super) fn learn(&mut self, word: &str) -> TermId {
        let form = self.forms.intern(word);
        if let Some(term) = self.terms_of_forms.get(form as usize) {
            return *term;
        }
        let term = TermId(self.stems.intern(&stem(word)));
        self.terms_of_forms.push(term);
        term
    }

    /// The term of a word as far as the catalogue knows it.
    pub(super) fn term(&self, word: &str) -> Option<TermId> {
        match self.forms.find(word) {
            Some(form) => Some(self.terms_of_forms[form as usize]),
            None => self.stem(&stem(word)),
        }
    }

    pub(super) fn stem(&self, stem: &str) -> Option<TermId> {
        self.stems.find(stem).map(TermId)
    }

    pub(super) fn term_count(&self) -> usize {
        self.stems.texts.len()
    }

    /// Every word as it was written, with its term.
    pub(super) fn forms(&self) -> impl Iterator<Item = (&str, TermId)> {
        self.forms.texts.iter().map(|text| &**text).zip(self.terms_of_forms.iter().copied())
    }
}

/// A word without its ending. Only English loses endings; words of other scripts are kept.
pub(super) fn stem(word: &str) -> String {
    if word.len() < 3 || !word.bytes().all(|byte| byte.is_ascii_lowercase()) {
        return word.to_owned();
    }
    Stemmer::create(Algorithm::English).stem(word).into_owned()
}

/// Numbers for texts, in order of first appearance.
#[derive(Debug, Default)]
struct Interner {
    texts: Vec<Box<str>>,
    /// Texts of up to sixteen bytes by their bytes: a number is compared at once, a text is not.
    short: BTreeMap<u128, u32>,
    long: BTreeMap<Box<str>, u32>,
}

impl Interner {
    fn intern(&mut self, text: &str) -> u32 {
        let next = self.texts.len() as u32;
        let number = match packed(text) {
            Some(key) => *self.short.entry(key).or_insert(next),
            None => match self.long.get(text) {
                Some(number) => *number,
                None => *self.long.entry(text.into()).or_insert(next),
            },
        };
        if number == next {
            self.texts.push(text.into());
        }
        number
    }

    fn find(&self, text: &str) -> Option<u32> {
        match packed(text) {
            Some(key) => self.short.get(&key).copied(),
            None => self.long.get(text).copied(),
        }
    }
}

/// The bytes of a short text as one number. Words hold no zero bytes, so no two texts share a number.
fn packed(text: &str) -> Option<u128> {
    let mut bytes = [0; 16];
    bytes.get_mut(..text.len())?.copy_from_slice(text.as_bytes());
    Some(u128::from_be_bytes(bytes))
}
