//! One conversation: read as the gateway reads it, with every program explained.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use dacapo_replay::{CompletedCall, Program, StepRequest, StoredValues, Toolbox};
use dacapo_wire::{
    CallerRules, ClientSide, Conversation, ConversationItem, EntryAuthor, ParsedRequest, ProgramBlock, ProgramMode,
    ProviderSide, RequestReader, StoredStates, ToolChoiceOverride, Turn, UnopenedReason, UnopenedStates, Wire,
};
use serde_json::{Map, Value, json};

use super::block::ProgramInputs;
use super::context::model_calls;
use super::explanation::{
    ContextTokens, ConversationExplanation, Explanation, ItemExplanation, ItemKind, ReplayStatus, UnopenedState,
};
use super::input::{self, SavedContent, SavedRequest};
use super::{Inspection, StopAfter};
use crate::turn::{ClientCalls, HistoryReplay, ReplayTrace};

impl Inspection<'_> {
    /// Explains a request of any wire, a list of messages, a step request, or several of them, one per line.
    pub fn explain(&self, text: &str) -> Explanation {
        let conversations: Vec<ConversationExplanation> =
            input::read(text, self.wire).into_iter().map(|saved| self.saved(saved)).collect();
        let exact = conversations.iter().all(|conversation| conversation.exact);
        Explanation { version: 1, exact, conversations }
    }

    fn saved(&self, saved: SavedRequest) -> ConversationExplanation {
        let SavedRequest { line, content } = saved;
        let explained = content.and_then(|content| match content {
            SavedContent::Request { wire, body, notes } => self.conversation(wire, body, notes),
            SavedContent::Step(step) => self.step_request(&step),
        });
        explained.map_or_else(
            |problem| ConversationExplanation { line, problem: Some(problem), mode: "off", ..Default::default() },
            |conversation| ConversationExplanation { line, ..conversation },
        )
    }

    fn step_request(&self, step: &Value) -> Result<ConversationExplanation, String> {
        let request = StepRequest::parse_with(&step.to_string(), self.toolboxes)
            .map_err(|error| format!("is a step request that cannot be read: {error}"))?;
        let tools = tools(&request.toolbox);
        let block = self.step_block(request, Vec::new());
        let exact = block.replay.status == ReplayStatus::Exact;
        Ok(ConversationExplanation { exact, mode: "step", tools, blocks: vec![block], ..Default::default() })
    }

    fn conversation(
        &self,
        wire: Wire,
        body: Map<String, Value>,
        mut notes: Vec<String>,
    ) -> Result<ConversationExplanation, String> {
        let client = ClientSide::of(wire).ok_or("no client speaks this wire")?;
        let (parsed, unopened) = self.read(client, &body, &mut notes)?;
        let mut request = body;
        let history = match request.shift_remove(input::history_key(wire)) {
            Some(Value::Array(entries)) => entries,
            _ => Vec::new(),
        };
        let model = request.get("model").and_then(Value::as_str).unwrap_or_default().to_owned();
        let explained = ConversationExplanation {
            wire: Some(wire.name()),
            model,
            notes,
            unopened: unopened.iter().map(|(id, reason)| self.unopened_state(id, *reason)).collect(),
            history,
            request,
            ..Default::default()
        };
        Ok(match parsed {
            ParsedRequest::Turn(turn) => self.turn(&turn, explained),
            ParsedRequest::PassThrough(_) => without_code_mode(client, explained),
        })
    }

    /// Reads a request for whichever client can open most of its states.
    fn read(
        &self,
        client: ClientSide,
        body: &Map<String, Value>,
        notes: &mut Vec<String>,
    ) -> Result<(ParsedRequest, Vec<(String, UnopenedReason)>), String> {
        let provider = ProviderSide::of(client.wire()).ok_or("no model is asked on this wire")?;
        let read_for = |tenant: &str, body: Map<String, Value>| {
            let (sealer, unopened) = (self.secrets.sealer(tenant), UnopenedStates::default());
            let body = Value::Object(body);
            let stored = self.stored_states(tenant, client, &body);
            let reader = RequestReader {
                provider,
                header: None,
                defaults: self.defaults,
                callers: CallerRules::default(),
                sealer: &sealer,
                stored: &stored,
                unopened: &unopened,
                toolboxes: self.toolboxes,
                tenant,
                servers: None,
            };
            let mut parsed = reader.read(client, body).map_err(|error| error.to_string())?.parsed;
            if let ParsedRequest::Turn(turn) = &mut parsed {
                self.error_texts.apply(turn);
            }
            Ok::<_, String>((parsed, unopened.list()))
        };
        let mut best: Option<(ParsedRequest, Vec<(String, UnopenedReason)>)> = None;
        for tenant in self.clients {
            let mut read = read_for(tenant, body.clone())?;
            let has_sealed = || serde_json::to_string(body).is_ok_and(|text| text.contains("\"dc1_"));
            if matches!(read.0, ParsedRequest::PassThrough(_)) && has_sealed() {
                // Something in the request switches code mode off; the programs before it are explained all the same.
                let kept = ["model", "messages", "input", "tools", "system", "instructions"];
                let mut reduced = body.clone();
                reduced.retain(|key, _| kept.contains(&key.as_str()));
                read = read_for(tenant, reduced)?;
                let note = "this request itself is not in code mode; its history is shown as if it were";
                if !notes.iter().any(|known| known == note) {
                    notes.push(note.to_owned());
                }
            }
            let is_better = best.as_ref().is_none_or(|(_, unopened)| read.1.len() < unopened.len());
            if is_better {
                best = Some(read);
            }
            if best.as_ref().is_some_and(|(_, unopened)| unopened.is_empty()) {
                break;
            }
        }
        best.ok_or_else(|| "no client was named".to_owned())
    }

    fn unopened_state(&self, id: &str, reason: UnopenedReason) -> UnopenedState {
        const CHARS_MAX: usize = 24;
        let shown: String = id.chars().take(CHARS_MAX).collect();
        let count = id.chars().count();
        UnopenedState {
            id: if count > CHARS_MAX { format!("{shown}… ({count} characters)") } else { shown },
            reason: match reason {
                UnopenedReason::Sealed(error) => error.to_string(),
                _ if self.stored.is_some() => "its state is not in the gateway's store, or no longer".to_owned(),
                _ => "its state is kept in the gateway's store, which is not read here".to_owned(),
            },
        }
    }

    fn stored_states(&self, tenant: &str, client: ClientSide, body: &Value) -> StoredStates {
        let mut stored = StoredStates::default();
        let referred_to = StoredStates::referred_to(client, body);
        let Some(find) = self.stored.filter(|_| !referred_to.is_empty()) else { return stored };
        for ((run, round), sealed) in referred_to.iter().zip(find(tenant, &referred_to)) {
            if let Some(sealed) = sealed {
                stored.insert(*run, *round, sealed);
            }
        }
        stored
    }

    fn turn(&self, turn: &Turn, explained: ConversationExplanation) -> ConversationExplanation {
        let trace = Trace::default();
        let replay = HistoryReplay {
            client: turn.client,
            conversation: &turn.conversation,
            stepper: self.stepper,
            model_tools: &turn.model_tools,
            owned_from: turn.owned_from,
            tools_digest: turn.tools_digest,
            client_calls: ClientCalls::Taken,
            embeddings: None,
            limits: self.limits,
            should_continue: self.should_continue,
            trace: &trace,
            missing: RefCell::default(),
        };
        let mut model_history = turn.model_history();
        let mut notes = explained.notes;
        if let Err(error) = replay.write(&mut model_history) {
            notes.push(format!("what the model reads is not complete: {error}"));
        }
        let given = trace.given.take();
        let programs = turn.conversation.items.iter().filter_map(|item| match item {
            ConversationItem::Program(block) => Some(&**block),
            _ => None,
        });
        let programs: Vec<&ProgramBlock> = programs.collect();
        // Without a number, it is the last program that stops.
        let stop = self.stop.map(|stop| StopAfter { block: stop.block.or(Some(programs.len())), ..stop });
        let inspection = Inspection { stop, ..*self };
        let blocks =
            programs.into_iter().zip(1..).map(|(program, number)| inspection.block(number, program, &replay, &given));
        let blocks: Vec<_> = blocks.collect();
        let has_lost = turn.conversation.items.iter().any(|item| matches!(item, ConversationItem::LostCalls(_)));
        let is_exact = |status| matches!(status, ReplayStatus::Exact | ReplayStatus::Stopped);
        let exact =
            !has_lost && explained.unopened.is_empty() && blocks.iter().all(|block| is_exact(block.replay.status));
        let mut model_request = match turn.model_request(&model_history, ToolChoiceOverride::Keep).into_json() {
            Value::Object(fields) => fields,
            _ => Map::new(),
        };
        model_request.shift_remove(input::history_key(turn.provider.wire()));
        let model_history = model_history.entries(&turn.conversation).into_iter().cloned().collect::<Vec<Value>>();
        let items =
            items(turn.client, &turn.conversation, &explained.history, &trace.starts.take(), model_history.len());
        let context = (turn.mode == ProgramMode::Plain).then(|| ContextTokens {
            code: model_calls(turn.client, &model_request, &model_history),
            classic: model_calls(turn.client, &explained.request, &explained.history),
        });
        ConversationExplanation {
            exact,
            mode: match turn.mode {
                _ if !turn.model_tools.is_on() => "off",
                ProgramMode::Plain => "plain",
                ProgramMode::Explicit => "explicit",
            },
            notes,
            items,
            blocks,
            model_history,
            model_request,
            tools: tools(turn.toolbox()),
            context,
            ..explained
        }
    }
}

