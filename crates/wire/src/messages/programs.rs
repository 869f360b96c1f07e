//! Programs and their results as blocks of a client's history.

use dacapo_replay::{CallIndex, Catalog};
use serde_json::{Value, json};

use super::fields;
use super::history::history_call;
use super::segments::MessageSegment;
use crate::call_round::{CallRound, ExpectedCall, IssuedCall};
use crate::conversation::ProgramBlock;
use crate::plain_mode::{HistoryAnswer, tool_name};
use crate::state::RunState;

/// A program without a sealed state, read from its blocks alone.
pub(super) fn unsealed_program(segment: &MessageSegment) -> ProgramBlock {
    let program = segment.program.as_ref().unwrap_or(&Value::Null);
    let id = fields::id(program);
    let code = program.pointer("/input/code").and_then(Value::as_str).unwrap_or_default();
    let state = RunState::without_seal(id, code, fields::model_message(&segment.content));
    ProgramBlock::new(id, state)
}

/// Adds calls without sealed ids: those of the program, numbered in order, and the direct calls of the model.
pub(super) fn add_round(
    block: &mut ProgramBlock,
    segment: &MessageSegment,
    answers: &[HistoryAnswer],
    catalog: &Catalog,
) {
    let before: usize = block.rounds.iter().map(|round| round.calls.len()).sum();
    let mut round = CallRound::unsealed(block.rounds.len() as u32);
    for call in segment.calls() {
        let id = fields::id(call);
        if !fields::is_of_program(call) {
            block.direct.push(history_call(call).into_wire_call(answers));
            continue;
        }
        let index = CallIndex((before + round.calls.len()) as u32);
        let args = call.get("input").filter(|input| !input.is_null()).cloned().unwrap_or_else(|| json!({}));
        let tool = tool_name(fields::name(call), catalog);
        let mut issued = IssuedCall::unanswered(id.to_owned(), tool, ExpectedCall::Args(index, args), String::new());
        if let Some((at, answer)) = answers.iter().enumerate().find(|(_, answer)| answer.id == id) {
            let appended = issued.set_answer(block.run, at, |key| fields::answer(&answer.native, key));
            block.add_appended(appended);
        }
        round.calls.push(issued);
    }
    if !round.calls.is_empty() {
        block.rounds.push(round);
    }
}

/// Whether the history has all that the program's result follows from: its calls, and their answers as far as it waited
/// for them.
pub(super) fn is_complete(block: &ProgramBlock) -> bool {
    let is_interrupted = block.is_interrupted();
    let has_answers = |round: &CallRound| is_interrupted || round.calls.iter().all(|call| call.answer.is_some());
    let mut numbers = block.rounds.iter().zip(0..);
    numbers.all(|(round, number)| round.number == number && has_answers(round))
}

/// The result for the model, from the block that the client has.
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
pub(super) fn program_block(id: &str, code: &str) -> Value {
    json!({"type": fields::SERVER_TOOL_USE, "id": id, "name": fields::PROGRAM, "input": {"code": code}})
}

/// The block that closes a program. `shown` is the result as the model reads it.
pub(super) fn result_block(id: &str, shown: &Value) -> Value {
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
        // A program that returns nothing has said all in its output.
        None | Some(Value::Null) => {}
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

/// An error as readable text.
fn stderr(error: &Value) -> String {
    let text = |key: &str| error.get(key).and_then(Value::as_str).filter(|text| !text.is_empty());
    let kind = text("name").or_else(|| text("kind")).unwrap_or("error");
    let mut lines = format!("{kind}: {}", text("message").unwrap_or_default());
    for detail in ["frame", "stack", "cause"].into_iter().filter_map(text) {
        lines.push('\n');
        lines.push_str(detail);
    }
    lines
}
