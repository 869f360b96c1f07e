//! What a query asks for, in terms of the catalogue.

use std::collections::BTreeMap;

use super::concepts::{Kinship, kin_of, is_topic, is_verb};
use super::index::Postings;
use super::stop_words::{is_request_word, is_generic_word, is_stop_word};
use super::tune;
use super::vocabulary::{TermId, Vocabulary, stem};
use super::words::for_each_word;

#[derive(Debug)]
pub(super) struct QueryTerm {
    pub(super) word: String,
    pub(super) weight: f32,
    pub(super) alternatives: Vec<Alternative>,
}

#[derive(Debug)]
pub(super) struct Alternative {
    pub(super) term: TermId,
    pub(super) likeness: f32,
}

pub(super) fn read(vocabulary: &Vocabulary, postings: &Postings, spelling: &super::spelling::Spelling, text: &str) -> Vec<QueryTerm> {
    let quoted = quoted_spans(text);
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    let mut terms: Vec<QueryTerm> = Vec::new();
    let mut all_words: Vec<String> = Vec::new();
    for_each_word(text, |word, place| {
        if !place.joined { all_words.push(word.to_owned()); }
        if is_stop_word(word) {
            return;
        }
        let mut weight = 1.0;
        if is_request_word(word) {
            weight *= tune!("REQUEST", 0.3);
        }
        if is_generic_word(word) {
            weight *= tune!("GENERIC", 0.5);
        }
        if quoted.iter().any(|(s, e)| (*s..*e).contains(&place.start)) {
            weight *= tune!("QUOTED", 1.0);
        }
        if place.capitalised && place.start > 0 && !text[..place.start].trim_end().ends_with(['.', '?', '!', ':']) {
            weight *= tune!("CAPS", 1.0);
        }
        if place.joined {
            weight *= tune!("JOINED", 1.0);
        }
        let stemmed = stem(word);
        if is_topic(&stemmed) { weight *= tune!("TOPIC", 1.0); }
        if is_verb(&stemmed) { weight *= tune!("ISVERB", 1.0); }
        if let Some(index) = seen.get(&stemmed) {
            let term = &mut terms[*index];
            term.weight = term.weight.max(weight) + tune!("REPEAT", 0.2) * weight;
            return;
        }
        let alternatives = alternatives(vocabulary, spelling, word, &stemmed);
        if !alternatives.is_empty() {
            seen.insert(stemmed, terms.len());
            terms.push(QueryTerm { word: word.to_owned(), weight, alternatives });
        }
    });
    for pair in all_words.windows(2) {
        let joined = format!("{}{}", pair[0], pair[1]);
        if let Some(term) = vocabulary.term(&joined) && joined.len() > 3 {
            terms.push(QueryTerm { word: joined, weight: tune!("PAIRS", 0.0), alternatives: vec![Alternative { term, likeness: 1.0 }] });
        }
    }
    terms
}

fn alternatives(vocabulary: &Vocabulary, spelling: &super::spelling::Spelling, word: &str, stemmed: &str) -> Vec<Alternative> {
    let mut found = Vec::new();
    let own = vocabulary.term(word);
    if let Some(term) = own {
        found.push(Alternative { term, likeness: 1.0 });
    }
    for (kin, kinship) in kin_of(stemmed) {
        if let Some(term) = vocabulary.stem(kin) {
            let likeness = match kinship {
                Kinship::Synonym => tune!("SYN", 0.6),
                Kinship::Related => tune!("REL", 0.35),
                Kinship::Verb => tune!("VERB", 0.2),
                Kinship::Distant => tune!("DISTANT", 0.0),
            };
            if likeness == 0.0 { continue; }
            found.push(Alternative { term, likeness });
        }
    }
    if tune!("COMPOUND", 0.5) > 0.0 {
        for (term, length) in spelling.longer(stemmed).chain(spelling.ending_with(word)) {
            let share = word.len() as f32 / length as f32;
            if Some(term) != own && length >= word.len() + 2 && share > tune!("SHARE", 0.4) {
                found.push(Alternative { term, likeness: tune!("COMPOUND", 0.5) * share });
            }
        }
    }
    if found.is_empty() && tune!("TYPO", 0.7) > 0.0 {
        for (term, edits) in spelling.typos(word) {
            found.push(Alternative { term, likeness: tune!("TYPO", 0.7) / edits as f32 });
        }
    }
    found
}

/// Where the text quotes somebody or something.
fn quoted_spans(text: &str) -> Vec<(usize, usize)> {
    let mut spans = Vec::new();
    let mut open: Option<(usize, char)> = None;
    let mut before = ' ';
    for (at, letter) in text.char_indices() {
        match open {
            None if !before.is_alphanumeric() => {
                open = match letter {
                    '"' => Some((at, '"')),
                    '\'' => Some((at, '\'')),
                    '`' => Some((at, '`')),
                    '\u{201c}' => Some((at, '\u{201d}')),
                    '\u{2018}' => Some((at, '\u{2019}')),
                    _ => None,
                }
            }
            Some((start, close)) if letter == close => {
                spans.push((start, at));
                open = None;
            }
            _ => {}
        }
        before = letter;
    }
    spans
}
