//! Answers that programs were given. Clients that edit their context replace old tool results by a placeholder, also
//! those of a program that is not finished; with a store the program goes on all the same.

use dacapo_replay::Journal;
use dacapo_runner::StoreError;
use dacapo_wire::{Conversation, ConversationItem, ProgramBlock, RunId, UnopenedStates};

use super::Store;

/// Keeps the answers to the last round of a program.
pub(crate) async fn keep(store: &Store, tenant: &str, block: &ProgramBlock) -> Result<(), StoreError> {
    let (Some(round), Ok(journal)) = (block.rounds.last(), block.journal_of_rounds()) else { return Ok(()) };
    if round.calls.iter().all(|call| call.answer.is_none()) {
        return Ok(());
    }
    store.put_text(tenant, &answers_name(block.run, round.number), &round.answers_text()).await?;
    store.put_text(tenant, &journal_name(block.run, round.number), &fingerprint(&journal)).await
}

/// Puts answers back that the client has replaced since. The answers of this request are what the client says.
pub(crate) async fn restore(
    store: &Store,
    tenant: &str,
    conversation: &mut Conversation,
    unopened: &UnopenedStates,
) -> Result<(), StoreError> {
    let is_live = conversation.live().is_some();
    let last = conversation.items.len().saturating_sub(1);
    let blocks = conversation.items.iter_mut().enumerate().filter_map(|(at, item)| match item {
        ConversationItem::Program(block) => Some((is_live && at == last, block)),
        _ => None,
    });
    let mut blocks: Vec<(bool, &mut Box<ProgramBlock>)> =
        blocks.filter(|(_, block)| !block.rounds.is_empty()).collect();
    let ends: Vec<String> = blocks.iter().map(|(_, block)| journal_name(block.run, last_round(block))).collect();
    let ends = store.get_texts(tenant, &ends, unopened).await?;
    for ((is_live, block), end) in blocks.iter_mut().zip(ends) {
        let journal = block.journal_of_rounds();
        let is_as_given = match (&journal, end) {
            (Ok(journal), Some(end)) => *is_live || fingerprint(journal) == end,
            (Ok(_), None) => true,
            (Err(_), _) => false,
        };
        if is_as_given {
            continue;
        }
        let kept = if *is_live { block.rounds.len() - 1 } else { block.rounds.len() };
        let numbers: Vec<u32> = block.rounds[..kept].iter().map(|round| round.number).collect();
        let names: Vec<String> = numbers.iter().map(|number| answers_name(block.run, *number)).collect();
        let texts = store.get_texts(tenant, &names, unopened).await?;
        let texts = numbers.into_iter().zip(texts).filter_map(|(number, text)| Some((number, text?)));
        block.restore_answers(&texts.collect());
    }
    Ok(())
}

fn last_round(block: &ProgramBlock) -> u32 {
    block.rounds.last().map_or(0, |round| round.number)
}

fn fingerprint(journal: &Journal) -> String {
    crate::http::hex(&journal.fingerprint())
}

fn answers_name(run: RunId, round: u32) -> String {
    format!("answers:{run}:{round}")
}

fn journal_name(run: RunId, round: u32) -> String {
    format!("journal:{run}:{round}")
}
