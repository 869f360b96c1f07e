//! `OpenAI` Chat Completions.

pub mod explicit;
mod fields;
mod listener;
mod plain;
mod reply;
mod request;
mod transcript;

pub use listener::{Heard, Listener, Said};
pub use plain::Kept;
pub use reply::{Head, Reply, Usage};
pub use request::{BadRequest, Defaults, Delivery, Demand, Reading, Switch, Turn};
pub use transcript::Transcript;
