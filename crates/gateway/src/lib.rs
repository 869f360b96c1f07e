//! The stateless gateway: clients talk to it as they talk to a provider, models write programs, clients get tool calls.
//!
//! A request is one turn. Its history is read (`dacapo-wire`), the programs in it are run again
//! (`turn/history_replay.rs`), and the model is asked until there is something for the client (`turn.rs`). The next
//! request needs nothing that is kept here. What happens on the way is a stream of events (`observe.rs`).
//!
//! Start reading at [`serve`], then `turn.rs`.

#![warn(missing_docs)]

mod config;
mod embeddings;
mod gateway;
mod http;
mod inspect;
mod key_mask;
mod memory;
mod model_routes;
mod observe;
mod options;
mod quota;
mod rate_limit;
mod redis_connection;
mod request_servers;
mod slow_programs;
mod step_slots;
mod store;
mod tls;
mod tool_servers;
mod turn;
mod upstream;

pub use config::{Config, LogFormat};
pub use dacapo_wire::{PROMPT_VERSION, prompt_variants};
pub use gateway::{Gateway, StartError};
pub use http::{StopRequest, key_sha256, random_hex, serve, serve_with_reloads};
pub use inspect::{
    AnsweredWith, Attempt, BlockExplanation, CallExplanation, ContextTokens, ConversationExplanation, Explanation,
    Inspection, InspectionSettings, ItemExplanation, ItemKind, ModelCalls, ModelReads, Point, ProgramText,
    ReplayStatus, ReplayVerdict, StateLookup, StateStore, StopAfter, UnopenedState, inspector_page,
};
pub use observe::{RequestStage, RunningRequest, RunningRequests};
pub use options::{
    ClientOptions, ConfigError, EmbeddingsOptions, Environment, ErrorTextsOptions, GatewayOptions, LoadedOptions,
    McpOptions, ModelOptions, TargetOptions, UpstreamOptions,
};
pub use store::{FileStoreError, open_file_store, open_redis_store, sealed_store};
