//! Other people's JSON: what clients send, what models say, and how a program's state rides between them.
//!
//! A client's history is read into a [`Conversation`]: messages that are passed on as they came, and blocks, each a
//! program with its rounds of calls and answers. The state of a program travels in the ids of its calls
//! ([`Sealer`]); what the model is shown of it is one call of `execute` and one result.
//!
//! Clients and models may speak different wires: [`Wire`] names them, and what is particular to one is in its module.
//!
//! Nothing here does I/O, reads a clock or runs a program. Start reading at [`Reader::read`].

mod callers;
mod carrier;
mod chat;
mod conversation;
mod dialect;
mod ids;
mod message;
mod messages;
mod plain;
mod prompt;
mod reader;
mod responses;
mod said;
mod saying;
mod seal;
mod speaker;
mod sse;
mod state;
mod transcript;
mod turn;
mod usage;
mod wire;

pub use conversation::{Block, Conversation, Expected, Gap, Given, HandedOut, Item, Lost, Round};
pub use ids::RunId;
pub use plain::Kept;
pub use prompt::{Offer, PROMPT_VERSION, print_prompt};
pub use reader::{BadRequest, Defaults, Reader, Reading, Switch};
pub use said::{Finish, Head, Heard, Listener, Said, Unheard};
pub use saying::{Intent, ModelCall, Response, Saying, SearchQuery};
pub use seal::{Sealer, Unsealed};
pub use speaker::{Announced, CallDeltas, Ended, Handing, Manner, Passed, Searched, Speaker, Trouble};
pub use sse::{Event, SseError, SseReader};
pub use state::{Asked, RunState};
pub use transcript::Transcript;
pub use turn::{Demand, Turn, Urge, Wanted};
pub use usage::Usage;
pub use wire::Wire;
