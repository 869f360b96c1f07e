//! Answers to calls that the gateway executed itself. The client's history does not hold them.

use dacapo_replay::{Journal, JournalEntry};

/// Answers to calls that the gateway executed between two rounds of a program's calls to the client, in the order in which
/// they settled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OwnedAnswers {
    /// The id carries them.
    Carried(Vec<JournalEntry>),
    /// They are too large for an id. A store keeps them.
    Stored,
}

impl Default for OwnedAnswers {
    fn default() -> OwnedAnswers {
        OwnedAnswers::Carried(Vec::new())
    }
}

impl OwnedAnswers {
    /// The answers, if they are here.
    pub fn entries(&self) -> Option<&[JournalEntry]> {
        match self {
            OwnedAnswers::Carried(entries) => Some(entries),
            OwnedAnswers::Stored => None,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries().is_some_and(<[JournalEntry]>::is_empty)
    }

    /// Empty if a store keeps them.
    pub(crate) fn to_text(&self) -> String {
        self.entries().map_or_else(String::new, |entries| entries.iter().cloned().collect::<Journal>().to_json())
    }

    pub(crate) fn from_text(text: &str) -> Option<OwnedAnswers> {
        if text.is_empty() {
            return Some(OwnedAnswers::Stored);
        }
        Journal::from_json(text).ok().map(|journal| OwnedAnswers::Carried(journal.entries().to_vec()))
    }
}
