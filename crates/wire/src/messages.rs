//! Anthropic Messages.

mod approvals;
mod client;
mod client_echo;
mod decode;
mod draft;
mod encode;
mod events;
mod fields;
mod history;
mod ownership;
mod params;
mod programs;
mod searches;
mod segments;
mod tools;
mod translate;
mod upstream;

/// The wire; `client.rs` and `upstream.rs` implement its two sides.
pub(crate) struct Messages;
