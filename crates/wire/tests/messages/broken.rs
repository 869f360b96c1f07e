//! What nobody should send.

use crate::*;

/// Every value of a JSON text, replaced by each of these in turn.
fn mutants(whole: &Value) -> Vec<Value> {
    fn places(value: &Value, at: &str, found: &mut Vec<String>) {
        found.push(at.to_owned());
        match value {
            Value::Object(fields) => {
                fields.iter().for_each(|(key, value)| places(value, &format!("{at}/{key}"), found));
            }
            Value::Array(list) => {
                list.iter().enumerate().for_each(|(i, value)| places(value, &format!("{at}/{i}"), found));
            }
            _ => {}
        }
    }
    let mut found = Vec::new();
    places(whole, "", &mut found);
    let mut mutants = Vec::new();
    for place in found {
        for value in
            [json!(null), json!(-1.5), json!("dc1_"), json!("srvtoolu_dc1_é"), json!([[]]), json!({"type": {}})]
        {
            let mut mutant = whole.clone();
            *mutant.pointer_mut(&place).expect("it is there") = value;
            mutants.push(mutant);
        }
    }
    mutants
}

#[test]
fn nothing_that_is_broken_breaks_us() {
    let state = state(&json!({}));
    let ids = sealer().seal(&state, &RoundHeader::default(), &[asked(0), asked(1)]);
    let program = format!("srvtoolu_{}", ids[0]);
    let history = explicit(&json!([
        {"role": "user", "content": "How is the weather?"},
        {"role": "assistant", "content": [
            {"type": "thinking", "thinking": "Hm.", "signature": "s1"},
            {"type": "redacted_thinking", "data": ids[0]},
            {"type": "server_tool_use", "id": program, "name": "code_execution", "input": {"code": CODE}},
            {"type": "code_execution_tool_result", "tool_use_id": program, "content": {"stdout": "1", "return_code": 0}},
            {"type": "server_tool_use", "id": "srvtoolu_b", "name": "code_execution", "input": {"code": CODE}},
            {"type": "tool_use", "id": ids[0], "name": "get_weather", "input": {}},
            {"type": "tool_use", "id": "x", "name": "get_weather", "input": {}, "caller": {"type": "code_execution_1"}},
        ]},
        {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": ids[0], "content": [{"type": "text", "text": "sunny"}]},
            {"type": "tool_result", "tool_use_id": "x", "content": "rainy", "is_error": true},
            {"type": "document", "title": "t", "source": {"type": "text", "data": "x"}},
        ]},
        {"role": "assistant", "content": [{"type": "tool_use", "id": ids[1], "name": "get_weather", "input": {}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "y", "content": "late"}]},
    ]));
    for provider in [ProviderSide::MESSAGES, ProviderSide::CHAT] {
        for body in mutants(&history) {
            StoredStates::referred_to(ClientSide::MESSAGES, &body);
            if let Ok(ParsedRequest::Turn(turn)) = read(ClientSide::MESSAGES, provider, body) {
                ask(&turn);
            }
        }
    }
    let turn = turn_for(ProviderSide::MESSAGES, plain(&json!([])));
    let stream = events(STREAM, 10_000);
    for at in 0..stream.len() {
        for data in mutants(&serde_json::from_str(&stream[at].data).expect("JSON")) {
            let mut broken = stream.clone();
            broken[at].data = data.to_string();
            let mut decoder = ProviderSide::MESSAGES.decoder();
            let mut encoder = turn.encoder(CallDeltas::Whole);
            for event in &broken {
                let Ok(delta) = decoder.decode_event(event) else { break };
                decoder.meta().into_iter().for_each(|meta| encoder.meta(meta));
                encoder.delta(delta);
            }
            if let Some(response) = decoder.finish() {
                encoder.answer(&response, AnswerParts::All);
                encoder.finish(&usage());
            }
        }
    }
    for body in mutants(&answer(&json!([{"type": "tool_use", "id": "t", "name": "n", "input": {}}]), "tool_use")) {
        if let Ok(response) = ProviderSide::MESSAGES.decode_response(body) {
            assert!(response.message.calls.len() <= 1);
        }
    }
}
