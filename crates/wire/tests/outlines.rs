//! A request that is forwarded without being read is one that would be forwarded as it came if it were read.

use std::sync::Arc;

use dacapo_replay::Toolboxes;
use dacapo_wire::{
    AppliedMode, BodyOutline, CallerRules, ClientSide, CodeMode, CodeModeDefaults, ParsedRequest, ProviderSide,
    ReadRequest, RequestReader, Sealer, StoredStates, TextTools, ToolLists, UnopenedStates, Wire,
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
    let callers =
        prop::sample::select(vec![None, None, Some(json!(["direct"])), Some(json!(["programmatic"])), Some(json!(3))]);
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
        let (sealer, stored, unopened, toolboxes) =
            (Sealer::new(b"a secret of some length", ""), StoredStates::default(), UnopenedStates::default(), Toolboxes::default());
        let reader = RequestReader {
            provider: ProviderSide::of(wire).unwrap(),
            header,
            defaults: CodeModeDefaults { mode: default, declarations_tokens_max: 1_000, execute_input: TextTools::No },
            callers: CallerRules::default(),
            sealer: &sealer,
            stored: &stored,
            unopened: &unopened,
            toolboxes: &toolboxes,
            tenant: "",
            servers: None,
        };
        if let Some(unread) = outline.and_then(|outline| reader.read_outline(client, &outline)) {
            let read = reader.read(client, body.clone());
            let ReadRequest { parsed: ParsedRequest::PassThrough(None), mode } = read.unwrap() else {
                panic!("it is not forwarded as it came: {body}")
            };
            prop_assert_eq!(mode, unread.mode);
            prop_assert!(matches!(mode, AppliedMode::Off(_)));
        }
    }
}
