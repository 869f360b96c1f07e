//! The host's side of a running program: numbers its calls, checks their arguments, keeps its logs.

use std::cell::Cell;
use std::collections::{BTreeSet, VecDeque};
use std::ops::ControlFlow;
use std::sync::Arc;

use dacapo_catalog::ToolIndex;
use dacapo_sandbox::{Asked, Host, Level};
use serde_json::Value;

use crate::canonical::canonical;
use crate::journal::{CallIndex, JsonText, Reused};
use crate::limits::{Limit, Limits};
use crate::step::{LogLine, MadeCall};
use crate::toolbox::Toolbox;

/// A call that the program issued.
#[derive(Debug)]
pub(crate) struct Issued {
    pub tool: ToolIndex,
    /// JSON, kept as text: as a tree it would take many times the room.
    args: String,
    pub canonical: String,
    /// How many journal answers had settled when it was issued.
    pub epoch: usize,
}

impl Issued {
    pub(crate) fn args(&self) -> Value {
        serde_json::from_str(&self.args).expect("it was read when the call was issued")
    }
}

#[derive(Debug)]
pub(crate) struct Asker {
    pub calls: Vec<Issued>,
    /// Calls that wait for the journal.
    open: BTreeSet<CallIndex>,
    pub logs: Vec<LogLine>,
    /// The limit that made us stop the program.
    pub exceeded: Option<Limit>,
    /// Journal answers settled so far.
    pub epoch: usize,
    /// Calls that the record answers, waiting for the job queue to run dry.
    pub reused: VecDeque<(CallIndex, JsonText)>,
    records: Vec<Option<Reused>>,
    log_bytes: u64,
    suggestions_left: Cell<u32>,
    toolbox: Arc<Toolbox>,
    limits: Limits,
}

/// Looking for the closest tools costs more than the guest pays for; a program that gropes about gets no more hints.
const SUGGESTIONS_MAX: u32 = 20;

/// What a line of log costs besides its text.
const LOG_LINE_BYTES: u64 = 16;

impl Asker {
    pub(crate) fn new(toolbox: Arc<Toolbox>, limits: Limits, records: &[Reused]) -> Asker {
        Asker {
            calls: Vec::new(),
            open: BTreeSet::new(),
            logs: Vec::new(),
            exceeded: None,
            epoch: 0,
            reused: VecDeque::new(),
            records: records.iter().cloned().map(Some).collect(),
            log_bytes: 0,
            suggestions_left: Cell::new(SUGGESTIONS_MAX),
            toolbox,
            limits,
        }
    }

    pub(crate) fn toolbox(&self) -> &Toolbox {
        &self.toolbox
    }

    /// Calls that wait for the journal, in issue order.
    pub(crate) fn open(&self) -> impl Iterator<Item = (CallIndex, &Issued)> {
        self.open.iter().map(|call| (*call, &self.calls[call.0 as usize]))
    }

    pub(crate) fn get(&self, call: CallIndex) -> Option<&Issued> {
        self.calls.get(call.0 as usize)
    }

    pub(crate) fn is_open(&self, call: CallIndex) -> bool {
        self.open.contains(&call)
    }

    /// Its answer is on its way into the program.
    pub(crate) fn close(&mut self, call: CallIndex) -> ToolIndex {
        self.open.remove(&call);
        self.calls[call.0 as usize].tool
    }

    pub(crate) fn numbered(&self) -> impl Iterator<Item = (CallIndex, &Issued)> {
        self.calls.iter().enumerate().map(|(at, issued)| (CallIndex(at as u32), issued))
    }

    pub(crate) fn made(&self, call: CallIndex, issued: &Issued) -> MadeCall {
        MadeCall { call, tool: self.toolbox.catalog().qualified_name(issued.tool).to_owned() }
    }

    fn stop(&mut self, limit: Limit) {
        self.exceeded = Some(limit);
    }

    /// The first unused record of the same call.
    fn take_record(&mut self, tool: ToolIndex, canonical: &str) -> Option<JsonText> {
        let name = self.toolbox.catalog().qualified_name(tool);
        let same = |record: &Reused| record.tool == name && record.args == canonical;
        let slot = self.records.iter_mut().find(|slot| slot.as_ref().is_some_and(same))?;
        slot.take().map(|record| record.ok)
    }

    fn exceeded_by(&self, args: &str) -> Option<Limit> {
        let over = |limit, value: usize| value as u64 > self.limits.get(limit);
        if over(Limit::Calls, self.calls.len() + 1) {
            Some(Limit::Calls)
        } else if over(Limit::CallsPerRound, self.open.len() + 1) {
            Some(Limit::CallsPerRound)
        } else if over(Limit::ArgsBytes, args.len()) {
            Some(Limit::ArgsBytes)
        } else {
            None
        }
    }
}

impl Host for Asker {
    fn call(&mut self, tool: u32, args: &str) -> Asked {
        if let Some(limit) = self.exceeded_by(args) {
            self.stop(limit);
            return Asked::Stop;
        }
        let tool = ToolIndex(tool);
        let value: Value = match serde_json::from_str(args) {
            Ok(value) => value,
            Err(error) => return Asked::Refused(format!("the arguments are not JSON: {error}")),
        };
        if let Err(invalid) = self.toolbox.catalog().check(tool, &value) {
            return Asked::Refused(invalid.to_string());
        }
        let canonical = canonical(&value);
        let call = CallIndex(self.calls.len() as u32);
        match self.take_record(tool, &canonical) {
            Some(ok) => self.reused.push_back((call, ok)),
            None => _ = self.open.insert(call),
        }
        self.calls.push(Issued { tool, args: args.to_owned(), canonical, epoch: self.epoch });
        Asked::Issued
    }

    fn log(&mut self, level: Level, text: &str) -> ControlFlow<()> {
        self.log_bytes += text.len() as u64 + LOG_LINE_BYTES;
        if self.log_bytes > self.limits.get(Limit::LogBytes) {
            self.stop(Limit::LogBytes);
            return ControlFlow::Break(());
        }
        self.logs.push(LogLine { level, text: text.to_owned() });
        ControlFlow::Continue(())
    }

    fn unknown_name(&self, namespace: u32, name: &str) -> String {
        let left = self.suggestions_left.get();
        self.suggestions_left.set(left.saturating_sub(1));
        if left == 0 { format!("{name} is not defined") } else { self.toolbox.unknown_member(namespace, name) }
    }
}
