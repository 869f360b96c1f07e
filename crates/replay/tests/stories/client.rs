//! A client that answers a program's calls, and the transcript of what happened.

use std::sync::LazyLock;

use dacapo_replay::{CompletedCall, Step, StepRequest, Stepper, WarmPrograms};
use serde_json::{Value, json};

static COLD: LazyLock<Stepper> = LazyLock::new(|| Stepper::new(WarmPrograms::NONE).expect("a sandbox"));
static WARM: LazyLock<Stepper> = LazyLock::new(|| Stepper::new(WarmPrograms::default()).expect("a sandbox"));

/// Four tools without schemas, enough for most stories.
pub(crate) fn plain_tools() -> Value {
    json!([{ "name": "a" }, { "name": "b" }, { "name": "c" }, { "name": "web_search" }])
}

/// One step, cold and warm, which must agree.
pub(crate) fn step(request: &StepRequest) -> Step {
    let step_with = |stepper: &Stepper| stepper.step(request, &|| true).expect("a step");
    let (cold, warm) = (step_with(&COLD), step_with(&WARM));
    assert_eq!(
        (json_of(&cold), &cold.record),
        (json_of(&warm), &warm.record),
        "a warm program behaves like a replayed one"
    );
    cold
}

fn json_of(step: &Step) -> Value {
    serde_json::to_value(step).expect("steps are JSON")
}

/// A conversation between a program and its client.
pub(crate) struct ProgramStory {
    pub request: Value,
}

/// What happened, until the program finished.
#[derive(Debug)]
pub(crate) struct ProgramTranscript {
    /// Calls of each round, as `tool(args)`.
    pub rounds: Vec<Vec<String>>,
    pub result: Value,
    pub logs: Vec<String>,
    pub steps: Vec<Value>,
}

impl ProgramStory {
    pub(crate) fn new(code: &str) -> ProgramStory {
        ProgramStory { request: json!({ "program": { "code": code }, "tools": plain_tools(), "journal": [] }) }
    }

    pub(crate) fn with(mut self, key: &str, value: Value) -> ProgramStory {
        self.request[key] = value;
        self
    }

    /// One step with the journal as it stands.
    pub(crate) fn step(&self) -> Value {
        json_of(&step(&self.request()))
    }

    /// What the program leaves for the next one, with the journal as it stands.
    pub(crate) fn record(&self) -> Vec<CompletedCall> {
        step(&self.request()).record
    }

    fn request(&self) -> StepRequest {
        StepRequest::parse(&self.request.to_string()).expect("a valid request")
    }

    pub(crate) fn answer(&mut self, call: &Value, answer: &Value) {
        let mut entry = json!({ "call": call["call"], "tool": call["tool"], "args": call["args"] });
        entry.as_object_mut().expect("an object").extend(answer.as_object().expect("an answer").clone());
        self.request["journal"].as_array_mut().expect("a journal").push(entry);
    }

    /// Answers whole rounds, in order, until the program finishes.
    pub(crate) fn play(mut self, client: impl Fn(&str, &Value) -> Value) -> ProgramTranscript {
        let mut transcript =
            ProgramTranscript { rounds: Vec::new(), result: Value::Null, logs: Vec::new(), steps: Vec::new() };
        loop {
            let step = self.step();
            transcript.steps.push(step.clone());
            if step["status"] == "finished" {
                transcript.result = step["result"].clone();
                let text = |line: &Value| line["text"].as_str().expect("text").to_owned();
                transcript.logs = step["logs"].as_array().expect("logs").iter().map(text).collect();
                return transcript;
            }
            let calls = step["calls"].as_array().expect("calls").clone();
            transcript.rounds.push(calls.iter().map(shown).collect());
            for call in &calls {
                let answer = client(call["tool"].as_str().expect("a name"), &call["args"]);
                self.answer(call, &answer);
            }
        }
    }

    /// Every tool answers with its name.
    pub(crate) fn play_with_names(self) -> ProgramTranscript {
        self.play(|tool, _| json!({ "ok": tool }))
    }

    /// For programs that make no calls, or whose calls answer their name.
    pub(crate) fn data(self) -> Value {
        let transcript = self.play_with_names();
        assert_eq!(transcript.result["status"], "success", "{}", transcript.result);
        transcript.result["data"].clone()
    }

    pub(crate) fn error(self) -> Value {
        let transcript = self.play_with_names();
        assert_eq!(transcript.result["status"], "error", "{}", transcript.result);
        transcript.result["error"].clone()
    }
}

fn shown(call: &Value) -> String {
    format!("{}({})", call["tool"].as_str().expect("a name"), call["args"])
}

/// The value of a program without calls.
pub(crate) fn value_of(code: &str) -> Value {
    ProgramStory::new(code).data()
}
