//! A played scenario with what it cost, and what it would have cost without programs.

use serde_json::{Value, json};

use super::classic;
use super::conversation::{DemoCall, DemoConversation};
use super::demo_server::{DemoServer, MODEL};
use super::scenario::Scenario;
use super::tokens::Cost;

pub(crate) struct ScenarioReport {
    pub scenario: Scenario,
    pub conversation: DemoConversation,
    pub costs: CostComparison,
}

/// The costs of the same conversation with each way of calling tools.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct CostComparison {
    pub code: Cost,
    /// One call per model call.
    pub sequential: Cost,
    /// The calls of a round in one model call.
    pub parallel: Cost,
}

impl CostComparison {
    pub(crate) fn plus(self, other: CostComparison) -> CostComparison {
        CostComparison {
            code: self.code.plus(other.code),
            sequential: self.sequential.plus(other.sequential),
            parallel: self.parallel.plus(other.parallel),
        }
    }
}

impl ScenarioReport {
    pub(crate) async fn play(scenario: Scenario, demo_server: &DemoServer) -> anyhow::Result<ScenarioReport> {
        let conversation = DemoConversation::play(&scenario, MODEL, demo_server).await?;
        let classic = |batches: Vec<&[DemoCall]>| {
            classic::cost(&scenario.question, &scenario.tools, batches, &conversation.answer)
        };
        let costs = CostComparison {
            code: conversation.cost,
            sequential: classic(conversation.calls().map(std::slice::from_ref).collect()),
            parallel: classic(conversation.rounds().collect()),
        };
        Ok(ScenarioReport { scenario, conversation, costs })
    }

    pub(crate) fn is_right(&self) -> bool {
        self.conversation.answer == self.scenario.expected
    }

    pub(crate) fn to_json(&self) -> Value {
        let ScenarioReport { scenario, conversation, costs } = self;
        json!({
            "name": scenario.name,
            "title": scenario.title,
            "question": scenario.question,
            "tools": scenario.tools.len(),
            "searches": conversation.searches().collect::<Vec<_>>(),
            "programs": conversation.programs().collect::<Vec<_>>(),
            "rounds": conversation.rounds().collect::<Vec<_>>(),
            "requests": conversation.requests,
            "client_saw_code": conversation.client_saw_code,
            "answer": conversation.answer,
            "expected": scenario.expected,
            "is_right": self.is_right(),
            "ways": {
                "code_mode": costs.code,
                "classic_sequential": costs.sequential,
                "classic_parallel": costs.parallel,
            },
        })
    }
}
