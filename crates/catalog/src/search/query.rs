//! What a query asks for, in terms of the catalogue.

use std::collections::BTreeMap;
use std::ops::Range;

use super::concepts::{Kinship, kin_of};
use super::data_spans;
use super::explanation::{Likeness, SearchPart};
use super::postings::FieldReach;
use super::spelling::Spelling;
use super::stop_words::{is_generic_word, is_request_word, is_stop_word};
use super::vocabulary::{TermId, Vocabulary, stem};
use super::words::for_each_word;
use crate::text::prefix;

/// Of a longer query, this much of the beginning is read; of each of several, its share.
const QUERY_BYTES_MAX: usize = 16 * 1024;
/// More different words than this add nothing to what is asked.
const QUERY_TERMS_MAX: usize = 400;

/// What a word counts for that belongs to how people ask: `need`, `help`, `specific`.
const REQUEST_WEIGHT: f32 = 0.35;
/// What a word counts for that most tools could have: `find`, `data`, `current`.
const GENERIC_WEIGHT: f32 = 0.6;
/// What a word counts for that is known to name something tools deal with.
const TOPIC_WEIGHT: f32 = 1.2;

/// What a word counts for that says what the data in a query is: a file, a page.
const MEANING_WEIGHT: f32 = 0.5;

/// A query, read against one catalogue.
#[derive(Debug)]
pub(super) struct Query<'a> {
    pub(super) needs: Vec<&'a str>,
    pub(super) context: NeedContext,
    pub(super) terms: Vec<QueryTerm>,
    /// The words that no tool has in any form.
    pub(super) unknown: Vec<String>,
}

/// Whether the words of one need say something about the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NeedContext {
    /// The needs are parts of one text.
    Shared,
    /// Each need is a text of its own.
    None,
}

#[derive(Debug)]
pub(super) struct QueryTerm {
    pub(super) word: String,
    pub(super) weight: f32,
    /// The needs whose part of the query has the word, as bits.
    needs: u32,
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

/// The part that is read of one of so many queries.
pub(super) fn clipped(query: &str, queries: usize) -> &str {
    prefix(query, QUERY_BYTES_MAX / queries)
}

/// Several queries as one text, and where each of them stands in it.
pub(super) fn joined(queries: &[String]) -> (String, Vec<Range<usize>>) {
    let mut text = String::new();
    let mut places = Vec::new();
    for query in queries {
        let start = text.len();
        text.push_str(clipped(query, queries.len()));
        text.push('\n');
        places.push(start..text.len());
    }
    (text, places)
}

/// Reads a query against a catalogue.
pub(super) struct QueryReader<'a> {
    vocabulary: &'a Vocabulary,
    spelling: &'a Spelling,
    /// Left out, for measuring.
    without: &'a [SearchPart],
    /// Where the stems that were met are among the terms.
    known: BTreeMap<String, Option<usize>>,
    terms: Vec<QueryTerm>,
    unknown: Vec<String>,
}

impl<'a> QueryReader<'a> {
    pub(super) fn new(
        vocabulary: &'a Vocabulary,
        spelling: &'a Spelling,
        without: &'a [SearchPart],
    ) -> QueryReader<'a> {
        QueryReader { vocabulary, spelling, without, known: BTreeMap::new(), terms: Vec::new(), unknown: Vec::new() }
    }

    pub(super) fn read<'q>(mut self, text: &'q str, needs: &[Range<usize>], context: NeedContext) -> Query<'q> {
        self.read_words(text, needs, |word| !is_stop_word(word));
        if self.terms.is_empty() && self.unknown.is_empty() {
            self.read_words(text, needs, |_| true);
        }
        let needs = needs.iter().map(|need| text[need.clone()].trim()).collect();
        Query { needs, context, terms: self.terms, unknown: self.unknown }
    }

    fn read_words(&mut self, text: &str, needs: &[Range<usize>], wanted: impl Fn(&str) -> bool) {
        let spans = if self.without.contains(&SearchPart::Data) { Vec::new() } else { data_spans::find(text) };
        let need_at = |at: usize| 1 << needs.iter().position(|need| need.contains(&at)).unwrap_or_default();
        let mut next_span = 0;
        for_each_word(text, |word, place| {
            if !wanted(word) {
                return;
            }
            while spans.get(next_span).is_some_and(|span| span.place.end <= place.start) {
                next_span += 1;
            }
            let span = spans.get(next_span).filter(|span| span.place.contains(&place.start));
            self.add(word, need_at(place.start), span.map_or(1.0, |span| span.weight));
        });
        for span in &spans {
            for word in span.meaning {
                self.add(word, need_at(span.place.start), MEANING_WEIGHT);
            }
        }
    }

    /// Adds a word of some needs, which counts for this much.
    fn add(&mut self, word: &str, needs: u32, share: f32) {
        let stem = stem(word);
        let weight = share * weight(word, &stem);
        match self.known.get(&stem) {
            Some(Some(known)) => {
                let term = &mut self.terms[*known];
                term.needs |= needs;
                term.weight = term.weight.max(weight);
            }
            Some(None) => {}
            None if self.known.len() >= QUERY_TERMS_MAX => {}
            None => {
                let alternatives = self.alternatives(word, &stem);
                let known = if alternatives.is_empty() {
                    self.unknown.push(word.to_owned());
                    None
                } else {
                    self.terms.push(QueryTerm { word: word.to_owned(), weight, needs, alternatives });
                    Some(self.terms.len() - 1)
                };
                self.known.insert(stem, known);
            }
        }
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
        found.retain(|alternative| !self.without.contains(&SearchPart::Alike(alternative.likeness)));
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
