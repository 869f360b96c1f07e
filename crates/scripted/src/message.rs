//! The assistant message that a turn gives to one request.

use dacapo_wire::Wire;
use serde_json::json;

use super::Stamp;
use super::conversation::{Conversation, Input};
use super::draft::Draft;
use super::ids::Ids;
use super::options::Options;
use super::quirk::Quirk;
use super::template::fill;
use super::turn::{Turn, word_ends};

pub(super) struct Message {
    pub(super) text: Option<String>,
    pub(super) reasoning: Option<String>,
    pub(super) calls: Vec<Call>,
    pub(super) ended: Ended,
}

pub(super) struct Call {
    pub(super) id: String,
    pub(super) name: String,
    pub(super) arguments: String,
    pub(super) signature: Option<String>,
    pub(super) input: Input,
}

/// Why a message says nothing more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Ended {
    Said,
    Calls,
    Stop(String),
    Limit,
}

/// Tokens as counted.
pub(super) struct Tokens {
    pub(super) input: usize,
    pub(super) output: usize,
    /// Part of the output.
    pub(super) reasoning: usize,
}

/// A message on its way out, with all that its format may want to know.
pub(super) struct Outgoing<'a> {
    pub(super) message: &'a Message,
    pub(super) draft: &'a Draft,
    pub(super) turn: &'a Turn,
    pub(super) conversation: &'a Conversation<'a>,
    pub(super) options: &'a Options,
    pub(super) ids: &'a Ids,
    pub(super) stamp: &'a Stamp,
    pub(super) tokens: Tokens,
}

impl Message {
    pub(super) fn compose(
        wire: Wire,
        draft: &Draft,
        conversation: &Conversation<'_>,
        options: &Options,
        ids: &Ids,
        count: fn(&str) -> usize,
    ) -> Message {
        let filled = |template: &Option<String>| template.as_ref().map(|template| fill(template, conversation));
        let mut message = Message {
            text: filled(&draft.text),
            reasoning: filled(&draft.reasoning),
            calls: calls(wire, draft, conversation, ids),
            ended: Ended::Said,
        };
        match message.cut(options, count) {
            // What is cut says nothing more: calls come after the text.
            Some(ended) => {
                message.calls.clear();
                message.ended = ended;
            }
            None if !message.calls.is_empty() => message.ended = Ended::Calls,
            None => {}
        }
        message
    }

    /// Applies `stop` and the token limits; says which of them ended the message.
    fn cut(&mut self, options: &Options, count: fn(&str) -> usize) -> Option<Ended> {
        let mut ended = None;
        if let Some(text) = &mut self.text {
            let stops = options.stop.iter().filter(|stop| !stop.is_empty());
            if let Some((at, stop)) = stops.filter_map(|stop| Some((text.find(stop.as_str())?, stop))).min() {
                text.truncate(at);
                ended = Some(Ended::Stop(stop.clone()));
            }
        }
        let Some(mut budget) = options.tokens_max else { return ended };
        for text in [&mut self.reasoning, &mut self.text].into_iter().flatten() {
            let tokens = count(text);
            if tokens > budget {
                let ends = word_ends(text);
                let fitting = ends.partition_point(|end| count(&text[..*end]) <= budget);
                text.truncate(if fitting == 0 { 0 } else { ends[fitting - 1] });
                ended = Some(Ended::Limit);
                budget = 0;
            } else {
                budget -= tokens;
            }
        }
        ended
    }

    pub(super) fn tokens(
        &self,
        conversation: &Conversation<'_>,
        options: &Options,
        count: fn(&str) -> usize,
    ) -> Tokens {
        let reasoning = self.reasoning.as_deref().map_or(0, count) * options.n;
        let calls: usize = self.calls.iter().map(|call| count(&call.name) + count(&call.arguments)).sum();
        let output = reasoning + (self.text.as_deref().map_or(0, count) + calls) * options.n;
        Tokens { input: conversation.input_tokens(count), output, reasoning }
    }
}

impl Outgoing<'_> {
    /// The reason that the script names, or else the natural one in the words of a format.
    pub(super) fn finish_reason<'a>(&'a self, natural: impl Fn(&Ended) -> &'a str) -> Option<&'a str> {
        if self.draft.has(Quirk::NoFinishReason) {
            return None;
        }
        Some(self.draft.finish_reason.as_deref().unwrap_or_else(|| natural(&self.message.ended)))
    }
}

/// Searches, then programs, then other calls, as the script has them.
fn calls(wire: Wire, draft: &Draft, conversation: &Conversation<'_>, ids: &Ids) -> Vec<Call> {
    let mut calls: Vec<Call> = Vec::new();
    let mut push = |name: &str, arguments: String, id: Option<&String>, signature: Option<&String>| {
        let id = id.cloned().unwrap_or_else(|| ids.call(wire, calls.len()));
        let input = conversation.offered(name).map_or(Input::Json, |tool| tool.input);
        calls.push(Call { id, name: name.into(), arguments, signature: signature.cloned(), input });
    };
    for search in &draft.searches {
        let query = fill(&search.query, conversation);
        let arguments = match search.limit {
            Some(limit) => json!({"query": query, "limit": limit}),
            None => json!({"query": query}),
        };
        push("search", arguments.to_string(), None, None);
    }
    for program in &draft.programs {
        push("execute", json!({"code": fill(program, conversation)}).to_string(), None, None);
    }
    for call in &draft.calls {
        push(&call.name, call.arguments.clone(), call.id.as_ref(), call.signature.as_ref());
    }
    calls
}