/// What a replay does, for the explanation.
#[derive(Default)]
struct Trace {
    /// Where the entries of each item begin in the model's history.
    starts: RefCell<Vec<usize>>,
    /// What each program was run with, by the program's id.
    given: RefCell<BTreeMap<String, ProgramInputs>>,
}

impl ReplayTrace for Trace {
    fn item(&self, _: usize, entries: usize) {
        self.starts.borrow_mut().push(entries);
    }

    fn program(&self, program: &Program, record: &[CompletedCall], stored: &StoredValues) {
        let inputs = || ProgramInputs { record: record.to_vec(), stored: stored.clone() };
        self.given.borrow_mut().entry(program.id.clone()).or_insert_with(inputs);
    }
}

fn without_code_mode(client: ClientSide, explained: ConversationExplanation) -> ConversationExplanation {
    let item = |(at, entry): (usize, &Value)| ItemExplanation {
        kind: kind(client, entry),
        block: None,
        client: [at, at + 1],
        model: [at, at + 1],
    };
    ConversationExplanation {
        exact: explained.unopened.is_empty(),
        mode: "off",
        items: explained.history.iter().enumerate().map(item).collect(),
        model_history: explained.history.clone(),
        model_request: explained.request.clone(),
        ..explained
    }
}

fn kind(client: ClientSide, entry: &Value) -> ItemKind {
    match client.entry_author(entry) {
        EntryAuthor::Client => ItemKind::Client,
        EntryAuthor::ModelText | EntryAuthor::ModelCalls => ItemKind::Model,
    }
}

