//! Plain mode: programs are not part of the client's history. The ids of their calls carry their state.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dacapo_replay::Catalog;
use serde_json::Value;

use crate::call_round::{CallRound, ExpectedCall, IssuedCall};
use crate::conversation::{Conversation, ConversationItem, LostCalls, ProgramBlock, WireCall};
use crate::ids::{CarriedRound, RunId};
use crate::seal::{PackedState, RoundHeader, Sealer, Unsealed};
use crate::sealing_key::UnsealError;
use crate::state::{CallRef, RunState};
use crate::tool_answer::ToolAnswer;
use crate::wire::ClientSide;

/// Sealed ids that a store kept, by run and round. Calls of such rounds have only short ids in the history. `None` for those
/// that have expired.
#[derive(Debug, Clone, Default)]
pub struct StoredStates(BTreeMap<(RunId, u32), Option<String>>);

impl StoredStates {
    /// Run and round of each model message that has short ids, but no sealed one.
    pub fn referred_to(client: ClientSide, body: &Value) -> Vec<(RunId, u32)> {
        let referred_to = |ids: Vec<String>| {
            let is_sealed = ids.iter().any(|id| Sealer::is_sealed(id));
            let short = ids.iter().find_map(|id| Sealer::run_and_round(id));
            short.filter(|_| !is_sealed)
        };
        client.0.call_ids(body).into_iter().filter_map(referred_to).collect()
    }

    /// Adds a state that the store had, as the sealed id of the first call of its round.
    pub fn insert(&mut self, run: RunId, round: u32, sealed: String) {
        self.0.insert((run, round), Some(sealed));
    }

    /// Notes that the store had the state, but has given it up.
    pub fn insert_expired(&mut self, run: RunId, round: u32) {
        self.0.insert((run, round), None);
    }
}

/// Which states a request refers to that cannot be opened, and why. The request is answered all
/// the same, so that only this shows that replicas have different secrets, or that a client shortens ids.
#[derive(Debug, Default)]
pub struct UnopenedStates(Mutex<BTreeMap<String, UnopenedReason>>);

/// Why a state is not available.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum UnopenedReason {
    /// It is there, and cannot be opened.
    Sealed(UnsealError),
    /// The id refers to a state that was stored, for longer than its time to live.
    Expired,
    /// The id refers to a state that is not stored, and perhaps never was.
    Missing,
}

impl UnopenedStates {
    /// Adds a state by its id, or by the name under which it is stored. One that is there already is not added again.
    pub fn add(&self, id: &str, reason: UnopenedReason) {
        self.lock().entry(id.to_owned()).or_insert(reason);
    }

    /// How many there are for this reason.
    pub fn count(&self, reason: UnopenedReason) -> usize {
        self.lock().values().filter(|other| **other == reason).count()
    }

    /// All of them: ids, or names in the store, and why they cannot be opened.
    pub fn list(&self) -> Vec<(String, UnopenedReason)> {
        self.lock().iter().map(|(id, reason)| (id.clone(), *reason)).collect()
    }

    /// Whether every state could be opened.
    pub fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, UnopenedReason>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Opens the states of the programs of a history.
pub(crate) struct StateOpener<'a> {
    pub sealer: &'a Sealer,
    pub stored: &'a StoredStates,
    pub unopened: &'a UnopenedStates,
    pub catalog: &'a Catalog,
}

impl StateOpener<'_> {
    /// Opens an id, and notes it if it looks like one of ours and cannot be opened.
    pub(crate) fn unseal(&self, id: &str) -> Option<Unsealed> {
        match self.sealer.unseal(id) {
            Ok(unsealed) => Some(unsealed),
            Err(error) => {
                if Sealer::is_own_id(id) {
                    self.unopened.add(id, UnopenedReason::Sealed(error));
                }
                None
            }
        }
    }

    /// Whether calls with the ids `next` belong to the round of the calls before them. Some clients keep each call of a
    /// message in a message of its own.
    pub(crate) fn is_same_round(&self, before: &[&str], next: &[&str]) -> bool {
        let next: Vec<_> = next.iter().filter(|id| Sealer::is_own_id(id)).map(|id| Sealer::run_and_round(id)).collect();
        let Some(Some(of_next)) = next.first().copied() else { return false };
        let is_of_next = |id: &&str| match self.sealer.unseal(id) {
            Ok(Unsealed::Round { packed, header, .. }) => (packed.run(), header.number) == of_next,
            Ok(Unsealed::Sibling { run, round, .. }) => (run, round) == of_next,
            Err(_) => false,
        };
        next.iter().all(|of| *of == Some(of_next)) && before.iter().any(is_of_next)
    }

    /// Whether a call with this id is of a round before this one, or of another program: its answer comes late.
    fn is_of_other_round(&self, id: &str, run: RunId, round: u32) -> bool {
        match self.sealer.unseal(id) {
            Ok(Unsealed::Round { packed, header, .. }) => packed.run() != run || header.number < round,
            Ok(Unsealed::Sibling { run: of, round: number, .. }) => of != run || number < round,
            Err(_) => false,
        }
    }

    /// Opens the stored state of a round. A state that is stored under another round's name does not count.
    fn unseal_stored(&self, of: (RunId, u32)) -> Option<Unsealed> {
        let name = format!("{}_{}", of.0, of.1);
        let id = match self.stored.0.get(&of) {
            Some(Some(id)) => id,
            Some(None) => {
                self.unopened.add(&name, UnopenedReason::Expired);
                return None;
            }
            None => {
                self.unopened.add(&name, UnopenedReason::Missing);
                return None;
            }
        };
        let unsealed = self.unseal(id)?;
        match unsealed {
            Unsealed::Round { ref packed, ref header, .. } if (packed.run(), header.number) == of => Some(unsealed),
            _ => {
                self.unopened.add(&name, UnopenedReason::Sealed(UnsealError::Damaged));
                None
            }
        }
    }
}

