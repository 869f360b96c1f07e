//! The gateway over real HTTP.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod account;
mod agents;
mod client_conversation;
mod common;
mod embeddings;
mod fallback;
mod interleaved;
mod later_programs;
mod never_twice;
mod operating;
mod overload;
mod pairs;
mod quirks;
#[expect(dead_code, reason = "`bench -- soak` uses more of it")]
mod random_client;
mod random_clients;
mod reference;
mod routes;
mod scenarios;
mod service;
mod silence;
mod stores;
mod traces;
mod turns;
mod wires;
