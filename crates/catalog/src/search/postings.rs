//! Which tools have a term, and how strongly it characterises each.

use super::fields::{ToolField, for_each_word_of};
use super::vocabulary::{Known, Learner, TermId, Vocabulary};
use crate::Tool;

const FIELDS: usize = ToolField::ALL.len();

/// What a word is worth in each field.
const WEIGHTS: [f32; FIELDS] = [3.0, 1.5, 1.5, 1.0, 0.7, 0.5];
/// How much a word loses in a field that is longer than usual.
const LENGTH_MATTERS: [f32; FIELDS] = [0.4, 0.3, 0.35, 0.6, 0.5, 0.7];
/// Repetition counts for less and less; this is the worth at which half of the strength is reached.
const HALF_STRENGTH: f32 = 1.8;

/// A term of most tools still says something: where several agree, they decide between tools that
/// share the rare one.
const RARITY_MIN: f64 = 1.0;

/// One term in one tool. A large catalogue has millions of them, so they are small.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Posting {
    pub(super) tool: u32,
    counts: FieldCounts,
    /// How strongly the term characterises the tool.
    strength: Strength,
    /// The same, by the tool's name, server and description only.
    own_strength: Strength,
}

/// How often a term stands in each field, up to [`COUNT_MAX`](FieldCounts::COUNT_MAX).
#[derive(Debug, Clone, Copy, Default)]
struct FieldCounts(u32);

impl FieldCounts {
    const COUNT_BITS: u32 = 5;
    /// More often says no more.
    const COUNT_MAX: u32 = (1 << FieldCounts::COUNT_BITS) - 1;

    fn of(self, field: ToolField) -> u8 {
        (self.0 >> (field as u32 * FieldCounts::COUNT_BITS) & FieldCounts::COUNT_MAX) as u8
    }

    fn add(&mut self, field: ToolField) {
        if u32::from(self.of(field)) < FieldCounts::COUNT_MAX {
            self.0 += 1 << (field as u32 * FieldCounts::COUNT_BITS);
        }
    }
}

/// A number from 0 to 1.
#[derive(Debug, Clone, Copy, Default)]
struct Strength(u16);

impl Strength {
    /// Of what a term is worth in a tool.
    #[expect(clippy::cast_sign_loss, reason = "a worth is not negative")]
    fn of(worth: f32) -> Strength {
        Strength((worth / (worth + HALF_STRENGTH) * f32::from(u16::MAX)) as u16)
    }
}

/// Which fields of a tool may match a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FieldReach {
    AllFields,
    /// Name, server and description. Words that are only similar to those of the query count here alone: descriptions of
    /// parameters mention too many other things.
    OwnFields,
}

impl Posting {
    pub(super) fn strength(&self, reach: FieldReach) -> f32 {
        let Strength(strength) = match reach {
            FieldReach::AllFields => self.strength,
            FieldReach::OwnFields => self.own_strength,
        };
        f32::from(strength) / f32::from(u16::MAX)
    }

    pub(super) fn is_in_name(&self) -> bool {
        self.is_in(ToolField::Name)
    }

    pub(super) fn is_in(&self, field: ToolField) -> bool {
        self.counts.of(field) > 0
    }
}

#[derive(Debug)]
pub(super) struct Postings {
    /// By term, then by tool.
    all: Vec<Posting>,
    /// Where the postings of each term begin; one more than there are terms.
    starts: Vec<u32>,
    lengths: Lengths,
}

impl Postings {
    pub(super) fn new(tools: &[Tool]) -> (Vocabulary, Postings) {
        let mut vocabulary = Learner::new();
        let mut counted = CountedTerms::default();
        let mut of_tools = vec![[0_u16; FIELDS]; tools.len()];
        // Where the latest count of each term is, to count on if it is of the same tool.
        let mut latest: Vec<usize> = Vec::new();
        for (tool, lengths) in tools.iter().zip(&mut of_tools) {
            let first = counted.all.len();
            for_each_word_of(tool, &mut |field, word, place| {
                let Known { term, is_stop_word } = vocabulary.learn(word);
                // A name may consist of such words only, and then it is asked for by them.
                if is_stop_word && field != ToolField::Name {
                    return;
                }
                if !place.joined {
                    lengths[field as usize] = lengths[field as usize].saturating_add(1);
                }
                if latest.len() <= term.0 as usize {
                    latest.resize(term.0 as usize + 1, usize::MAX);
                }
                let place = &mut latest[term.0 as usize];
                if *place == usize::MAX || *place < first {
                    *place = counted.all.len();
                    counted.all.push((term, FieldCounts::default()));
                }
                counted.all[*place].1.add(field);
            });
            counted.ends.push(counted.all.len());
        }
        let vocabulary = vocabulary.finish();
        let lengths = Lengths::new(of_tools);
        let postings = Postings::arranged(&counted, lengths, vocabulary.term_count());
        (vocabulary, postings)
    }

