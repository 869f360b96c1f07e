//! A played scenario with what it cost, and what it would have cost without programs.

use serde_json::{Value, json};

use super::classic;
use super::conversation::{Call, Conversation};
use super::house::House;
use super::scenario::Scenario;
use super::tokens::Cost;

pub(crate) struct Story {
    pub scenario: Scenario,
    pub conversation: Conversation,
    pub ways: Ways,
}

/// The same conversation, three times.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Ways {
    pub code: Cost,
    /// One call per model call.
    pub sequential: Cost,
    /// The calls of a round in one model call.
    pub parallel: Cost,
}

impl Ways {
    pub(crate) fn plus(self, other: Ways) -> Ways {
        Ways {
            code: self.code.plus(other.code),
            sequential: self.sequential.plus(other.sequential),
            parallel: self.parallel.plus(other.parallel),
        }
    }
}

impl Story {
    pub(crate) async fn play(scenario: Scenario, house: &House) -> anyhow::Result<Story> {
        let conversation = Conversation::play(&scenario, house).await?;
        let classic =
            |batches: Vec<&[Call]>| classic::cost(&scenario.question, &scenario.tools, batches, &conversation.answer);
        let ways = Ways {
            code: conversation.cost,
            sequential: classic(conversation.calls().map(std::slice::from_ref).collect()),
            parallel: classic(conversation.rounds().collect()),
        };
        Ok(Story { scenario, conversation, ways })
    }

    pub(crate) fn is_right(&self) -> bool {
        self.conversation.answer == self.scenario.expected
    }

    pub(crate) fn to_json(&self) -> Value {
        let Story { scenario, conversation, ways } = self;
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
                "code_mode": ways.code,
                "classic_sequential": ways.sequential,
                "classic_parallel": ways.parallel,
            },
        })
    }
}
