//! Why a tool was found.

use super::fields::ToolField;

/// What each word of the query contributed to a score. The contributions and the bonus add up to it.
#[derive(Debug, Clone, PartialEq)]
pub struct Explanation {
    /// In the order of the query.
    pub matches: Vec<Match>,
    /// For a name that has little besides what was asked for.
    pub name_bonus: f64,
}

/// One word of the query, found in a tool.
#[derive(Debug, Clone, PartialEq)]
pub struct Match {
    /// The word as the query has it.
    pub query_word: String,
    /// The word the tool has for it.
    pub tool_word: String,
    /// How the two words are related.
    pub likeness: Likeness,
    /// What the word contributed in each field.
    pub fields: Vec<(ToolField, f64)>,
}

/// How a word of the query and a word of a tool are related.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Likeness {
    /// They are the same up to their endings.
    Same,
    /// They mean the same.
    Synonym,
    /// They belong to the same topic.
    Related,
    /// They are verbs for similar actions.
    Action,
    /// One is the other in another language.
    Translation,
    /// One is part of the other.
    Part,
    /// One is probably the other, misspelled.
    Typo,
}

/// A part of searching that can be left out, for measuring what it is worth.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SearchPart {
    /// Words that are alike in this way match.
    Alike(Likeness),
    /// Addresses, paths, file names and quoted text are recognised for what they are.
    Data,
    /// A query that asks for several things is split into them.
    Needs,
}

impl Explanation {
    /// The whole score.
    pub fn score(&self) -> f64 {
        self.matches.iter().map(Match::score).sum::<f64>() + self.name_bonus
    }
}

impl Match {
    /// What the word contributed in all fields together.
    pub fn score(&self) -> f64 {
        self.fields.iter().map(|(_, score)| score).sum()
    }
}
