//! The text that answers a model's search.

use std::collections::BTreeSet;
use std::fmt::Write;

use crate::text::shorten;
use crate::tokens::estimated;
use crate::{Catalog, Declarations, Producer, SearchIndex, SearchResults, ToolIndex};

/// Tokens that the answer to a search takes at most, about, unless a caller asks for another budget.
pub const ANSWER_TOKENS_DEFAULT: usize = 2_000;

/// Characters of the query that are repeated in the answer.
const ECHO_CHARS_MAX: usize = 100;
/// Characters of a description beside a name.
const FIRST_WORDS_CHARS_MAX: usize = 60;
/// The part of the budget that is kept for names, where there are more tools than are declared: one in so many.
const NAMES_SHARE: usize = 5;
const NAMES_TOKENS_MAX: usize = 500;

/// The answer to a search: declarations that are ready to use, and the names of what else was found, within a budget.
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
    /// The best tool is declared whatever it costs; the others, best first, as long as they fit into `tokens_max`. Where a
    /// long description does not fit, its first sentences stand for it. Then come the names of the next best. Tools that make what a declared one needs are offered with it.
    pub fn new(
        results: &SearchResults,
        index: &SearchIndex,
        catalog: &Catalog,
        declarations: &Declarations,
        tokens_max: usize,
    ) -> SearchAnswer {
        let mut answer = Answer { catalog, declarations, shortened: BTreeSet::new(), text: String::new() };
        let for_names = if results.more.is_empty() { 0 } else { (tokens_max / NAMES_SHARE).min(NAMES_TOKENS_MAX) };
        let mut tokens_left = tokens_max.saturating_sub(for_names);
        let (mut declared, mut named) = (Vec::new(), Vec::new());
        for hit in &results.hits {
            let tokens = answer.tokens_of(hit.tool, tokens_left);
            if declared.is_empty() || tokens <= tokens_left {
                tokens_left = tokens_left.saturating_sub(tokens);
                declared.push((hit.need, hit.tool));
            } else {
                named.push(hit.tool);
            }
        }
        named.extend(&results.more);
        let mut notes = Vec::new();
        for (need, consumer) in declared.clone() {
            for Producer { input, tool } in index.producers(catalog.tools(), consumer) {
                notes.push(answer.needs(consumer, &input, tool));
                let tokens = answer.tokens_of(tool, tokens_left);
                if !declared.iter().any(|(_, known)| *known == tool) && tokens <= tokens_left {
                    tokens_left -= tokens;
                    declared.push((need, tool));
                }
            }
        }
        named.retain(|tool| !declared.iter().any(|(_, known)| known == tool));
        answer.declare(results, &declared);
        for note in &notes {
            answer.line(note);
            tokens_left = tokens_left.saturating_sub(estimated(note));
        }
        // A producer need not match.
        let missing = results.total_matches.saturating_sub(declared.len()).max(named.len());
        answer.name(&named, tokens_left + for_names, missing);
        answer.say_what_is_missing(results);
        SearchAnswer { text: answer.text, shown: declared.len(), total: results.total_matches }
    }
}

struct Answer<'a> {
    catalog: &'a Catalog,
    declarations: &'a Declarations,
    /// Tools with long descriptions, whose first sentences have to do.
    shortened: BTreeSet<ToolIndex>,
    text: String,
}

impl Answer<'_> {
    /// What a declaration takes, with a shortened description where there is no room for the whole.
    fn tokens_of(&mut self, tool: ToolIndex, tokens_max: usize) -> usize {
        let whole = estimated(self.declarations.of(tool));
        if whole <= tokens_max {
            return whole;
        }
        self.shortened.insert(tool);
        estimated(&self.declarations.shortened(tool))
    }

    fn declare(&mut self, results: &SearchResults, declared: &[(usize, ToolIndex)]) {
        let has_unknown_result =
            declared.iter().any(|(_, tool)| self.catalog.tools()[tool.0 as usize].output_schema.is_none());
        if has_unknown_result {
            self.text.push_str(Declarations::UNKNOWN_NOTE);
        }
        let mut declared = declared.to_vec();
        declared.sort_by_key(|(need, _)| *need);
        for group in declared.chunk_by(|(one, _), (other, _)| one == other) {
            if results.needs.len() > 1 {
                self.line(&format!("// for: {}", echo(&results.needs[group[0].0])));
            }
            let tools: Vec<ToolIndex> = group.iter().map(|(_, tool)| *tool).collect();
            self.text.push_str(&self.declarations.of_several(&tools, &self.shortened));
        }
    }

    /// Names tools that are not declared, as long as they fit. `missing` is how many there are.
    fn name(&mut self, tools: &[ToolIndex], tokens_max: usize, missing: usize) {
        const HOW: &str =
            "// also found; declared by `await describe(\"name\")` in a program, or by a search for the name:";
        let mut tokens_left = tokens_max.saturating_sub(estimated(HOW));
        let mut lines = Vec::new();
        for tool in tools {
            let line = self.named(*tool);
            let tokens = estimated(&line) + 1;
            if tokens > tokens_left {
                break;
            }
            tokens_left -= tokens;
            lines.push(line);
        }
        let more = missing - lines.len();
        if !lines.is_empty() {
            self.line(HOW);
            for line in &lines {
                self.line(line);
            }
        }
        if more > 0 {
            self.line(&format!("// {more} more match: ask again with other words, or with a larger limit"));
        }
    }

    /// A line such as "departures needs a station code: `get_station_code_by_name`".
    fn needs(&self, consumer: ToolIndex, input: &str, producer: ToolIndex) -> String {
        let [consumer, producer] =
            [consumer, producer].map(|tool| self.catalog.functions()[tool.0 as usize].expression());
        format!("// {consumer} needs a `{input}`: {producer}")
    }

    /// The name of a tool, with the first words of its description.
    fn named(&self, tool: ToolIndex) -> String {
        let name = self.catalog.functions()[tool.0 as usize].expression();
        let words = self.declarations.summary(tool);
        if words.is_empty() {
            format!("// {name}")
        } else {
            format!("// {name}: {}", shorten(&words, FIRST_WORDS_CHARS_MAX))
        }
    }

    fn say_what_is_missing(&mut self, results: &SearchResults) {
        if results.unmet.is_empty() {
            return;
        }
        let query = results.unmet.iter().map(|need| echo(&results.needs[*need])).collect::<Vec<_>>().join(" and ");
        let advice = match results.suggestions.as_slice() {
            [] => "describe what the tool should do".to_owned(),
            words => format!("words that are there: {}", words.join(", ")),
        };
        self.line(&format!("// nothing found for: {query}; {advice}"));
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
