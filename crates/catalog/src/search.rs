//! Full-text search for tools.
//!
//! A query is split into needs, such as "find the weather" and "send it by mail" (`needs.rs`). Its words are mapped to
//! terms of the catalogue and to similar ones (`query.rs`: endings, synonyms, translations, parts, typos). A term is
//! weighted by its rarity and by the fields it stands in (`postings.rs`). The tools of a need are ranked by the sum over
//! its terms (`score.rs`), and the lists of all needs are merged so that each has its best tool on top.

mod concepts;
mod data_spans;
mod explanation;
mod fields;
mod needs;
mod postings;
mod producers;
mod query;
mod score;
mod spelling;
mod stop_words;
mod text;
mod topics;
mod translations;
mod vocabulary;
mod words;

use std::collections::{BTreeMap, BTreeSet};

pub use explanation::{Explanation, Likeness, Match, SearchPart};
pub use fields::ToolField;
use postings::Postings;
pub use producers::Producer;
use query::{NeedContext, Query, QueryReader};
use score::{Scores, explain};
use spelling::Spelling;
pub use text::{SearchText, SearchTextError};
use vocabulary::Vocabulary;

use crate::{Tool, ToolIndex};

/// How many words an empty result suggests.
const SUGGESTIONS_MAX: usize = 5;
/// How many tools are named after the hits.
const MORE_MAX: usize = 30;

/// The tools of a catalogue, indexed for search. It never changes, so share it in an `Arc`.
///
/// ```
/// use dacapo_catalog::{SearchIndex, read_tools};
/// let tools = serde_json::json!([{"name": "get_weather", "description": "Forecast"}, {"name": "send_email"}]);
/// let index = SearchIndex::new(&read_tools(&tools).unwrap());
/// let results = index.search("will it rain: a forecast", 5);
/// assert_eq!(results.hits[0].tool.0, 0);
/// ```
#[derive(Debug)]
pub struct SearchIndex {
    vocabulary: Vocabulary,
    postings: Postings,
    spelling: Spelling,
    /// The tools by name, then by server.
    by_name: Vec<ToolIndex>,
    /// Where each tool is in `by_name`.
    name_ranks: Vec<u32>,
}

/// What a search found.
#[derive(Debug, Clone, PartialEq)]
pub struct SearchResults {
    /// What the query asks for, in its own words and order; at least one.
    pub needs: Vec<String>,
    /// Best first. With several needs: the best tool of each, then more of each.
    pub hits: Vec<Hit>,
    /// The next best tools, by the same order, for whoever wants only their names.
    pub more: Vec<ToolIndex>,
    /// The needs that no tool answers, by position in `needs`.
    pub unmet: Vec<usize>,
    /// How many tools match, shown or not.
    pub total_matches: usize,
    /// If nothing was found: words of the catalogue to try instead.
    pub suggestions: Vec<String>,
}

/// A tool that a search found.
#[derive(Debug, Clone, PartialEq)]
pub struct Hit {
    /// The tool.
    pub tool: ToolIndex,
    /// The need that it serves, by position in [`SearchResults::needs`].
    pub need: usize,
    /// How well it fits; comparable within its need only.
    pub score: f64,
    /// What the score is made of.
    pub explanation: Explanation,
}

impl SearchIndex {
    /// Hits name a tool by its position in `tools`.
    pub fn new(tools: &[Tool]) -> SearchIndex {
        let (vocabulary, postings) = Postings::new(tools);
        let spelling = Spelling::new(&vocabulary, &postings);
        let mut by_name: Vec<ToolIndex> = (0..tools.len() as u32).map(ToolIndex).collect();
        by_name.sort_by_key(|tool| (&tools[tool.0 as usize].name, &tools[tool.0 as usize].server));
        let mut name_ranks = vec![0; tools.len()];
        for (rank, tool) in by_name.iter().enumerate() {
            name_ranks[tool.0 as usize] = rank as u32;
        }
        SearchIndex { vocabulary, postings, spelling, by_name, name_ranks }
    }

    /// Finds the tools that answer a query. A blank query finds all tools, by name.
    pub fn search(&self, text: impl Into<SearchText>, limit: usize) -> SearchResults {
        self.search_without(text, limit, &[])
    }

    /// Like [`search`](Self::search), but without these parts of it. For measuring what each is worth.
    pub fn search_without(&self, text: impl Into<SearchText>, limit: usize, without: &[SearchPart]) -> SearchResults {
        self.found(&text.into(), limit, without, |_| Vec::new())
    }

    /// Like [`search`](Self::search), with another opinion: `rank` gets the needs of the query and answers with the tools
    /// for each, best first. Both orders count the same.
    pub fn search_with(
        &self,
        text: impl Into<SearchText>,
        limit: usize,
        rank: impl FnOnce(&[&str]) -> Vec<Vec<ToolIndex>>,
    ) -> SearchResults {
        self.found(&text.into(), limit, &[], rank)
    }

    fn found(
        &self,
        text: &SearchText,
        limit: usize,
        without: &[SearchPart],
        rank: impl FnOnce(&[&str]) -> Vec<Vec<ToolIndex>>,
    ) -> SearchResults {
        let reader = QueryReader::new(&self.vocabulary, &self.spelling, without);
        match text {
            SearchText::Query(query) if query.trim().is_empty() => self.all(limit),
            SearchText::Query(query) => {
                let text = query::clipped(query, 1);
                let is_whole = without.contains(&SearchPart::Needs);
                let needs = if is_whole { std::iter::once(0..text.len()).collect() } else { needs::split(text) };
                let query = reader.read(text, &needs, NeedContext::Shared);
                self.answer(&query, limit, &rank(&query.needs))
            }
            SearchText::Queries(queries) => {
                let (text, needs) = query::joined(queries);
                let query = reader.read(&text, &needs, NeedContext::None);
                self.answer(&query, limit, &rank(&query.needs))
            }
        }
    }

