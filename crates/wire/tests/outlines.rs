//! What is not read of a request changes nothing: a request that is forwarded unread would be forwarded as it came if it were
//! read, and the model is asked the same if the beginning of a history is not read.

use std::sync::Arc;

use dacapo_replay::Toolboxes;
use dacapo_wire::{
    AppliedMode, BodyOutline, CallerRules, ClientSide, CodeMode, CodeModeDefaults, ConversationItem, ParsedRequest,
    ProviderSide, ReadRequest, RequestReader, Sealer, StoredStates, TextTools, ToolChoiceOverride, ToolLists, Turn,
    UnopenedStates, Wire,
};
use proptest::prelude::*;
use serde_json::{Value, json};

/// Ids of clients, of providers, and all kinds of the gateway's.
fn ids() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec![
        "call_1",
        "toolu_1",
        "call_dc1_AbCd",
        "toolu_dc1_AbCd",
        "dc1_AbCd",
        "fc_dc.x.f.call_1",
        "fc_dcd_e30",
        "fc_dcl_1",
        "msg_dc_1",
        "msg_dct_1",
        "rs_dc_1_rs",
        "rs_dcn_1",
        "tsc_dc_1",
        "tso_dc_1",
        "mcpl_dc_1",
        "mcp_dc_1",
        "mcpr_dc_1",
        "prog_dc1_AbCd",
        "prog_1",
        "srvtoolu_1",
        "srvtoolu_AbCdEfGhIjKl",
        "srvtoolu_dcs_1",
        "mcptoolu_dc_1",
        "msg_1",
    ])
}

/// What an entry of a history is, or says: words of all wires, and of the gateway.
fn kinds() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec![
        "user",
        "assistant",
        "tool",
        "code",
        "code_result",
        "message",
        "function_call",
        "function_call_output",
        "program",
        "program_output",
        "reasoning",
        "item_reference",
        "mcp_approval_response",
        "text",
        "tool_use",
        "tool_result",
        "server_tool_use",
        "code_execution",
        "code_execution_tool_result",
        "thinking",
        "redacted_thinking",
        "function",
        "custom",
        "namespace",
        "mcp",
        "programmatic_tool_calling",
        "code_execution_20260120",
        "tool_search",
        "additional_tools",
        "dcr1_e30",
        "dcr1_bnVsbA",
        "dc1_AbCd",
    ])
}

fn entry() -> impl Strategy<Value = Value> {
    let fields = (
        prop::option::of(kinds()),
        prop::option::of(kinds()),
        prop::option::of(ids()),
        prop::option::of(ids()),
        kinds(),
    );
    (fields, any::<bool>()).prop_map(|((role, kind, id, other_id, word), has_blocks)| {
        let mut entry = json!({"content": word, "data": word, "encrypted_content": word, "name": word});
        let mut block = json!({"text": word, "signature": word, "data": word, "name": word});
        for (key, value) in
            [("role", role), ("type", kind), ("id", id), ("call_id", other_id), ("tool_call_id", other_id)]
        {
            if let Some(value) = value {
                entry[key] = json!(value);
                block[key] = json!(value);
            }
        }
        if let Some(id) = other_id {
            block["tool_use_id"] = json!(id);
            entry["tool_calls"] = json!([{"id": id, "type": "function", "function": {"name": "f", "arguments": "{}"}}]);
            entry["approval_request_id"] = json!(id);
        }
        if has_blocks {
            entry["content"] = json!([block]);
        }
        entry
    })
}

fn tool_result() -> impl Strategy<Value = Value> {
    ids()
        .prop_map(|id| json!({"role": "user", "content": [{"type": "tool_result", "tool_use_id": id, "content": "x"}]}))
}

fn tool() -> impl Strategy<Value = Value> {
    let callers = prop::sample::select(vec![
        None,
        None,
        Some(json!(["direct"])),
        Some(json!(["programmatic"])),
        Some(json!(["direct", "programmatic"])),
        Some(json!(3)),
    ]);
    (prop::option::of(kinds()), callers).prop_map(|(kind, callers)| {
        let mut tool = json!({"name": "f", "function": {"name": "f"}, "input_schema": {"type": "object"}});
        if let Some(kind) = kind {
            tool["type"] = json!(kind);
        }
        if let Some(callers) = callers {
            tool["allowed_callers"] = callers;
        }
        tool
    })
}

