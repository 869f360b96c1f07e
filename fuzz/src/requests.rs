//! Any bytes as a request on any wire, and JSON in the shapes of one: an error that names its place, or a turn whose
//! request to a model on any wire shows nothing of ours.
#![no_main]

mod json;

use std::sync::LazyLock;

use dacapo_replay::{ArgsDigest, CallIndex, Toolboxes};
use dacapo_wire::{
    CallRef, CallResult, ClientSide, CodeMode, CodeModeDefaults, ConversationItem, ModelCall, ModelMessage,
    ParsedRequest, ProviderSide, RequestReader, RoundHeader, RunState, Sealer, StoredStates, TextTools,
    ToolChoiceOverride, Turn, UnopenedStates, Wire,
};
use libfuzzer_sys::arbitrary::{Result, Unstructured};
use libfuzzer_sys::fuzz_target;
use serde_json::{Value, json};

static SEALER: LazyLock<Sealer> = LazyLock::new(|| Sealer::new(b"a secret of some length", ""));
static TOOLBOXES: LazyLock<Toolboxes> = LazyLock::new(|| Toolboxes::new(16, 1 << 20));
/// Ids of two runs with two rounds each, of which one lost its first round.
static IDS: LazyLock<Vec<String>> = LazyLock::new(|| {
    let rounds = [("return await get_weather({})", 0), ("return await get_weather({})", 1), ("return 1", 2)];
    rounds.into_iter().flat_map(|(code, round)| ids(code, round)).collect()
});

/// Longer ids are refused by providers.
const ID_CHARS_MAX: usize = 40;

static KEYS: LazyLock<Vec<&str>> = LazyLock::new(|| {
    let keys = "role content tool_calls toolCalls tool_call_id toolCallId id type function custom name arguments \
         description parameters strict allowed_callers direct programmatic text image_url reasoning_content \
         reasoning_details extra_content is_error code code_result result status success error seed started_at \
         continues before properties required object string assistant tool user tool_use tool_result tool_use_id input \
         server_tool_use code_execution code_execution_tool_result caller tool_id thinking redacted_thinking signature \
         data function_call function_call_output custom_tool_call call_id caller_id program program_output fingerprint \
         output reasoning encrypted_content summary item_reference message input_text output_text namespace";
    keys.split(' ').collect()
});

fuzz_target!(|data: &[u8]| {
    // One pair of wires for each input: all of them would take long.
    let number = data.iter().fold(0, |sum: usize, byte| sum + usize::from(*byte));
    let client = ClientSide::ALL[number % ClientSide::ALL.len()];
    let provider = ProviderSide::ALL[number / ClientSide::ALL.len() % ProviderSide::ALL.len()];
    read(client, provider, data, None);
    let mut input = Unstructured::new(data);
    if let (Ok(header), Ok(body)) = (header(&mut input), body(client.wire(), &mut input)) {
        read(client, provider, body.to_string().as_bytes(), header);
    }
});

fn read(client: ClientSide, provider: ProviderSide, body: &[u8], header: Option<CodeMode>) {
    let defaults =
        CodeModeDefaults { mode: CodeMode::Plain, declarations_tokens_max: 200, execute_input: TextTools::No };
    let Ok(json) = serde_json::from_slice::<Value>(body) else { return };
    let stored = StoredStates::default();
    let unopened = UnopenedStates::default();
    let reader = RequestReader {
        tenant: "",
        servers: None,
        provider,
        callers: dacapo_wire::CallerRules::default(),
        header,
        defaults,
        sealer: &SEALER,
        stored: &stored,
        unopened: &unopened,
        toolboxes: &TOOLBOXES,
    };
    match reader.read(client, json.clone()).map(|read| read.parsed) {
        Err(error) => assert!(!error.param.is_empty() && !error.message.is_empty(), "{error:?}"),
        Ok(ParsedRequest::PassThrough(changed)) => check_ids(provider.wire(), &changed.unwrap_or(json)),
        Ok(ParsedRequest::Turn(turn)) => check_turn(&turn),
    }
}

