//! What a later program knows of earlier ones, and who calls a tool.

use dacapo_wire::Wire;
use serde_json::{Value, json};

use crate::client_conversation::{ClientConversation, ClientResponse};
use crate::common::{Model, RunningGateway, options, post_json, post_to, tool};

const KEEPS_AND_COUNTS: &str = r#"
[[turn]]
when = { after = "user", user = "keep" }
program = "const rows = await get_rows({}); store('rows', rows); return 'kept'"

[[turn]]
when = { after = "user", user = "count" }
program = "return load('rows')?.length ?? 'nothing'"

[[turn]]
when = { after = "user", user = "again" }
program = "const rows = load('rows'); await get_rows({}); return rows.length"

[[turn]]
text = "{{result/data}}"
"#;

const ROWS: &str = r#"[{"id": 1}, {"id": 2}, {"id": 3}]"#;

async fn send(conversation: &mut ClientConversation, url: &str) -> ClientResponse {
    let (path, body) = conversation.request();
    let response = post_to(&format!("{url}{path}"), &body).await;
    assert_eq!(response.status, 200, "{}", response.text);
    conversation.read_response(&response.text)
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_program_stored_a_later_one_loads_on_every_wire_and_replica() {
    for wire in Wire::ALL {
        for explicit in [false, true] {
            let model = Model::start(KEEPS_AND_COUNTS).await;
            let mut conversation = ClientConversation::new(wire, &[("get_rows", &[])]);
            conversation.explicit = explicit;
            let name = format!("{wire}, explicit {explicit}");
            conversation.user("keep them");
            // Every request goes to a gateway that has seen nothing.
            let first = send(&mut conversation, &RunningGateway::start(options(&model)).await.url).await;
            for call in first.calls {
                conversation.answer(&call, ROWS, false);
            }
            let kept = send(&mut conversation, &RunningGateway::start(options(&model)).await.url).await;
            assert_eq!(kept.text, "kept", "{name}");
            conversation.user("count them");
            let counted = send(&mut conversation, &RunningGateway::start(options(&model)).await.url).await;
            assert_eq!(counted.text, "3", "{name}");
            let told = model.asked().last().map(Value::to_string).unwrap_or_default();
            let shape = "get_rows returns { id: number }[]";
            assert_eq!(told.matches(shape).count(), 1, "{name}: {told}");
        }
    }
}

const COUNTS_FOR_LONG: &str = r#"
[[turn]]
when = { after = "user" }
program = "let sum = 0; for (let i = 0; i < 1_000_000; i++) sum += i; const rows = await get_rows({}); for (let i = 0; i < 1_000_000; i++) sum += i; return [sum, rows.length]"

[[turn]]
text = "{{result/data}}"
"#;

/// Programs that take little time are run by the thread that serves the request. Those that do not are begun again on
/// another one, also if they are earlier ones of the conversation.
#[tokio::test(flavor = "multi_thread")]
async fn programs_that_take_long_have_the_same_results() {
    let model = Model::start(COUNTS_FOR_LONG).await;
    let mut conversation = ClientConversation::new(Wire::Chat, &[("get_rows", &[])]);
    for _ in 0..2 {
        conversation.user("count for long");
        // Every request goes to a gateway that has seen nothing.
        let first = send(&mut conversation, &RunningGateway::start(options(&model)).await.url).await;
        assert_eq!(first.calls.len(), 1);
        conversation.answer(&first.calls[0], ROWS, false);
        let counted = send(&mut conversation, &RunningGateway::start(options(&model)).await.url).await;
        assert_eq!(counted.text, "[999999000000,3]");
    }
    let told = model.asked().last().map(Value::to_string).unwrap_or_default();
    assert_eq!(told.matches("[999999000000,3]").count(), 3, "two results, and the answer to the first: {told}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_does_not_go_on_with_other_values_than_it_began_with() {
    let model = Model::start(KEEPS_AND_COUNTS).await;
    let gateway = RunningGateway::start(options(&model)).await;
    let tools = json!([tool("get_rows", &[])]);
    let mut messages = vec![json!({"role": "user", "content": "keep them"})];
    let exchange = async |messages: &mut Vec<Value>| {
        let response = post_json(&gateway.url, &json!({"model": "m", "messages": messages, "tools": tools})).await;
        assert_eq!(response.status, 200, "{}", response.text);
        let message = response.json()["choices"][0]["message"].clone();
        messages.push(message.clone());
        for call in message["tool_calls"].as_array().into_iter().flatten() {
            messages.push(json!({"role": "tool", "tool_call_id": call["id"], "content": ROWS}));
        }
    };
    exchange(&mut messages).await;
    exchange(&mut messages).await;
    messages.push(json!({"role": "user", "content": "again"}));
    exchange(&mut messages).await;
    // The client has cut its history: the program that stored the values is gone.
    let mut cut: Vec<Value> = messages[messages.len() - 3..].to_vec();
    exchange(&mut cut).await;
    let told = model.asked().last().map(Value::to_string).unwrap_or_default();
    assert!(told.contains("values that an earlier program had stored are not in the conversation any more"), "{told}");
    exchange(&mut messages).await;
    assert_eq!(messages.last().map(|message| &message["content"]), Some(&json!("3")));
}

#[tokio::test(flavor = "multi_thread")]
async fn tools_may_be_for_programs_and_for_the_model() {
    let model = Model::start("[[turn]]\nwhen = { after = \"user\" }\ncalls = [{ name = \"get_rows\", arguments = {} }]\n\n[[turn]]\ntext = \"done\"\n").await;
    let mut options = options(&model);
    options.code_mode.model_callers = [("m*".to_owned(), "both".to_owned())].into();
    options.code_mode.direct_tools = vec!["ask_*".to_owned()];
    let gateway = RunningGateway::start(options).await;
    let tools = ["get_rows", "ask_person"].map(|name| tool(name, &[]));
    let request = json!({"model": "m", "messages": [{"role": "user", "content": "go"}], "tools": tools});
    let response = post_json(&gateway.url, &request).await.json();
    let call = &response["choices"][0]["message"]["tool_calls"][0]["function"]["name"];
    assert_eq!(call, "get_rows", "{response}");
    let asked = &model.asked()[0]["tools"];
    let names: Vec<&str> = asked.as_array().unwrap().iter().filter_map(|it| it["function"]["name"].as_str()).collect();
    assert_eq!(names, ["execute", "get_rows", "ask_person"], "{asked}");
    let execute = asked[0]["function"]["description"].as_str().unwrap();
    assert!(
        execute.contains("Your other tools are functions here too, with the same arguments: get_rows\n"),
        "{execute}"
    );
    assert!(!execute.contains("declare") && !execute.contains("ask_person"), "{execute}");
    assert!(asked.to_string().matches("allowed_callers").next().is_none(), "{asked}");
}
