//! MCP servers behind the gateway: their tools join the client's own in programs, and the gateway executes their calls.

#[path = "../../gateway/tests/gateway/client_conversation.rs"]
#[expect(clippy::unwrap_used, reason = "a client that is answered wrongly cannot go on")]
mod client_conversation;
mod common;
#[expect(dead_code, reason = "other tests use more of it")]
mod mcp_world;
#[expect(dead_code, reason = "other tests use more of it")]
mod office;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use client_conversation::{ClientConversation, ClientResponse};
use common::Served;
use dacapo_wire::Wire;
use mcp_world::{World, installed, root};
use office::{Office, Redis, RemoteLedger};
use serde_json::{Value, json};

fn ask(url: &str, talk: &mut ClientConversation) -> ClientResponse {
    let (status, text) = try_to_ask(url, talk);
    assert_eq!(status, 200, "{text}");
    talk.read_response(&text)
}

/// Whatever the response is.
fn try_to_ask(url: &str, talk: &ClientConversation) -> (u16, String) {
    let (path, body) = talk.request();
    let agent = ureq::Agent::new_with_config(ureq::Agent::config_builder().http_status_as_error(false).build());
    let request = agent.post(format!("{url}{path}")).header("content-type", "application/json");
    let mut response = request.send(body.to_string()).expect("a response");
    (response.status().as_u16(), response.body_mut().read_to_string().expect("a body"))
}

/// Asks until there is an answer, each time at another address; the client's own tool counts letters. Returns the answer
/// and the names of the calls that the client got.
fn converse(mut url: impl FnMut() -> String, talk: &mut ClientConversation, question: &str) -> (String, Vec<String>) {
    talk.user(question);
    let mut called = Vec::new();
    for _ in 0..10 {
        let response = ask(&url(), talk);
        if response.calls.is_empty() {
            return (response.text, called);
        }
        for call in &response.calls {
            called.push(format!("{} {}", call.name, call.args));
            let letters = call.args["part"].as_str().unwrap_or_default().len();
            talk.answer(call, &letters.to_string(), false);
        }
    }
    panic!("no end: {called:?}");
}

fn talk(wire: Wire, has_tool: bool, is_streamed: bool) -> ClientConversation {
    let tools: &[(&str, &[&str])] = if has_tool { &[("stock_of", &["part"])] } else { &[] };
    let mut talk = ClientConversation::new(wire, tools);
    if is_streamed {
        talk.extra = json!({"stream": true});
    }
    talk
}

