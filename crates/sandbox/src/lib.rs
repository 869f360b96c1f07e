//! Runs one program at a time in a world of its own, and stops at its questions.
//!
//! A [`Sandbox`] holds the compiled guest (QuickJS in WebAssembly, set up at build time). [`Sandbox::new_vm`] gives
//! a program its own memory, copy-on-write from that image; [`Vm::start`] runs it until its job queue is empty. Then it
//! is at [`IdleState`]: the caller settles a call, lets a timer fire, or finishes it. Nothing here reads a
//! clock, draws randomness or does I/O; what a program can see is a function of [`VmConfig`] and of the answers.
//!
//! Instructions are counted. A program that uses them up, or that its [`Host`] stops, ends with a [`Stop`].
//!
//! Start reading at [`Vm`].

mod builtins;
mod config;
mod imports;
mod names;
mod sandbox;
mod vm;

pub use imports::{CallDecision, Host, LogLevel};
pub use names::Names;
pub use sandbox::{MEMORY_BYTES_CAP, Sandbox, SandboxError};
pub use vm::{AnswerKind, FinalReport, IdleState, JsPosition, ShouldContinue, Stop, Vm, VmConfig};
