//! Explains saved conversations: what is in a request, and what its programs did.
//!
//! A request holds everything that its programs depend on, and the step function is pure. So [`Inspection::explain`] runs
//! each program again, answer by answer, and reports every point on the way. It executes no call, and does no I/O but for
//! what its caller looks up for it: states that ids do not carry, because a store keeps them.

mod block;
mod context;
mod conversation;
mod explanation;
mod input;
mod page;
mod what_if;

pub use explanation::{
    AnsweredWith, Attempt, BlockExplanation, CallExplanation, ContextTokens, ConversationExplanation, Explanation,
    ItemExplanation, ItemKind, ModelCalls, ModelReads, Point, ProgramText, ReplayStatus, ReplayVerdict, UnopenedState,
};
pub use page::inspector_page;
pub(crate) use page::{CONTENT_SECURITY_POLICY, SERVED_PAGE};

use dacapo_replay::{Limits, ShouldContinue, Stepper, Toolboxes};
use dacapo_wire::{CodeMode, CodeModeDefaults, ErrorTexts, RunId, SealingSecrets, TextTools, Wire};

use crate::options::{ConfigError, GatewayOptions};
pub use crate::store::StateStore;

/// What is needed to explain conversations.
#[derive(Clone, Copy)]
pub struct Inspection<'a> {
    /// Runs the programs again.
    pub stepper: &'a Stepper,
    /// Tool lists that were read before.
    pub toolboxes: &'a Toolboxes,
    /// Open sealed ids.
    pub secrets: &'a SealingSecrets,
    /// Clients whose ids may be opened; the empty name is that of a gateway without configured clients.
    pub clients: &'a [String],
    /// Finds states that a store keeps, if there is one.
    pub stored: Option<StateLookup<'a>>,
    /// Of a program. A program that ran under others may end elsewhere.
    pub limits: &'a Limits,
    /// By which texts failures of tools are known.
    pub error_texts: &'a ErrorTexts,
    /// What holds for requests that say nothing about code mode.
    pub defaults: CodeModeDefaults,
    /// The wire of the requests, if they are not to be looked at for it.
    pub wire: Option<Wire>,
    /// Which program to stop after so many answers: the last one, if it has no number.
    pub stop: Option<StopAfter>,
    /// Asked again and again while a program runs; `false` ends it as [`ReplayStatus::Interrupted`].
    pub should_continue: ShouldContinue<'a>,
}

/// The sealed states of a client's programs, by run and round; `None` for those that are not there.
pub type StateLookup<'a> = &'a dyn Fn(&str, &[(RunId, u32)]) -> Vec<Option<String>>;

impl std::fmt::Debug for Inspection<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Inspection").field("clients", &self.clients).field("stop", &self.stop).finish_non_exhaustive()
    }
}

/// Where to stop a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StopAfter {
    /// The program's number in its conversation, from 1.
    pub block: Option<usize>,
    /// How many answers it gets.
    pub answers: usize,
}

/// What an inspection takes from the gateway's settings.
#[derive(Debug)]
pub struct InspectionSettings {
    /// The secret, and earlier ones.
    pub secrets: SealingSecrets,
    /// Whether one is configured. Without it, no sealed id can be opened.
    pub has_secret: bool,
    /// Names of the configured clients, and the empty name of a gateway without them.
    pub clients: Vec<String>,
    /// Of a program.
    pub limits: Limits,
    /// By which texts failures of tools are known.
    pub error_texts: ErrorTexts,
    /// Set if the configuration names a store that others can read too.
    pub store: Option<StateStore>,
}

impl InspectionSettings {
    /// Reads secrets, clients, limits and texts of failures. Whatever else is configured does not matter.
    pub fn of(options: &GatewayOptions) -> Result<InspectionSettings, ConfigError> {
        let mut errors = Vec::new();
        let limits = options.limits(&mut errors);
        let error_texts = options.error_texts(&mut errors);
        let store = options.store(&mut errors);
        if !errors.is_empty() {
            return Err(ConfigError(errors));
        }
        let old = options.secrets_old.iter().map(String::as_str);
        let names = options.clients.iter().map(|client| client.name.clone());
        let secrets = SealingSecrets::new(options.secret.as_deref().unwrap_or_default(), old);
        Ok(InspectionSettings {
            store: store.and_then(|config| StateStore::new(&config, secrets.clone())),
            secrets,
            has_secret: options.secret.is_some() || !options.secrets_old.is_empty(),
            clients: std::iter::once(String::new()).chain(names).collect(),
            limits,
            error_texts,
        })
    }

    /// What holds for requests that say nothing about code mode.
    pub fn defaults() -> CodeModeDefaults {
        CodeModeDefaults { mode: CodeMode::Plain, declarations_tokens_max: 4_000, execute_input: TextTools::No }
    }
}