/// A message of the model with at least one call that has an id of ours, and the answers that follow it.
pub(crate) struct CallExchange {
    pub message: Value,
    pub calls: Vec<HistoryCall>,
    pub answers: Vec<HistoryAnswer>,
    /// Entries that the client sent together with its answers.
    pub remarks: Vec<Value>,
}

pub(crate) struct HistoryCall {
    pub id: String,
    pub name: String,
    /// As JSON text.
    pub arguments: String,
    /// The call as it came on the wire.
    pub native: Value,
}

impl HistoryCall {
    /// The call as it came, with the answer that has its id.
    pub(crate) fn into_wire_call(self, answers: &[HistoryAnswer]) -> WireCall {
        let answer = answers.iter().find(|answer| answer.id == self.id);
        WireCall { call: self.native, answer: answer.map(|answer| answer.native.clone()) }
    }
}

pub(crate) struct HistoryAnswer {
    pub id: String,
    /// The answer as it came on the wire.
    pub native: Value,
    pub read: ReadAnswer,
}

/// Reads an answer of a wire as that of the call with this key.
pub(crate) type ReadAnswer = fn(&Value, &str) -> ToolAnswer;

impl CallExchange {
    /// Appends the calls: as a round of their program, or as lost calls if its state cannot be opened.
    pub(crate) fn add_to(self, conversation: &mut Conversation, opener: Option<&StateOpener<'_>>) {
        match opener.map_or(Err(None), |opener| RoundState::open(&self, opener)) {
            Ok(round) => round.add_to(conversation, self.calls, &self.answers, self.remarks),
            Err(carried) => self.add_lost_to(conversation, carried),
        }
    }

    /// Appends the calls as lost calls.
    pub(crate) fn add_lost_to(self, conversation: &mut Conversation, carried: Option<CarriedRound>) {
        let calls = self.calls.into_iter().map(|call| call.into_wire_call(&self.answers)).collect();
        let lost = LostCalls { message: self.message, calls, carried };
        conversation.items.push(ConversationItem::LostCalls(lost));
        conversation.items.extend(self.remarks.into_iter().map(ConversationItem::Entry));
    }
}

/// Adds an answer that is not next to its call.
pub(crate) fn add_late_answer(conversation: &mut Conversation, id: &str, native: &Value, read: ReadAnswer) {
    let (owner, appended) = set_late_answer(conversation, id, native, read);
    // It was appended now, so it is for the program that goes on now.
    if let Some(live) = conversation.live_mut() {
        live.add_appended(appended);
    } else if let Some(block) = conversation.programs_from_end().find(|block| Some(block.run) == owner) {
        block.add_appended(appended);
    }
}

/// Sets the answer to its call, if the client has not removed the call from the history. Returns the call's program, and
/// what an agent appended to the answer.
fn set_late_answer(
    conversation: &mut Conversation,
    id: &str,
    native: &Value,
    read: ReadAnswer,
) -> (Option<RunId>, Option<String>) {
    for block in conversation.programs_from_end() {
        let mut calls = block.rounds.iter_mut().flat_map(|round| &mut round.calls);
        if let Some(call) = calls.find(|call| call.id == id && call.answer.is_none()) {
            return (Some(block.run), call.set_answer(block.run, usize::MAX, |key| read(native, key)));
        }
    }
    (None, read(native, id).appended)
}

/// The tool's name in journals, for any name that programs may call it by.
pub(crate) fn tool_name(name: &str, catalog: &Catalog) -> String {
    if catalog.find(name).is_none() {
        let known = catalog
            .functions()
            .iter()
            .find(|function| function.identifier == name || function.aliases.iter().any(|alias| alias == name));
        if let Some(function) = known {
            return catalog.qualified_name(function.tool).to_owned();
        }
    }
    name.to_owned()
}

/// The opened state of a round of calls.
pub(crate) struct RoundState<'a> {
    catalog: &'a Catalog,
    state: Arc<RunState>,
    packed: Arc<PackedState>,
    header: RoundHeader,
    /// For each call of the message the program's call that it is; `None` for a direct call.
    expected: Vec<Option<CallRef>>,
}

