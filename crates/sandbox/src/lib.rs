//! Runs one JavaScript program in a memory of its own, and stops where it calls tools.
//!
//! A [`Sandbox`] holds the compiled guest: QuickJS in WebAssembly, initialised at build time. [`Sandbox::new_vm`] gives a
//! program its own memory, copy-on-write from that image, or one in which all that an earlier program wrote was undone. [`Vm::start`] runs it until its job queue is empty. Then it is
//! in an [`IdleState`], and the caller settles a call, lets a timer fire, or finishes it.
//!
//! A program sees nothing but its [`VmConfig`], its tools and their answers: the crate reads no clock, draws no randomness
//! and does no I/O. Instructions are counted. A program that uses them up, that grows beyond its memory, or that its
//! [`Host`] stops, ends with a [`Stop`]. Which calls are allowed, and who executes them, is up to the host.
//!
//! Start reading at [`Vm`]; the guest's side is `guest/guest.c`.

#![warn(missing_docs)]

mod builtins;
mod config;
mod guest_code;
mod guest_memory;
mod idle_memories;
mod imports;
mod names;
mod page_map;
mod sandbox;
mod shrunk_vm;
mod vm;

pub use imports::{
    CallArguments, CallDecision, Freshness, FuelMeter, Host, LogLevel, NameMeaning, NamePlace, OutOfFuel, Refusal,
};
pub use names::{Names, ProgramNames};
pub use sandbox::{MEMORY_BYTES_CAP, Sandbox, SandboxError, Shortage};
pub use shrunk_vm::ShrunkVm;
pub use vm::{AnswerKind, FinalReport, IdleState, JsPosition, ShouldContinue, Stop, Vm, VmConfig};
