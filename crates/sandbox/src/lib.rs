//! Runs one program at a time in a world of its own, and stops at its questions.
//!
//! A [`Sandbox`] holds the compiled guest (QuickJS in WebAssembly, set up at build time). [`Sandbox::new_vm`] gives
//! a program its own memory, copy-on-write from that image; [`Vm::start`] runs it until its job queue is empty. Then it
//! is at [`Rest`]: the caller settles a call, lets a timer fire, or finishes it. Nothing here reads a
//! clock, draws randomness or does I/O; what a program can see is a function of [`World`] and of the answers.
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

pub use imports::{Asked, Host, Level};
pub use names::Names;
pub use sandbox::{MEMORY_BYTES_CAP, Sandbox, SandboxError};
pub use vm::{AnswerKind, Ending, Patience, Place, Rest, Stop, Vm, World};
