//! How well each tool answers each need.

use super::explanation::{Explanation, Match};
use super::postings::{Posting, Postings};
use super::query::{Alternative, NeedContext, Query, QueryTerm};
use super::spelling::Spelling;

/// What a word counts for in the needs it is not part of: it is their context.
const ELSEWHERE_WEIGHT: f64 = 0.2;
/// The share of the score that is added for a name of which every word was asked for.
const NAME_BONUS: f64 = 0.1;

/// The scores of all tools.
#[derive(Debug)]
pub(super) struct Scores {
    /// By need, then by tool.
    sums: Vec<Vec<Sum>>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Sum {
    score: f64,
    /// How many words of the tool's name were asked for.
    in_name: f32,
}

impl Scores {
    pub(super) fn new(query: &Query, postings: &Postings, tool_count: usize) -> Scores {
        let mut sums = vec![vec![Sum::default(); tool_count]; query.needs.len()];
        let mut best = vec![Sum::default(); tool_count];
        let mut touched: Vec<u32> = Vec::new();
        for term in &query.terms {
            for alternative in &term.alternatives {
                let factor = factor(term, alternative, postings);
                for posting in postings.of(alternative.term) {
                    let score = factor * f64::from(posting.strength(alternative.reach()));
                    let place = &mut best[posting.tool as usize];
                    if score > place.score {
                        if place.score == 0.0 {
                            touched.push(posting.tool);
                        }
                        *place = Sum { score, in_name: in_name(alternative, posting) };
                    }
                }
            }
            for tool in touched.drain(..) {
                let found = std::mem::take(&mut best[tool as usize]);
                for (need, sums) in sums.iter_mut().enumerate() {
                    sums[tool as usize].add(found, share(query, term, need));
                }
            }
        }
        Scores { sums }
    }

    /// How many tools answer at least one need.
    pub(super) fn matches(&self, tool_count: usize) -> usize {
        (0..tool_count).filter(|tool| self.sums.iter().any(|sums| sums[*tool].score > 0.0)).count()
    }

    /// The tools that answer a need, with their scores.
    pub(super) fn of_need(&self, need: usize, postings: &Postings) -> Vec<(f64, u32)> {
        let sums = self.sums[need].iter().enumerate().filter(|(_, sum)| sum.score > 0.0);
        sums.map(|(tool, sum)| (sum.score + sum.name_bonus(tool as u32, postings), tool as u32)).collect()
    }
}

impl Sum {
    /// `share` is what a word counts for in the need.
    fn add(&mut self, found: Sum, share: f64) {
        if share > 0.0 {
            self.score += share * found.score;
            self.in_name += found.in_name;
        }
    }

    fn name_bonus(&self, tool: u32, postings: &Postings) -> f64 {
        let share = self.in_name / f32::from(postings.name_length(tool).max(1));
        NAME_BONUS * self.score * f64::from(share.min(1.0))
    }
}

/// What the score of a tool in a need is made of.
pub(super) fn explain(query: &Query, need: usize, tool: u32, postings: &Postings, spelling: &Spelling) -> Explanation {
    let mut sum = Sum::default();
    let mut matches = Vec::new();
    for term in &query.terms {
        let mut best: Option<(f64, &Alternative, &Posting)> = None;
        for alternative in &term.alternatives {
            let Some(posting) = postings.find(alternative.term, tool) else {
                continue;
            };
            let score = factor(term, alternative, postings) * f64::from(posting.strength(alternative.reach()));
            if score > best.map_or(0.0, |(best, ..)| best) {
                best = Some((score, alternative, posting));
            }
        }
        let Some((score, alternative, posting)) = best else {
            continue;
        };
        let share = share(query, term, need);
        if share == 0.0 {
            continue;
        }
        sum.add(Sum { score, in_name: in_name(alternative, posting) }, share);
        let score = share * score;
        let fields = postings.shares(posting, alternative.reach()).into_iter();
        matches.push(Match {
            query_word: term.word.clone(),
            tool_word: spelling.shown(alternative.term).to_owned(),
            likeness: alternative.likeness,
            fields: fields.map(|(field, share)| (field, share * score)).collect(),
        });
    }
    Explanation { matches, name_bonus: sum.name_bonus(tool, postings) }
}

/// What a word counts for in a need.
fn share(query: &Query, term: &QueryTerm, need: usize) -> f64 {
    match query.context {
        _ if term.is_of(need) => 1.0,
        NeedContext::Shared => ELSEWHERE_WEIGHT,
        NeedContext::None => 0.0,
    }
}

fn factor(term: &QueryTerm, alternative: &Alternative, postings: &Postings) -> f64 {
    f64::from(term.weight * alternative.closeness) * postings.rarity(alternative.term)
}

fn in_name(alternative: &Alternative, posting: &Posting) -> f32 {
    if posting.is_in_name() { alternative.closeness } else { 0.0 }
}
