//! Finding tools by what is asked for.

mod concepts;
mod fields;
mod index;
mod query;
mod spelling;
mod stop_words;
mod vocabulary;
mod words;

macro_rules! tune {
    ($name:literal, $default:expr) => {{
        static VALUE: std::sync::OnceLock<f32> = std::sync::OnceLock::new();
        *VALUE.get_or_init(|| std::env::var($name).ok().and_then(|v| v.parse().ok()).unwrap_or($default))
    }};
}
use tune;

pub use fields::Field;
use index::Postings;
use vocabulary::Vocabulary;

use crate::{Tool, ToolIndex};

#[derive(Debug)]
pub struct SearchIndex {
    vocabulary: Vocabulary,
    postings: Postings,
    names: Vec<String>,
    spelling: spelling::Spelling,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Hit {
    pub tool: ToolIndex,
    pub score: f64,
}

impl SearchIndex {
    pub fn new(tools: &[Tool]) -> SearchIndex {
        let (vocabulary, postings) = index::build(tools);
        let spelling = spelling::Spelling::new(&vocabulary, |t| postings.of(t).iter().any(Postings::in_name));
        SearchIndex { spelling, vocabulary, postings, names: tools.iter().map(|t| t.name.clone()).collect() }
    }

    pub fn search(&self, text: &str, limit: usize) -> Vec<Hit> {
        let terms = query::read(&self.vocabulary, &self.postings, &self.spelling, text);
        let n = self.postings.tool_count();
        let mut total = vec![0_f32; n];
        let mut group = vec![0_f32; n];
        let mut name_mass = vec![0_f32; n];
        let mut touched: Vec<u32> = Vec::new();
        let mass: f32 = terms.iter().map(|t| t.weight).sum();
        let mut covered = vec![0_f32; n];
        for term in &terms {
            for alternative in &term.alternatives {
                let idf = self.postings.rarity(alternative.term);
                for posting in self.postings.of(alternative.term) {
                    let value = term.weight * alternative.likeness * idf * if alternative.likeness < 1.0 { posting.core } else { posting.strength };
                    if value <= 0.0 { continue; }
                    let best = &mut group[posting.tool as usize];
                    if value <= *best && *best > 0.0 { total[posting.tool as usize] += value * tune!("REST", 0.0); }
                    if value > *best {
                        if *best == 0.0 {
                            touched.push(posting.tool);
                        }
                        total[posting.tool as usize] += value - *best;
                        *best = value;
                        if Postings::in_name(posting) {
                            name_mass[posting.tool as usize] += alternative.likeness;
                        }
                    }
                }
            }
            for tool in touched.drain(..) {
                group[tool as usize] = 0.0;
                covered[tool as usize] += term.weight;
            }
        }
        let mut hits: Vec<(f32, u32)> = total
            .iter()
            .enumerate()
            .filter(|(_, s)| **s > 0.0)
            .map(|(i, s)| {
                let name = (name_mass[i] / f32::from(self.postings.name_length(i as u32)).max(1.0)).min(1.0);
                (s * (1.0 + tune!("COVER", 0.0) * covered[i] / mass) * (1.0 + tune!("NAMECOV", 0.1) * name), i as u32)
            })
            .collect();
        hits.sort_by(|a, b| {
            b.0.total_cmp(&a.0).then_with(|| self.names[a.1 as usize].cmp(&self.names[b.1 as usize]))
        });
        hits.into_iter()
            .take(limit)
            .map(|(score, tool)| Hit { tool: ToolIndex(tool), score: f64::from(score) })
            .collect()
    }
}
