//! `OpenAI` Responses.

mod client;
mod client_echo;
mod decode;
mod encode;
mod envelope;
mod events;
mod fields;
mod history;
mod item_ids;
mod open_program;
mod output;
mod params;
mod programs;
mod references;
mod server_calls;
mod tools;
mod translate;
mod upstream;

/// The wire; `client.rs` and `upstream.rs` implement its two sides.
pub(crate) struct Responses;
