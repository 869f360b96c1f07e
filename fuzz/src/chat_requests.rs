//! Any bytes as a Chat Completions request, and JSON in the shapes of one: an error that names its place, or a turn
//! whose request to the model shows nothing of ours.
#![no_main]

mod json;

use std::sync::LazyLock;

use dacapo_replay::{ArgsDigest, CallIndex, Toolboxes};
use dacapo_wire::{
    Asked, Defaults, Item, Kept, ModelCall, Reader, Reading, RunState, Saying, Sealer, Switch, Urge, Wire,
};
use libfuzzer_sys::arbitrary::{Result, Unstructured};
use libfuzzer_sys::fuzz_target;
use serde_json::{Map, Value, json};

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
         continues before properties required object string assistant tool user";
    keys.split(' ').collect()
});

fuzz_target!(|data: &[u8]| {
    read(data, None);
    let mut input = Unstructured::new(data);
    if let (Ok(header), Ok(body)) = (header(&mut input), body(&mut input)) {
        read(body.to_string().as_bytes(), header);
    }
});

fn read(body: &[u8], header: Option<Switch>) {
    let defaults = Defaults { switch: Switch::Plain, declarations_tokens_max: 200, custom_execute: false };
    let Ok(json) = serde_json::from_slice::<Value>(body) else { return };
    let kept = Kept::default();
    let reader = Reader { upstream: Wire::Chat, header, defaults, sealer: &SEALER, kept: &kept, toolboxes: &TOOLBOXES };
    match reader.read(Wire::Chat, json) {
        Err(error) => assert!(!error.param.is_empty() && !error.message.is_empty(), "{error:?}"),
        Ok(Reading::PassThrough(changed)) => {
            let sent = changed.unwrap_or_else(|| serde_json::from_slice(body).expect("it was read before"));
            check_ids(&sent);
        }
        Ok(Reading::Turn(turn)) => {
            let mut transcript = turn.transcript();
            for item in &turn.conversation.items {
                match item {
                    Item::Message(message) => transcript.message(message.clone()),
                    Item::Lost(lost) => transcript.lost(lost),
                    Item::Block(block) => {
                        transcript.saying(&Saying::default(), &[], &block.direct);
                        drop(block.journal());
                        assert!(block.next_round() < u32::MAX);
                    }
                }
            }
            for urge in [Urge::AsTheClientSays, Urge::Freely, Urge::ToEnd] {
                let asked = turn.ask(&transcript, urge).to_string();
                check_ids(&serde_json::from_str(&asked).expect("JSON"));
            }
        }
    }
}

/// Nothing that the model's provider sees has an id of ours.
fn check_ids(body: &Value) {
    let is_ours =
        |id: Option<&Value>| id.and_then(Value::as_str).is_some_and(|id| Sealer::claims(id) && id.len() > ID_CHARS_MAX);
    let messages = body["messages"].as_array().map_or(&[][..], Vec::as_slice);
    for message in messages {
        if message["role"] == "tool" {
            assert!(!is_ours(message.get("tool_call_id")), "{message}");
            continue;
        }
        for key in ["tool_calls", "toolCalls"] {
            let calls = message.get(key).and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
            assert!(!calls.iter().any(|call| is_ours(call.get("id"))), "{message}");
        }
    }
}

fn ids(code: &str, round: u32) -> Vec<String> {
    let call =
        ModelCall { name: "execute".to_owned(), arguments: json!({"code": code}).to_string(), ..ModelCall::default() };
    let state = RunState {
        seed: "seed".to_owned(),
        started_at_ms: 1_767_225_600_000,
        tools: [0; 8],
        continues: None,
        sayings: vec![Saying { text: None, opaque: Map::new(), calls: vec![call] }],
        at: 0,
        code: code.to_owned(),
    };
    let asked = |call| Asked { call: CallIndex(call), args: ArgsDigest([0; 4]) };
    SEALER.seal(&state, round, [0; 8], &[asked(round * 2), asked(round * 2 + 1)])
}

fn header(input: &mut Unstructured<'_>) -> Result<Option<Switch>> {
    Ok(*input.choose(&[None, Some(Switch::Off), Some(Switch::Plain), Some(Switch::Explicit)])?)
}

fn body(input: &mut Unstructured<'_>) -> Result<Value> {
    let mut messages = Vec::new();
    while input.ratio(7, 8)? && !input.is_empty() {
        message(input, &mut messages)?;
    }
    let mut tools = Vec::new();
    while input.ratio(2, 3)? && !input.is_empty() {
        tools.push(tool(input)?);
    }
    let mut body = json!({"model": "m", "messages": messages, "tools": tools});
    let wishes = ["code_mode", "stream", "stream_options", "tool_choice", "n", "stop", "parallel_tool_calls", "tools"];
    while input.ratio(1, 3)? && !input.is_empty() {
        let wish = *input.choose(&wishes)?;
        body[wish] = match input.int_in_range(0..=4)? {
            0 => json!(true),
            1 => json!(false),
            2 => json!({"explicit": true}),
            3 => json!({"include_usage": true}),
            _ => json::any(input, &KEYS)?,
        };
    }
    Ok(body)
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
    let mut tool = match input.int_in_range(0..=4)? {
        0 | 1 => json!({"type": "function", "function": {"name": name, "parameters": schema}}),
        2 => json!({"type": "function", "name": name, "parameters": schema}),
        3 => json!({"type": "custom", "custom": {"name": name}}),
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
