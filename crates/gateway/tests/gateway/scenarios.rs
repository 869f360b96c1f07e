//! Whole conversations as files: each file in `scenarios/` has steps to play and the expected transcript.
//!
//! `DACAPO_UPDATE=1` writes the actual transcripts into the files, to review the differences.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use crate::common::{Model, RunningGateway, options, post_json, tool};
use serde_json::{Value, json};

#[tokio::test(flavor = "multi_thread")]
async fn every_scenario_tells_its_story() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios");
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(files.len() > 10);
    let mut wrong = Vec::new();
    for file in files.iter().filter(|file| file.extension().is_some_and(|extension| extension == "md")) {
        let text = std::fs::read_to_string(file).unwrap();
        let played = play(&text).await;
        let expected = replaced(&text, &played);
        if std::env::var("DACAPO_UPDATE").is_ok() {
            std::fs::write(file, &expected).unwrap();
        } else if text != expected {
            wrong.push(format!("{}:\n{played}", file.display()));
        }
    }
    assert!(wrong.is_empty(), "not as the files say:\n\n{}", wrong.join("\n\n"));
}

/// The text of the fence that opens with this line.
pub(crate) fn fence<'a>(text: &'a str, opening: &str) -> Option<&'a str> {
    let start = text.find(&format!("\n{opening}\n"))? + opening.len() + 2;
    let end = text[start..].find("\n```")? + start;
    Some(&text[start..end])
}

fn replaced(text: &str, played: &str) -> String {
    match fence(text, "```transcript") {
        Some(old) => {
            let start = old.as_ptr() as usize - text.as_ptr() as usize;
            format!("{}{}{}", &text[..start], played.trim_end(), &text[start + old.len()..])
        }
        None => format!("{}\n\n```transcript\n{}\n```\n", text.trim_end(), played.trim_end()),
    }
}

/// A conversation on its way.
struct Play {
    model: Model,
    gateway: RunningGateway,
    history: Vec<Value>,
    tools: Vec<Value>,
    /// The messages that the model saw last.
    shown: Vec<Value>,
    transcript: String,
}

async fn play(text: &str) -> String {
    let model = Model::start(fence(text, "```toml").expect("a script")).await;
    let gateway = RunningGateway::start(options(&model)).await;
    let tools = read_tools(fence(text, "```tools").expect("tools"));
    let mut play = Play { model, gateway, history: Vec::new(), tools, shown: Vec::new(), transcript: String::new() };
    for line in fence(text, "```steps").expect("steps").lines().filter(|line| !line.trim().is_empty()) {
        play.step(line.trim()).await;
    }
    play.transcript
}

/// One tool a line: `name(parameter, parameter)`, and who may call it unless programs.
fn read_tools(text: &str) -> Vec<Value> {
    let line = |line: &str| {
        let (head, callers) = line.split_once(" by ").unwrap_or((line, ""));
        let (name, parameters) = head.trim_end_matches(')').split_once('(').expect("name(parameters)");
        let parameters: Vec<&str> = parameters.split(", ").filter(|name| !name.is_empty()).collect();
        let mut tool = tool(name, &parameters);
        if !callers.is_empty() {
            tool["allowed_callers"] = json!(callers.split(", ").collect::<Vec<_>>());
        }
        tool
    };
    text.lines().map(line).collect()
}

impl Play {
    async fn step(&mut self, line: &str) {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        match word {
            "user" | "system" | "developer" | "assistant" => self.history.push(json!({"role": word, "content": rest})),
            "message" => self.history.push(serde_json::from_str(rest).unwrap()),
            "send" => self.send(rest).await,
            "answer" => self.answer(rest, false),
            "fail" => self.answer(rest, true),
            "edit" => {
                let (at, content) = rest.split_once(' ').unwrap();
                let at: usize = at.parse().unwrap();
                self.history[at]["content"] = json!(content);
            }
            "drop" => {
                let (from, to) = rest.split_once("..").unwrap();
                self.history.drain(from.parse::<usize>().unwrap()..to.parse::<usize>().unwrap());
            }
            "repeat" => self.history.push(self.history[rest.parse::<usize>().unwrap()].clone()),
            "clip" => self.clip(rest.parse().unwrap()),
            "tools" => self.tools = read_tools(&rest.replace("; ", "\n")),
            "restart" => self.gateway = RunningGateway::start(options(&self.model)).await,
            "secret" => {
                let mut options = options(&self.model);
                options.secret = Some(rest.to_owned());
                self.gateway = RunningGateway::start(options).await;
            }
            _ => panic!("unknown step: {line}"),
        }
        if word != "send" {
            writeln!(self.transcript, "· {line}").unwrap();
        }
    }

