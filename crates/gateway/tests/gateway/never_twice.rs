//! What a program has done is not done again, whatever clients make of their histories, and what it has read is not
//! trusted for longer than it holds.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::common::{Model, RunningGateway, options, post_json, post_to, tool};

/// A model that writes the same program until it succeeds, or the user has it stop.
fn stubborn(program: &str) -> String {
    format!(
        r#"
[[turn]]
when = {{ user = "stop" }}
text = "stopped"

[[turn]]
when = {{ last = '"status":"success"' }}
text = "done"

[[turn]]
when = {{ user = "reminder" }}
text = "done"

[[turn]]
when = {{ user = "this is file" }}
text = "done"

[[turn]]
when = {{ after = "system", step = 1 }}
text = "done"

[[turn]]
program = """
{program}
"""

[[turn]]
text = "gave up"
"#
    )
}

/// What a client makes of its history before it sends it.
type Edit<'a> = &'a dyn Fn(Vec<Value>) -> Vec<Value>;

/// A Chat Completions client with tools that count how often each call is executed.
struct Client {
    gateway: String,
    messages: Vec<Value>,
    executed: BTreeMap<String, usize>,
}

impl Client {
    fn new(gateway: &RunningGateway) -> Client {
        let messages = vec![json!({"role": "user", "content": "Pay both."})];
        Client { gateway: gateway.url.clone(), messages, executed: BTreeMap::new() }
    }

    fn request(messages: &[Value]) -> Value {
        let tools = ["pay", "get_balance", "fetch_page"].map(|name| tool(name, &[]));
        json!({"model": "m", "messages": messages, "tools": tools})
    }

    /// Sends the history as `edit` makes it, and appends the response. Returns its calls.
    async fn send(&mut self, edit: impl Fn(Vec<Value>) -> Vec<Value>) -> Vec<Value> {
        let body = Client::request(&edit(self.messages.clone()));
        let response = post_json(&self.gateway, &body).await;
        assert_eq!(response.status, 200, "{}", response.text);
        let message = response.json()["choices"][0]["message"].clone();
        self.messages.push(message.clone());
        message["tool_calls"].as_array().cloned().unwrap_or_default()
    }

    fn execute(&mut self, call: &Value) -> String {
        let function = &call["function"];
        let call = format!("{}({})", function["name"].as_str().unwrap(), function["arguments"].as_str().unwrap());
        let count = self.executed.entry(call.clone()).or_default();
        *count += 1;
        format!("{call} #{count}")
    }

    fn answer(&mut self, call: &Value, content: &str) {
        self.messages.push(json!({"role": "tool", "tool_call_id": call["id"], "content": content}));
    }

    /// Goes on until the model answers.
    async fn play(&mut self, edit: impl Fn(Vec<Value>) -> Vec<Value>) -> String {
        for _ in 0..20 {
            let calls = self.send(&edit).await;
            if calls.is_empty() {
                return self.messages.last().unwrap()["content"].as_str().unwrap().to_owned();
            }
            for call in &calls {
                let answer = self.execute(call);
                self.answer(call, &answer);
            }
        }
        panic!("it does not end: {:?}", self.executed);
    }

    fn counts(&self) -> Vec<(&str, usize)> {
        self.executed.iter().map(|(call, count)| (call.as_str(), *count)).collect()
    }
}

async fn gateway(program: &str) -> (Model, RunningGateway) {
    let model = Model::start(&stubborn(program)).await;
    let gateway = RunningGateway::start(options(&model)).await;
    (model, gateway)
}

const PAY_TWICE: &str = "await pay({n: 1}); await pay({n: 2}); return 'success'";
const BOTH_ONCE: [(&str, usize); 2] = [("pay({\"n\":1})", 1), ("pay({\"n\":2})", 1)];

