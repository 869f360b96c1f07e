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
    let said = said();
    let state = state(&said);
    let plainly = turn(Wire::Responses, plain(&json!([question()])));
    let response = handed_out(&plainly, &said, &state, &[call(0), call(1)]);
    let history = input(question(), items(&response).into_iter().chain(answers(&response)));
    let openly = turn(Wire::Responses, explicit(&json!([question()])));
    let response = handed_out(&openly, &said, &state, &[call(0)]);
    let programs = input(question(), items(&response).into_iter().chain(answers(&response)));
    let referred = items(&response).into_iter().map(|item| json!({"type": "item_reference", "id": item["id"]}));
    for body in [plain(&history), explicit(&programs), explicit(&input(question(), referred))] {
        for body in mutations(&body) {
            for upstream in [Wire::Responses, Wire::Chat] {
                Kept::wanted(Wire::Responses, &body);
                if let Ok(Reading::Turn(turn)) = read(upstream, body.clone()) {
                    asked(&turn, "1");
                    handed_out(&turn, &said, &state, &[call(0)]);
                }
            }
        }
    }
    for event in model_events().iter().flat_map(mutations) {
        let mut listener = Wire::Responses.listener();
        let turn = turn(
            Wire::Responses,
            json!({"model": "m", "input": "x", "stream": true, "tools": [{"type": "function", "name": "f"}]}),
        );
        let mut speaker = turn.speaker(CallDeltas::Opened);
        if let Ok(heard) = listener.hear(&Event { name: None, data: event.to_string() }) {
            speaker.pass(heard);
        }
        if let Some(said) = listener.finish() {
            speaker.answer(&said, Passed::All);
        }
        speaker.finish(&Usage::default());
        if let Ok(said) = Wire::Responses.said(event["response"].clone()) {
            handed_out(&turn, &said, &state, &[call(0)]);
        }
    }
}