/// Entries of a history before a message of the user, with spaces as some clients write them: too long to be read without
/// need, and with nothing of the gateway.
fn beginning() -> impl Strategy<Value = String> {
    let role = prop::sample::select(vec!["user", "assistant", "system"]);
    let said = role.prop_map(|role| json!({"role": role, "content": "what was \"said\" before,\n".repeat(120)}));
    let foreign = |entry: Value| entry.to_string().replace("dc", "xx").replace("srvtoolu_", "toolu_");
    let entries = prop::collection::vec(prop_oneof![3 => said, 1 => entry()], 0..12);
    (entries, prop::sample::select(vec!["", " ", "\n  "])).prop_map(move |(entries, space)| {
        let entry = |entry: Value| format!("{}{space},{space}", foreign(entry).replace("\":", &format!("\":{space}")));
        entries.into_iter().map(entry).collect()
    })
}

/// The request for the model, without programs, and how many entries its history has.
fn asked(turn: &Turn) -> (Value, usize) {
    let mut history = turn.model_history();
    for (at, item) in turn.conversation.items.iter().enumerate() {
        match item {
            ConversationItem::Entry(entry) => history.push_item(at, entry),
            ConversationItem::LostCalls(lost) => history.push_lost_calls(lost),
            ConversationItem::Program(_) | ConversationItem::Search(_) => {}
        }
    }
    let request = turn.model_request(&history, ToolChoiceOverride::Keep);
    let sent: Value = serde_json::from_slice(&request.to_bytes()).expect("it is JSON");
    assert_eq!(sent, request.into_json());
    (sent, history.entry_count())
}

