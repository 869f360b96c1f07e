//! Plays a task: a client on the wire Messages, whose tools are those of a simulated world, talks to a gateway.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use dacapo_gateway::{Config, Gateway};
use serde_json::{Value, json};
use tokio::net::TcpListener;

use super::run::{EvalFailure, EvalRun, EvalRunId, FailureKind, Mode, RunCost};
use super::task::Task;
use super::tool::SimulatedAnswer;
use super::world::World;

/// A gateway on a loopback port, and a client of it.
#[derive(Debug, Clone)]
pub(crate) struct Player {
    url: Arc<str>,
    client: reqwest::Client,
    tokens_max: u64,
    timeout: Duration,
}

const SYSTEM: &str = "Answer the user with the help of your tools. Do what is asked, and change nothing else. Give exact \
                      names, ids and figures, in plain text.";

/// More than any task needs, also with one call at a time.
const REQUESTS_MAX: usize = 100;

/// Of a request that failed, what a report quotes.
const ERROR_CHARS_MAX: usize = 500;

impl Player {
    /// Starts the gateway. It serves until the runtime ends.
    pub(crate) async fn start(config: Config, tokens_max: u64, timeout: Duration) -> anyhow::Result<Player> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.context("cannot listen on 127.0.0.1")?;
        let url = format!("http://{}/v1/messages", listener.local_addr()?).into();
        tokio::spawn(dacapo_gateway::serve(Gateway::new(config)?, listener, std::future::pending()));
        // The way to the gateway does not depend on proxies or certificates of the machine.
        let client = reqwest::Client::builder().no_proxy().tls_certs_only([]).build()?;
        Ok(Player { url, client, tokens_max, timeout })
    }

    pub(crate) async fn play(&self, task: &Task, id: EvalRunId) -> EvalRun {
        let mut conversation = EvalConversation {
            player: self,
            mode: id.mode,
            model: &id.model,
            tools: task.world.tools.iter().map(|tool| tool.declaration(id.mode)).collect(),
            messages: Vec::new(),
            world: World::new(&task.world),
            cost: RunCost::default(),
        };
        let start = Instant::now();
        let mut answers = Vec::new();
        let played = tokio::time::timeout(self.timeout, conversation.play(task, &mut answers)).await;
        let failure = match played {
            Ok(Ok(())) => {
                EvalFailure::of_mistakes(task.answer_mistakes(&answers), task.world_mistakes(&conversation.world))
            }
            Ok(Err(failure)) => Some(failure),
            Err(_) => Some(EvalFailure::new(FailureKind::TimedOut, format!("no answer after {:?}", self.timeout))),
        };
        let mut cost = conversation.cost;
        cost.took(start.elapsed());
        EvalRun { id, kind: task.kind.clone(), answers, failure, cost }
    }
}

struct EvalConversation<'a> {
    player: &'a Player,
    mode: Mode,
    model: &'a str,
    tools: Vec<Value>,
    messages: Vec<Value>,
    world: World,
    cost: RunCost,
}

impl EvalConversation<'_> {
    async fn play(&mut self, task: &Task, answers: &mut Vec<String>) -> Result<(), EvalFailure> {
        let mut requests = 0;
        for turn in &task.turns {
            self.messages.push(json!({"role": "user", "content": turn.question}));
            loop {
                requests += 1;
                if requests > REQUESTS_MAX {
                    let detail = format!("no answer after {REQUESTS_MAX} requests");
                    return Err(EvalFailure::new(FailureKind::TooManyRequests, detail));
                }
                let response = self.ask().await?;
                self.count(&response["usage"]);
                let content = response["content"].as_array().cloned().unwrap_or_default();
                let calls: Vec<&Value> = content.iter().filter(|block| block["type"] == "tool_use").collect();
                let results: Vec<Value> = calls.into_iter().map(|call| self.execute(call)).collect();
                let text: Vec<&str> = content.iter().filter_map(|block| block["text"].as_str()).collect();
                let text = text.join("\n");
                if !content.is_empty() {
                    self.messages.push(json!({"role": "assistant", "content": content}));
                }
                if !results.is_empty() {
                    self.messages.push(json!({"role": "user", "content": results}));
                } else if text.trim().is_empty() {
                    let detail = format!("the model stopped with `{}`", response["stop_reason"]);
                    return Err(EvalFailure::new(FailureKind::NoAnswer, detail));
                } else {
                    answers.push(text);
                    break;
                }
            }
        }
        Ok(())
    }

    async fn ask(&self) -> Result<Value, EvalFailure> {
        let body = json!({
            "model": self.model,
            "max_tokens": self.player.tokens_max,
            "system": SYSTEM,
            "tools": self.tools,
            "messages": self.messages,
        });
        let mode = match self.mode {
            Mode::Classic => "off",
            Mode::Code => "plain",
        };
        let request = self.player.client.post(&*self.player.url).header("content-type", "application/json");
        let request = request.header("anthropic-version", "2023-06-01").header("x-dacapo-mode", mode);
        let failed =
            |detail: String| EvalFailure::new(FailureKind::Upstream, crate::text_style::clip(&detail, ERROR_CHARS_MAX));
        let response = request.body(body.to_string()).send().await.map_err(|error| failed(error.to_string()))?;
        let status = response.status();
        let text = response.text().await.map_err(|error| failed(error.to_string()))?;
        if !status.is_success() {
            return Err(failed(format!("{status}: {text}")));
        }
        serde_json::from_str(&text).map_err(|error| failed(format!("the answer is not JSON ({error}): {text}")))
    }

    /// In code mode the gateway sums up all calls of the model in a request; in classic mode there is one.
    fn count(&mut self, usage: &Value) {
        let number = |usage: &Value, name: &str| usage[name].as_u64().unwrap_or_default();
        let cost = &mut self.cost;
        if let (Some(sums), Mode::Code) = (usage.get("dacapo"), self.mode) {
            cost.model_calls += number(sums, "model_calls");
            cost.tokens_in += number(sums, "input_tokens");
            cost.tokens_out += number(sums, "output_tokens");
            cost.programs += number(sums, "programs");
        } else {
            cost.model_calls += 1;
            let read = ["input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens"];
            cost.tokens_in += read.iter().map(|name| number(usage, name)).sum::<u64>();
            cost.tokens_out += number(usage, "output_tokens");
        }
    }

    fn execute(&mut self, call: &Value) -> Value {
        self.cost.tool_calls += 1;
        let answer = self.world.call(call["name"].as_str().unwrap_or_default(), &call["input"]);
        let mut result = json!({"type": "tool_result", "tool_use_id": call["id"]});
        match answer {
            SimulatedAnswer::Text(text) => result["content"] = Value::from(text),
            SimulatedAnswer::Error(text) => {
                result["content"] = Value::from(format!("Error: {text}"));
                result["is_error"] = Value::from(true);
            }
            SimulatedAnswer::Image(data) => {
                let source = json!({"type": "base64", "media_type": "image/png", "data": data});
                result["content"] = json!([{"type": "image", "source": source}]);
            }
        }
        result
    }
}
