//! The step function: a program, its tools and the answers so far give the next calls or the result.
//!
//! ```
//! use dacapo_replay::{Outcome, Program, StepRequest, Stepper, Toolbox, WarmPrograms};
//! let stepper = Stepper::new(WarmPrograms::default())?;
//! let toolbox = Toolbox::read(r#"[{"name": "add"}]"#)?;
//! let mut request = StepRequest::new(Program::new("return await add({a: 1, b: 2})"), toolbox);
//! let Outcome::Paused { calls } = stepper.step(&request, &|| true)?.outcome else { panic!("add is not answered") };
//! request.journal.push_ok(&calls[0], serde_json::json!(3));
//! let Outcome::Finished { result } = stepper.step(&request, &|| true)?.outcome else { panic!("all is answered") };
//! assert_eq!(result?.get(), "3");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A [`Journal`] is the only state between two steps. [`Stepper::step`] runs the program from its start, gives every
//! call the answer that the journal holds, in the journal's order, and stops when the program waits for answers that are
//! not there. Equal requests give equal steps, byte for byte. A stepper may keep paused programs in memory and resume
//! them; that changes how long a step takes, never its outcome.
//!
//! The crate does no I/O, reads no clock and draws no randomness. It executes no calls: that is up to the caller, and so
//! are retries, timeouts and permissions.
//!
//! Start reading at [`Stepper::step`], then `run.rs`. `examples/run_a_program.rs` is a whole caller.

#![warn(missing_docs)]

mod attachment;
mod call_recorder;
mod canonical;
mod hint;
mod journal;
mod journal_format;
mod json_text;
mod json_writer;
mod limits;
mod lookup;
mod program;
mod record;
mod report;
mod request;
mod run;
mod step;
mod stepper;
mod stored;
mod toolbox;
mod toolboxes;
mod written_names;

pub use attachment::{Attachment, handles_in};
pub use canonical::canonical as canonical_args;
pub use dacapo_catalog::{
    ANSWER_TOKENS_DEFAULT, Catalog, Declarations, Effect, EffectRules, Explanation, Hit, SearchAnswer, SearchResults,
    SearchText, SearchTextError, Tool, ToolIndex, ToolsError, matches_pattern, read_tool_list, read_tools,
};
pub use dacapo_sandbox::{LogLevel, SandboxError, Shortage, ShouldContinue};
pub use dacapo_script::unescaped as unescaped_program;
pub use journal::{Answer, ArgsDigest, CallIndex, Journal, JournalEntry};
pub use journal_format::JournalFormatError;
pub use json_text::JsonText;
pub use json_writer::{json_size, json_text, write_json, write_json_string};
pub use limits::{Limit, Limits};
pub use program::{Program, undefined_functions};
pub use record::{CallDigest, CompletedCall, RecordedOutcome};
pub use request::{HandedOutCall, RequestError, ServiceRules, StepRequest};
pub use step::{
    Call, ComparedCall, ErrorKind, LogLine, MadeCall, Outcome, ProgramFailure, ResourceUsage, Step, ToolShape,
};
pub use stepper::{EndedProgram, PausedPrograms, StepError, StepStart, Stepper, WarmPrograms};
pub use stored::StoredValues;
pub use toolbox::Toolbox;
pub use toolboxes::Toolboxes;
