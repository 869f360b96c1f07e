//! Other people's JSON: what clients send, what models say, and how a program's state rides between them.
//!
//! A client's history is read into a [`Conversation`]: messages that are passed on as they came, and blocks, each a
//! program with its rounds of calls and answers. The state of a program travels in the ids of its calls
//! ([`Sealer`]); what the model is shown of it is one call of `execute` and one result.
//!
//! Nothing here does I/O, reads a clock or runs a program. Start reading at [`chat::Turn::read`].

pub mod chat;
mod conversation;
mod ids;
mod prompt;
mod saying;
mod seal;
mod sse;
mod state;
mod wire;

pub use conversation::{Block, Conversation, Expected, Gap, Given, HandedOut, Item, Lost, Round};
pub use ids::RunId;
pub use prompt::{Offer, PROMPT_VERSION, print_prompt};
pub use saying::{Intent, ModelCall, Response, Saying, SearchQuery};
pub use seal::{Sealer, Unsealed};
pub use sse::{Event, SseError, SseReader};
pub use state::{Asked, RunState};
pub use wire::Wire;
