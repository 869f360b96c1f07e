//! An agent's conversation: one question, a program that calls tools in five rounds, one answer.

use std::time::Duration;

use anyhow::{Context, bail, ensure};
use serde_json::{Value, json};

use super::client::Connection;
use super::servers::{ANSWER_HEADER, SAID};

pub(crate) const TOOLS: &str = include_str!("../../programs/twenty_tools.json");
/// The request with the question, the rounds in the middle, and the one with which the program ends.
pub(crate) const REQUESTS: usize = 6;
/// What the program returns.
const DATA: &str = r#"{"url":"https://reports.example/17","orders":40,"best":{"id":"c4","name":"Ada","tier":"gold","revenue":8258.16}}"#;

/// What one request is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The model is asked, and its program starts.
    Program,
    /// The program goes on, and no model is asked.
    Middle,
    /// The program ends, and the model is asked.
    Result,
}

/// All kinds, with what tables call them.
pub(crate) const KINDS: [(Kind, &str); 3] = [
    (Kind::Program, "the model writes a program"),
    (Kind::Middle, "a round in the middle"),
    (Kind::Result, "the result goes to the model"),
];

pub(crate) struct Conversation {
    /// The request, but for the end of its messages.
    text: String,
    requests: usize,
}

/// A request as it was sent, and how long it took.
pub(crate) struct Sent {
    pub kind: Kind,
    pub body: String,
    pub taken: Duration,
}

impl Conversation {
    pub(crate) fn new() -> Conversation {
        let question = json!({"role": "user", "content": "Who are our best customers of this year, and what did they buy for, in dollars? Put it into a report."});
        let system = json!({"role": "system", "content": "You work for a shop. Answer shortly, and only from what the tools say."});
        let text = format!(
            r#"{{"model":"bench","temperature":0.2,"tools":{},"messages":[{system},{question}"#,
            TOOLS.replace('\n', "")
        );
        Conversation { text, requests: 0 }
    }

    /// Sends the next request.
    pub(crate) fn next(&mut self, connection: &mut Connection, answer: &str) -> anyhow::Result<Sent> {
        let body = format!("{}]}}", self.text);
        let answer = if self.requests == 0 { "program" } else { answer };
        let (reply, taken) = connection.post(&format!("{ANSWER_HEADER}: {answer}\r\n"), &body)?;
        let reply: Value = serde_json::from_slice(&reply)?;
        let message = reply.pointer("/choices/0/message").with_context(|| format!("no message in {reply}"))?;
        self.requests += 1;
        let Some(calls) = message["tool_calls"].as_array() else {
            ensure!(self.requests == REQUESTS, "{} requests; {reply}", self.requests);
            let content = message["content"].as_str().unwrap_or_default();
            if answer == "echo" {
                let result: Value = serde_json::from_str(content)?;
                ensure!(result["data"] == serde_json::from_str::<Value>(DATA)?, "{reply}");
            } else {
                ensure!(content == SAID, "{reply}");
            }
            return Ok(Sent { kind: Kind::Result, body, taken });
        };
        let mut added = vec![message.clone()];
        for call in calls {
            let tool = call["function"]["name"].as_str().unwrap_or_default();
            let arguments = call["function"]["arguments"].as_str().unwrap_or_default();
            let content = tool_answer(tool, &serde_json::from_str(arguments)?)?;
            added.push(json!({"role": "tool", "tool_call_id": call["id"], "content": content}));
        }
        for message in added {
            self.text.push(',');
            self.text.push_str(&message.to_string());
        }
        let kind = if self.requests == 1 { Kind::Program } else { Kind::Middle };
        Ok(Sent { kind, body, taken })
    }

    /// Plays it to its end.
    pub(crate) fn play(connection: &mut Connection, answer: &str) -> anyhow::Result<Vec<Sent>> {
        let mut conversation = Conversation::new();
        (0..REQUESTS).map(|_| conversation.next(connection, answer)).collect()
    }
}

pub(crate) fn tool_answer(tool: &str, arguments: &Value) -> anyhow::Result<String> {
    let answer = match tool {
        "list_orders" => {
            let order = |number: u64| json!({"order_id": format!("o{number}"), "customer_id": format!("c{}", number % 5), "total": 100 * (number % 5 + number / 7), "status": "paid", "created": "2026-02-03", "lines": 3});
            let first = arguments["page"].as_u64().unwrap_or(1) * 20;
            json!({"orders": (first..first + 20).map(order).collect::<Vec<_>>()})
        }
        "get_customer" => {
            json!({"name": if arguments["customer_id"] == "c4" { "Ada" } else { "Bo" }, "tier": "gold", "phone": "+49 30 1234567", "city": "Berlin"})
        }
        "get_exchange_rate" => json!({"rate": 1.0866, "day": "2026-03-31"}),
        "create_report" => json!({"url": "https://reports.example/17"}),
        other => bail!("the program called {other}"),
    };
    Ok(answer.to_string())
}
