//! The text that answers a model's search.

use std::borrow::Cow;
use std::fmt::Write;

use crate::text::shorten;
use crate::tokens::BYTES_PER_TOKEN_MIN;
use crate::{Catalog, Declarations, Hit, SearchResults};

/// Tokens that the answer to a search takes at most, about, unless a caller asks for another budget.
pub const ANSWER_TOKENS_DEFAULT: usize = 2_000;

/// Characters of the query that are repeated in the answer.
const ECHO_CHARS_MAX: usize = 100;

/// The answer to a search: declarations that are ready to use, within a budget.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SearchAnswer {
    /// Declarations and comments, as TypeScript.
    pub text: String,
    /// Tools whose declarations stand in the text.
    pub shown: usize,
    /// Tools that match, shown or not.
    pub total: usize,
}

impl SearchAnswer {
    /// The best tool is shown whatever it costs; the others, best first, as long as they fit into `tokens_max`. Where a
    /// long description does not fit, its first sentences stand for it.
    pub fn new(
        results: &SearchResults,
        catalog: &Catalog,
        declarations: &Declarations,
        tokens_max: usize,
    ) -> SearchAnswer {
        let mut bytes_left = tokens_max * BYTES_PER_TOKEN_MIN;
        let mut shown: Vec<(&Hit, Cow<'_, str>)> = Vec::new();
        for hit in &results.hits {
            let mut text = Cow::Borrowed(declarations.of(hit.tool));
            if text.len() > bytes_left {
                text = Cow::Owned(declarations.shortened(hit.tool));
            }
            if shown.is_empty() || text.len() <= bytes_left {
                bytes_left = bytes_left.saturating_sub(text.len());
                shown.push((hit, text));
            }
        }
        let mut found = SearchAnswer { text: String::new(), shown: shown.len(), total: results.total_matches };
        if shown.iter().any(|(hit, _)| catalog.tools()[hit.tool.0 as usize].output_schema.is_none()) {
            found.text.push_str(Declarations::UNKNOWN_NOTE);
        }
        shown.sort_by_key(|(hit, _)| hit.need);
        for hits in shown.chunk_by(|(a, _), (b, _)| a.need == b.need) {
            if results.needs.len() > 1 {
                found.line(&format!("// for: {}", echo(&results.needs[hits[0].0.need])));
            }
            for (_, text) in hits {
                found.text.push_str(text);
            }
        }
        found.note_what_is_missing(results);
        found
    }

    fn note_what_is_missing(&mut self, results: &SearchResults) {
        if self.total == 0 {
            let query = results.needs.iter().map(|need| echo(need)).collect::<Vec<_>>().join(" and ");
            let advice = match results.suggestions.as_slice() {
                [] => "describe what the tool should do".to_owned(),
                words => format!("words that are there: {}", words.join(", ")),
            };
            self.line(&format!("// nothing found for: {query}; {advice}"));
        } else if self.shown < self.total {
            let more = self.total - self.shown;
            self.line(&format!("// {more} more match: ask again with other words, or with a larger limit"));
        }
    }

    fn line(&mut self, line: &str) {
        // Writing to a string cannot fail.
        writeln!(self.text, "{line}").unwrap_or_default();
    }
}

/// A query as part of a comment.
fn echo(query: &str) -> String {
    shorten(&query.split_whitespace().collect::<Vec<_>>().join(" "), ECHO_CHARS_MAX)
}
