//! The assistant message that answers one request: placeholders filled, limits applied.

use dacapo_wire::Wire;
use serde_json::{Value, json};

use crate::ReplyConstants;
use crate::ids::IdGenerator;
use crate::message_template::MessageTemplate;
use crate::placeholders::fill;
use crate::quirk::Quirk;
use crate::request_options::RequestOptions;
use crate::script_turn::{ScriptTurn, word_ends};
use crate::scripted_conversation::{InputKind, ScriptedConversation};

pub(crate) struct ReplyMessage {
    pub(crate) text: Option<String>,
    pub(crate) reasoning: Option<String>,
    pub(crate) calls: Vec<ReplyCall>,
    pub(crate) finish_cause: FinishCause,
}

pub(crate) struct ReplyCall {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) arguments: String,
    pub(crate) signature: Option<String>,
    pub(crate) input: InputKind,
}

/// Why a message ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum FinishCause {
    Complete,
    ToolCalls,
    /// At this stop sequence.
    Stop(String),
    TokenLimit,
}

/// Token counts of a reply.
pub(crate) struct ReplyTokens {
    pub(crate) input: usize,
    pub(crate) output: usize,
    /// Part of the output.
    pub(crate) reasoning: usize,
}

/// A message to be encoded, with everything that an encoder may need.
pub(crate) struct OutgoingMessage<'a> {
    pub(crate) message: &'a ReplyMessage,
    pub(crate) template: &'a MessageTemplate,
    pub(crate) turn: &'a ScriptTurn,
    pub(crate) conversation: &'a ScriptedConversation<'a>,
    pub(crate) options: &'a RequestOptions<'a>,
    pub(crate) ids: &'a IdGenerator,
    pub(crate) constants: &'a ReplyConstants,
    pub(crate) tokens: ReplyTokens,
}

impl ReplyMessage {
    pub(crate) fn compose(
        wire: Wire,
        template: &MessageTemplate,
        conversation: &ScriptedConversation<'_>,
        options: &RequestOptions<'_>,
        ids: &IdGenerator,
        count: fn(&str) -> usize,
    ) -> ReplyMessage {
        let filled = |template: &Option<String>| template.as_ref().map(|template| fill(template, conversation));
        let mut message = ReplyMessage {
            text: filled(&template.text),
            reasoning: filled(&template.reasoning),
            calls: calls(wire, template, conversation, ids),
            finish_cause: FinishCause::Complete,
        };
        match message.cut(options, count) {
            // Calls come after the text, so a message that is cut inside its text has none.
            Some(cause) => {
                message.calls.clear();
                message.finish_cause = cause;
            }
            None if !message.calls.is_empty() => message.finish_cause = FinishCause::ToolCalls,
            None => {}
        }
        message
    }

    /// Applies `stop` and the token limits. Returns which of them ended the message.
    fn cut(&mut self, options: &RequestOptions<'_>, count: fn(&str) -> usize) -> Option<FinishCause> {
        let mut cause = None;
        if let Some(text) = &mut self.text {
            let stops = options.stop.iter().filter(|stop| !stop.is_empty());
            if let Some((at, stop)) = stops.filter_map(|stop| Some((text.find(*stop)?, *stop))).min() {
                text.truncate(at);
                cause = Some(FinishCause::Stop(stop.to_owned()));
            }
        }
        let Some(mut budget) = options.tokens_max else { return cause };
        for text in [&mut self.reasoning, &mut self.text].into_iter().flatten() {
            let tokens = count(text);
            if tokens > budget {
                let ends = word_ends(text);
                let fitting = ends.partition_point(|end| count(&text[..*end]) <= budget);
                text.truncate(if fitting == 0 { 0 } else { ends[fitting - 1] });
                cause = Some(FinishCause::TokenLimit);
                budget = 0;
            } else {
                budget -= tokens;
            }
        }
        cause
    }

    pub(crate) fn tokens(
        &self,
        conversation: &ScriptedConversation<'_>,
        options: &RequestOptions<'_>,
        count: fn(&str) -> usize,
    ) -> ReplyTokens {
        let reasoning = self.reasoning.as_deref().map_or(0, count) * options.n;
        let calls: usize = self.calls.iter().map(|call| count(&call.name) + count(&call.arguments)).sum();
        let output = reasoning + (self.text.as_deref().map_or(0, count) + calls) * options.n;
        ReplyTokens { input: conversation.input_tokens(count), output, reasoning }
    }
}

impl OutgoingMessage<'_> {
    /// The finish reason of the script. Without one, `default` maps the cause to a name of the wire.
    pub(crate) fn finish_reason<'a>(&'a self, default: impl Fn(&FinishCause) -> &'a str) -> Option<&'a str> {
        if self.template.has(Quirk::NoFinishReason) {
            return None;
        }
        Some(self.template.finish_reason.as_deref().unwrap_or_else(|| default(&self.message.finish_cause)))
    }
}

impl OutgoingMessage<'_> {
    /// Replaces counted values of `usage` by those of the script. `field` maps a key of the script and its value to those
    /// of the wire; `None` leaves the key out.
    pub(crate) fn override_usage(
        &self,
        usage: &mut Value,
        field: impl for<'v> Fn(&'v str, &'v Value) -> Option<(&'v str, &'v Value)>,
    ) {
        for (name, value) in self.template.usage.iter().filter_map(|(name, value)| field(name, value)) {
            usage[name] = value.clone();
        }
    }
}

/// Searches, then programs, then other calls, each in the order of the script.
fn calls(
    wire: Wire,
    template: &MessageTemplate,
    conversation: &ScriptedConversation<'_>,
    ids: &IdGenerator,
) -> Vec<ReplyCall> {
    let mut calls: Vec<ReplyCall> = Vec::new();
    let mut push = |name: &str, arguments: String, id: Option<&String>, signature: Option<&String>| {
        let id = id.cloned().unwrap_or_else(|| ids.call(wire, calls.len()));
        let input = conversation.offered(name).map_or(InputKind::Json, |tool| tool.input);
        calls.push(ReplyCall { id, name: name.into(), arguments, signature: signature.cloned(), input });
    };
    for search in &template.searches {
        let query = fill(&search.query, conversation);
        let arguments = match search.limit {
            Some(limit) => json!({"query": query, "limit": limit}),
            None => json!({"query": query}),
        };
        push("search", arguments.to_string(), None, None);
    }
    for program in &template.programs {
        push("execute", json!({"code": fill(program, conversation)}).to_string(), None, None);
    }
    for call in &template.calls {
        push(&call.name, call.arguments.clone(), call.id.as_ref(), call.signature.as_ref());
    }
    calls
}