/// Which entries of the two histories belong to each item.
fn items(
    client: ClientSide,
    conversation: &Conversation,
    history: &[Value],
    starts: &[usize],
    model_entries: usize,
) -> Vec<ItemExplanation> {
    let mut items: Vec<ItemExplanation> = Vec::new();
    let (mut at, mut block, mut last) = (0, 0, 0);
    for (number, item) in conversation.items.iter().enumerate() {
        let start = starts.get(number).copied().unwrap_or(model_entries);
        let model = [start, starts.get(number + 1).copied().unwrap_or(model_entries)];
        let (kind, of_block) = match item {
            ConversationItem::Entry(entry) => {
                // Entries are passed on as they came, so what lies between two of them belongs to the item between.
                if let Some(found) = history[at..].iter().position(|other| other == entry) {
                    if let Some(before) = items.last_mut() {
                        before.client[1] = at + found;
                    }
                    at += found;
                }
                (kind(client, entry), None)
            }
            ConversationItem::Program(program) => {
                block += 1;
                last = at + entries_of(program, &history[at..]);
                (ItemKind::Program, Some(block - 1))
            }
            ConversationItem::LostCalls(_) => (ItemKind::LostCalls, None),
            ConversationItem::Search(_) => (ItemKind::Search, None),
        };
        let end = match item {
            ConversationItem::Entry(_) => (at + 1).min(history.len()),
            ConversationItem::Program(_) => last,
            ConversationItem::LostCalls(_) | ConversationItem::Search(_) => at,
        };
        items.push(ItemExplanation { kind, block: of_block, client: [at, end], model });
        at = end;
    }
    if let Some(last) = items.last_mut() {
        last.client[1] = history.len();
    }
    items
}

