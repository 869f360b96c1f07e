//! The step function: a program, the tools it may call and the answers so far give the next calls or the result.
//!
//! A [`Journal`] is the only thing that survives between two steps. [`Stepper::step`] runs the program from the
//! start, gives every call the answer that the journal holds, in the journal's order, and stops at the first moment
//! when the program waits for answers that are not there. Same input, same output, byte for byte. A stepper may keep
//! paused programs in memory and resume them; that changes the time, never the outcome.
//!
//! Nothing here does I/O or reads a clock. Start reading at [`Stepper::step`], then `run.rs`.

mod call_recorder;
mod canonical;
mod journal;
mod journal_format;
mod limits;
mod lookup;
mod lru_cache;
mod program;
mod report;
mod request;
mod run;
mod step;
mod stepper;
mod toolbox;
mod toolboxes;

pub use canonical::canonical as canonical_args;
pub use dacapo_catalog::{
    ANSWER_TOKENS_DEFAULT, Catalog, Declarations, Explanation, Hit, SearchAnswer, SearchResults, Tool, ToolsError,
    noun, read_tools,
};
pub use dacapo_sandbox::{LogLevel, SandboxError, ShouldContinue};
pub use journal::{Answer, ArgsDigest, CallIndex, CompletedCall, Journal, JournalEntry, JsonText};
pub use journal_format::JournalFormatError;
pub use limits::{Limit, Limits};
pub use lru_cache::LruCache;
pub use program::{Program, undefined_functions};
pub use request::{RequestError, StepRequest};
pub use step::{Call, ComparedCall, ErrorKind, LogLine, MadeCall, Outcome, ProgramFailure, ResourceUsage, Step};
pub use stepper::{StepError, Stepper, WarmPrograms};
pub use toolbox::Toolbox;
pub use toolboxes::Toolboxes;