#[tokio::test(flavor = "multi_thread")]
async fn reminders_beside_tool_results_do_not_end_a_program() {
    let (_model, gateway) = gateway(PAY_TWICE).await;
    let reminder = || json!({"role": "system", "content": "Mind the budget."});
    let appended = |mut messages: Vec<Value>| {
        messages.push(reminder());
        messages
    };
    let after_every_result = |messages: Vec<Value>| {
        let with = |message: Value| {
            let is_result = message["role"] == "tool";
            std::iter::once(message).chain(is_result.then(reminder))
        };
        messages.into_iter().flat_map(with).collect::<Vec<Value>>()
    };
    let between_calls_and_results = |messages: Vec<Value>| {
        let with = |message: Value| {
            let has_calls = message.get("tool_calls").is_some_and(Value::is_array);
            std::iter::once(message).chain(has_calls.then(reminder))
        };
        messages.into_iter().flat_map(with).collect::<Vec<Value>>()
    };
    let wrapped = |mut messages: Vec<Value>| {
        if messages.last().is_some_and(|last| last["role"] == "tool") {
            messages.push(json!({"role": "user", "content": "<system-reminder>Be brief.</system-reminder>"}));
        }
        messages
    };
    let with_image = |mut messages: Vec<Value>| {
        if messages.last().is_some_and(|last| last["role"] == "tool") {
            let image = json!({"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}});
            messages.push(json!({"role": "user", "content": [{"type": "text", "text": "This is file a1b2:"}, image]}));
        }
        messages
    };
    let edits: [(&str, Edit<'_>); 5] = [
        ("appended", &appended),
        ("after every result", &after_every_result),
        ("between calls and results", &between_calls_and_results),
        ("wrapped", &wrapped),
        ("with an image", &with_image),
    ];
    for (name, edit) in edits {
        let mut client = Client::new(&gateway);
        assert_eq!(client.play(edit).await, "done", "{name}");
        assert_eq!(client.counts(), BOTH_ONCE, "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_whose_answers_a_client_has_replaced_are_not_executed_again() {
    let (_model, gateway) = gateway(PAY_TWICE).await;
    let mut client = Client::new(&gateway);
    let cleared = |mut messages: Vec<Value>| {
        let results = messages.iter().filter(|message| message["role"] == "tool").count();
        let results = messages.iter_mut().filter(|message| message["role"] == "tool").take(results.saturating_sub(1));
        results.for_each(|message| message["content"] = json!("[cleared to save context]"));
        messages
    };
    client.play(cleared).await;
    assert_eq!(client.counts(), BOTH_ONCE);
}

/// Keeps the user's question and the last calls with their answers, like clients that run out of context.
fn trimmed(messages: &[Value]) -> Vec<Value> {
    let last = messages.iter().rposition(|message| message["role"] == "assistant").unwrap_or(1);
    messages[..1].iter().chain(&messages[last..]).cloned().collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_that_a_client_has_cut_out_of_its_history_are_not_executed_again() {
    let program = "for (let n = 1; n <= 3; n++) await pay({n}); return 'success'";
    let (model, gateway) = gateway(program).await;
    let mut client = Client::new(&gateway);
    client.play(|messages| trimmed(&messages)).await;
    assert!(client.executed.values().all(|count| *count == 1), "{:?}", client.executed);
    let read: String = model.asked().iter().map(Value::to_string).collect();
    let refused = "pay was completed with the same arguments by an earlier program, and its answer is no longer in the conversation; it was not executed again";
    assert!(read.contains(refused), "{read}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_cuts_more_calls_than_an_id_can_name_has_no_write_executed_unasked() {
    let program = "for (let n = 1; n <= 120; n++) await pay({n}); return 'success'";
    let (model, gateway) = gateway(program).await;
    let mut client = Client::new(&gateway);
    for round in 1..=119 {
        let calls = client.send(|messages| messages).await;
        assert!(calls[0]["id"].as_str().unwrap().len() < 1_500, "round {round}: {}", calls[0]["id"]);
        let answer = client.execute(&calls[0]);
        client.answer(&calls[0], &answer);
    }
    client.messages = trimmed(&client.messages);
    let rest = client.play(|messages| messages).await;
    assert_eq!(rest, "gave up");
    assert!(client.executed.values().all(|count| *count == 1), "{:?}", client.executed);
    let read: String = model.asked().iter().map(Value::to_string).collect();
    let refused = "calls of earlier programs are no longer in the conversation, so it is not known whether pay was completed with the same arguments; it was not executed";
    assert!(read.contains(refused), "{read}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_whose_answer_never_came_is_not_executed_again_when_its_program_failed() {
    let program = "await Promise.all([pay({n: 1}), pay({n: 2})]); return 'success'";
    let (_model, gateway) = gateway(program).await;
    let mut client = Client::new(&gateway);
    let calls = client.send(|messages| messages).await;
    for call in &calls {
        client.execute(call);
    }
    let failed = json!({"role": "tool", "tool_call_id": calls[0]["id"], "content": "no", "is_error": true});
    client.messages.push(failed);
    loop {
        let calls = client.send(|messages| messages).await;
        if calls.is_empty() {
            break;
        }
        for call in &calls {
            let answer = client.execute(call);
            client.answer(call, &answer);
        }
    }
    assert_eq!(client.executed["pay({\"n\":2})"], 1, "{:?}", client.executed);
}

/// A call that was not answered is issued again. Its answer may then come under the old id, where the old call stands, or
/// both; and the old call may be cut out of the history afterwards.
#[tokio::test(flavor = "multi_thread")]
async fn a_late_answer_reaches_its_program_wherever_the_client_puts_it() {
    const PAY_AT_ONCE: &str = "await Promise.all([1, 2].map(n => pay({n}))); await pay({n: 3}); return 'success'";
    let all_once = ["pay({\"n\":1})", "pay({\"n\":2})", "pay({\"n\":3})"].map(|call| (call, 1));
    for place in ["after the new call", "where the old call is", "under both ids"] {
        for is_cut in [false, true] {
            let (_model, gateway) = gateway(PAY_AT_ONCE).await;
            let mut client = Client::new(&gateway);
            let calls = client.send(|history| history).await;
            let answers: Vec<String> = calls.iter().map(|call| client.execute(call)).collect();
            client.answer(&calls[0], &answers[0]);
            let again = client.send(|history| history).await;
            assert_eq!(again.len(), 1, "{again:?}");
            match place {
                "after the new call" => client.answer(&calls[1], &answers[1]),
                "under both ids" => {
                    client.answer(&calls[1], &answers[1]);
                    client.answer(&again[0], &answers[1]);
                }
                _ => {
                    client.answer(&calls[1], &answers[1]);
                    let late = client.messages.pop().unwrap();
                    client.messages.insert(3, late);
                }
            }
            let last = client.play(|history| if is_cut { trimmed(&history) } else { history }).await;
            // A program that cannot go on is written again, and what it has done is refused.
            assert_eq!(last, if is_cut { "gave up" } else { "done" }, "{place}");
            let executed = client.counts();
            assert_eq!(executed, if is_cut { all_once[..2].to_vec() } else { all_once.to_vec() }, "{place}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_read_before_a_write_is_read_again_and_a_failed_tool_is_asked_again() {
    let program = "const before = await get_balance({}); await pay({n: 1}); const page = await fetch_page({});
if (page.startsWith('Error')) throw new Error(page); return ['success', before]";
    let (model, gateway) = gateway(program).await;
    let mut client = Client::new(&gateway);
    let mut pages = ["Error: 503 try again", "fine"].into_iter();
    loop {
        let calls = client.send(|messages| messages).await;
        if calls.is_empty() {
            break;
        }
        for call in &calls {
            let answer = client.execute(call);
            let is_page = call["function"]["name"] == "fetch_page";
            let answer = if is_page { pages.next().unwrap().to_owned() } else { answer };
            client.answer(call, &answer);
        }
    }
    assert_eq!(client.counts(), [("fetch_page({})", 2), ("get_balance({})", 2), ("pay({\"n\":1})", 1)]);
    let last = model.asked().pop().unwrap();
    let messages = last["messages"].as_array().unwrap();
    let result: Value = serde_json::from_str(messages.last().unwrap()["content"].as_str().unwrap()).unwrap();
    assert_eq!(result["data"], json!(["success", "get_balance({}) #2"]));
    assert_eq!(result["reused"], json!([{"call": 1, "tool": "pay", "args": {"n": 1}}]));
    assert!(result["note"].as_str().unwrap().contains("{fresh: true}"), "{result}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_can_say_what_tools_do() {
    let program = "await get_balance({}); await pay({n: 1}); const page = await fetch_page({}, {fresh: true});
if (page.endsWith('#1')) throw new Error('again'); return 'success'";
    let model = Model::start(&stubborn(program)).await;
    let mut configured = options(&model);
    configured.tools.effects.insert("get_*".to_owned(), "write".to_owned());
    let cases = [(options(&model), 2), (configured, 1)];
    for (options, balances) in cases {
        let gateway = RunningGateway::start(options).await;
        let mut client = Client::new(&gateway);
        client.play(|messages| messages).await;
        assert_eq!(client.counts(), [("fetch_page({})", 2), ("get_balance({})", balances), ("pay({\"n\":1})", 1)]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_users_words_end_a_program_before_its_next_call_and_the_model_reads_what_was_done() {
    let (model, gateway) = gateway(PAY_TWICE).await;
    let tools = json!([{"name": "pay", "input_schema": {"type": "object"}}]);
    let mut messages = vec![json!({"role": "user", "content": "Pay both."})];
    let url = format!("{}/messages", gateway.url);
    let request = |messages: &[Value]| json!({"model": "m", "max_tokens": 100, "messages": messages, "tools": tools});
    let first = post_to(&url, &request(&messages)).await.json();
    let call = first["content"].as_array().unwrap().iter().find(|block| block["type"] == "tool_use").unwrap().clone();
    messages.push(json!({"role": "assistant", "content": first["content"]}));
    messages.push(json!({"role": "user", "content": [
        {"type": "tool_result", "tool_use_id": call["id"], "content": "paid 1"},
        {"type": "text", "text": "<system-reminder>Be brief.</system-reminder>"},
        {"type": "text", "text": "Stop. Do not pay anything more."},
    ]}));
    model.asked();
    let second = post_to(&url, &request(&messages)).await.json();
    assert_eq!(second["content"], json!([{"type": "text", "text": "stopped"}]), "{second}");
    let asked = model.asked().pop().unwrap().to_string();
    assert!(asked.contains(r#"\"tool\":\"pay\",\"args\":{\"n\":1},\"answer\":\"paid 1\""#), "{asked}");
    assert!(asked.contains("Stop. Do not pay anything more."), "{asked}");

    // The user lets it go on: what was done before is not done again.
    messages.push(json!({"role": "assistant", "content": second["content"]}));
    messages.push(json!({"role": "user", "content": "Go on then."}));
    let third = post_to(&url, &request(&messages)).await.json();
    let call = third["content"].as_array().unwrap().iter().find(|block| block["type"] == "tool_use").unwrap().clone();
    assert_eq!(call["input"], json!({"n": 2}));
    messages.push(json!({"role": "assistant", "content": third["content"]}));
    let result = json!({"type": "tool_result", "tool_use_id": call["id"], "content": "paid 2"});
    messages.push(json!({"role": "user", "content": [result]}));
    let fourth = post_to(&url, &request(&messages)).await.json();
    assert_eq!(fourth["content"], json!([{"type": "text", "text": "done"}]), "{fourth}");

    // After that answer the same may be asked for once more.
    messages.push(json!({"role": "assistant", "content": fourth["content"]}));
    messages.push(json!({"role": "user", "content": "And now once more."}));
    let fifth = post_to(&url, &request(&messages)).await.json();
    let call = fifth["content"].as_array().unwrap().iter().find(|block| block["type"] == "tool_use").unwrap().clone();
    assert_eq!(call["input"], json!({"n": 1}));
}
