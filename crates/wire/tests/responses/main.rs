//! Conversations on `OpenAI` Responses.

use dacapo_replay::{Call, CallIndex, Toolboxes};
use dacapo_wire::{
    AnswerParts, BadRequest, CallDeltas, CallRef, CallsIssued, ClientSide, CodeMode, CodeModeDefaults,
    ConversationItem, ExpectedCall, ModelCall, ModelHistory, ModelMessage, ModelResponse, ParsedRequest,
    ProgramFinished, ProgramMode, ProgramName, ProgramProgress, ProgramStarted, ProviderSide, Reasoning, RequestBody,
    RequestReader, RoundHeader, RunState, Sealer, SseEvent, SseReader, StoredStates, TextTools, ToolChoiceOverride,
    ToolLists, Turn, TurnUsage, UnopenedStates, Wire,
};
use serde_json::{Value, json};

mod broken;
mod explicit_mode;
mod plain_mode;
mod requests;
mod streams;

const CODE: &str = "return await get_weather({city: 'Oslo'})";

fn sealer() -> Sealer {
    Sealer::new(b"a secret of some length", "")
}

fn read(provider: ProviderSide, body: impl Into<RequestBody>) -> Result<ParsedRequest, BadRequest> {
    read_with(ClientSide::RESPONSES, provider, &StoredStates::default(), body)
}

fn read_with(
    client: ClientSide,
    provider: ProviderSide,
    stored: &StoredStates,
    body: impl Into<RequestBody>,
) -> Result<ParsedRequest, BadRequest> {
    let defaults =
        CodeModeDefaults { mode: CodeMode::Plain, declarations_tokens_max: 1_000, execute_input: TextTools::No };
    let (sealer, toolboxes) = (sealer(), Toolboxes::default());
    RequestReader {
        tenant: "",
        servers: None,
        provider,
        callers: dacapo_wire::CallerRules::default(),
        header: None,
        defaults,
        sealer: &sealer,
        stored,
        unopened: &UnopenedStates::default(),
        toolboxes: &toolboxes,
    }
    .read_body(client, body.into())
    .map(|read| read.parsed)
}

fn turn(provider: ProviderSide, body: impl Into<RequestBody>) -> Box<Turn> {
    match read(provider, body) {
        Ok(ParsedRequest::Turn(turn)) => turn,
        other => panic!("{other:?}"),
    }
}

fn plain(input: &Value) -> Value {
    json!({"model": "m", "input": input, "tools": [{"type": "function", "name": "get_weather", "parameters": {}}]})
}

fn explicit(input: &Value) -> Value {
    let function = json!({"type": "function", "name": "get_weather", "allowed_callers": ["programmatic"]});
    json!({"model": "m", "input": input, "store": false, "tools": [{"type": "programmatic_tool_calling"}, function]})
}

fn question() -> Value {
    json!({"type": "message", "role": "user", "content": "How is the weather in Oslo?"})
}

fn thought() -> Value {
    json!({"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAAA"})
}

/// A model that writes a program, after a thought and some words.
fn program_response() -> ModelResponse {
    let words = json!({"type": "output_text", "text": "Let me see.", "annotations": []});
    ProviderSide::RESPONSES
        .decode_response(json!({
            "id": "resp_1", "object": "response", "created_at": 1_767_225_600, "model": "m-1", "status": "completed",
            "service_tier": "flex",
            "output": [
                thought(),
                {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [words]},
                {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "execute",
                    "arguments": json!({"code": CODE}).to_string(), "status": "completed"},
            ],
            "usage": {"input_tokens": 10, "output_tokens": 5, "total_tokens": 15},
        }))
        .expect("an answer")
}

fn state(model_response: &ModelResponse) -> RunState {
    let mut message = model_response.message.clone();
    for call in &mut message.calls {
        // What no id carries.
        (call.id, call.native) = (String::new(), Value::Null);
    }
    RunState {
        seed: "seed".to_owned(),
        started_at_ms: 1_767_225_600_000,
        model_messages: vec![message],
        code: CODE.to_owned(),
        ..RunState::default()
    }
}

fn call(index: u32) -> Call {
    let args = json!({"city": "Oslo"});
    Call { call: CallIndex(index), tool: "get_weather".to_owned(), args, key: String::new() }
}

fn issued(turn: &Turn, model_response: &ModelResponse, state: &RunState, calls: &[Call]) -> Value {
    let ids = if turn.mode == ProgramMode::Explicit {
        Turn::unsealed_ids(state, &RoundHeader::default(), calls)
    } else {
        sealer().seal(state, &RoundHeader::default(), &calls.iter().map(CallRef::from).collect::<Vec<_>>())
    };
    let mut encoder = turn.encoder(CallDeltas::Whole);
    encoder.response_started();
    encoder.meta(&model_response.meta);
    encoder.preamble(model_response);
    if turn.mode == ProgramMode::Explicit {
        let sealed = sealer().seal(state, &RoundHeader::default(), &[]).remove(0);
        encoder.program_started(&ProgramStarted { state, sealed: &sealed, progress: ProgramProgress::Waiting });
    }
    encoder.calls_issued(&CallsIssued {
        response: Some(model_response),
        state,
        program: ProgramName::New,
        ids: &ids,
        calls,
        direct: &[],
    });
    encoder.body(&TurnUsage::default()).expect("a response")
}

