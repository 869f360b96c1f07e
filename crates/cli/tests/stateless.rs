//! Nothing is kept that the next request needs: any replica can take any turn, also one that was just started.

mod common;

use std::path::Path;

use common::Served;
use serde_json::{Value, json};

fn gateway() -> Served {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/stateless.toml");
    Served::start(&["--script", script.to_str().expect("UTF-8")])
}

fn ask(url: &str, body: &Value) -> String {
    let agent = ureq::Agent::new_with_defaults();
    let mut response = agent
        .post(format!("{url}/chat/completions"))
        .header("content-type", "application/json")
        .send(body.to_string())
        .expect("an answer");
    response.body_mut().read_to_string().expect("a body")
}

fn tools() -> Value {
    let tool = |name: &str, parameter: &str| {
        json!({"type": "function", "function": {"name": name, "parameters": {
            "type": "object", "properties": {parameter: {"type": "string"}}, "required": [parameter]}}})
    };
    json!([tool("list_parts", "product"), tool("stock_of", "part"), tool("order", "part")])
}

/// What the client's tools say.
fn execute(call: &Value) -> String {
    let args: Value = serde_json::from_str(call["function"]["arguments"].as_str().expect("text")).expect("JSON");
    match call["function"]["name"].as_str().expect("a name") {
        "list_parts" => json!(["frame", "wheel", "bell", "saddle"]).to_string(),
        "stock_of" => json!({"left": args["part"].as_str().map_or(0, str::len) % 5}).to_string(),
        _ => format!("ordered {}", args["part"].as_str().unwrap_or_default()),
    }
}

/// A conversation of several turns, each sent to what `choose` gives; all responses as they came.
fn converse(mut choose: impl FnMut(usize) -> String, extra: &Value) -> Vec<String> {
    let mut history = vec![json!({"role": "user", "content": "Order what is short for a bicycle."})];
    let mut responses = Vec::new();
    while responses.len() < 40 {
        let mut body = json!({"model": "gpt-scripted", "messages": history, "tools": tools()});
        body.as_object_mut().expect("an object").extend(extra.as_object().expect("an object").clone());
        let response = ask(&choose(responses.len()), &body);
        let json: Value = serde_json::from_str(&response).unwrap_or_else(|error| panic!("{error}: {response}"));
        responses.push(response);
        let choice = &json["choices"][0];
        let message = choice["message"].clone();
        history.extend(choice["messages"].as_array().cloned().unwrap_or_else(|| vec![message.clone()]));
        match message["tool_calls"].as_array() {
            Some(calls) => history.extend(
                calls.iter().map(|call| json!({"role": "tool", "tool_call_id": call["id"], "content": execute(call)})),
            ),
            None if history.iter().filter(|message| message["role"] == "user").count() == 1 => {
                history.push(json!({"role": "user", "content": "And once more."}));
            }
            None => break,
        }
    }
    responses
}

#[test]
fn three_gateways_that_are_killed_between_turns_answer_as_one_that_stays() {
    for extra in [json!({}), json!({"code_mode": {"explicit": true}}), json!({"parallel_tool_calls": false})] {
        let stays = gateway();
        let expected = converse(|_| stays.url.clone(), &extra);
        let mut replicas = [gateway(), gateway(), gateway()];
        let responses = converse(
            |turn| {
                // Killed without warning, and started anew, just before it is its turn.
                replicas[turn % 3] = gateway();
                replicas[turn % 3].url.clone()
            },
            &extra,
        );
        assert!(expected.len() >= 6, "several turns: {expected:#?}");
        assert!(expected.last().expect("an answer").contains("ordered bell"), "{expected:#?}");
        assert_eq!(responses, expected);
    }
}