    /// `2 text` answers the second call of the last message with calls, `all text` all of them; `{name}` stands for
    /// an argument.
    fn answer(&mut self, rest: &str, is_error: bool) {
        let (which, text) = rest.split_once(' ').unwrap();
        let last = self.history.iter().rev().find(|message| message.get("tool_calls").is_some()).unwrap();
        let calls: Vec<Value> = last["tool_calls"].as_array().unwrap().clone();
        let numbers: Vec<usize> =
            if which == "all" { (0..calls.len()).collect() } else { vec![which.parse::<usize>().unwrap() - 1] };
        for number in numbers {
            let call = &calls[number];
            let args: Value = serde_json::from_str(call["function"]["arguments"].as_str().unwrap()).unwrap();
            let mut content = text.to_owned();
            for (name, value) in args.as_object().unwrap() {
                content = content.replace(&format!("{{{name}}}"), value.as_str().unwrap_or_default());
            }
            let mut message = json!({"role": "tool", "tool_call_id": call["id"], "content": content});
            if is_error {
                message["is_error"] = json!(true);
            }
            self.history.push(message);
        }
    }

    fn clip(&mut self, chars: usize) {
        let clip = |id: &mut Value| *id = json!(id.as_str().unwrap().chars().take(chars).collect::<String>());
        for message in &mut self.history {
            message.get_mut("tool_call_id").map(clip).unwrap_or_default();
            for call in message.get_mut("tool_calls").and_then(Value::as_array_mut).into_iter().flatten() {
                clip(&mut call["id"]);
            }
        }
    }

    async fn send(&mut self, extra: &str) {
        let mut body = json!({"model": "gpt-scripted", "messages": self.history, "tools": self.tools});
        if !extra.is_empty() {
            let extra: Value = serde_json::from_str(extra).unwrap();
            body.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        }
        writeln!(
            self.transcript,
            "client asks{}",
            if extra.is_empty() { String::new() } else { format!(", with {extra}") }
        )
        .unwrap();
        let answered = post_json(&self.gateway.url, &body).await;
        for asked in self.model.asked() {
            self.write_model_request(&asked);
        }
        if answered.status != 200 {
            writeln!(self.transcript, "client gets {} {}", answered.status, answered.text).unwrap();
            return;
        }
        let json = if answered.text.starts_with("data: ") { answered.streamed() } else { answered.json() };
        let choice = &json["choices"][0];
        let last = vec![choice["message"].clone()];
        for message in choice["messages"].as_array().unwrap_or(&last) {
            writeln!(self.transcript, "client gets {}", rendered(message)).unwrap();
            self.history.push(message.clone());
        }
    }

    /// What the model sees: tools, and messages beyond those that it saw before, byte for byte.
    fn write_model_request(&mut self, asked: &Value) {
        let tools: Vec<&str> = asked["tools"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|tool| tool["function"]["name"].as_str())
            .collect();
        writeln!(self.transcript, "  model is offered {}", tools.join(", ")).unwrap();
        let messages = asked["messages"].as_array().unwrap();
        let bytes = |messages: &[Value]| serde_json::to_string(messages).unwrap();
        let known = self.shown.len();
        let is_as_before = known > 0 && messages.get(..known).is_some_and(|same| bytes(same) == bytes(&self.shown));
        let skipped = if is_as_before { known } else { 0 };
        if is_as_before {
            writeln!(self.transcript, "    ({known} messages as before)").unwrap();
        }
        for message in &messages[skipped..] {
            writeln!(self.transcript, "    {}", rendered(message)).unwrap();
        }
        self.shown.clone_from(messages);
    }
}

fn rendered(message: &Value) -> String {
    let mut rendered = message["role"].as_str().unwrap_or("(no role)").to_owned();
    for key in ["id", "code", "result"] {
        if let Some(value) = message.get(key) {
            write!(rendered, " {key} {}", kind(value)).unwrap();
        }
    }
    if let Some(id) = message["tool_call_id"].as_str() {
        write!(rendered, " {}", kind(&json!(id))).unwrap();
    }
    if let Some(text) = message["content"].as_str() {
        write!(rendered, ": {text}").unwrap();
    }
    if let Some(reasoning) = message["reasoning_content"].as_str() {
        write!(rendered, " (thinking: {reasoning})").unwrap();
    }
    for call in message["tool_calls"].as_array().into_iter().flatten() {
        let arguments = call["function"]["arguments"].as_str().unwrap_or_default();
        write!(
            rendered,
            "\n      calls {}({arguments}) as {}",
            call["function"]["name"].as_str().unwrap(),
            kind(&call["id"])
        )
        .unwrap();
    }
    rendered
}

/// Ids depend on every byte of a state, so only their kind is written.
fn kind(value: &Value) -> String {
    match value.as_str() {
        Some(id) if id.starts_with("dc1_") && id.len() < 40 => format!("dc1_…{}", &id[16..]),
        Some(id) if id.starts_with("dc1_") => "dc1_…sealed".to_owned(),
        Some(id) if id.starts_with("call_") && id.get(17..18) == Some("_") => format!("call_…{}", &id[17..]),
        Some(id) if id.starts_with("call_") => "the provider's id".to_owned(),
        Some(id) if id.starts_with("code_") => "code_…".to_owned(),
        Some(id) if id.len() == 9 && id.bytes().all(|byte| byte.is_ascii_alphanumeric()) => "short".to_owned(),
        Some(other) => other.replace('\n', "⏎"),
        None => value.to_string(),
    }
}