fn check_turn(turn: &Turn) {
    let mut history = turn.model_history();
    for item in &turn.conversation.items {
        match item {
            ConversationItem::Entry(entry) => history.push_entry(entry.clone()),
            ConversationItem::LostCalls(lost) => history.push_lost_calls(lost),
            ConversationItem::Search(message) => {
                history.push_model_message(message, &vec![CallResult::default(); message.calls.len()], &[]);
            }
            ConversationItem::Program(block) => {
                history.push_model_message(&ModelMessage::default(), &[], &block.direct);
                for remark in &block.remarks {
                    history.push_entry(remark.clone());
                }
                drop(block.journal());
                assert!(block.next_round() < u32::MAX);
            }
        }
    }
    for choice_override in [ToolChoiceOverride::Keep, ToolChoiceOverride::Auto, ToolChoiceOverride::NoCalls] {
        let asked = turn.model_request(&history, choice_override).to_bytes();
        check_ids(turn.provider.wire(), &serde_json::from_slice(&asked).expect("JSON"));
    }
}

/// Nothing that the model's provider sees has an id of ours.
fn check_ids(wire: Wire, body: &Value) {
    let check = |holder: &Value, key: &str| {
        let id = holder.get(key).and_then(Value::as_str).unwrap_or_default();
        assert!(!Sealer::is_own_id(id) || id.len() <= ID_CHARS_MAX, "{holder} in {body}");
    };
    let entries = |key: &str| body[key].as_array().map_or(&[][..], Vec::as_slice);
    let inner = |entry: &Value, key: &str| entry.get(key).and_then(Value::as_array).cloned().unwrap_or_default();
    match wire {
        Wire::Chat => {
            for message in entries("messages") {
                if message["role"] == "tool" {
                    check(message, "tool_call_id");
                    continue;
                }
                for call in ["tool_calls", "toolCalls"].iter().flat_map(|key| inner(message, key)) {
                    check(&call, "id");
                }
            }
        }
        Wire::Responses => {
            for item in entries("input") {
                if let Some("function_call" | "custom_tool_call" | "function_call_output") = item["type"].as_str() {
                    check(item, "call_id");
                }
            }
        }
        Wire::Messages => {
            for block in entries("messages").iter().flat_map(|message| inner(message, "content")) {
                match block["type"].as_str() {
                    Some("tool_use") => check(&block, "id"),
                    Some("tool_result") => check(&block, "tool_use_id"),
                    _ => {}
                }
            }
        }
    }
}

fn ids(code: &str, round: u32) -> Vec<String> {
    let call =
        ModelCall { name: "execute".to_owned(), arguments: json!({"code": code}).to_string(), ..ModelCall::default() };
    let state = RunState {
        seed: "seed".to_owned(),
        started_at_ms: 1_767_225_600_000,
        model_messages: vec![ModelMessage { calls: vec![call], ..ModelMessage::default() }],
        code: code.to_owned(),
        ..RunState::default()
    };
    let asked = |call| CallRef { call: CallIndex(call), args: ArgsDigest([0; 4]) };
    SEALER.seal(&state, &RoundHeader::new(round, [0; 8]), &[asked(round * 2), asked(round * 2 + 1)])
}

fn header(input: &mut Unstructured<'_>) -> Result<Option<CodeMode>> {
    Ok(*input.choose(&[None, Some(CodeMode::Off), Some(CodeMode::Plain), Some(CodeMode::Explicit)])?)
}