fn body() -> impl Strategy<Value = Value> {
    let history = prop_oneof![
        9 => prop::collection::vec(prop_oneof![4 => entry(), 1 => tool_result()], 0..4).prop_map(Value::Array),
        1 => prop::sample::select(vec![json!("text"), json!(null), json!([1]), json!({})]),
    ];
    let tools = prop_oneof![
        4 => prop::collection::vec(tool(), 0..3).prop_map(Some).prop_map(|tools| tools.map(Value::Array)),
        4 => Just(None),
        1 => Just(Some(Value::Null)),
        1 => Just(Some(json!({}))),
    ];
    let more = prop::sample::select(vec![
        json!({}),
        json!({}),
        json!({"n": 2}),
        json!({"stop": ["x"]}),
        json!({"response_format": {"type": "json_object"}}),
        json!({"code_mode": false}),
        json!({"code_mode": true}),
        json!({"thread": {"type": "new"}}),
        json!({"tool_choice": {"type": "function", "function": {"name": "f"}}}),
        json!({"functions": []}),
        json!({"previous_response_id": "resp_1"}),
        json!({"stream": true}),
    ]);
    (history, tools, more).prop_map(|(history, tools, more)| {
        let mut body = json!({"model": "m", "messages": history, "input": history});
        if let Some(tools) = tools {
            body["tools"] = tools;
        }
        for (key, value) in more.as_object().into_iter().flatten() {
            body[key] = value.clone();
        }
        body
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_forwarded_unread_would_be_forwarded_if_it_were_read(
        mut body in body(),
        wire in prop::sample::select(Wire::ALL.to_vec()),
        header in prop::sample::select(vec![None, Some(CodeMode::Off), Some(CodeMode::Off), Some(CodeMode::Plain), Some(CodeMode::Explicit), Some(CodeMode::Native)]),
        default in prop::sample::select(vec![CodeMode::Plain, CodeMode::Off]),
    ) {
        let client = ClientSide::of(wire).unwrap();
        let other = if wire == Wire::Responses { "messages" } else { "input" };
        body.as_object_mut().unwrap().shift_remove(other);
        let outline = BodyOutline::of(client, &Arc::new(ToolLists::default()), "", body.to_string().as_bytes());
        Reader { wire, header, default }.run(|reader| {
            let Some(unread) = outline.and_then(|outline| reader.read_outline(client, &outline)) else { return };
            let read = reader.read(client, body.clone());
            let ReadRequest { parsed: ParsedRequest::PassThrough(None), mode } = read.unwrap() else {
                panic!("it is not forwarded as it came: {body}")
            };
            assert_eq!(mode, unread.mode);
            assert!(matches!(mode, AppliedMode::Off(_)));
        });
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_model_is_asked_the_same_if_the_beginning_of_a_history_is_not_read(
        beginning in beginning(),
        mut body in body(),
        wire in prop::sample::select(Wire::ALL.to_vec()),
        provider in prop::sample::select(Wire::ALL.to_vec()),
        fallback in prop::sample::select(Wire::ALL.to_vec()),
        header in prop::sample::select(vec![None, None, None, Some(CodeMode::Off), Some(CodeMode::Explicit), Some(CodeMode::Native)]),
    ) {
        let client = ClientSide::of(wire).unwrap();
        let (history, other) = if wire == Wire::Responses { ("input", "messages") } else { ("messages", "input") };
        body.as_object_mut().unwrap().shift_remove(other);
        body["tools"] = match wire {
            Wire::Messages => json!([{"name": "f", "input_schema": {"type": "object"}}]),
            Wire::Chat => json!([{"type": "function", "function": {"name": "f"}}]),
            Wire::Responses => json!([{"type": "function", "name": "f"}]),
        };
        let text = body.to_string().replacen(&format!("\"{history}\":["), &format!("\"{history}\":[{beginning}{USER},"), 1);
        let text = text.replace("},]", "}]");
        let lists = Arc::new(ToolLists::default());
        let outlined = lists.parse_outlined(client, "", text.as_bytes()).unwrap();
        let whole: Value = serde_json::from_str(&text).unwrap();
        Reader { wire: provider, header, default: CodeMode::Plain }.run(|reader| {
            match (reader.read_body(client, outlined), reader.read(client, whole)) {
                (Err(_), Err(_)) => {}
                (Ok(outlined), Ok(whole)) => {
                    assert_eq!(outlined.mode, whole.mode);
                    match (outlined.parsed, whole.parsed) {
                        (ParsedRequest::PassThrough(outlined), ParsedRequest::PassThrough(whole)) => {
                            assert_eq!(outlined, whole);
                        }
                        (ParsedRequest::Turn(mut outlined), ParsedRequest::Turn(mut whole)) => {
                            assert_eq!(asked(&outlined), asked(&whole));
                            let fallback = ProviderSide::of(fallback).unwrap();
                            let are_asked = [&mut outlined, &mut whole].map(|turn| turn.ask_on(fallback, TextTools::No).is_ok());
                            assert_eq!(are_asked[0], are_asked[1]);
                            assert_eq!(asked(&outlined), asked(&whole));
                        }
                        other => panic!("{other:?}"),
                    }
                }
                other => panic!("{other:?}"),
            }
        });
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3_000, failure_persistence: None, ..ProptestConfig::default() })]

    /// What was found out about a list when it was new says nothing to a client on another wire, nor about the conversation.
    #[test]
    fn a_tool_list_is_read_alike_however_often_it_came(
        tools in prop::collection::vec(listed_tool(), 0..4),
        bodies in prop::collection::vec((body(), prop::sample::select(Wire::ALL.to_vec())), 1..4),
        header in prop::sample::select(vec![None, None, Some(CodeMode::Off), Some(CodeMode::Explicit), Some(CodeMode::Native)]),
    ) {
        let lists = Arc::new(ToolLists::default());
        for (mut body, wire) in bodies {
            let client = ClientSide::of(wire).unwrap();
            let other = if wire == Wire::Responses { "messages" } else { "input" };
            body.as_object_mut().unwrap().shift_remove(other);
            body["tools"] = json!(tools);
            for _ in 0..2 {
                Reader { wire, header, default: CodeMode::Plain }.run(|reader| {
                    let known = lists.parse("", body.to_string().as_bytes()).unwrap();
                    match (reader.read_body(client, known), reader.read(client, body.clone())) {
                        (Err(known), Err(new)) => assert_eq!(known, new),
                        (Ok(known), Ok(new)) => {
                            assert_eq!(known.mode, new.mode);
                            match (known.parsed, new.parsed) {
                                (ParsedRequest::PassThrough(known), ParsedRequest::PassThrough(new)) => {
                                    assert_eq!(known, new);
                                }
                                (ParsedRequest::Turn(known), ParsedRequest::Turn(new)) => {
                                    assert_eq!(asked(&known), asked(&new));
                                    known.end();
                                }
                                other => panic!("{other:?}"),
                            }
                        }
                        other => panic!("{other:?}"),
                    }
                });
            }
        }
    }
}

/// A function on all wires that mostly nothing else is said of, and that makes a list long enough to be remembered.
fn listed_tool() -> impl Strategy<Value = Value> {
    let more = prop::sample::select(vec![
        json!({}),
        json!({}),
        json!({}),
        json!({"defer_loading": true}),
        json!({"cache_control": {"type": "ephemeral"}}),
        json!({"tools": [{"type": "function", "name": "g"}]}),
    ]);
    let kind = prop_oneof![
        6 => Just(Some("function")),
        3 => Just(None),
        1 => Just(Some("namespace")),
        1 => prop::option::of(kinds()),
    ];
    (tool(), kind, more, "[a-c]").prop_map(|(mut tool, kind, more, name)| {
        tool["name"] = json!(name);
        tool["function"]["name"] = json!(name);
        tool["description"] = json!("what it does ".repeat(60));
        for (key, value) in more.as_object().into_iter().flatten() {
            tool[key] = value.clone();
        }
        // `null` is as good as none on wires that have functions without a type.
        tool["type"] = json!(kind);
        tool
    })
}

const USER: &str = r#"{"role": "user", "content": "Rain in Oslo?"}"#;

/// Makes readers of requests.
struct Reader {
    /// Of the model.
    wire: Wire,
    header: Option<CodeMode>,
    default: CodeMode,
}

impl Reader {
    fn run<T>(&self, read: impl FnOnce(&RequestReader<'_>) -> T) -> T {
        read(&RequestReader {
            provider: ProviderSide::of(self.wire).expect("models are asked on all wires"),
            header: self.header,
            defaults: CodeModeDefaults {
                mode: self.default,
                declarations_tokens_max: 1_000,
                execute_input: TextTools::No,
            },
            callers: CallerRules::default(),
            sealer: &Sealer::new(b"a secret of some length", ""),
            stored: &StoredStates::default(),
            unopened: &UnopenedStates::default(),
            toolboxes: &Toolboxes::default(),
            tenant: "",
            servers: None,
        })
    }
}

#[test]
fn only_the_end_of_a_long_history_is_read() {
    let said = "what was said before ".repeat(1_000);
    let entry = |role: &str| format!("{{ \"role\": \"{role}\", \"content\": \"{said}\" }}");
    let beginning = format!("{} ,{}", entry("user"), entry("assistant"));
    let tools = json!([{"type": "function", "name": "f", "input_schema": {}, "function": {"name": "f"}}]);
    let reader = Reader { wire: Wire::Chat, header: None, default: CodeMode::Plain };
    for (end, unread_entries) in [
        (USER.to_owned(), 2),
        // The last message of the user is the first that is read.
        (format!("{},{USER}", entry("user")), 3),
        (format!("{USER},{}", entry("assistant")), 2),
        // What concerns the gateway is read, with what the user said before it.
        (format!(r#"{USER},{{"role": "assistant", "content": "dc1_"}},{USER}"#), 2),
        (format!(r#"{USER},{{"role": "assistant", "content": "\u0064c1_"}},{USER}"#), 2),
    ] {
        let body = format!(r#"{{"model": "m", "messages": [{beginning}, {end}], "tools": {tools}}}"#);
        let outlined = Arc::new(ToolLists::default()).parse_outlined(ClientSide::CHAT, "", body.as_bytes()).unwrap();
        assert!(outlined.unread_bytes() > 0);
        let read = reader.run(|reader| reader.read_body(ClientSide::CHAT, outlined));
        let ParsedRequest::Turn(turn) = read.unwrap().parsed else { panic!("{end}") };
        let count = serde_json::from_str::<Value>(&body).unwrap()["messages"].as_array().unwrap().len();
        assert_eq!(turn.conversation.items.len(), count - unread_entries, "{end}");
        let sent = turn.model_request(&turn.model_history(), ToolChoiceOverride::Keep).to_bytes();
        assert!(String::from_utf8(sent).unwrap().contains(&format!(r#""messages":[{beginning}"#)), "as it came");
    }
    for body in [
        // Neither short ones, nor those without a message of the user after the beginning, nor what is no history.
        format!(r#"{{"messages": [{USER},{USER},{USER}]}}"#),
        format!(r#"{{"messages": [{beginning}]}}"#),
        format!(r#"{{"messages": [{beginning}, 3, {USER}]}}"#),
        format!(r#"{{"messages": [{beginning}, {USER}], "tools": [}}"#),
        format!(r#"{{"messages": [{beginning}, {USER}], "messages": []}}"#),
        format!(r#"{{"messages": "{said}"}}"#),
    ] {
        let plain = serde_json::from_str::<Value>(&body).map_err(|error| error.to_string());
        let lists = Arc::new(ToolLists::default());
        let outlined = lists.parse_outlined(ClientSide::CHAT, "", body.as_bytes()).map_err(|error| error.to_string());
        assert_eq!(outlined.as_ref().map(dacapo_wire::RequestBody::json), plain.as_ref(), "{body}");
        assert!(outlined.is_err() || outlined.unwrap().unread_bytes() == 0);
    }
}
