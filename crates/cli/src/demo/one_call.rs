//! What a task of one small call costs, by who may call the tools.

use anyhow::ensure;
use serde::Serialize;

use super::conversation::{DemoCall, DemoConversation};
use super::demo_server::{BOTH_CALLERS_MODEL, DemoServer, MODEL};
use super::tokens::Cost;
use super::{classic, fallback};

/// The costs of the same task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(crate) struct OneCallCosts {
    /// Only programs call the tools, as by default.
    pub programs: Cost,
    /// The model may call them itself as well (`[code_mode] callers = "both"`).
    pub both: Cost,
    /// Without the gateway.
    pub classic: Cost,
}

impl OneCallCosts {
    pub(crate) async fn play(demo_server: &DemoServer) -> anyhow::Result<OneCallCosts> {
        let scenario = fallback::one_call();
        let programs = DemoConversation::play(&scenario, MODEL, demo_server).await?;
        let both = DemoConversation::play(&scenario, BOTH_CALLERS_MODEL, demo_server).await?;
        for conversation in [&programs, &both] {
            ensure!(conversation.answer == scenario.expected, "one call: the answer is {}", conversation.answer);
            ensure!(conversation.calls().count() == 1, "one call: {} calls", conversation.calls().count());
        }
        let calls: Vec<&[DemoCall]> = programs.rounds().collect();
        let classic = classic::cost(&scenario.question, &scenario.tools, calls, &programs.answer);
        Ok(OneCallCosts { programs: programs.cost, both: both.cost, classic })
    }
}
