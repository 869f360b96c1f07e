//! Texts by which tools say that they failed, where a wire has no field for failures.

use dacapo_replay::{Answer, matches_pattern};
use regex::Regex;

use crate::client_wire::FailureMark;
use crate::turn::Turn;

/// Rules of the operator: answers of these tools that match are failures, which programs can catch.
#[derive(Debug, Clone, Default)]
pub struct ErrorTexts(Vec<ErrorText>);

#[derive(Debug, Clone)]
struct ErrorText {
    /// A pattern of tools' names.
    tools: String,
    text: Regex,
}

/// Bounds the memory of one compiled expression.
const REGEX_BYTES_MAX: usize = 1 << 20;

impl ErrorTexts {
    /// Adds a rule. An expression that cannot be used is an error that says why.
    pub fn add(&mut self, tools: &str, expression: &str) -> Result<(), String> {
        let text = regex::RegexBuilder::new(expression).size_limit(REGEX_BYTES_MAX).build();
        let text = text.map_err(|error| {
            // The reason stands after the expression and a mark below the place.
            let message = error.to_string();
            let reason = message.rsplit("error: ").next().unwrap_or(&message).trim_end_matches('.');
            format!("`{expression}` cannot be used as a regular expression: {reason}")
        })?;
        self.0.push(ErrorText { tools: tools.to_owned(), text });
        Ok(())
    }

    /// The rules, as they were added.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|rule| (rule.tools.as_str(), rule.text.as_str()))
    }

    /// Applies the rules to the answers of a request. On a wire that has a field for failures they have no effect.
    pub fn apply(&self, turn: &mut Turn) {
        if self.0.is_empty() || turn.client.0.capabilities().failures == FailureMark::Field {
            return;
        }
        for block in turn.conversation.programs_from_end() {
            for call in block.rounds.iter_mut().flat_map(|round| &mut round.calls) {
                if let Some((_, answer)) = &mut call.answer {
                    self.apply_to(&call.tool, answer);
                }
            }
        }
        if self.0.iter().any(|rule| rule.tools == "*") {
            turn.model_tools.say_that_failures_throw();
        }
    }

    fn apply_to(&self, tool: &str, answer: &mut Answer) {
        let Answer::Ok(json) = &*answer else { return };
        // Only text can match; JSON of any other kind is data.
        let Some(text) = json.as_string() else { return };
        if self.0.iter().any(|rule| matches_pattern(&rule.tools, tool) && rule.text.is_match(&text)) {
            *answer = Answer::error(text.into_owned());
        }
    }
}
