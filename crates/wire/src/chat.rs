//! `OpenAI` Chat Completions.

mod client;
mod decode;
mod encode;
mod fields;
mod history;
mod params;
mod programs;
mod tools;
mod translate;
mod upstream;

pub(crate) use client::error_body;

/// The wire; `client.rs` and `upstream.rs` implement its two sides.
pub(crate) struct Chat;