impl<'a> RoundState<'a> {
    /// An error if no id of the message can be opened, or if one of them does not belong to the round: what the round
    /// carries, if that could be read.
    pub(crate) fn open(
        exchange: &CallExchange,
        opener: &StateOpener<'a>,
    ) -> Result<RoundState<'a>, Option<CarriedRound>> {
        let CallExchange { calls, answers, .. } = exchange;
        let sealed_at = calls.iter().position(|call| Sealer::is_sealed(&call.id));
        let short = || calls.iter().find_map(|call| Sealer::run_and_round(&call.id));
        let unsealed = match sealed_at {
            Some(at) => opener.unseal(&calls[at].id),
            None => short().and_then(|short| opener.unseal_stored(short)),
        };
        let Some(Unsealed::Round { state, packed, header, calls: issued }) = unsealed else {
            return Err(None);
        };
        let run = packed.run();
        let expected = |(at, call): (usize, &HistoryCall)| {
            if !Sealer::is_own_id(&call.id) {
                return Some(None);
            }
            if Some(at) == sealed_at {
                return issued.first().copied().map(Some);
            }
            match opener.unseal(&call.id)? {
                Unsealed::Sibling { run: other, round, call } if other == run && round == header.number => {
                    issued.iter().find(|issued| issued.call == call).copied().map(Some)
                }
                _ => None,
            }
        };
        let expected: Option<Vec<Option<CallRef>>> = calls.iter().enumerate().map(expected).collect();
        // An answer whose id was changed on its way. The call would stay unanswered and be issued again for ever.
        let is_stray = |answer: &HistoryAnswer| {
            !calls.iter().any(|call| call.id == answer.id) && !opener.is_of_other_round(&answer.id, run, header.number)
        };
        match expected {
            Some(expected) if !answers.iter().any(is_stray) => {
                Ok(RoundState { catalog: opener.catalog, state, packed, header, expected })
            }
            _ => Err(Some(CarriedRound::of(&state, &header))),
        }
    }

    /// Appends the round to its program if that is the last item, or else starts a block with it. Answers to calls of
    /// other rounds go there.
    pub(crate) fn add_to(
        self,
        conversation: &mut Conversation,
        calls: Vec<HistoryCall>,
        answers: &[HistoryAnswer],
        remarks: Vec<Value>,
    ) {
        let mut appended = Vec::new();
        for answer in answers.iter().filter(|answer| !calls.iter().any(|call| call.id == answer.id)) {
            appended.extend(set_late_answer(conversation, &answer.id, &answer.native, answer.read).1);
        }
        let run = self.packed.run();
        let RoundHeader { number, answered, before, owned } = self.header;
        let mut round = CallRound { number, answered: Some(answered), before, owned, calls: Vec::new() };
        let mut direct = Vec::new();
        for (call, expected) in calls.into_iter().zip(self.expected) {
            let Some(expected) = expected else {
                direct.push(call.into_wire_call(answers));
                continue;
            };
            let (tool, expected) = (tool_name(&call.name, self.catalog), ExpectedCall::Digest(expected));
            let mut issued = IssuedCall::unanswered(call.id, tool, expected, call.arguments);
            if let Some((at, answer)) = answers.iter().enumerate().find(|(_, answer)| answer.id == issued.id) {
                appended.extend(issued.set_answer(run, at, |key| (answer.read)(&answer.native, key)));
            }
            round.calls.push(issued);
        }
        if let Some(ConversationItem::Program(block)) = conversation.items.last_mut()
            && block.run == run
            && !block.is_closed()
        {
            block.add_round(round);
            for call in direct {
                if !block.direct.iter().any(|known| known.call == call.call) {
                    block.direct.push(call);
                }
            }
            block.add_appended(appended);
            block.remarks.extend(remarks);
            return;
        }
        let block = ProgramBlock::new(&run.to_string(), Arc::unwrap_or_clone(self.state));
        let packed = Some(self.packed);
        let mut block = ProgramBlock { run, packed, rounds: vec![round], direct, ..block };
        block.add_appended(appended);
        block.remarks.extend(remarks);
        conversation.items.push(ConversationItem::Program(Box::new(block)));
    }
}

impl ProgramBlock {
    /// A client may send the same round once more, with answers that were missing before.
    pub(crate) fn add_round(&mut self, round: CallRound) {
        let Some(known_round) = self.rounds.iter_mut().find(|known| known.number == round.number) else {
            self.rounds.push(round);
            return;
        };
        let answers_before = known_round.calls.len();
        for call in round.calls {
            let answer = call.answer.map(|(position, answer)| (answers_before + position, answer));
            match known_round.calls.iter_mut().find(|known| known.expected == call.expected) {
                Some(known) if known.answer.is_none() => {
                    (known.answer, known.attachments) = (answer, call.attachments);
                }
                Some(_) => {}
                None => known_round.calls.push(IssuedCall { answer, ..call }),
            }
        }
    }
}
