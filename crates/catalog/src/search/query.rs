//! What a query asks for, in terms of the catalogue.

use std::collections::BTreeMap;
use std::ops::Range;

use super::concepts::{Kinship, kin_of};
use super::explanation::Likeness;
use super::postings::FieldReach;
use super::spelling::Spelling;
use super::stop_words::{is_generic_word, is_request_word, is_stop_word};
use super::vocabulary::{TermId, Vocabulary, stem};
use super::words::for_each_word;
use crate::text::prefix;

/// Of a longer query, this much of the beginning is read.
const QUERY_BYTES_MAX: usize = 16 * 1024;
/// More different words than this add nothing to what is asked.
const QUERY_TERMS_MAX: usize = 200;

/// What a word counts for that belongs to how people ask: `need`, `help`, `specific`.
const REQUEST_WEIGHT: f32 = 0.35;
/// What a word counts for that most tools could have: `find`, `data`, `current`.
const GENERIC_WEIGHT: f32 = 0.6;
/// What a word counts for that is known to name something tools deal with.
const TOPIC_WEIGHT: f32 = 1.2;

/// A query, read against one catalogue.
#[derive(Debug)]
pub(super) struct Query<'a> {
    pub(super) needs: Vec<&'a str>,
    pub(super) terms: Vec<QueryTerm>,
    /// The words that no tool has in any form.
    pub(super) unknown: Vec<String>,
}

#[derive(Debug)]
pub(super) struct QueryTerm {
    pub(super) word: String,
    pub(super) weight: f32,
    /// The needs whose part of the query has the word, as bits.
    needs: u8,
    pub(super) alternatives: Vec<Alternative>,
}

impl QueryTerm {
    pub(super) fn is_of(&self, need: usize) -> bool {
        self.needs & 1 << need != 0
    }
}

/// A term of the catalogue that a word of the query may mean.
#[derive(Debug)]
pub(super) struct Alternative {
    pub(super) term: TermId,
    pub(super) likeness: Likeness,
    /// From 0 to 1: how far it means the same.
    pub(super) closeness: f32,
}

impl Alternative {
    pub(super) fn reach(&self) -> FieldReach {
        if self.likeness == Likeness::Same { FieldReach::AllFields } else { FieldReach::OwnFields }
    }
}

/// The part of a query that is read.
pub(super) fn clipped(query: &str) -> &str {
    prefix(query, QUERY_BYTES_MAX)
}

impl<'a> Query<'a> {
    pub(super) fn read(
        text: &'a str,
        needs: &[Range<usize>],
        vocabulary: &Vocabulary,
        spelling: &Spelling,
    ) -> Query<'a> {
        let mut reader =
            QueryReader { vocabulary, spelling, known: BTreeMap::new(), terms: Vec::new(), unknown: Vec::new() };
        reader.read(text, needs, |word| !is_stop_word(word));
        if reader.terms.is_empty() && reader.unknown.is_empty() {
            reader.read(text, needs, |_| true);
        }
        let needs = needs.iter().map(|need| text[need.clone()].trim()).collect();
        Query { needs, terms: reader.terms, unknown: reader.unknown }
    }
}

struct QueryReader<'a> {
    vocabulary: &'a Vocabulary,
    spelling: &'a Spelling,
    /// Where the stems that were met are among the terms.
    known: BTreeMap<String, Option<usize>>,
    terms: Vec<QueryTerm>,
    unknown: Vec<String>,
}

impl QueryReader<'_> {
    fn read(&mut self, text: &str, needs: &[Range<usize>], wanted: impl Fn(&str) -> bool) {
        for_each_word(text, |word, place| {
            if !wanted(word) || self.known.len() >= QUERY_TERMS_MAX {
                return;
            }
            let need = needs.iter().position(|need| need.contains(&place.start)).unwrap_or_default();
            let stem = stem(word);
            match self.known.get(&stem) {
                Some(Some(known)) => self.terms[*known].needs |= 1 << need,
                Some(None) => {}
                None => {
                    let known = self.add(word, &stem, 1 << need);
                    self.known.insert(stem, known);
                }
            }
        });
    }

    fn add(&mut self, word: &str, stem: &str, needs: u8) -> Option<usize> {
        let alternatives = self.alternatives(word, stem);
        if alternatives.is_empty() {
            self.unknown.push(word.to_owned());
            return None;
        }
        self.terms.push(QueryTerm { word: word.to_owned(), weight: weight(word, stem), needs, alternatives });
        Some(self.terms.len() - 1)
    }

    fn alternatives(&self, word: &str, stem: &str) -> Vec<Alternative> {
        let mut found = Vec::new();
        let same = self.vocabulary.term(word);
        found.extend(same.map(|term| Alternative { term, likeness: Likeness::Same, closeness: 1.0 }));
        for (kin, kinship) in kin_of(stem) {
            if let Some(term) = self.vocabulary.term_of_stem(kin) {
                let (likeness, closeness) = match kinship {
                    Kinship::Synonym => (Likeness::Synonym, 0.6),
                    Kinship::Related => (Likeness::Related, 0.4),
                    Kinship::Action => (Likeness::Action, 0.35),
                    Kinship::Translation => (Likeness::Translation, 0.8),
                };
                found.push(Alternative { term, likeness, closeness });
            }
        }
        // A word that has kin is spelled right, even if the catalogue does not have it.
        let is_known = kin_of(stem).next().is_some();
        let longer = self.spelling.containing(word, stem).into_iter().filter(|(term, _)| Some(*term) != same);
        found.extend(longer.map(|(term, share)| Alternative {
            term,
            likeness: Likeness::Part,
            closeness: 0.6 * share,
        }));
        if same.is_none() && !is_known {
            found.extend(self.parts(word));
            let (mistakes, terms) = self.spelling.mistaken(word);
            let closeness = if mistakes < 2 { 0.7 } else { 0.35 };
            found.extend(terms.into_iter().map(|term| Alternative { term, likeness: Likeness::Typo, closeness }));
        }
        found
    }

    /// The two words of the catalogue that this one is made of: `websearch`.
    fn parts(&self, word: &str) -> impl Iterator<Item = Alternative> {
        const PART_BYTES_MIN: usize = 3;
        let cuts = PART_BYTES_MIN..(word.len() + 1).saturating_sub(PART_BYTES_MIN);
        let mut halves = cuts.filter_map(|cut| word.split_at_checked(cut));
        let known = halves.find_map(|(one, other)| Some([self.vocabulary.term(one)?, self.vocabulary.term(other)?]));
        known.into_iter().flatten().map(|term| Alternative { term, likeness: Likeness::Part, closeness: 0.6 })
    }
}

fn weight(word: &str, stem: &str) -> f32 {
    let mut weight = 1.0;
    if is_request_word(word) {
        weight *= REQUEST_WEIGHT;
    }
    if is_generic_word(word) {
        weight *= GENERIC_WEIGHT;
    }
    if kin_of(stem).any(|(_, kinship)| matches!(kinship, Kinship::Synonym | Kinship::Related)) {
        weight *= TOPIC_WEIGHT;
    }
    weight
}