fn body(wire: Wire, input: &mut Unstructured<'_>) -> Result<Value> {
    let mut history = Vec::new();
    while input.ratio(7, 8)? && !input.is_empty() {
        match wire {
            Wire::Chat => message(input, &mut history)?,
            Wire::Responses => history.push(item(input)?),
            Wire::Messages => history.push(blocks(input)?),
        }
    }
    let mut tools = Vec::new();
    while input.ratio(2, 3)? && !input.is_empty() {
        tools.push(tool(input)?);
    }
    let key = if wire == Wire::Responses { "input" } else { "messages" };
    let mut body = json!({"model": "m", key: history, "tools": tools});
    let fields = ["code_mode", "stream", "stream_options", "tool_choice", "n", "stop", "parallel_tool_calls", "tools"];
    while input.ratio(1, 3)? && !input.is_empty() {
        let field = *input.choose(&fields)?;
        body[field] = match input.int_in_range(0..=4)? {
            0 => json!(true),
            1 => json!(false),
            2 => json!({"explicit": true}),
            3 => json!({"include_usage": true}),
            _ => json::any(input, &KEYS)?,
        };
    }
    Ok(body)
}

fn item(input: &mut Unstructured<'_>) -> Result<Value> {
    let name = *input.choose(&["get_weather", "getWeather", "other", ""])?;
    let caller = json!({"type": "program", "caller_id": "p"});
    Ok(match input.int_in_range(0..=8)? {
        0 => json!({"role": "user", "content": input.arbitrary::<&str>()?}),
        1 => json!({"type": "function_call", "call_id": id(input)?, "name": name, "arguments": "{}"}),
        2 => json!({"type": "function_call", "call_id": id(input)?, "name": name, "arguments": "{}", "caller": caller}),
        3 => json!({"type": "function_call_output", "call_id": id(input)?, "output": json::any(input, &KEYS)?}),
        4 => json!({"type": "program", "id": "prog", "call_id": "p", "code": "return 1", "fingerprint": id(input)?}),
        5 => json!({"type": "program_output", "call_id": "p", "result": input.arbitrary::<&str>()?}),
        6 => json!({"type": "item_reference", "id": format!("fc_dc.{name}.{}", id(input)?)}),
        7 => json!({"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": input.arbitrary::<&str>()?}),
        _ => Value::Object(json::object(input, &KEYS)?),
    })
}

fn blocks(input: &mut Unstructured<'_>) -> Result<Value> {
    let role = *input.choose(&["user", "assistant"])?;
    let mut blocks = Vec::new();
    while input.ratio(3, 4)? && !input.is_empty() {
        let name = *input.choose(&["get_weather", "getWeather", "other", ""])?;
        let caller = json!({"type": "code_execution_20260120", "tool_id": "srvtoolu_1"});
        let kind = input.int_in_range(0..=8)?;
        blocks.push(match kind {
            0 => json!({"type": "text", "text": input.arbitrary::<&str>()?}),
            // Everybody knows whose calls are, and whose answers.
            1..=7 if (role == "user") != matches!(kind, 3 | 4) => json!({"type": "text", "text": "x"}),
            1 => json!({"type": "tool_use", "id": id(input)?, "name": name, "input": {}}),
            2 => json!({"type": "tool_use", "id": id(input)?, "name": name, "input": {}, "caller": caller}),
            3 | 4 => json!({"type": "tool_result", "tool_use_id": id(input)?, "content": json::any(input, &KEYS)?}),
            5 => {
                let input = json!({"code": "return 1"});
                json!({"type": "server_tool_use", "id": "srvtoolu_1", "name": "code_execution", "input": input})
            }
            6 => {
                let content = json!({"type": "code_execution_result", "stdout": "1", "stderr": "", "return_code": 0});
                json!({"type": "code_execution_tool_result", "tool_use_id": "srvtoolu_1", "content": content})
            }
            7 => json!({"type": "redacted_thinking", "data": id(input)?}),
            _ => Value::Object(json::object(input, &KEYS)?),
        });
    }
    Ok(json!({"role": role, "content": blocks}))
}

