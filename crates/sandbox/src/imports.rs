//! The functions that the guest imports: all that it can reach outside its memory.

use std::borrow::Cow;
use std::ops::ControlFlow;

use wasmtime::{Caller, Linker, Memory, ResourceLimiter, Trap};

use crate::builtins::{self, Collation};
use crate::vm::JsPosition;

/// The host's side of a program: takes its calls and its logs.
pub trait Host: Send + 'static {
    /// The program calls a tool. Issued calls are numbered from zero, in this order.
    fn call(&mut self, tool: u32, args: &str) -> CallDecision;
    /// Fuel that a call with arguments of this length is charged for work of the host.
    fn effort(&self, _tool: u32, _args_bytes: u32) -> u64 {
        0
    }
    /// The program logs a line; `Break` ends it with [`Stop::ByHost`](crate::Stop::ByHost).
    fn log(&mut self, level: LogLevel, text: &str) -> ControlFlow<()>;
    /// The message of the error that a name which is no tool throws. Namespace 0 is `tools`, the others count from 1 in
    /// the order in which they were installed.
    fn unknown_name(&self, namespace: u32, name: &str) -> String;
    /// The functions of a namespace: [`Names::members`](crate::Names::members).
    fn members(&self, _namespace: u32) -> &[u8] {
        &[]
    }
    /// The namespace of `tools["server.tool"]`, and the name that the function has in it.
    fn qualified(&self, _name: &str) -> Option<(u32, &str)> {
        None
    }
}

/// What the host does about a call.
#[derive(Debug)]
pub enum CallDecision {
    /// It gets the next number and stays open until it is settled.
    Issued,
    /// It gets no number: the program catches a `TypeError` with this message.
    Refused(String),
    /// The program ends with [`Stop::ByHost`](crate::Stop::ByHost).
    Stop,
}

/// The function of `console` that wrote a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogLevel {
    /// `console.debug`
    Debug,
    /// `console.log`
    Log,
    /// `console.info`
    Info,
    /// `console.warn`
    Warn,
    /// `console.error`
    Error,
}

/// The host's side of one program.
pub(crate) struct HostState<H> {
    pub host: H,
    pub memory: Option<Memory>,
    pub memory_bytes_max: usize,
    pub memory_refused: bool,
    pub stopped_by_host: bool,
    pub places: Vec<JsPosition>,
    pub result: Option<String>,
    pub error: Option<String>,
    pub unhandled: Vec<String>,
    reply: Vec<u8>,
    collation: Collation,
}

impl<H> HostState<H> {
    pub(crate) fn new(host: H, memory_bytes_max: usize) -> HostState<H> {
        HostState {
            host,
            memory: None,
            memory_bytes_max,
            memory_refused: false,
            stopped_by_host: false,
            places: Vec::new(),
            result: None,
            error: None,
            unhandled: Vec::new(),
            reply: Vec::new(),
            collation: Collation::default(),
        }
    }

    /// Keeps a reply until the guest has allocated memory for it and reads it. Returns its length.
    fn reply_with(&mut self, reply: impl Into<Vec<u8>>) -> i32 {
        self.reply = reply.into();
        i32::try_from(self.reply.len()).expect("replies are messages, names and parts of the guest's own text")
    }
}

impl<H: Send> ResourceLimiter for HostState<H> {
    fn memory_growing(&mut self, _: usize, desired: usize, _: Option<usize>) -> wasmtime::Result<bool> {
        let granted = desired <= self.memory_bytes_max;
        self.memory_refused |= !granted;
        Ok(granted)
    }

    fn table_growing(&mut self, current: usize, _: usize, _: Option<usize>) -> wasmtime::Result<bool> {
        // The guest's one table has its final size from the start.
        Ok(current == 0)
    }
}

// Fuel for work that the host does for the guest, so that it is bounded like the guest's own.
const FUEL_PER_QUESTION: u64 = 2_000;
const FUEL_PER_BYTE: u64 = 20;

const REPORT_RESULT: u32 = 0;
const REPORT_ERROR: u32 = 1;

