//! Which tools a term stands in, and how much it says about each.

use super::fields::{Field, for_each_word_of};
use super::stop_words::is_stop_word;
use super::tune;
use super::vocabulary::{TermId, Vocabulary};
use crate::Tool;

pub(super) const FIELDS: usize = Field::ALL.len();

#[derive(Debug, Clone, Copy)]
pub(super) struct Posting {
    pub(super) tool: u32,
    /// How much the term says about the tool, before the rarity of the term.
    pub(super) strength: f32,
    pub(super) core: f32,
    counts: [u8; FIELDS],
}

#[derive(Debug)]
pub(super) struct Postings {
    all: Vec<Posting>,
    /// Where the postings of each term begin; one more than there are terms.
    starts: Vec<u32>,
    lengths: Vec<[u16; FIELDS]>,
    pub(super) average_lengths: [f32; FIELDS],
}

impl Postings {
    pub(super) fn of(&self, term: TermId) -> &[Posting] {
        let term = term.0 as usize;
        &self.all[self.starts[term] as usize..self.starts[term + 1] as usize]
    }

    pub(super) fn tool_count(&self) -> usize {
        self.lengths.len()
    }

    pub(super) fn rarity(&self, term: TermId) -> f32 {
        let found = self.of(term).len() as f32;
        let all = self.tool_count() as f32;
        (1.0 + (all - found + 0.5) / (found + 0.5)).ln()
    }

    pub(super) fn name_length(&self, tool: u32) -> u16 {
        self.lengths[tool as usize][0]
    }

    pub(super) fn in_name(posting: &Posting) -> bool {
        posting.counts[0] > 0
    }
}

pub(super) fn build(tools: &[Tool]) -> (Vocabulary, Postings) {
    let mut vocabulary = Vocabulary::default();
    let mut counted: Vec<(TermId, Posting)> = Vec::new();
    let mut lengths = vec![[0_u16; FIELDS]; tools.len()];
    let mut latest: Vec<u32> = Vec::new();
    for (tool, length) in lengths.iter_mut().enumerate() {
        let first = counted.len() as u32;
        for_each_word_of(&tools[tool], &mut |field, word, place| {
            if is_stop_word(word) && field != Field::Name {
                return;
            }
            let term = vocabulary.learn(word);
            if !place.joined {
                length[field as usize] = length[field as usize].saturating_add(1);
            }
            if term.0 as usize >= latest.len() {
                latest.resize(term.0 as usize + 1, u32::MAX);
            }
            let slot = &mut latest[term.0 as usize];
            if *slot == u32::MAX || *slot < first {
                *slot = counted.len() as u32;
                counted.push((term, Posting { tool: tool as u32, strength: 0.0, core: 0.0, counts: [0; FIELDS] }));
            }
            let count = &mut counted[*slot as usize].1.counts[field as usize];
            *count = count.saturating_add(1);
        });
    }
    let postings = arranged(counted, lengths, vocabulary.term_count());
    (vocabulary, postings)
}

fn arranged(counted: Vec<(TermId, Posting)>, lengths: Vec<[u16; FIELDS]>, terms: usize) -> Postings {
    let mut starts = vec![0_u32; terms + 1];
    for (term, _) in &counted {
        starts[term.0 as usize + 1] += 1;
    }
    for term in 0..terms {
        starts[term + 1] += starts[term];
    }
    let mut average_lengths = [1.0; FIELDS];
    for (field, average) in average_lengths.iter_mut().enumerate() {
        let with: Vec<f32> = lengths.iter().map(|l| f32::from(l[field])).filter(|l| *l > 0.0).collect();
        if !with.is_empty() {
            *average = with.iter().sum::<f32>() / with.len() as f32;
        }
    }
    let mut next = starts.clone();
    let mut all = vec![Posting { tool: 0, strength: 0.0, core: 0.0, counts: [0; FIELDS] }; counted.len()];
    for (term, mut posting) in counted {
        let parts = field_parts(&posting, &lengths[posting.tool as usize], &average_lengths);
        let sum: f32 = parts.iter().sum();
        posting.strength = sum / (sum + tune!("K1", 1.8));
        let sum: f32 = parts[..3].iter().sum::<f32>() + tune!("CORE_REST", 0.0) * parts[3..].iter().sum::<f32>();
        posting.core = sum / (sum + tune!("K1", 1.8));
        let place = &mut next[term.0 as usize];
        all[*place as usize] = posting;
        *place += 1;
    }
    Postings { all, starts, lengths, average_lengths }
}

fn field_parts(posting: &Posting, lengths: &[u16; FIELDS], averages: &[f32; FIELDS]) -> [f32; FIELDS] {
    let weights = [
        tune!("W_NAME", 3.0),
        tune!("W_SERVER", 1.5),
        tune!("W_DESC", 2.0),
        tune!("W_PARAM", 1.0),
        tune!("W_PTEXT", 0.7),
        tune!("W_OUT", 0.5),
    ];
    let bs = [
        tune!("B_NAME", 0.4),
        tune!("B_SERVER", 0.3),
        tune!("B_DESC", 0.6),
        tune!("B_PARAM", 0.6),
        tune!("B_PTEXT", 0.7),
        tune!("B_OUT", 0.7),
    ];
    let mut parts = [0.0; FIELDS];
    for field in 0..FIELDS {
        let count = f32::from(posting.counts[field]);
        let relative = f32::from(lengths[field]) / averages[field];
        parts[field] = weights[field] * count / (1.0 - bs[field] + bs[field] * relative);
    }
    parts
}
