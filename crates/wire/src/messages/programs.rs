//! Programs and their results, as blocks that a client knows.

use dacapo_replay::{CallIndex, Catalog};
use serde_json::{Value, json};

use super::fields;
use super::segments::MessageSegment;
use crate::conversation::{CallRound, ExpectedCall, IssuedCall, ProgramBlock, WireCall};
use crate::plain_mode::{HistoryAnswer, tool_name};
use crate::state::RunState;

/// A program whose state is what the history says, and no more.
pub(super) fn structural(segment: &MessageSegment) -> ProgramBlock {
    let program = segment.program.as_ref().unwrap_or(&Value::Null);
    let id = fields::id(program);
    let code = program.pointer("/input/code").and_then(Value::as_str).unwrap_or_default();
    let state = RunState::written(id, code, fields::model_message(&segment.content));
    ProgramBlock::new(id, state)
}

/// Calls that a program made, counted in order, and the model's own beside them.
pub(super) fn round(block: &mut ProgramBlock, segment: &MessageSegment, answers: &[HistoryAnswer], catalog: &Catalog) {
    let before: usize = block.rounds.iter().map(|round| round.calls.len()).sum();
    let mut round = CallRound { number: block.rounds.len() as u32, answered: None, calls: Vec::new() };
    for call in segment.calls() {
        let id = fields::id(call);
        let answered = answers.iter().position(|answer| answer.id == id);
        if !fields::is_of_program(call) {
            let answer = answered.map(|at| answers[at].answer.clone());
            block.direct.push(WireCall { call: call.clone(), answer });
            continue;
        }
        let index = CallIndex((before + round.calls.len()) as u32);
        let args = call.get("input").filter(|input| !input.is_null()).cloned().unwrap_or_else(|| json!({}));
        round.calls.push(IssuedCall {
            id: id.to_owned(),
            asked: ExpectedCall::Args(index, args),
            tool: tool_name(fields::name(call), catalog),
            answer: answered.map(|at| (at, answers[at].parsed.clone())),
        });
    }
    if !round.calls.is_empty() {
        block.rounds.push(round);
    }
}

/// All its calls are there, and answered.
pub(super) fn is_complete(block: &ProgramBlock) -> bool {
    let mut numbers = block.rounds.iter().zip(0..);
    numbers.all(|(round, number)| round.number == number && round.calls.iter().all(|call| call.answer.is_some()))
}

/// What a client was told, as the model is shown it.
pub(super) fn read_result(block: &Value) -> Value {
    let content = block.get("content").unwrap_or(&Value::Null);
    let text = |key: &str| content.get(key).and_then(Value::as_str).unwrap_or_default();
    let failed = |message: &str| json!({"status": "error", "error": {"kind": "exception", "message": message}});
    if let Some(code) = content.get("error_code").and_then(Value::as_str) {
        return failed(code);
    }
    if content.get("return_code").and_then(Value::as_i64).unwrap_or_default() == 0 {
        json!({"status": "success", "data": text("stdout")})
    } else {
        failed(text("stderr"))
    }
}

/// The block that opens a program.
pub(super) fn written(id: &str, code: &str) -> Value {
    json!({"type": fields::SERVER_TOOL_USE, "id": id, "name": fields::PROGRAM, "input": {"code": code}})
}

/// The block that closes a program; `shown` is the result as the model reads it.
pub(super) fn result(id: &str, shown: &Value) -> Value {
    let mut stdout = String::new();
    for line in shown.get("logs").and_then(Value::as_array).map_or(&[][..], Vec::as_slice) {
        stdout.push_str(line.as_str().unwrap_or_default());
        stdout.push('\n');
    }
    let (stderr, return_code) = match shown.get("error") {
        Some(error) => (stderr(error), 1),
        None => (String::new(), 0),
    };
    match shown.get("data") {
        None => {}
        Some(Value::String(text)) => stdout.push_str(text),
        Some(data) => stdout.push_str(&data.to_string()),
    }
    let content = json!({
        "type": "code_execution_result",
        "stdout": stdout,
        "stderr": stderr,
        "return_code": return_code,
        "content": [],
    });
    json!({"type": fields::PROGRAM_RESULT, "tool_use_id": id, "content": content})
}

/// An error as people read it.
fn stderr(error: &Value) -> String {
    let text = |key: &str| error.get(key).and_then(Value::as_str).filter(|text| !text.is_empty());
    let kind = text("name").or_else(|| text("kind")).unwrap_or("error");
    let mut told = format!("{kind}: {}", text("message").unwrap_or_default());
    for detail in ["frame", "stack", "cause"].into_iter().filter_map(text) {
        told.push('\n');
        told.push_str(detail);
    }
    told
}