#[test]
fn a_client_without_tools_gets_those_of_the_servers_and_sees_nothing_but_the_answer() {
    let office = Office::new();
    let gateway = office.gateway(&[]);
    for wire in Wire::ALL {
        for is_streamed in [false, true] {
            let mut talk = talk(wire, false, is_streamed);
            let started = Instant::now();
            let (answer, calls) = converse(|| gateway.url.clone(), &mut talk, "Please pay and report.");
            assert!(started.elapsed().as_millis() < 5_000, "both payments at the same time, {:?}", started.elapsed());
            assert!(answer.ends_with("Paid 3 to ann and 4 to bob; bob has 4."), "{wire} {is_streamed}: {answer}");
            assert!(calls.is_empty(), "{calls:?}");
            let pay = |to: &str, amount: u32| format!(r#"pay {{"to":"{to}","amount":{amount},"after_ms":300}}"#);
            let expected =
                BTreeMap::from([(r#"get_balance {"of":"bob"}"#.to_owned(), 1), (pay("ann", 3), 1), (pay("bob", 4), 1)]);
            assert_eq!(office.executed(), expected);
            office.forget();
            let usage = ask(&gateway.url, &mut {
                talk.user("Hello");
                talk
            });
            assert!(usage.text.ends_with("You said: Hello"), "{}", usage.text);
        }
    }
}

#[test]
fn a_program_may_mix_the_tools_of_client_and_servers_and_any_replica_goes_on_with_it() {
    let redis = Redis::start();
    for wire in Wire::ALL {
        // With and without a store for everything; plain, streamed, and explicit.
        for (store, is_streamed, is_explicit) in
            [("redis", false, false), ("redis", true, false), ("memory", false, false), ("redis", false, true)]
        {
            let office = Office::new();
            let environment = [("DACAPO_STORE_KIND", store), ("DACAPO_STORE_URL", redis.url.as_str())];
            let replicas = [office.gateway(&environment), office.gateway(&environment)];
            let mut turn = 0;
            let url = || {
                turn += usize::from(store == "redis");
                replicas[turn % 2].url.clone()
            };
            let mut talk = talk(wire, true, is_streamed);
            talk.explicit = is_explicit;
            let (answer, calls) = converse(url, &mut talk, "mixed");
            assert_eq!(answer, r#"Mixed: [2000,8,8,"5 to cem"]"#, "{wire} {store} {is_streamed} {is_explicit}");
            assert_eq!(calls, [r#"stock_of {"part":"1 to ann"}"#, r#"stock_of {"part":"2 to bob"}"#]);
            let expected = [
                r#"get_balance {"of":"ann"}"#,
                r#"get_statement {"of":"ann"}"#,
                r#"pay {"to":"ann","amount":1}"#,
                r#"pay {"to":"bob","amount":2}"#,
                r#"pay {"to":"cem","amount":5}"#,
            ];
            assert_eq!(office.executed(), expected.map(|call| (call.to_owned(), 1)).into());
            // The program stands in the history of the next question, and is not executed again for it.
            let (answer, calls) = converse(|| replicas[0].url.clone(), &mut talk, "go on");
            assert_eq!((answer.as_str(), calls.len()), ("Then 49 to dan", 1), "{wire} {store}");
            assert_eq!(office.executed().values().sum::<usize>(), 6);
        }
    }
}

/// What an explicit client on Chat Completions, Responses or Messages has in its history of the calls that the gateway
/// executed, and of nothing else that is new.
fn shown_calls(wire: Wire, history: &[Value]) -> Vec<String> {
    let call = |server: &Value, name: &Value, arguments: &str, end: &Value| {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        format!("{}.{} {arguments} {}", text(server), text(name), text(end))
    };
    let items = history.iter().flat_map(|entry| match wire {
        Wire::Chat => entry["calls"].as_array().cloned().unwrap_or_default(),
        Wire::Responses => vec![entry.clone()],
        Wire::Messages => entry["content"].as_array().cloned().unwrap_or_default(),
    });
    let shown = items.filter_map(|item| match (wire, item["type"].as_str().unwrap_or_default()) {
        (Wire::Chat, _) => {
            let arguments = item["arguments"].as_str().unwrap_or_default();
            Some(call(&item["server"], &item["name"], arguments, &item["output"]))
        }
        (_, "mcp_list_tools") => Some(format!("{} tools", item["tools"].as_array().map_or(0, Vec::len))),
        (_, "mcp_call") => {
            let arguments = item["arguments"].as_str().unwrap_or_default();
            Some(call(&item["server_label"], &item["name"], arguments, &item["output"]))
        }
        (_, "mcp_tool_use") => Some(call(&item["server_name"], &item["name"], &item["input"].to_string(), &json!(""))),
        (_, "mcp_tool_result") => Some(item["content"][0]["text"].as_str().unwrap_or_default().to_owned()),
        _ => None,
    });
    shown.collect()
}

#[test]
fn an_explicit_client_is_shown_the_calls_of_servers_in_its_providers_own_form_and_sends_them_back() {
    let office = Office::new();
    let gateway = office.gateway(&[]);
    for wire in Wire::ALL {
        for is_streamed in [false, true] {
            let mut talk = talk(wire, true, is_streamed);
            talk.explicit = true;
            let (answer, calls) = converse(|| gateway.url.clone(), &mut talk, "mixed");
            assert_eq!((answer.as_str(), calls.len()), (r#"Mixed: [2000,8,8,"5 to cem"]"#, 2), "{wire} {is_streamed}");
            let shown = shown_calls(wire, &talk.history);
            let of = |name: &str| shown.iter().filter(|line| line.starts_with(name)).count();
            assert_eq!(
                (of("ledger.pay"), of("ledger.get_balance"), of("ledger.get_statement")),
                (3, 1, 1),
                "{shown:#?}"
            );
            let paid = match wire {
                Wire::Messages => r#"ledger.pay {"to":"bob","amount":2} "#,
                _ => r#"ledger.pay {"to":"bob","amount":2} {"receipt":"2 to bob"}"#,
            };
            assert!(shown.iter().any(|line| line == paid), "{shown:#?}");
            assert_eq!(of("5 tools"), usize::from(wire == Wire::Responses), "once in a conversation");
            // With all of that in the history.
            let (answer, calls) = converse(|| gateway.url.clone(), &mut talk, "go on");
            assert_eq!((answer.as_str(), calls.len()), ("Then 49 to dan", 1), "{wire} {is_streamed}");
            let shown = shown_calls(wire, &talk.history);
            assert_eq!(
                shown.iter().filter(|line| line.starts_with("5 tools")).count(),
                usize::from(wire == Wire::Responses)
            );
            assert!(office.executed().values().all(|count| *count == 1), "{:?}", office.executed());
            office.forget();
        }
    }
}

/// Checked by the types of the providers' own SDKs.
#[test]
fn real_explicit_clients_read_the_calls_of_servers_and_send_them_back() {
    let office = Office::new();
    let gateway = office.gateway(&[]);
    let python = installed("python/bin/python");
    let pay = |to: &str, amount: u32| format!(r#"{{"to":"{to}","amount":{amount},"after_ms":300}}"#);
    let (ann, bob) = (pay("ann", 3), pay("bob", 4));
    let of_call = ["mcp_call.in_progress", "mcp_call_arguments.delta", "mcp_call_arguments.done"];
    let events = ["mcp_list_tools.in_progress", "mcp_list_tools.completed"].into_iter().chain(of_call).chain(of_call);
    let events = events.chain(["mcp_call.completed"; 2]).chain(of_call).chain(["mcp_call.completed"]);
    let events: Vec<String> = events.map(|event| format!("event {event}")).collect();
    let items = [
        "list ledger pay get_balance get_statement get_chart close_account".to_owned(),
        format!(r#"completed ledger.pay {ann} {{"receipt":"3 to ann"}}"#),
        format!(r#"completed ledger.pay {bob} {{"receipt":"4 to bob"}}"#),
        r#"completed ledger.get_balance {"of":"bob"} {"balance":4}"#.to_owned(),
    ];
    let uses = [format!("use ledger.pay {ann}"), format!("use ledger.pay {bob}")];
    let answers = ["answer I pay both.Paid 3 to ann and 4 to bob; bob has 4.", "answer You said: Hello"];
    let answers = answers.map(str::to_owned);
    for (wire, stream) in [("responses", ""), ("responses", "--stream"), ("messages", ""), ("messages", "--stream")] {
        let output = Command::new(&python)
            .arg(root().join("tests-tools/clients/explicit_mcp.py"))
            .args(["--base-url", &gateway.url, "--question", "pay and report", "--wire", wire])
            .args(Some(stream).filter(|stream| !stream.is_empty()))
            .output()
            .expect("it runs");
        let (said, error) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        let lines: Vec<String> = said.lines().map(str::to_owned).collect();
        if wire == "responses" {
            let events = if stream.is_empty() { &[][..] } else { &events[..] };
            assert_eq!(lines, [events, &items, &answers].concat(), "{error}");
        } else {
            assert_eq!(lines[..2], uses, "{error}");
            assert_eq!(lines[lines.len() - 2..], answers, "{error}");
            assert_eq!(lines.iter().filter(|line| line.starts_with("result ")).count(), 3, "{lines:#?}");
        }
        office.forget();
    }
}

#[test]
fn small_answers_ride_in_the_id_and_large_ones_that_are_gone_are_said_to_be_gone() {
    let office = Office::new();
    for wire in Wire::ALL {
        for (question, expected) in [
            ("twice, small", "Twice: [2,3] <nothing at error/message>"),
            (
                "twice, large",
                "Twice: <nothing at data> the program did not finish: answers to calls that were executed here are not \
                 stored any more",
            ),
        ] {
            let mut talk = talk(wire, true, false);
            talk.user(question);
            let first = office.gateway(&[]);
            let response = ask(&first.url, &mut talk);
            talk.answer(&response.calls[0], "3", false);
            // What it keeps in memory is gone with it.
            drop(first);
            assert_eq!(ask(&office.gateway(&[]).url, &mut talk).text, expected, "{wire}");
            assert_eq!(office.executed()[r#"pay {"to":"eve","amount":2}"#], 1);
            office.forget();
        }
    }
}

/// The model has it as an image of its own wire, and again when the conversation of an explicit client goes on at another
/// replica. In that of a plain client there is only the answer.
#[test]
fn an_image_of_a_server_reaches_the_model_if_the_program_returns_it() {
    let (office, redis) = (Office::new(), Redis::start());
    let environment = [("DACAPO_STORE_KIND", "redis"), ("DACAPO_STORE_URL", redis.url.as_str())];
    let replicas = [office.gateway(&environment), office.gateway(&environment)];
    for wire in Wire::ALL {
        for is_explicit in [false, true] {
            let mut talk = talk(wire, true, false);
            talk.explicit = is_explicit;
            let (answer, _) = converse(|| replicas[0].url.clone(), &mut talk, "draw");
            assert_eq!(answer, "I see data:image/png;base64,aGVsbG8=.", "{wire} {is_explicit}");
            if is_explicit {
                let (answer, _) = converse(|| replicas[1].url.clone(), &mut talk, "look again");
                assert_eq!(answer, "Still data:image/png;base64,aGVsbG8=.", "{wire}");
            }
        }
    }
}

#[test]
fn what_the_policy_asks_for_is_denied_with_its_reason_and_denied_servers_are_not_offered() {
    let office = Office::new();
    let config = office.file("dacapo.toml");
    let key = "0".repeat(32);
    let sha256 = dacapo_gateway::key_sha256(&key);
    let text = format!("[[client]]\nname = \"a\"\nkey_sha256 = \"{sha256}\"\nservers = []\n");
    let gateway = office.gateway(&[]);
    let (answer, _) = converse(|| gateway.url.clone(), &mut talk(Wire::Chat, false, false), "close");
    let reason = "not allowed: `ledger.close_account` needs the user's approval, and this client has no way to ask";
    assert!(answer.starts_with(reason), "{answer}");
    assert!(office.executed().is_empty());
    assert_metrics(&gateway, &[r#"dacapo_calls_total{outcome="refused",owner="mcp"} 1"#]);
    std::fs::write(&config, text).expect("a file");
    let restricted = office.gateway(&[("DACAPO_CONFIG", config.to_str().expect("UTF-8"))]);
    let body = json!({"model": "m", "messages": [{"role": "user", "content": "close"}]}).to_string();
    let agent = ureq::Agent::new_with_defaults();
    let request =
        agent.post(format!("{}/chat/completions", restricted.url)).header("authorization", format!("Bearer {key}"));
    let mut response = request.send(body).expect("an answer");
    assert_eq!(response.headers()["x-dacapo-mode"], "off; reason=no-tools");
    let text = response.body_mut().read_to_string().expect("a body");
    assert!(text.contains("You said: close"), "{text}");
    std::fs::write(&config, format!("[[client]]\nname = \"a\"\nkey_sha256 = \"{sha256}\"\nservers = [\"github\"]\n"))
        .expect("a file");
    let output = Command::new(env!("CARGO_BIN_EXE_dacapo"))
        .args(["serve", "--config"])
        .arg(&config)
        .env("DACAPO_MCP_SERVERS", office.file("mcp.json"))
        .output()
        .expect("it ends");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("client[0].servers: there is no server `github`; there are ledger"), "{said}");
}

/// The question about a call in the history of an explicit client, as it has to be.
fn question(wire: Wire, id: &str) -> Value {
    let arguments = r#"{"of":"ann"}"#;
    match wire {
        Wire::Chat => {
            json!({"role": "approval_request", "id": id, "server": "ledger", "name": "close_account", "arguments": arguments})
        }
        Wire::Responses => json!({
            "id": id,
            "type": "mcp_approval_request",
            "arguments": arguments,
            "name": "close_account",
            "server_label": "ledger",
        }),
        Wire::Messages => json!({
            "type": "mcp_approval_request",
            "id": id,
            "name": "close_account",
            "input": {"of": "ann"},
            "server_name": "ledger",
        }),
    }
}

/// The last entry of a history, or the last block of its content.
fn last_shown(wire: Wire, history: &[Value]) -> Value {
    let last = history.last().expect("an entry");
    match wire {
        Wire::Chat | Wire::Responses => last.clone(),
        Wire::Messages => last["content"].as_array().and_then(|blocks| blocks.last()).expect("a block").clone(),
    }
}

fn answer_to(wire: Wire, id: &str, approve: &Value) -> Value {
    match wire {
        Wire::Chat => json!({"role": "approval_response", "approval_request_id": id, "approve": approve}),
        Wire::Responses => json!({"type": "mcp_approval_response", "approval_request_id": id, "approve": approve}),
        Wire::Messages => {
            let block = json!({"type": "mcp_approval_response", "approval_request_id": id, "approve": approve});
            json!({"role": "user", "content": [block]})
        }
    }
}

/// The Responses API has questions and answers for that; on the other wires they are documented messages and blocks.
#[test]
fn an_explicit_client_is_asked_about_what_the_policy_asks_for() {
    let office = Office::new();
    let gateway = office.gateway(&[]);
    for wire in [Wire::Chat, Wire::Responses, Wire::Messages] {
        for (is_streamed, is_approved) in [(false, true), (true, true), (false, false)] {
            let mut talk = talk(wire, true, is_streamed);
            talk.explicit = true;
            talk.user("close");
            let response = ask(&gateway.url, &mut talk);
            assert!(response.calls.is_empty() && response.text.is_empty(), "{wire}: {response:?}");
            assert!(["stop", "completed", "end_turn"].contains(&&*response.end), "{wire}: {}", response.end);
            let asked = last_shown(wire, &talk.history);
            let id = asked["id"].as_str().expect("an id");
            assert_eq!(asked, question(wire, id), "{wire}");
            // Asked once more without an answer, it is the same question.
            let mut again = talk.clone();
            assert!(ask(&gateway.url, &mut again).text.is_empty());
            assert_eq!(last_shown(wire, &again.history)["id"], id, "{wire}");
            assert!(office.executed().is_empty());
            talk.history.push(answer_to(wire, id, &json!(is_approved)));
            let text = ask(&gateway.url, &mut talk).text;
            if wire == Wire::Responses {
                let call = talk.history.iter().find(|item| item["type"] == "mcp_call").expect("a call");
                let status = if is_approved { "completed" } else { "failed" };
                assert_eq!((&call["approval_request_id"], &call["status"]), (&json!(id), &json!(status)));
            }
            if is_approved {
                assert_eq!(text, r#"{"closed":"ann"}"#, "{wire}");
                assert_eq!(office.executed().values().sum::<usize>(), 1);
                office.forget();
            } else {
                assert!(text.contains("the user"), "{wire}: {text}");
                assert!(office.executed().is_empty());
            }
            // The conversation goes on with all of that in its history.
            talk.user("Hello");
            let text = ask(&gateway.url, &mut talk).text;
            assert!(text.ends_with("You said: Hello"), "{wire}: {text}");
        }
    }
    // Both kinds of answers in one request.
    for wire in [Wire::Chat, Wire::Responses, Wire::Messages] {
        let mut talk = talk(wire, true, false);
        talk.explicit = true;
        talk.user("count and close");
        let response = ask(&gateway.url, &mut talk);
        let [call] = &response.calls[..] else { panic!("{wire}: {response:?}") };
        let shown = serde_json::to_string(&talk.history).expect("JSON");
        let is_question =
            |text: &&str| text.starts_with("mcpr_dc_") || text.starts_with("approval_") && *text != "approval_request";
        let id = shown.split('"').find(is_question).expect("a question").to_owned();
        talk.answer(call, "4", false);
        talk.history.push(answer_to(wire, &id, &json!(true)));
        assert_eq!(ask(&gateway.url, &mut talk).text, "4 and ann", "{wire}");
        assert_eq!(office.executed().values().sum::<usize>(), 1);
        office.forget();
    }
    for wire in [Wire::Chat, Wire::Messages] {
        let mut talk = talk(wire, true, false);
        talk.explicit = true;
        talk.user("close");
        ask(&gateway.url, &mut talk);
        let id = last_shown(wire, &talk.history)["id"].clone();
        talk.history.push(answer_to(wire, id.as_str().expect("an id"), &json!("yes")));
        let (path, body) = talk.request();
        let agent: ureq::Agent = ureq::Agent::config_builder().http_status_as_error(false).build().into();
        let request = agent.post(format!("{}{path}", gateway.url)).header("content-type", "application/json");
        let mut response = request.send(body.to_string()).expect("an answer");
        let body = response.body_mut().read_to_string().expect("a body");
        assert_eq!(response.status(), 400, "{body}");
        assert!(body.contains("approve") && body.contains("must be true or false"), "{body}");
        assert!(office.executed().is_empty());
    }
}

#[test]
fn a_server_that_is_down_costs_its_own_tools_and_the_model_is_told() {
    let office = Office::new();
    let ledger: Value = serde_json::from_slice(&std::fs::read(office.file("mcp.json")).expect("a file")).expect("JSON");
    office.set_servers(&json!({"ledger": ledger["mcpServers"]["ledger"], "attic": {"command": "no-such-command"}}));
    let gateway = office.gateway(&[]);
    let (answer, _) = converse(|| gateway.url.clone(), &mut talk(Wire::Messages, false, false), "pay and report");
    assert!(answer.ends_with("bob has 4."), "{answer}");
    let body = json!({"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "x"}]}).to_string();
    let agent = ureq::Agent::new_with_defaults();
    let counted = agent.post(format!("{}/messages/count_tokens", gateway.url)).send(body).expect("an answer");
    assert_eq!(counted.status(), 200);
    assert_metrics(
        &gateway,
        &[
            r#"dacapo_mcp_servers{state="ready"} 1"#,
            r#"dacapo_mcp_servers{state="failed"} 1"#,
            r#"dacapo_calls_total{outcome="ok",owner="mcp"} 3"#,
            r#"dacapo_call_seconds_count{outcome="ok",owner="mcp"} 3"#,
        ],
    );
}

fn assert_metrics(gateway: &Served, lines: &[&str]) {
    let metrics = metrics(gateway);
    for line in lines {
        assert!(metrics.lines().any(|known| known == *line), "{line} is not in\n{metrics}");
    }
}

fn metrics(gateway: &Served) -> String {
    let figures =
        ureq::Agent::new_with_defaults().get(format!("{}/metrics", gateway.url.trim_end_matches("/v1"))).call();
    figures.expect("figures").into_body().read_to_string().expect("text")
}

/// Waits until so many servers can be called. On a busy machine they take longer than the gateway waits for them.
fn until_ready(gateway: &Served, servers: usize) {
    let (line, started) = (format!(r#"dacapo_mcp_servers{{state="ready"}} {servers}"#), Instant::now());
    while !metrics(gateway).lines().any(|known| known == line) {
        assert!(started.elapsed() < Duration::from_mins(1), "{}", metrics(gateway));
        std::thread::sleep(Duration::from_millis(200));
    }
}

/// Such as one that `npx` has to download first. It is asked in the newest version of MCP, then in an older one, and answers
/// both at last.
#[test]
fn a_server_that_takes_long_to_start_is_there_in_the_end() {
    let office = Office::new();
    let mut file: Value =
        serde_json::from_slice(&std::fs::read(office.file("mcp.json")).expect("a file")).expect("JSON");
    file["mcpServers"]["ledger"]["env"]["START_DELAY"] = json!("11");
    office.set_servers(&file["mcpServers"]);
    let gateway = office.gateway(&[]);
    until_ready(&gateway, 1);
    let (answer, _) = converse(|| gateway.url.clone(), &mut talk(Wire::Chat, false, false), "pay and report");
    assert!(answer.ends_with("bob has 4."), "{answer}");
}

/// Sends a request and hangs up after a while.
fn hang_up(url: &str, talk: &ClientConversation, after: Duration) {
    let _connection = send(url, talk);
    std::thread::sleep(after);
}

/// Sends a request, and reads nothing.
fn send(url: &str, talk: &ClientConversation) -> TcpStream {
    let (path, body) = talk.request();
    let (address, base) = url.trim_start_matches("http://").split_once('/').expect("a path");
    let mut connection = TcpStream::connect(address).expect("it listens");
    let body = body.to_string();
    let head = format!("POST /{base}{path} HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\n");
    write!(connection, "{head}content-length: {}\r\n\r\n{body}", body.len()).expect("it reads");
    connection
}

#[test]
fn a_client_that_repeats_its_request_gets_what_came_of_the_first_one() {
    let office = Office::new();
    let gateway = office.gateway(&[]);
    for wire in Wire::ALL {
        for is_streamed in [false, true] {
            let mut talk = talk(wire, false, is_streamed);
            talk.user("pay and report");
            // Its connection breaks while the payments are made; they go on.
            hang_up(&gateway.url, &talk, Duration::from_millis(200));
            let mut again = talk.clone();
            let expected = "Paid 3 to ann and 4 to bob; bob has 4.";
            assert!(ask(&gateway.url, &mut talk).text.ends_with(expected), "while it runs: {wire} {is_streamed}");
            assert!(ask(&gateway.url, &mut again).text.ends_with(expected), "after its end: {wire} {is_streamed}");
            assert!(office.executed().values().all(|count| *count == 1), "{:?}", office.executed());
            office.forget();
        }
    }
}

/// How long requests are known in tests that wait until they are not.
const TURN_TTL: (&str, &str) = ("DACAPO_STORE_TURN_TTL_SECONDS", "4");
const AFTER_TURN_TTL: Duration = Duration::from_millis(4_500);

/// A failure is no response that a client could use: the turn goes on where it failed, on any replica, however often. After
/// the time for which a request is known, the same bytes are a new one.
#[test]
fn a_turn_that_failed_after_a_payment_is_gone_on_with_when_the_request_is_repeated() {
    let office = Office::new();
    let redis = Redis::start();
    let environment = [("DACAPO_STORE_KIND", "redis"), ("DACAPO_STORE_URL", redis.url.as_str()), TURN_TTL];
    let failing = office.failing_gateway(r#"{ user = "pay and report", after = "tool" }"#, &environment);
    let working = office.gateway(&environment);
    for failures in [7, 2] {
        for (wire, is_streamed) in Wire::ALL.into_iter().flat_map(|wire| [(wire, false), (wire, true)]) {
            let case = format!("{failures} failures on {wire}, streamed: {is_streamed}");
            let mut talk = talk(wire, false, is_streamed);
            talk.user("pay and report");
            for _ in 0..failures {
                let (status, text) = try_to_ask(&failing.url, &talk);
                assert!((is_streamed || status == 503) && text.contains("Busy."), "{case}: {text}");
            }
            for (gateway, mut talk) in [(&working, talk.clone()), (&failing, talk)] {
                let text = ask(&gateway.url, &mut talk).text;
                assert!(text.contains("Paid 3 to ann and 4 to bob"), "{case}: {text}");
            }
            let executed = office.executed();
            let payments: Vec<_> = executed.iter().filter(|(call, _)| call.starts_with("pay")).collect();
            assert!(payments.len() == 2 && payments.iter().all(|(_, count)| **count == 1), "{case}: {executed:?}");
            office.forget();
        }
        std::thread::sleep(AFTER_TURN_TTL);
    }
}

/// The first program would read something else now.
#[test]
fn a_failed_turn_is_gone_on_with_by_what_its_programs_had_read() {
    let office = Office::new();
    let redis = Redis::start();
    let environment = [("DACAPO_STORE_KIND", "redis"), ("DACAPO_STORE_URL", redis.url.as_str())];
    let failing = office.failing_gateway(r#"{ user = "read, then pay", after = "tool", step = 2 }"#, &environment);
    let working = office.gateway(&environment);
    for wire in Wire::ALL {
        let mut talk = talk(wire, false, false);
        talk.user("read, then pay");
        for _ in 0..2 {
            assert_eq!(try_to_ask(&failing.url, &talk).0, 503, "{wire}");
        }
        assert_eq!(ask(&working.url, &mut talk).text, "Read, then paid 1 to kim", "{wire}");
        let executed = office.executed();
        let payments: Vec<_> = executed.iter().filter(|(call, _)| call.starts_with("pay")).collect();
        assert!(payments.len() == 1 && *payments[0].1 == 1, "{wire}: {executed:?}");
        office.forget();
    }
}

/// Both have asked the model before either has sent anything, so that neither knows of the other.
#[test]
fn of_two_identical_requests_at_the_same_time_one_pays_and_both_get_its_answer() {
    let office = Office::new();
    let redis = Redis::start();
    let environment = [("DACAPO_STORE_KIND", "redis"), ("DACAPO_STORE_URL", redis.url.as_str()), TURN_TTL];
    let replicas = [office.gateway(&environment), office.gateway(&environment)];
    // The last two are the same as the first, long after.
    for (number, is_streamed) in [false, true, false, true].into_iter().enumerate() {
        if number == 2 {
            std::thread::sleep(AFTER_TURN_TTL);
        }
        let ask = |url: &str| {
            let mut talk = talk(Wire::Chat, false, is_streamed);
            talk.user("at the same time");
            for _ in 0..10 {
                let (status, text) = try_to_ask(url, &talk);
                // In a stream that has begun, that is an event.
                if status != 503 && !text.contains("is being answered already; try again") {
                    return talk.read_response(&text).text;
                }
                std::thread::sleep(Duration::from_millis(200));
            }
            panic!("no response");
        };
        let answers: Vec<String> = std::thread::scope(|scope| {
            let asking = replicas.each_ref().map(|replica| scope.spawn(|| ask(&replica.url)));
            asking.into_iter().map(|asking| asking.join().expect("an answer")).collect()
        });
        let answer = "At the same time: 1 to ida <nothing at error/message>";
        assert_eq!(answers, [answer, answer], "{number}, streamed: {is_streamed}");
        assert_eq!(office.executed()[r#"pay {"to":"ida","amount":1}"#], 1, "{number}, streamed: {is_streamed}");
        office.forget();
    }
}

#[test]
fn a_payment_whose_gateway_was_killed_is_said_to_be_unknown_and_not_made_again() {
    let redis = Redis::start();
    let office = Office::new();
    let file = office.file("store.redb");
    let environments = [
        vec![("DACAPO_STORE_KIND", "file"), ("DACAPO_STORE_PATH", file.to_str().expect("UTF-8"))],
        vec![("DACAPO_STORE_KIND", "redis"), ("DACAPO_STORE_URL", redis.url.as_str())],
    ];
    for (environment, wire) in environments.iter().zip([Wire::Chat, Wire::Messages]) {
        let mut talk = talk(wire, true, false);
        talk.user("slowly");
        let gateway = office.gateway(environment);
        let response = ask(&gateway.url, &mut talk);
        talk.answer(&response.calls[0], "3", false);
        hang_up(&gateway.url, &talk, Duration::from_millis(700));
        drop(gateway);
        let gateway = office.gateway(environment);
        let text = ask(&gateway.url, &mut talk.clone()).text;
        assert!(text.contains("it is not known whether it took effect"), "{wire}: {text}");
        assert!(office.executed().values().sum::<usize>() <= 1, "{:?}", office.executed());
        assert_metrics(&gateway, &[r#"dacapo_calls_total{outcome="unknown",owner="mcp"} 1"#]);
        // The same is said once more, and at once.
        assert_eq!(ask(&gateway.url, &mut talk).text, text);
    }
}

/// One trip for all intentions. Each answer is recorded when it comes.
#[test]
fn payments_that_are_made_at_the_same_time_are_recorded_together() {
    let office = Office::new();
    let gateway = office.gateway(&[]);
    let (answer, _) = converse(|| gateway.url.clone(), &mut talk(Wire::Chat, false, false), "pay a hundred");
    assert_eq!(answer, "Paid 100");
    assert_eq!(office.executed().values().sum::<usize>(), 100);
    let metrics = metrics(&gateway);
    let puts = metrics.lines().find(|line| line.starts_with("dacapo_store_operations_total") && line.contains("put"));
    let puts: u32 =
        puts.and_then(|line| line.rsplit(' ').next()).and_then(|count| count.parse().ok()).expect("a count");
    assert!((102..110).contains(&puts), "{puts}");
}

/// The client repeats its request until it has an answer, as SDKs do.
#[test]
fn wherever_a_gateway_is_killed_a_payment_is_made_once_or_said_to_be_unknown() {
    const UNKNOWN: &str = "it is not known whether it took effect";
    let points = [
        ("before the intention", Some(("get_balance", 1, "received")), "7", 1),
        ("after the intention", Some(("pay", 1, "received")), UNKNOWN, 0),
        ("after the call", Some(("pay", 1, "executed")), UNKNOWN, 1),
        ("after the answer", Some(("get_balance", 2, "received")), "7", 1),
        ("after the response", None, "7", 1),
    ];
    let redis = Redis::start();
    let redis = [("DACAPO_STORE_KIND", "redis"), ("DACAPO_STORE_URL", redis.url.as_str())];
    let check = |store: &str, is_streamed: bool, (name, kill, expected, paid): (&str, Option<_>, &str, usize)| {
        let office = Office::new();
        let path = office.file("store.redb");
        let file = [("DACAPO_STORE_KIND", "file"), ("DACAPO_STORE_PATH", path.to_str().expect("UTF-8"))];
        let environment = if store == "file" { file } else { redis };
        let mut talk = talk(Wire::Chat, false, is_streamed);
        // No other conversation in the shared store has the same bytes.
        talk.user(&format!("look and pay, {name}, {is_streamed}"));
        let gateway = office.gateway(&environment);
        if let Some((tool, number, at)) = kill {
            office.kill_at(tool, number, at);
            let mut connection = send(&gateway.url, &talk);
            connection.set_read_timeout(Some(Duration::from_mins(1))).expect("a timeout");
            let mut read = Vec::new();
            // However it ends.
            drop(connection.read_to_end(&mut read));
            assert!(office.has_killed(), "{store} {name}: {}", String::from_utf8_lossy(&read));
        } else {
            let text = ask(&gateway.url, &mut talk.clone()).text;
            assert_eq!(text, expected, "{store} {name}");
        }
        drop(gateway);
        let gateway = office.gateway(&environment);
        let text = ask(&gateway.url, &mut talk).text;
        assert!(text.contains(expected), "{store} {name} {is_streamed}: {text}");
        let payments = office.executed().get(r#"pay {"to":"joe","amount":7}"#).copied().unwrap_or_default();
        assert_eq!(payments, paid, "{store} {name} {is_streamed}");
    };
    // Each waits until it is certain that the first gateway is dead.
    std::thread::scope(|scope| {
        for point in points {
            for (store, is_streamed) in [("file", false), ("redis", true)] {
                let check = &check;
                scope.spawn(move || check(store, is_streamed, point));
            }
        }
    });
}

/// The client knows no program yet, and sends the same bytes again. What the model said is known, and what was answered: the
/// turn is run again, and only the payment in between is not known.
#[test]
fn a_first_turn_whose_gateway_was_killed_is_gone_on_with_when_the_request_is_repeated() {
    let redis = Redis::start();
    let office = Office::new();
    let file = office.file("first.redb");
    let environments = [
        vec![("DACAPO_STORE_KIND", "redis"), ("DACAPO_STORE_URL", redis.url.as_str())],
        vec![("DACAPO_STORE_KIND", "file"), ("DACAPO_STORE_PATH", file.to_str().expect("UTF-8"))],
    ];
    for (number, wire) in Wire::ALL.into_iter().enumerate() {
        let (environment, is_explicit) = (&environments[number % 2], number == 1);
        let mut talk = talk(wire, true, is_explicit);
        talk.explicit = is_explicit;
        talk.user("at first");
        let gateway = office.gateway(environment);
        // One payment is made, the balance is read, and another payment is being made.
        let connection = send(&gateway.url, &talk);
        let started = Instant::now();
        while !office.executed().contains_key(r#"get_balance {"of":"gus"}"#) {
            assert!(started.elapsed() < Duration::from_mins(1), "{wire} {is_explicit}: {:?}", office.executed());
            std::thread::sleep(Duration::from_millis(50));
        }
        std::thread::sleep(Duration::from_secs(2));
        drop((connection, gateway));
        let gateway = office.gateway(environment);
        let response = ask(&gateway.url, &mut talk);
        let [call] = &response.calls[..] else { panic!("{wire} {is_explicit}: {response:?}") };
        assert_eq!(call.args["part"], "1 to gus, then 1: not known", "{wire} {is_explicit}");
        let call = call.clone();
        talk.answer(&call, "3", false);
        assert_eq!(ask(&gateway.url, &mut talk).text, "At first: 3 <nothing at error/message>", "{wire} {is_explicit}");
        let executed = office.executed();
        assert_eq!(executed[r#"pay {"to":"gus","amount":1}"#], 1, "{executed:?}");
        assert_eq!(executed[r#"get_balance {"of":"gus"}"#], 1, "not read again, because a payment followed from it");
        office.forget();
    }
}

/// It waits for the turn that runs, and hears from it.
#[test]
fn a_repeated_request_is_kept_alive_while_it_waits_for_the_first() {
    let office = Office::new();
    let gateway = office.gateway(&[("DACAPO_TIMEOUTS_KEEP_ALIVE_SECONDS", "1")]);
    for wire in Wire::ALL {
        let mut talk = talk(wire, false, true);
        talk.user("long wait");
        hang_up(&gateway.url, &talk, Duration::from_millis(300));
        let (path, body) = talk.request();
        let agent = ureq::Agent::new_with_defaults();
        let request = agent.post(format!("{}{path}", gateway.url)).header("content-type", "application/json");
        let mut response = request.send(body.to_string()).expect("a response");
        let text = response.body_mut().read_to_string().expect("a body");
        assert!(text.starts_with(": keep-alive"), "{wire}: {text}");
        assert!(talk.read_response(&text).text.ends_with("Waited 9 to hal"), "{wire}: {text}");
        assert_eq!(office.executed().values().sum::<usize>(), 1);
        office.forget();
    }
}

#[test]
fn nothing_with_effects_is_sent_that_cannot_be_recorded() {
    let office = Office::new();
    let redis = Redis::start();
    let environment = [("DACAPO_STORE_KIND", "redis"), ("DACAPO_STORE_URL", redis.url.as_str())];
    let gateway = office.gateway(&environment);
    drop(redis);
    let mut talk = talk(Wire::Chat, false, false);
    talk.user("pay and report");
    let text = ask(&gateway.url, &mut talk).text;
    assert!(text.contains("<nothing at data"), "the program failed: {text}");
    assert!(office.executed().is_empty(), "{:?}", office.executed());
}

/// A store that cannot be reached from the start, and one that goes away in the middle of a conversation.
#[test]
fn calls_that_cannot_be_recorded_are_sent_all_the_same_where_the_operator_says_so() {
    let office = Office::new();
    let unreachable = [("DACAPO_STORE_KIND", "redis"), ("DACAPO_STORE_URL", "redis://127.0.0.1:1/0")];
    let go_on = ("DACAPO_STORE_ON_FAILURE", "continue");
    let gateway = office.gateway(&[&unreachable[..], &[go_on]].concat());
    let (answer, _) = converse(|| gateway.url.clone(), &mut talk(Wire::Chat, false, true), "pay and report");
    assert!(answer.ends_with("Paid 3 to ann and 4 to bob; bob has 4."), "{answer}");
    assert_eq!(office.executed().values().sum::<usize>(), 3);
    office.forget();
    // The history of an explicit client has the state of its program; otherwise the store would have it.
    for wire in [Wire::Chat, Wire::Responses] {
        for (on_failure, executed) in [("refuse", 0), ("continue", 1)] {
            let redis = Redis::start();
            let environment = [
                ("DACAPO_STORE_KIND", "redis"),
                ("DACAPO_STORE_URL", redis.url.as_str()),
                ("DACAPO_STORE_ON_FAILURE", on_failure),
            ];
            let gateway = office.gateway(&environment);
            let mut talk = talk(wire, true, false);
            talk.explicit = true;
            talk.user("slowly");
            let response = ask(&gateway.url, &mut talk);
            talk.answer(&response.calls[0], "3", false);
            drop(redis);
            let (path, body) = talk.request();
            let config = ureq::Agent::config_builder().http_status_as_error(false).build();
            let request = ureq::Agent::new_with_config(config).post(format!("{}{path}", gateway.url));
            let mut response =
                request.header("content-type", "application/json").send(body.to_string()).expect("a response");
            let text = response.body_mut().read_to_string().expect("a body");
            let count: usize = office.executed().values().sum();
            assert_eq!(count, executed, "{wire} {on_failure}: {} {text}", response.status());
            if on_failure == "refuse" {
                assert!(
                    response.status() == 503 || text.contains("could not be recorded"),
                    "{} {text}",
                    response.status()
                );
            } else {
                assert!(text.contains("7 to fay"), "{wire}: {} {text}", response.status());
                office.forget();
            }
        }
    }
}

/// A gateway whose models speak Chat Completions, so that their providers connect to no servers.
fn connecting(office: &Office, environment: &[(&str, &str)]) -> Served {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/owners.toml");
    let servers = office.file("mcp.json");
    let mut all = vec![("DACAPO_MCP_SERVERS", servers.to_str().expect("UTF-8"))];
    all.extend(environment);
    Served::start(&["--script", script.to_str().expect("UTF-8"), "--wire", "chat"], &all)
}

/// The request of a client that names the server `remote` itself.
fn naming(wire: Wire, url: &str, options: &Value) -> ClientConversation {
    let mut talk = talk(wire, false, false);
    if wire == Wire::Messages {
        talk.extra = json!({
            "mcp_servers": [{"type": "url", "name": "remote", "url": url, "authorization_token": "token-7"}],
            "tools": [{"type": "mcp_toolset", "mcp_server_name": "remote", "configs": {"close_account": {"enabled": false}}}],
        });
        return talk;
    }
    let mut tool = json!({
        "type": "mcp",
        "server_label": "remote",
        "server_url": url,
        "authorization": "token-7",
        "headers": {"x-team": "blue"},
        "allowed_tools": ["pay", "get_balance"],
        "require_approval": "never",
    });
    tool.as_object_mut().expect("an object").extend(options.as_object().expect("an object").clone());
    talk.extra = json!({"tools": [tool]});
    talk
}

#[test]
fn servers_that_a_request_names_are_connected_to_where_the_operator_allows_their_addresses() {
    let office = Office::new();
    let remote = RemoteLedger::start(&office);
    let url = format!("http://127.0.0.1:{}/mcp", remote.port);
    let gateway = connecting(&office, &[("DACAPO_MCP_ALLOW_URLS", &format!("https://mcp.example.com,{url}"))]);
    for wire in [Wire::Responses, Wire::Messages] {
        let mut talk = naming(wire, &url, &json!({}));
        let (answer, calls) = converse(|| gateway.url.clone(), &mut talk, "by name");
        // Tools of the deployment are there as well; one that the request does not allow is not.
        assert!(
            answer.starts_with("By name: 2 to ann, 0, remote.close_account is not defined: no tool has this name"),
            "{wire}: {answer}"
        );
        assert!(calls.is_empty());
        let request = remote.noted(".requests").pop().expect("a request");
        let team = if wire == Wire::Responses { json!("blue") } else { Value::Null };
        assert_eq!(request, json!({"path": "/mcp", "authorization": "Bearer token-7", "x-team": team}));
    }
    assert_eq!(remote.noted("").len(), 2);
    // Without a word about approvals every call has to be approved, and nobody can be asked.
    for approval in [Value::Null, json!("always"), json!({"never": {"tool_names": ["get_balance"]}})] {
        let mut talk = naming(Wire::Responses, &url, &json!({"require_approval": approval}));
        let (answer, _) = converse(|| gateway.url.clone(), &mut talk, "by name");
        assert!(answer.contains("the request wants to approve calls of `remote.pay`"), "{answer}");
    }
    assert_eq!(remote.noted("").len(), 2);
}

#[test]
fn no_request_makes_the_gateway_connect_to_what_nobody_has_named() {
    let office = Office::new();
    let remote = RemoteLedger::start(&office);
    let port = remote.port;
    // Any host, but none of the gateway's own network; and one server by name, which sends its clients elsewhere.
    let allowed = format!("http://*:{port},http://127.0.0.1:{port}/elsewhere");
    let gateway = connecting(&office, &[("DACAPO_MCP_ALLOW_URLS", &allowed)]);
    for host in ["127.0.0.1", "localhost", "[::ffff:127.0.0.1]", "2130706433", "0.0.0.0"] {
        let mut talk = naming(Wire::Responses, &format!("http://{host}:{port}/mcp"), &json!({}));
        let (answer, _) = converse(|| gateway.url.clone(), &mut talk, "by name");
        assert!(answer.contains("remote is not defined"), "{host}: {answer}");
    }
    assert!(remote.noted(".requests").is_empty(), "{:?}", remote.noted(".requests"));
    let mut talk = naming(Wire::Responses, &format!("http://127.0.0.1:{port}/elsewhere"), &json!({}));
    let (answer, _) = converse(|| gateway.url.clone(), &mut talk, "by name");
    assert!(answer.contains("remote is not defined"), "{answer}");
    let paths: BTreeSet<String> = remote.noted(".requests").iter().map(|request| request["path"].to_string()).collect();
    assert_eq!(paths, BTreeSet::from([r#""/elsewhere""#.to_owned()]));
    // An address that is not allowed at all is the provider's business, or an error.
    let strict = connecting(
        &office,
        &[("DACAPO_MCP_ALLOW_URLS", "https://mcp.example.com"), ("DACAPO_MCP_CONNECTORS", "gateway")],
    );
    let (path, body) = {
        talk.user("by name");
        talk.request()
    };
    let agent = ureq::Agent::new_with_config(ureq::Agent::config_builder().http_status_as_error(false).build());
    let send = |url: &str| {
        let request = agent.post(format!("{url}{path}")).header("content-type", "application/json");
        request.send(body.to_string()).expect("a response")
    };
    let mut response = send(&strict.url);
    let text = response.body_mut().read_to_string().expect("a body");
    assert_eq!(response.status(), 400, "{text}");
    assert!(text.contains("tools[0]") && text.contains("allow_urls"), "{text}");
    assert!(!text.contains("token-7"), "{text}");
}

/// The SDKs' own loops, which declare and execute tools of their own beside those of the gateway's server.
#[test]
fn real_clients_mix_their_own_tools_with_those_of_the_servers() {
    let office = Office::new();
    let gateway = office.gateway(&[]);
    let list = std::fs::read_to_string(root().join("tests-tools/clients/clients.json")).expect("the list of clients");
    let clients: Vec<Value> = serde_json::from_str(&list).expect("JSON");
    let is_wanted = |client: &&Value| {
        let name = client["name"].as_str().expect("a name");
        let command = client["argv"][0].as_str().expect("a command");
        let is_installed = !command.contains('/') || root().join(command).exists();
        MIXING.iter().any(|wanted| name.starts_with(wanted)) && is_installed && client["store"].is_null()
    };
    let (mut runs, mut wires) = (0, BTreeSet::new());
    for client in clients.iter().filter(is_wanted) {
        let argv: Vec<&str> = client["argv"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let output = Command::new(argv[0])
            .args(&argv[1..])
            .args(["--base-url", &gateway.url, "--model", "gpt-scripted", "--scenario", "sequential"])
            .current_dir(root())
            .output()
            .expect("it runs");
        let (said, error) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        let name = &client["name"];
        let report: Value = serde_json::from_str(said.lines().last().unwrap_or_default()).unwrap_or_default();
        assert_eq!(report["answer"], "item headline 1 costs 150 EUR, paid 150 to shop.", "{name}: {said} {error}");
        let calls: Vec<&str> =
            report["calls"].as_array().into_iter().flatten().filter_map(|call| call["tool"].as_str()).collect();
        assert_eq!(calls, ["web_search", "get_price"], "{name}");
        let executed = [r#"get_balance {"of":"shop"}"#, r#"pay {"to":"shop","amount":150}"#];
        assert_eq!(office.executed(), executed.map(|call| (call.to_owned(), 1)).into(), "{name}");
        office.forget();
        wires.insert(client["wire"].to_string());
        runs += 1;
    }
    assert!(runs >= 12 && wires.len() == 3, "{runs} clients on {wires:?}");
}

/// By the beginning of their names; streamed and not, plain and explicit.
const MIXING: [&str; 10] = [
    "openai-python loop",
    "openai-python responses loop",
    "openai-python programmatic tool calling",
    "anthropic-python loop",
    "anthropic-python code execution",
    "ai generateText",
    "ai streamText",
    "ai @ai-sdk/anthropic code execution",
    "ai @ai-sdk/openai programmatic tool calling",
    "langchain",
];

/// Three servers from npm and from Python, and the SDKs of two providers; `LangChain` where it is installed.
#[test]
fn real_clients_use_real_servers_by_base_url_alone() {
    let wanted: BTreeSet<String> = ["everything", "time", "memory"].map(str::to_owned).into();
    let world = World::new(Some(&wanted));
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/owners.toml");
    let file = world.servers_file();
    let mut environment = world.environment();
    environment.push(("DACAPO_MCP_SERVERS", file.display().to_string()));
    let environment: Vec<(&str, &str)> = environment.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let gateway = Served::start(&["--script", script.to_str().expect("UTF-8")], &environment);
    until_ready(&gateway, wanted.len());
    let python = installed("python/bin/python");
    let langchain = root().join("target/test-tools/python-more/bin/python");
    let [all, of_openai, of_anthropic] =
        [&["chat", "responses", "messages"][..], &["chat", "responses"], &["messages"]];
    let mut clients = vec![
        (python.clone(), "openai_no_tools.py", of_openai),
        (python, "anthropic_no_tools.py", of_anthropic),
        ("node".into(), "ai_no_tools.mjs", all),
    ];
    clients.extend(langchain.exists().then_some((langchain, "langchain_no_tools.py", all)));
    for (command, client, wires) in clients {
        for (wire, stream) in wires.iter().flat_map(|wire| [(*wire, None), (*wire, Some("--stream"))]) {
            let mut run = Command::new(&command);
            run.arg(root().join("tests-tools/clients").join(client));
            run.args(["--base-url", &gateway.url, "--question", "real servers"]).args(stream);
            if wires.len() > 1 {
                run.args(["--wire", wire]);
            }
            let output = run.output().expect("it runs");
            let (said, error) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
            assert_eq!(said.trim(), "42 at 21:00, known: 42", "{client} {wire} {stream:?} {error}");
        }
    }
}