    fn arranged(counted: &CountedTerms, lengths: Lengths, terms: usize) -> Postings {
        let mut starts = vec![0_u32; terms + 1];
        for (term, _) in &counted.all {
            starts[term.0 as usize + 1] += 1;
        }
        for term in 0..terms {
            starts[term + 1] += starts[term];
        }
        let mut next = starts.clone();
        let mut all = vec![Posting::default(); counted.all.len()];
        let mut first = 0;
        for (tool, end) in counted.ends.iter().enumerate() {
            let scales = lengths.scales(tool);
            for (term, counts) in &counted.all[first..*end] {
                let worths = worths(*counts, &scales);
                let own: f32 = worths[..=ToolField::Description as usize].iter().sum();
                let whole: f32 = worths.iter().sum();
                let (strength, own_strength) = (Strength::of(whole), Strength::of(own));
                let place = &mut next[term.0 as usize];
                all[*place as usize] = Posting { tool: tool as u32, counts: *counts, strength, own_strength };
                *place += 1;
            }
            first = *end;
        }
        Postings { all, starts, lengths }
    }

    pub(super) fn of(&self, term: TermId) -> &[Posting] {
        let term = term.0 as usize;
        &self.all[self.starts[term] as usize..self.starts[term + 1] as usize]
    }

    pub(super) fn find(&self, term: TermId, tool: u32) -> Option<&Posting> {
        let postings = self.of(term);
        postings.binary_search_by_key(&tool, |posting| posting.tool).ok().map(|found| &postings[found])
    }

    /// How much the posting's strength owes to each field; the shares add up to one.
    pub(super) fn shares(&self, posting: &Posting, reach: FieldReach) -> Vec<(ToolField, f64)> {
        let worths = worths(posting.counts, &self.lengths.scales(posting.tool as usize));
        let fields = match reach {
            FieldReach::AllFields => &ToolField::ALL[..],
            FieldReach::OwnFields => &ToolField::ALL[..=ToolField::Description as usize],
        };
        let worth = |field: ToolField| f64::from(worths[field as usize]);
        let whole: f64 = fields.iter().map(|field| worth(*field)).sum();
        let shares = fields.iter().map(|field| (*field, worth(*field) / whole));
        shares.filter(|(_, share)| *share > 0.0).collect()
    }

    /// Weight of the term: the rarer, the higher.
    pub(super) fn rarity(&self, term: TermId) -> f64 {
        let found = f64::from(self.of(term).len() as u32);
        let all = f64::from(self.lengths.of_tools.len() as u32);
        RARITY_MIN + (1.0 + (all - found + 0.5) / (found + 0.5)).ln()
    }

    pub(super) fn name_length(&self, tool: u32) -> u16 {
        self.lengths.of_tools[tool as usize][ToolField::Name as usize]
    }
}

/// How often each tool has each of its terms, tool by tool.
#[derive(Debug, Default)]
struct CountedTerms {
    all: Vec<(TermId, FieldCounts)>,
    /// Where the terms of each tool end.
    ends: Vec<usize>,
}

/// How many words each field has.
#[derive(Debug)]
struct Lengths {
    of_tools: Vec<[u16; FIELDS]>,
    /// The average over the tools that have the field.
    usual: [f32; FIELDS],
}

impl Lengths {
    #[expect(clippy::cast_precision_loss, reason = "a rounded average is as good")]
    fn new(of_tools: Vec<[u16; FIELDS]>) -> Lengths {
        let usual = ToolField::ALL.map(|field| {
            let present = of_tools.iter().map(|lengths| lengths[field as usize]).filter(|length| *length > 0);
            let (sum, count) =
                present.fold((0_u64, 0_u64), |(sum, count), length| (sum + u64::from(length), count + 1));
            if count == 0 { 1.0 } else { sum as f32 / count as f32 }
        });
        Lengths { of_tools, usual }
    }

    /// What a word is worth in each field of a tool.
    fn scales(&self, tool: usize) -> [f32; FIELDS] {
        let lengths = &self.of_tools[tool];
        ToolField::ALL.map(|field| {
            let field = field as usize;
            let length = f32::from(lengths[field]) / self.usual[field];
            let matters = LENGTH_MATTERS[field];
            WEIGHTS[field] / (1.0 - matters + matters * length)
        })
    }
}

/// What a term is worth in each field, if a word is worth this much there.
fn worths(counts: FieldCounts, scales: &[f32; FIELDS]) -> [f32; FIELDS] {
    ToolField::ALL.map(|field| scales[field as usize] * f32::from(counts.of(field)))
}
