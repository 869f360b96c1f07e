//! A turn: what a client asks for, and what its model is asked.

use std::collections::BTreeSet;
use std::sync::Arc;

use dacapo_replay::{Call, Toolbox};
use serde_json::{Map, Value};

use crate::conversation::Conversation;
use crate::dialect::Ask;
use crate::ids::RunId;
use crate::message::{Input, Tool};
use crate::prompt::Offer;
use crate::saying::Saying;
use crate::speaker::{CallDeltas, Manner, Speaker};
use crate::transcript::Transcript;
use crate::wire::Wire;

/// What the client says about calls in the answer, whatever the model would rather do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Demand {
    Nothing,
    Calls,
    NoCalls,
    /// A program must be written.
    Program,
    /// This tool must be called.
    Tool(String),
}

/// How the client wants its answer.
#[derive(Debug, Clone)]
pub struct Wanted {
    pub is_stream: bool,
    pub include_usage: bool,
    /// One call at a time.
    pub one_call: bool,
    pub demand: Demand,
}

/// How a model is asked within a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Urge {
    AsTheClientSays,
    /// What the client demands has been done.
    Freely,
    /// It has to come to an end.
    ToEnd,
}

/// A request that we answer, or have to translate.
#[derive(Debug)]
pub struct Turn {
    pub wire: Wire,
    /// Of the model that will be asked.
    pub upstream: Wire,
    pub conversation: Conversation,
    pub offer: Offer,
    /// Stands for the tool list.
    pub tools: [u8; 8],
    pub explicit: bool,
    pub wanted: Wanted,
    /// The request with everything that we do not understand, in place.
    pub(crate) body: Map<String, Value>,
    /// Entries of `tools` that stay as they are.
    pub(crate) passed_tools: Vec<Value>,
    /// What the model's wire cannot carry.
    pub dropped: Vec<String>,
    /// What the client calls its provider's search for tools: it is told of ours under this name.
    pub search_tool: Option<String>,
    /// Names of the client's tools that take text.
    pub(crate) custom: BTreeSet<String>,
    /// Whether the model writes programs as plain text.
    pub(crate) custom_execute: bool,
}

impl Turn {
    pub fn toolbox(&self) -> &Arc<Toolbox> {
        self.offer.toolbox()
    }

    pub fn model(&self) -> &str {
        self.body.get("model").and_then(Value::as_str).unwrap_or_default()
    }

    /// A history for the model, in which nothing has been said yet.
    pub fn transcript(&self) -> Transcript {
        let mut transcript = Transcript::new(self.wire, self.upstream);
        if self.wire != self.upstream {
            transcript.messages(&(self.wire.dialect().preface)(&self.body));
        }
        transcript
    }

    pub fn speaker(&self, deltas: CallDeltas) -> Box<dyn Speaker> {
        let manner = Manner {
            upstream: self.upstream,
            is_stream: self.wanted.is_stream,
            explicit: self.explicit,
            include_usage: self.wanted.include_usage,
            deltas,
        };
        (self.wire.dialect().speaker)(manner, &self.body, self.toolbox())
    }

    /// Do the ids of a program's calls carry its state? Elsewhere an item of the history does.
    pub fn seals_calls(&self) -> bool {
        !self.explicit || self.wire == Wire::Messages
    }

    /// Ids of calls that carry nothing.
    pub fn open_ids(run: RunId, round: u32, calls: &[Call]) -> Vec<String> {
        calls.iter().map(|call| format!("call_{run}_{round}_{}", call.call.0)).collect()
    }

    /// What the model called, as the client declared it: some wires have no tools that take text.
    pub fn adopt(&self, saying: &mut Saying) {
        if self.wire == self.upstream {
            return;
        }
        for call in saying.calls.iter_mut().filter(|call| !call.is_custom) {
            let is_custom = self.custom.contains(&call.name);
            let input = serde_json::from_str::<Value>(&call.arguments).ok().filter(|_| is_custom);
            if let Some(input) = input.as_ref().and_then(|arguments| arguments.get("input")?.as_str()) {
                call.is_custom = true;
                input.clone_into(&mut call.arguments);
            }
        }
    }

    /// The body, but for the tools, of which the model is shown others.
    fn without_tools(&self) -> Map<String, Value> {
        let copy =
            |(key, value): (&String, &Value)| (key.clone(), if key == "tools" { Value::Null } else { value.clone() });
        self.body.iter().map(copy).collect()
    }

    /// The request for the model.
    pub fn ask(&self, transcript: &Transcript, urge: Urge) -> Value {
        let (client, upstream) = (self.wire.dialect(), self.upstream.dialect());
        let is_same_wire = self.wire == self.upstream;
        let ours = self.offer.tools().into_iter().map(|(name, description, schema)| {
            let is_text = self.custom_execute && name == self.offer.execute();
            let input = if is_text { Input::Text { format: None } } else { Input::Schema(schema) };
            (upstream.write_tool)(&Tool { name: name.to_owned(), description: Some(description), input })
        });
        let (mut body, passed): (_, Vec<Value>) = if is_same_wire {
            (self.without_tools(), self.passed_tools.clone())
        } else {
            let tools = self.passed_tools.iter().filter_map(|entry| (client.read_tool)(entry));
            ((upstream.body)(&(client.wishes)(&self.body)), tools.map(|tool| (upstream.write_tool)(&tool)).collect())
        };
        if urge == Urge::Freely {
            body.shift_remove("tool_choice");
        }
        let demand = match &self.wanted.demand {
            _ if urge == Urge::ToEnd => Demand::NoCalls,
            _ if urge == Urge::Freely => Demand::Nothing,
            Demand::Program => Demand::Tool(self.offer.execute().to_owned()),
            _ if is_same_wire => Demand::Nothing,
            demand => demand.clone(),
        };
        (upstream.ask)(
            body,
            Ask {
                client: &self.body,
                history: transcript.entries(),
                tools: ours.chain(passed).collect(),
                demand,
                one_call: self.wanted.one_call,
                is_stream: self.wanted.is_stream,
                is_same_wire,
            },
        )
    }
}
