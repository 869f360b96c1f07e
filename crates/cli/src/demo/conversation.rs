//! A client's conversation with the gateway, from the question to the answer.

use std::collections::BTreeSet;

use anyhow::{Context, ensure};
use serde::Serialize;
use serde_json::{Value, json};

use super::demo_server::{DemoServer, ModelExchange};
use super::scenario::Scenario;
use super::tokens::Cost;

/// A call that the client executed, with the text of its arguments and its answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct DemoCall {
    pub tool: String,
    pub arguments: String,
    pub answer: String,
    pub is_error: bool,
}

/// A step of a conversation.
pub(crate) enum DemoEvent {
    Search(String),
    Program(String),
    /// Calls that the client got in one response.
    Round(Vec<DemoCall>),
    /// A tool result that the model got.
    ToolResult(String),
}

pub(crate) struct DemoConversation {
    pub events: Vec<DemoEvent>,
    pub requests: usize,
    pub answer: String,
    pub cost: Cost,
    /// Whether any response contained a program, or a call of a tool that the client does not have.
    pub client_saw_code: bool,
}

/// More than any scenario needs.
const REQUESTS_MAX: usize = 20;

impl DemoConversation {
    /// Acts as the client: sends the question, executes calls and sends their results, until there is an answer.
    pub(crate) async fn play(
        scenario: &Scenario,
        model: &str,
        demo_server: &DemoServer,
    ) -> anyhow::Result<DemoConversation> {
        let mut conversation = DemoConversation {
            events: Vec::new(),
            requests: 0,
            answer: String::new(),
            cost: Cost::default(),
            client_saw_code: false,
        };
        let mut responses = String::new();
        let mut observed = Cost::default();
        let mut messages = vec![json!({"role": "user", "content": scenario.question})];
        loop {
            ensure!(conversation.requests < REQUESTS_MAX, "no answer after {REQUESTS_MAX} requests");
            conversation.requests += 1;
            let mut response = demo_server.complete(model, &messages, &scenario.tools).await?;
            for exchange in demo_server.exchanges() {
                let tokens = |name: &str| exchange.usage[name].as_u64().unwrap_or_default();
                observed.add(1, tokens("prompt_tokens"), tokens("completion_tokens"));
                conversation.record(exchange);
            }
            let sums = &response["usage"]["dacapo"];
            let sum = |name: &str| sums[name].as_u64().unwrap_or_default();
            conversation.cost.add(sum("model_calls"), sum("input_tokens"), sum("output_tokens"));
            let message = response.pointer_mut("/choices/0/message").map(Value::take);
            let message = message.context("the gateway's answer has no message")?;
            responses += &message.to_string();
            let calls = message["tool_calls"].as_array().cloned().unwrap_or_default();
            if calls.is_empty() {
                message["content"].as_str().unwrap_or_default().clone_into(&mut conversation.answer);
                break;
            }
            messages.push(message);
            let mut round = Vec::new();
            for call in &calls {
                let call = DemoCall::execute(&call["function"], scenario)?;
                let mut answer =
                    json!({"role": "tool", "tool_call_id": calls[round.len()]["id"], "content": call.answer});
                if call.is_error {
                    answer["is_error"] = json!(true);
                }
                messages.push(answer);
                round.push(call);
            }
            conversation.client_saw_code |= !round.iter().all(|call| scenario.has_tool(&call.tool));
            conversation.events.push(DemoEvent::Round(round));
        }
        ensure!(conversation.cost == observed, "`usage` says {:?}, the model {observed:?}", conversation.cost);
        let saw_program = conversation.programs().any(|code| responses.contains(quoted(code).as_str()));
        conversation.client_saw_code |= saw_program;
        Ok(conversation)
    }

    fn record(&mut self, exchange: ModelExchange) {
        self.events.extend(exchange.tool_results.into_iter().map(DemoEvent::ToolResult));
        for call in exchange.message["tool_calls"].as_array().into_iter().flatten() {
            let arguments = call["function"]["arguments"].as_str().unwrap_or_default();
            let arguments: Value = serde_json::from_str(arguments).unwrap_or_default();
            let text = |name: &str| arguments[name].as_str().unwrap_or_default().to_owned();
            match call["function"]["name"].as_str() {
                Some("search") => self.events.push(DemoEvent::Search(text("query"))),
                Some("execute") => self.events.push(DemoEvent::Program(text("code"))),
                // A call of the model itself, which the client executes.
                _ => {}
            }
        }
    }

    pub(crate) fn programs(&self) -> impl Iterator<Item = &str> {
        self.events
            .iter()
            .filter_map(|event| if let DemoEvent::Program(code) = event { Some(code.as_str()) } else { None })
    }

    pub(crate) fn searches(&self) -> impl Iterator<Item = &str> {
        self.events
            .iter()
            .filter_map(|event| if let DemoEvent::Search(query) = event { Some(query.as_str()) } else { None })
    }

    pub(crate) fn rounds(&self) -> impl Iterator<Item = &[DemoCall]> {
        self.events
            .iter()
            .filter_map(|event| if let DemoEvent::Round(calls) = event { Some(calls.as_slice()) } else { None })
    }

    pub(crate) fn has_repeated_calls(&self) -> bool {
        let mut seen = BTreeSet::new();
        !self.calls().all(|call| seen.insert((&call.tool, &call.arguments)))
    }

    pub(crate) fn calls(&self) -> impl Iterator<Item = &DemoCall> {
        self.rounds().flatten()
    }
}

impl DemoCall {
    fn execute(function: &Value, scenario: &Scenario) -> anyhow::Result<DemoCall> {
        let text =
            |name: &str| function[name].as_str().map(str::to_owned).with_context(|| format!("no {name}: {function}"));
        let (tool, arguments) = (text("name")?, text("arguments")?);
        let answer = (scenario.execute)(&tool, &serde_json::from_str(&arguments)?);
        let is_error = answer.is_err();
        Ok(DemoCall { tool, arguments, is_error, answer: answer.map_or_else(|error| error, |value| value.to_string()) })
    }
}

impl Cost {
    fn add(&mut self, model_calls: u64, context_tokens: u64, completion_tokens: u64) {
        self.model_calls += model_calls;
        self.context_tokens += context_tokens;
        self.completion_tokens += completion_tokens;
    }
}

/// A text escaped as inside a JSON string.
fn quoted(text: &str) -> String {
    let json = Value::from(text).to_string();
    json[1..json.len() - 1].to_owned()
}
