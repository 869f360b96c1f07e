//! The stateless gateway: clients talk to it as they talk to a provider, models write programs, clients get calls.
//!
//! A request is one turn: its history is read (`dacapo-wire`), programs in it are run again (`blocks.rs`), the model
//! is asked until there is something for the client (`turn.rs`). Nothing is kept that the next request needs.
//!
//! Start reading at [`serve`], then `turn.rs`.

mod auth;
mod blocks;
mod config;
mod error;
mod gateway;
mod headers;
mod options;
mod outlet;
mod recall;
mod request;
mod server;
mod store;
mod threads;
mod turn;
mod upstream;

pub use auth::{key_sha256, random_hex};
pub use config::Config;
pub use dacapo_wire::print_prompt;
pub use gateway::{Gateway, StartError};
pub use options::{ClientOptions, ConfigError, Options, UpstreamOptions};
pub use server::serve;