/// The client's answers to all calls of a response.
fn answers(response: &Value) -> Vec<Value> {
    let calls = response["output"].as_array().expect("items").iter().filter(|item| item["type"] == "function_call");
    calls.map(|call| json!({"type": "function_call_output", "call_id": call["call_id"], "output": "sunny"})).collect()
}

/// What the model gets, with this for the result of each program.
fn asked(turn: &Turn, result: &str) -> Value {
    let mut history: ModelHistory = turn.model_history();
    for (at, item) in turn.conversation.items.iter().enumerate() {
        match item {
            ConversationItem::Entry(entry) => history.push_item(at, entry),
            ConversationItem::LostCalls(lost) => history.push_lost_calls(lost),
            ConversationItem::Search(message) => {
                history.push_model_message(message, &vec![result.to_owned().into(); message.calls.len()], &[]);
            }
            ConversationItem::Program(block) => {
                for message in &block.state.model_messages {
                    history.push_model_message(
                        message,
                        &vec![result.to_owned().into(); message.calls.len()],
                        &block.direct,
                    );
                }
                block.remarks.iter().for_each(|remark| history.push_entry(remark.clone()));
            }
        }
    }
    turn.model_request(&history, ToolChoiceOverride::Keep).into_json()
}

fn output(id: &str, text: &str) -> Value {
    json!({"type": "function_call_output", "call_id": id, "output": text})
}

/// The client's tools, and one that the model calls by itself.
fn with_direct(mut body: Value) -> Value {
    let direct = json!({"type": "function", "name": "ask", "allowed_callers": ["direct"]});
    body["tools"].as_array_mut().expect("tools").push(direct);
    body
}

/// What of the items a client sends back that trusts in ids.
fn references(items: &[Value]) -> Vec<Value> {
    items.iter().map(|item| json!({"type": "item_reference", "id": item["id"]})).collect()
}

/// What a client gets of this answer.
fn answered(turn: &Turn, model_response: &ModelResponse) -> Vec<Value> {
    let mut encoder = turn.encoder(CallDeltas::Whole);
    encoder.response_started();
    encoder.meta(&model_response.meta);
    encoder.answer(model_response, AnswerParts::All);
    items(&encoder.body(&TurnUsage::default()).expect("a response"))
}

/// An answer of a model.
fn response(output: &Value) -> ModelResponse {
    ProviderSide::RESPONSES.decode_response(json!({"id": "resp_7", "model": "m", "output": output})).expect("an answer")
}

fn input(first: Value, more: impl IntoIterator<Item = Value>) -> Value {
    std::iter::once(first).chain(more).collect()
}

fn items(response: &Value) -> Vec<Value> {
    response["output"].as_array().expect("items").clone()
}

/// The history that the model has of the program, whatever the client sent back of it.
fn expected_history() -> Value {
    let arguments = json!({"code": CODE}).to_string();
    json!([
        question(),
        thought(),
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Let me see."}]},
        {"type": "function_call", "call_id": "ud0NMOtsC", "name": "execute", "arguments": arguments},
        {"type": "function_call_output", "call_id": "ud0NMOtsC", "output": "sunny!"},
    ])
}

/// A model's stream: a thought, some words, a call of a tool.
fn model_events() -> Vec<Value> {
    let response = json!({"id": "resp_1", "object": "response", "created_at": 7, "model": "m-1", "status": "in_progress", "output": [], "tools": [{"name": "execute"}]});
    let message = |content: Value, status: &str| json!({"id": "msg_1", "type": "message", "role": "assistant", "status": status, "content": content});
    let part = |text: &str| json!({"type": "output_text", "text": text, "annotations": []});
    let function = |arguments: &str| json!({"id": "fc_1", "type": "function_call", "call_id": "call_1", "name": "patch", "arguments": arguments, "status": "completed"});
    let output = json!([thought(), message(json!([part("Hi!")]), "completed"), function("{}")]);
    let mut end = response.clone();
    end["status"] = json!("completed");
    end["output"] = output;
    end["usage"] = json!({"input_tokens": 3, "output_tokens": 2, "total_tokens": 5});
    let of = |event: &str, at: u64, key: &str, value: Value| json!({"type": event, "output_index": at, key: value, "sequence_number": 99});
    vec![
        json!({"type": "response.created", "response": response, "sequence_number": 0}),
        of("response.output_item.added", 0, "item", json!({"type": "reasoning", "id": "rs_1", "summary": []})),
        of("response.output_item.done", 0, "item", thought()),
        of("response.output_item.added", 1, "item", message(json!([]), "in_progress")),
        of("response.content_part.added", 1, "part", part("")),
        of("response.output_text.delta", 1, "delta", json!("Hi")),
        of("response.output_text.delta", 1, "delta", json!("!")),
        of("response.output_text.done", 1, "text", json!("Hi!")),
        of("response.content_part.done", 1, "part", part("Hi!")),
        of("response.output_item.done", 1, "item", message(json!([part("Hi!")]), "completed")),
        of("response.output_item.added", 2, "item", function("")),
        of("response.function_call_arguments.delta", 2, "delta", json!("{}")),
        of("response.output_item.done", 2, "item", function("{}")),
        json!({"type": "response.completed", "response": end, "sequence_number": 13}),
    ]
}