fn message(input: &mut Unstructured<'_>, messages: &mut Vec<Value>) -> Result<()> {
    let spelled = |message: &mut Value, snake: &str, camel: &str, value: Value, is_snake: bool| {
        message[if is_snake { snake } else { camel }] = value;
    };
    messages.push(match input.int_in_range(0..=7)? {
        0 => json!({"role": "user", "content": input.arbitrary::<&str>()?}),
        1 | 2 => {
            let mut calls = Vec::new();
            while input.ratio(3, 4)? && !input.is_empty() {
                calls.push(call(input)?);
            }
            let mut message = json!({"role": "assistant", "content": null});
            spelled(&mut message, "tool_calls", "toolCalls", Value::Array(calls), input.ratio(3, 4)?);
            message
        }
        3 | 4 => {
            let mut message = json!({"role": "tool", "content": json::any(input, &KEYS)?});
            spelled(&mut message, "tool_call_id", "toolCallId", Value::from(id(input)?), input.ratio(3, 4)?);
            message
        }
        5 => {
            let mut message = json!({"role": "code", "id": "c", "code": input.arbitrary::<&str>()?});
            if input.ratio(1, 4)? {
                message["continues"] = json!("c");
            }
            if input.ratio(1, 4)? {
                message["before"] = Value::Array(vec![Value::Object(json::object(input, &KEYS)?)]);
            }
            message
        }
        6 => json!({"role": "code_result", "id": "c", "result": json::object(input, &KEYS)?}),
        _ => Value::Object(json::object(input, &KEYS)?),
    });
    // Anything may stand beside what is expected.
    if input.ratio(1, 8)?
        && let Some(Value::Object(fields)) = messages.last_mut()
    {
        fields.extend(json::object(input, &KEYS)?);
    }
    Ok(())
}

fn call(input: &mut Unstructured<'_>) -> Result<Value> {
    if input.ratio(1, 8)? {
        return json::any(input, &KEYS);
    }
    let arguments = if input.arbitrary()? { json!("{}") } else { json::any(input, &KEYS)? };
    let name = *input.choose(&["get_weather", "getWeather", "other", ""])?;
    Ok(json!({"id": id(input)?, "type": "function", "function": {"name": name, "arguments": arguments}}))
}

/// An id of ours, one that was changed on its way, or any.
fn id(input: &mut Unstructured<'_>) -> Result<String> {
    let id = input.choose(&IDS)?;
    Ok(match input.int_in_range(0..=5)? {
        0..=2 => id.clone(),
        3 => id[..input.choose_index(id.len())?].to_owned(),
        4 => format!("dc1_{}", input.arbitrary::<&str>()?),
        _ => input.arbitrary()?,
    })
}

fn tool(input: &mut Unstructured<'_>) -> Result<Value> {
    let schema = if input.arbitrary()? { json!({"type": "object"}) } else { json::any(input, &KEYS)? };
    let name = *input.choose(&["get_weather", "execute", "search", "a.b", "x-y", ""])?;
    let mut tool = match input.int_in_range(0..=8)? {
        0 | 1 => json!({"type": "function", "function": {"name": name, "parameters": schema}}),
        2 => json!({"type": "function", "name": name, "parameters": schema}),
        3 => json!({"type": "custom", "custom": {"name": name}}),
        4 => json!({"name": name, "input_schema": schema}),
        5 => json!({"type": "code_execution_20260120", "name": "code_execution"}),
        6 => json!({"type": "programmatic_tool_calling"}),
        7 => json!({"type": "namespace", "name": "crm", "tools": [{"type": "function", "name": name}]}),
        _ => json::any(input, &KEYS)?,
    };
    if input.ratio(1, 4)?
        && let Some(fields) = tool.as_object_mut()
    {
        let callers = [json!(["direct"]), json!(["direct", "programmatic"]), json!([]), json!("direct")];
        fields.insert("allowed_callers".to_owned(), input.choose(&callers)?.clone());
    }
    Ok(tool)
}
