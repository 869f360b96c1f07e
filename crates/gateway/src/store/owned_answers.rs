//! Answers to calls that the gateway executed itself, between the requests of a client.

use std::collections::BTreeMap;

use dacapo_replay::{Journal, JournalEntry};
use dacapo_runner::StoreError;
use dacapo_wire::{Conversation, ConversationItem, OwnedAnswers, ProgramBlock, ProgramMode, UnopenedStates};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::Store;

/// Answers of one program, from one round of calls to the client to the next.
#[derive(Debug)]
pub(crate) struct AnswersBetweenRounds<'a> {
    /// The program's id.
    pub program: &'a str,
    /// The round after them.
    pub round: u32,
    /// Fingerprint of the journal before them. They belong to no other journal.
    pub after: [u8; 8],
    pub entries: &'a [JournalEntry],
}

#[derive(Serialize, Deserialize)]
struct StoredText<'a> {
    after: String,
    #[serde(borrow)]
    journal: &'a RawValue,
}

/// What was stored: the fingerprint of the journal before, and the answers.
type Found = (String, Vec<JournalEntry>);

pub(crate) async fn keep(store: &Store, tenant: &str, answers: &AnswersBetweenRounds<'_>) -> Result<(), StoreError> {
    let journal = answers.entries.iter().cloned().collect::<Journal>().to_json();
    let after = crate::http::hex(&answers.after);
    let text = format!(r#"{{"after":"{after}","journal":{journal}}}"#);
    store.put_text(tenant, &name(answers.program, answers.round), &text).await
}

/// The answers that a program was given after this journal, if they are stored.
pub(crate) async fn load(
    store: &Store,
    tenant: &str,
    program: &str,
    round: u32,
    after: [u8; 8],
) -> Result<Vec<JournalEntry>, StoreError> {
    let names = [name(program, round)];
    let text = store.get_texts(tenant, &names, &UnopenedStates::default()).await?.pop().flatten();
    let found = text.and_then(|text| read(&text)).filter(|(known, _)| *known == crate::http::hex(&after));
    Ok(found.map(|(_, entries)| entries).unwrap_or_default())
}

/// Puts answers back into the programs of a conversation.
pub(crate) async fn restore(
    store: &Store,
    tenant: &str,
    conversation: &mut Conversation,
    mode: ProgramMode,
    unopened: &UnopenedStates,
) -> Result<(), StoreError> {
    let blocks = || {
        conversation.items.iter().filter_map(|item| match item {
            ConversationItem::Program(block) => Some(block),
            _ => None,
        })
    };
    let names: Vec<String> = blocks().flat_map(|block| names(block, mode)).collect();
    let texts = store.get_texts(tenant, &names, unopened).await?;
    let found: BTreeMap<String, Found> =
        names.into_iter().zip(texts).filter_map(|(name, text)| Some((name, read(&text?)?))).collect();
    for item in &mut conversation.items {
        if let ConversationItem::Program(block) = item {
            fill(block, &found);
        }
    }
    Ok(())
}

/// Whether a program cannot go on without answers that are nowhere but in the store.
pub(crate) fn needs_stored(block: &ProgramBlock) -> bool {
    let is_stored = |(_, owned): &(usize, OwnedAnswers)| owned.entries().is_none();
    block.journal_of_rounds().is_err() || block.state.earlier_answers.iter().any(is_stored)
}

/// Where answers of a program may be stored.
fn names(block: &ProgramBlock, mode: ProgramMode) -> Vec<String> {
    let program = block.state.waiting().id;
    // Histories of explicit mode have no place for them.
    let may_be_stored = |owned: &OwnedAnswers| mode == ProgramMode::Explicit || owned.entries().is_none();
    let of_rounds = block.rounds.iter().filter(|round| may_be_stored(&round.owned));
    let mut names: Vec<String> = of_rounds.map(|round| name(&program, round.number)).collect();
    names.push(name(&program, block.next_round()));
    let earlier = block.state.earlier_answers.iter().filter(|(_, owned)| owned.entries().is_none());
    names.extend(earlier.map(|(message, _)| name(&block.state.program(*message, "").id, 0)));
    names
}

/// Takes what belongs to the journal of the program.
fn fill(block: &mut ProgramBlock, found: &BTreeMap<String, Found>) {
    let program = block.state.waiting().id;
    let mut carried = Vec::new();
    for (at, round) in block.rounds.iter_mut().enumerate() {
        let Some((_, entries)) = found.get(&name(&program, round.number)) else { continue };
        let before = std::mem::replace(&mut round.owned, OwnedAnswers::Carried(entries.clone()));
        if before != OwnedAnswers::Stored {
            carried.push((at, before));
        }
    }
    // Rounds say what the journal before them was.
    if block.journal_of_rounds().is_err() {
        for (at, before) in carried {
            block.rounds[at].owned = before;
        }
    }
    if let (Ok(journal), Some((after, entries))) =
        (block.journal_of_rounds(), found.get(&name(&program, block.next_round())))
        && *after == crate::http::hex(&journal.fingerprint())
    {
        block.owned_after.clone_from(entries);
    }
    for (message, _) in &block.state.earlier_answers {
        if let Some((_, entries)) = found.get(&name(&block.state.program(*message, "").id, 0)) {
            block.stored_earlier.insert(*message, entries.clone());
        }
    }
}

fn read(text: &str) -> Option<Found> {
    let stored: StoredText<'_> = serde_json::from_str(text).ok()?;
    let journal = Journal::from_json(stored.journal.get()).ok()?;
    Some((stored.after, journal.entries().to_vec()))
}

fn name(program: &str, round: u32) -> String {
    format!("executed:{program}:{round}")
}