pub(crate) fn define<H: Host>(linker: &mut Linker<HostState<H>>) -> wasmtime::Result<()> {
    linker.func_wrap("host", "call", |mut caller: Caller<'_, HostState<H>>, tool: u32, at: u32, length: u32| {
        let effort = caller.data().host.effort(tool, length);
        charge(&mut caller, FUEL_PER_BYTE * u64::from(length) + effort)?;
        let (bytes, state) = split(&mut caller)?;
        match state.host.call(tool, &text(bytes, at, length)?) {
            CallDecision::Issued => Ok(0),
            CallDecision::Refused(message) => Ok(-state.reply_with(message) - 1),
            CallDecision::Stop => Err(stop(state)),
        }
    })?;
    linker.func_wrap("host", "log", |mut caller: Caller<'_, HostState<H>>, level: u32, at: u32, length: u32| {
        let (bytes, state) = split(&mut caller)?;
        let level = match level {
            0 => LogLevel::Debug,
            1 => LogLevel::Log,
            2 => LogLevel::Info,
            3 => LogLevel::Warn,
            _ => LogLevel::Error,
        };
        match state.host.log(level, &text(bytes, at, length)?) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(stop(state)),
        }
    })?;
    linker.func_wrap("host", "report", |mut caller: Caller<'_, HostState<H>>, kind: u32, at: u32, length: u32| {
        let (bytes, state) = split(&mut caller)?;
        let report = text(bytes, at, length)?.into_owned();
        match kind {
            REPORT_RESULT => state.result = Some(report),
            REPORT_ERROR => state.error = Some(report),
            _ => state.unhandled.push(report),
        }
        Ok(())
    })?;
    linker.func_wrap("host", "frame", |mut caller: Caller<'_, HostState<H>>, line: i32, column: i32| {
        if let (Ok(line), Ok(column)) = (u32::try_from(line), u32::try_from(column)) {
            caller.data_mut().places.push(JsPosition { line, column });
        }
    })?;
    linker.func_wrap("host", "ask", |mut caller: Caller<'_, HostState<H>>, question: u32, at: u32, length: u32| {
        let effort = builtins::url_effort(guest_bytes(&mut caller, at, length)?);
        charge(&mut caller, FUEL_PER_BYTE * u64::from(length) + effort)?;
        if question == builtins::MEMBERS {
            let namespace = guest_bytes(&mut caller, at, length)?.first_chunk().ok_or_else(misused)?;
            let namespace = u32::from_le_bytes(*namespace);
            let members = caller.data().host.members(namespace).to_vec();
            charge(&mut caller, members.len() as u64)?;
            return Ok(caller.data_mut().reply_with(members));
        }
        let (bytes, state) = split(&mut caller)?;
        let answer = match question {
            builtins::UNKNOWN_NAME => {
                let (namespace, name) = slice(bytes, at, length)?.split_first_chunk().ok_or_else(misused)?;
                let name = String::from_utf8_lossy(name);
                Some(state.host.unknown_name(u32::from_le_bytes(*namespace), &name).into_bytes())
            }
            builtins::QUALIFIED => {
                let found = state.host.qualified(&text(bytes, at, length)?);
                found.map(|(namespace, name)| [&namespace.to_le_bytes(), name.as_bytes()].concat())
            }
            _ => builtins::answer(question, &text(bytes, at, length)?).map(String::into_bytes),
        };
        Ok(match answer {
            Some(answer) => state.reply_with(answer),
            None => -1,
        })
    })?;
    linker.func_wrap("host", "read", |mut caller: Caller<'_, HostState<H>>, into: u32| {
        let (bytes, state) = split(&mut caller)?;
        let reply = std::mem::take(&mut state.reply);
        let start = into as usize;
        bytes.get_mut(start..start + reply.len()).ok_or_else(misused)?.copy_from_slice(&reply);
        Ok(())
    })?;
    linker.func_wrap(
        "host",
        "compare",
        |mut caller: Caller<'_, HostState<H>>, a: u32, a_length: u32, b: u32, b_length: u32, options: u32| {
            let effort = |text: &[u8]| FUEL_PER_BYTE * text.len() as u64 + builtins::collation_effort(text, options);
            let cost = effort(guest_bytes(&mut caller, a, a_length)?) + effort(guest_bytes(&mut caller, b, b_length)?);
            charge(&mut caller, cost)?;
            let (bytes, state) = split(&mut caller)?;
            let order = state.collation.compare(slice(bytes, a, a_length)?, slice(bytes, b, b_length)?, options);
            Ok(order as i32)
        },
    )?;
    Ok(())
}

/// Takes the fuel before the work is done, so that a program without fuel causes no work.
fn charge<H>(caller: &mut Caller<'_, HostState<H>>, cost: u64) -> wasmtime::Result<()> {
    let left = caller.get_fuel()?.checked_sub(FUEL_PER_QUESTION + cost);
    caller.set_fuel(left.unwrap_or(0))?;
    left.map(|_| ()).ok_or_else(|| Trap::OutOfFuel.into())
}

fn guest_bytes<'a, H>(caller: &'a mut Caller<'_, HostState<H>>, at: u32, length: u32) -> wasmtime::Result<&'a [u8]> {
    let (bytes, _) = split(caller)?;
    slice(bytes, at, length)
}

/// The guest's memory and the host's state, side by side.
fn split<'a, H>(caller: &'a mut Caller<'_, HostState<H>>) -> wasmtime::Result<(&'a mut [u8], &'a mut HostState<H>)> {
    let memory = caller.data().memory.ok_or_else(misused)?;
    Ok(memory.data_and_store_mut(caller))
}

fn slice(bytes: &[u8], at: u32, length: u32) -> wasmtime::Result<&[u8]> {
    let start = at as usize;
    bytes.get(start..start + length as usize).ok_or_else(misused)
}

/// A string of JavaScript may hold half of a surrogate pair, which UTF-8 cannot.
fn text(bytes: &[u8], at: u32, length: u32) -> wasmtime::Result<Cow<'_, str>> {
    slice(bytes, at, length).map(String::from_utf8_lossy)
}

fn misused() -> wasmtime::Error {
    wasmtime::Error::msg("the guest broke the protocol with its host")
}

fn stop<H>(state: &mut HostState<H>) -> wasmtime::Error {
    state.stopped_by_host = true;
    wasmtime::Error::msg("stopped by the host")
}
