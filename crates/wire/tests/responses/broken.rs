//! Requests and answers that are not as they should be.

use crate::*;

/// All values that differ from this one in one place.
fn mutations(value: &Value) -> Vec<Value> {
    let mut mutated = vec![Value::Null, json!(1.5), json!("dc1_x"), json!([]), json!({}), json!([{}]), json!(-1)];
    match value {
        Value::Array(list) => {
            for at in 0..list.len() {
                let mut shorter = list.clone();
                shorter.remove(at);
                mutated.push(Value::Array(shorter));
                for other in mutations(&list[at]) {
                    let mut list = list.clone();
                    list[at] = other;
                    mutated.push(Value::Array(list));
                }
            }
        }
        Value::Object(fields) => {
            for (key, field) in fields {
                let mut fewer = fields.clone();
                fewer.shift_remove(key);
                mutated.push(Value::Object(fewer));
                for other in mutations(field) {
                    let mut fields = fields.clone();
                    fields.insert(key.clone(), other);
                    mutated.push(Value::Object(fields));
                }
            }
        }
        _ => {}
    }
    mutated
}

#[test]
fn nothing_that_is_sent_makes_us_panic() {
    let model_response = program_response();
    let state = state(&model_response);
    let plainly = turn(ProviderSide::RESPONSES, plain(&json!([question()])));
    let response = issued(&plainly, &model_response, &state, &[call(0), call(1)]);
    let history = input(question(), items(&response).into_iter().chain(answers(&response)));
    let openly = turn(ProviderSide::RESPONSES, explicit(&json!([question()])));
    let response = issued(&openly, &model_response, &state, &[call(0)]);
    let programs = input(question(), items(&response).into_iter().chain(answers(&response)));
    let referred = items(&response).into_iter().map(|item| json!({"type": "item_reference", "id": item["id"]}));
    for body in [plain(&history), explicit(&programs), explicit(&input(question(), referred))] {
        for body in mutations(&body) {
            for provider in [ProviderSide::RESPONSES, ProviderSide::CHAT] {
                StoredStates::referred_to(ClientSide::RESPONSES, &body);
                if let Ok(ParsedRequest::Turn(turn)) = read(provider, body.clone()) {
                    asked(&turn, "1");
                    issued(&turn, &model_response, &state, &[call(0)]);
                }
            }
        }
    }
    for event in model_events().iter().flat_map(mutations) {
        let mut decoder = ProviderSide::RESPONSES.decoder();
        let turn = turn(
            ProviderSide::RESPONSES,
            json!({"model": "m", "input": "x", "stream": true, "tools": [{"type": "function", "name": "f"}]}),
        );
        let mut encoder = turn.encoder(CallDeltas::Opened);
        if let Ok(delta) = decoder.decode_event(&SseEvent { name: None, data: event.to_string() }) {
            encoder.delta(delta);
        }
        if let Some(model_response) = decoder.finish() {
            encoder.answer(&model_response, AnswerParts::All);
        }
        encoder.finish(&TurnUsage::default());
        if let Ok(model_response) = ProviderSide::RESPONSES.decode_response(event["response"].clone()) {
            issued(&turn, &model_response, &state, &[call(0)]);
        }
    }
}
