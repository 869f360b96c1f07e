//! The three formats in which clients ask, and models are asked.

use std::fmt;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Wire {
    /// `OpenAI` Chat Completions.
    Chat,
    /// `OpenAI` Responses.
    Responses,
    /// Anthropic Messages.
    Messages,
}

impl Wire {
    pub const ALL: [Wire; 3] = [Wire::Chat, Wire::Responses, Wire::Messages];

    pub fn parse(name: &str) -> Option<Wire> {
        Wire::ALL.into_iter().find(|wire| wire.name() == name)
    }

    pub fn name(self) -> &'static str {
        match self {
            Wire::Chat => "chat",
            Wire::Responses => "responses",
            Wire::Messages => "messages",
        }
    }

    /// What the ids of answers begin with.
    pub(crate) fn answer_prefix(self) -> &'static str {
        match self {
            Wire::Chat => "chatcmpl-",
            Wire::Responses => "resp_",
            Wire::Messages => "msg_",
        }
    }

    /// Below a provider's base URL, which ends in `/v1`.
    pub fn path(self) -> &'static str {
        match self {
            Wire::Chat => "/chat/completions",
            Wire::Responses => "/responses",
            Wire::Messages => "/messages",
        }
    }
}

impl fmt::Display for Wire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