/// How many entries belong to a program: up to the last one that has an id of it.
fn entries_of(program: &ProgramBlock, history: &[Value]) -> usize {
    let calls = program.rounds.iter().flat_map(|round| &round.calls).map(|call| call.id.as_str());
    let ids: BTreeSet<&str> = calls.chain([program.id.as_str()]).filter(|id| !id.is_empty()).collect();
    history.iter().rposition(|entry| has_id(entry, &ids)).map_or(0, |at| at + 1)
}

fn has_id(value: &Value, ids: &BTreeSet<&str>) -> bool {
    match value {
        Value::Object(fields) => fields.iter().any(|(key, value)| match value {
            Value::String(text) => key.ends_with("id") && ids.contains(text.as_str()),
            nested => has_id(nested, ids),
        }),
        Value::Array(values) => values.iter().any(|value| has_id(value, ids)),
        _ => false,
    }
}

/// The tools of a toolbox, as a step request takes them.
pub(super) fn tools(toolbox: &Toolbox) -> Vec<Value> {
    let tool = |tool: &dacapo_replay::Tool| {
        let mut json = json!({"name": tool.name, "inputSchema": tool.input_schema});
        let texts = [("description", &tool.description), ("server", &tool.server)];
        for (key, text) in texts.into_iter().filter_map(|(key, text)| Some((key, text.as_ref()?))) {
            json[key] = json!(text);
        }
        if let Some(schema) = &tool.output_schema {
            json["outputSchema"] = json!(schema);
        }
        json
    };
    toolbox.catalog().tools().iter().map(tool).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_between_entries_get_what_lies_between_them() {
        let entry = |text: &str| json!({"role": "user", "content": text});
        let calls = json!({"role": "assistant", "tool_calls": []});
        let history = [entry("a"), calls.clone(), entry("answer"), entry("b")];
        let lost = dacapo_wire::LostCalls::new(calls, Vec::new());
        let conversation = Conversation {
            items: vec![
                ConversationItem::Entry(entry("a")),
                ConversationItem::LostCalls(lost),
                ConversationItem::Entry(entry("b")),
            ],
            ..Conversation::default()
        };
        let items = items(ClientSide::CHAT, &conversation, &history, &[0, 1, 4], 5);
        let ranges: Vec<_> = items.iter().map(|item| (item.client, item.model)).collect();
        assert_eq!(ranges, [([0, 1], [0, 1]), ([1, 3], [1, 4]), ([3, 4], [4, 5])]);
    }
}