    fn answer(&self, query: &Query, limit: usize, other: &[Vec<ToolIndex>]) -> SearchResults {
        let scores = Scores::new(query, &self.postings, self.by_name.len());
        let total_matches = scores.matches(self.by_name.len());
        let mut unmet = Vec::new();
        let mut lists: Vec<NeedList> = Vec::new();
        for need in 0..query.needs.len() {
            let mut ranking = scores.of_need(need, &self.postings);
            if let Some(other) = other.get(need) {
                self.fuse(&mut ranking, other);
            }
            if ranking.is_empty() {
                unmet.push(need);
            }
            self.keep_best(&mut ranking, limit.saturating_add(MORE_MAX));
            lists.push(NeedList { need, ranking });
        }
        let mut ranked = merged(lists, limit.saturating_add(MORE_MAX));
        let more = ranked.split_off(limit.min(ranked.len())).into_iter().map(|(_, _, tool)| ToolIndex(tool)).collect();
        let hits = ranked.into_iter().map(|(need, score, tool)| Hit {
            tool: ToolIndex(tool),
            need,
            score,
            explanation: explain(query, need, tool, &self.postings, &self.spelling),
        });
        let suggestions = match total_matches {
            0 => self.spelling.suggestions(&query.unknown, SUGGESTIONS_MAX),
            _ => Vec::new(),
        };
        SearchResults {
            hits: hits.collect(),
            more,
            unmet,
            total_matches,
            suggestions,
            needs: query.needs.iter().map(|need| (*need).to_owned()).collect(),
        }
    }

    fn all(&self, limit: usize) -> SearchResults {
        let hits = self.by_name.iter().take(limit).map(|tool| Hit {
            tool: *tool,
            need: 0,
            score: 0.0,
            explanation: Explanation { matches: Vec::new(), name_bonus: 0.0 },
        });
        let (hits, total_matches) = (hits.collect(), self.by_name.len());
        let more = self.by_name.iter().skip(limit).take(MORE_MAX).copied().collect();
        SearchResults {
            needs: vec![String::new()],
            hits,
            more,
            unmet: Vec::new(),
            total_matches,
            suggestions: Vec::new(),
        }
    }

    /// Joins two orders by rank: a tool that stands high in one is found, one that stands high in both comes first.
    fn fuse(&self, ranking: &mut Vec<(f64, u32)>, other: &[ToolIndex]) {
        const RANK_SOFTENER: f64 = 20.0;
        const RANKS_MAX: usize = 200;
        self.keep_best(ranking, RANKS_MAX);
        let mut fused: BTreeMap<u32, f64> = BTreeMap::new();
        let words = ranking.iter().map(|(_, tool)| *tool).enumerate();
        for (rank, tool) in words.chain(other.iter().take(RANKS_MAX).map(|tool| tool.0).enumerate()) {
            *fused.entry(tool).or_default() += 1.0 / (RANK_SOFTENER + f64::from(rank as u32));
        }
        *ranking = fused.into_iter().map(|(tool, score)| (score, tool)).collect();
    }

    /// Sorts the best of a ranking and drops the rest.
    fn keep_best(&self, ranking: &mut Vec<(f64, u32)>, limit: usize) {
        let order = |(one, a): &(f64, u32), (other, b): &(f64, u32)| {
            other.total_cmp(one).then_with(|| self.name_ranks[*a as usize].cmp(&self.name_ranks[*b as usize]))
        };
        if limit < ranking.len() {
            ranking.select_nth_unstable_by(limit, order);
            ranking.truncate(limit);
        }
        ranking.sort_unstable_by(order);
    }
}

/// The tools that answer one need, best first.
struct NeedList {
    need: usize,
    ranking: Vec<(f64, u32)>,
}

/// First the best tool of each need, then more of each in proportion to how well it is answered:
/// a clause that only sets the scene is answered badly, and should not fill half of the list.
fn merged(mut lists: Vec<NeedList>, limit: usize) -> Vec<(usize, f64, u32)> {
    lists.retain(|list| !list.ranking.is_empty());
    lists.sort_by(|one, other| other.ranking[0].0.total_cmp(&one.ranking[0].0));
    let mut taken = BTreeSet::new();
    let mut merged = Vec::new();
    let mut waiting: Vec<_> = lists.into_iter().map(|list| (list.need, list.ranking.into_iter().peekable())).collect();
    let mut seats = vec![0_u32; waiting.len()];
    while merged.len() < limit {
        let mut next: Option<(bool, f64, usize)> = None;
        for (list, (_, ranking)) in waiting.iter_mut().enumerate() {
            while ranking.next_if(|(_, tool)| taken.contains(tool)).is_some() {}
            let Some((score, _)) = ranking.peek() else {
                continue;
            };
            let (empty, claim) = (seats[list] == 0, score / f64::from(seats[list] + 1));
            if next.is_none_or(|(other_empty, other, _)| (empty, claim) > (other_empty, other)) {
                next = Some((empty, claim, list));
            }
        }
        let Some((_, _, list)) = next else {
            break;
        };
        seats[list] += 1;
        let (need, ranking) = &mut waiting[list];
        if let Some((score, tool)) = ranking.next() {
            taken.insert(tool);
            merged.push((*need, score, tool));
        }
    }
    merged
}
