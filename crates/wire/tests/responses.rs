//! Conversations on `OpenAI` Responses.

use dacapo_replay::{Call, CallIndex, Toolboxes};
use dacapo_wire::{
    Announced, Asked, BadRequest, CallDeltas, Defaults, Ended, Event, Handing, Item, Kept, ModelCall, Passed, Reader,
    Reading, RunState, Said, Saying, Sealer, SseReader, Switch, Transcript, Turn, Urge, Usage, Wire,
};
use serde_json::{Map, Value, json};

const CODE: &str = "return await get_weather({city: 'Oslo'})";

fn sealer() -> Sealer {
    Sealer::new(b"a secret of some length", "")
}

fn read(upstream: Wire, body: Value) -> Result<Reading, BadRequest> {
    let defaults = Defaults { switch: Switch::Plain, declarations_tokens_max: 1_000, custom_execute: false };
    let (sealer, kept, toolboxes) = (sealer(), Kept::default(), Toolboxes::default());
    let reader = Reader { upstream, header: None, defaults, sealer: &sealer, kept: &kept, toolboxes: &toolboxes };
    reader.read(Wire::Responses, body)
}

fn turn(upstream: Wire, body: Value) -> Box<Turn> {
    match read(upstream, body) {
        Ok(Reading::Turn(turn)) => turn,
        other => panic!("{other:?}"),
    }
}

fn plain(input: &Value) -> Value {
    json!({"model": "m", "input": input, "tools": [{"type": "function", "name": "get_weather", "parameters": {}}]})
}

fn explicit(input: &Value) -> Value {
    let function = json!({"type": "function", "name": "get_weather", "allowed_callers": ["programmatic"]});
    json!({"model": "m", "input": input, "store": false, "tools": [{"type": "programmatic_tool_calling"}, function]})
}

fn question() -> Value {
    json!({"type": "message", "role": "user", "content": "How is the weather in Oslo?"})
}

fn thought() -> Value {
    json!({"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAAA"})
}

/// A model that writes a program, after a thought and some words.
fn said() -> Said {
    let words = json!({"type": "output_text", "text": "Let me see.", "annotations": []});
    Wire::Responses
        .said(json!({
            "id": "resp_1", "object": "response", "created_at": 1_767_225_600, "model": "m-1", "status": "completed",
            "service_tier": "flex",
            "output": [
                thought(),
                {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [words]},
                {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "execute",
                    "arguments": json!({"code": CODE}).to_string(), "status": "completed"},
            ],
            "usage": {"input_tokens": 10, "output_tokens": 5, "total_tokens": 15},
        }))
        .expect("an answer")
}

fn state(said: &Said) -> RunState {
    let mut saying = said.saying.clone();
    for call in &mut saying.calls {
        // What no id carries.
        (call.id, call.native) = (String::new(), Value::Null);
    }
    RunState {
        seed: "seed".to_owned(),
        started_at_ms: 1_767_225_600_000,
        tools: [0; 8],
        continues: None,
        sayings: vec![saying],
        at: 0,
        code: CODE.to_owned(),
    }
}

fn call(index: u32) -> Call {
    let args = json!({"city": "Oslo"});
    Call { call: CallIndex(index), tool: "get_weather".to_owned(), args, key: String::new() }
}

fn handed_out(turn: &Turn, said: &Said, state: &RunState, calls: &[Call]) -> Value {
    let ids = if turn.explicit {
        Turn::open_ids(state.run(), 0, calls)
    } else {
        sealer().seal(state, 0, [0; 8], &calls.iter().map(Asked::from).collect::<Vec<_>>())
    };
    let mut speaker = turn.speaker(CallDeltas::Whole);
    speaker.begins();
    speaker.head(&said.head);
    if turn.explicit {
        let sealed = sealer().seal(state, 0, [0; 8], &[]).remove(0);
        speaker.program(&Announced { state, sealed: &sealed, is_finished: false });
    }
    speaker.calls(&Handing { said: Some(said), state, program: "", ids: &ids, calls, direct: &[] });
    speaker.body(&Usage::default()).expect("a response")
}

/// The client's answers to all calls of a response.
fn answers(response: &Value) -> Vec<Value> {
    let calls = response["output"].as_array().expect("items").iter().filter(|item| item["type"] == "function_call");
    calls.map(|call| json!({"type": "function_call_output", "call_id": call["call_id"], "output": "sunny"})).collect()
}

/// What the model gets, with this for the result of each program.
fn asked(turn: &Turn, result: &str) -> Value {
    let mut transcript: Transcript = turn.transcript();
    for item in &turn.conversation.items {
        match item {
            Item::Message(message) => transcript.message(message.clone()),
            Item::Lost(lost) => transcript.lost(lost),
            Item::Block(block) => {
                for saying in &block.state.sayings {
                    transcript.saying(saying, &vec![result.to_owned(); saying.calls.len()], &block.direct);
                }
            }
        }
    }
    turn.ask(&transcript, Urge::AsTheClientSays)
}

fn input(first: Value, more: impl IntoIterator<Item = Value>) -> Value {
    std::iter::once(first).chain(more).collect()
}

fn items(response: &Value) -> Vec<Value> {
    response["output"].as_array().expect("items").clone()
}

/// The history that the model has of the program, whatever the client sent back of it.
fn told() -> Value {
    let arguments = json!({"code": CODE}).to_string();
    json!([
        question(),
        thought(),
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Let me see."}]},
        {"type": "function_call", "call_id": "ud0NMOtsC", "name": "execute", "arguments": arguments},
        {"type": "function_call_output", "call_id": "ud0NMOtsC", "output": "sunny!"},
    ])
}

#[test]
fn a_program_goes_on_with_what_a_client_sends_back() {
    let said = said();
    let mut state = state(&said);
    let first = turn(Wire::Responses, plain(&json!([question()])));
    state.tools = first.tools;
    let response = handed_out(&first, &said, &state, &[call(0), call(1)]);
    assert_eq!(response["object"], "response");
    assert_eq!(response["service_tier"], "flex");
    assert_eq!(response["tools"][0]["name"], "get_weather");
    let kinds: Vec<String> =
        items(&response).iter().map(|item| item["type"].as_str().unwrap_or_default().to_owned()).collect();
    assert_eq!(kinds, ["reasoning", "function_call", "function_call"]);

    let echoed = items(&response).into_iter().chain(answers(&response));
    // What was streamed before it was known that a program follows.
    let streamed = [thought(), json!({"type": "message", "role": "assistant", "content": "Let me see."})];
    let streamed = streamed.into_iter().chain(items(&response).into_iter().skip(1)).chain(answers(&response));
    let referred = items(&response).into_iter().map(|item| json!({"type": "item_reference", "id": item["id"]}));
    let referred = referred.chain(answers(&response));
    // One after the other, each with its answer.
    let paired = items(&response).into_iter().skip(1).zip(answers(&response)).flat_map(|(call, answer)| [call, answer]);
    for history in
        [input(question(), echoed), input(question(), streamed), input(question(), referred), input(question(), paired)]
    {
        let turn = turn(Wire::Responses, plain(&history));
        let live = turn.conversation.live().expect("the program goes on");
        assert_eq!(live.journal().expect("whole").entries().len(), 2, "{history}");
        assert_eq!(live.state, state);
        assert_eq!(asked(&turn, "sunny!")["input"], told(), "{history}");
    }
}

#[test]
fn rounds_are_told_apart_although_nothing_stands_between_them() {
    let (said, mut history) = (said(), vec![question()]);
    let state = state(&said);
    for round in 0..2 {
        let ids =
            sealer().seal(&state, round, [0; 8], &[Asked::from(&call(2 * round)), Asked::from(&call(2 * round + 1))]);
        let function =
            |id: &String| json!({"type": "function_call", "call_id": id, "name": "get_weather", "arguments": "{}"});
        history.extend(ids.iter().map(function));
        history.extend(ids.iter().map(|id| json!({"type": "function_call_output", "call_id": id, "output": "1"})));
    }
    let turn = turn(Wire::Responses, plain(&Value::Array(history)));
    let live = turn.conversation.live().expect("the program goes on");
    let rounds: Vec<(u32, usize)> = live.rounds.iter().map(|round| (round.number, round.calls.len())).collect();
    assert_eq!(rounds, [(0, 2), (1, 2)]);
    assert!(live.rounds.iter().flat_map(|round| &round.calls).all(|call| call.answer.is_some()));
}

#[test]
fn a_thought_that_no_id_carries_is_taken_from_the_client() {
    let mut said = said();
    said.saying.opaque = Map::new();
    let state = state(&said);
    let first = turn(Wire::Responses, plain(&json!([question()])));
    let response = handed_out(&first, &said, &state, &[call(0)]);
    let history = input(question(), items(&response).into_iter().chain(answers(&response)));
    let turn = turn(Wire::Responses, plain(&history));
    assert!(turn.conversation.live().is_some());
    assert_eq!(asked(&turn, "sunny!")["input"], told());
}

#[test]
fn thoughts_of_answers_that_were_for_us_do_not_come_back() {
    let stream = |answers: &[&str]| {
        let mut body = plain(&json!("Hello"));
        body["stream"] = json!(true);
        let turn = turn(Wire::Responses, body);
        let mut speaker = turn.speaker(CallDeltas::Whole);
        for answer in answers {
            let mut listener = Wire::Responses.listener();
            speaker.begins();
            for mut event in model_events().into_iter().take(3) {
                if let Some(item) = event.get_mut("item") {
                    item["id"] = json!(answer);
                    item["encrypted_content"] = json!(answer);
                }
                let heard = listener.hear(&Event { name: None, data: event.to_string() }).expect("heard");
                speaker.head(listener.head().expect("a head"));
                if !heard.is_empty() {
                    speaker.pass(heard);
                }
            }
        }
        items(&speaker.body(&Usage::default()).expect("a response"))
    };
    // Two searches, and an answer.
    let output = stream(&["rs_1", "rs_2", "rs_3"]);
    assert_eq!((&output[0]["id"], &output[2]["id"]), (&json!("rs_1"), &json!("rs_dcn_2_rs_3")));
    let words = json!({"type": "message", "role": "assistant", "content": "Hi!"});
    let history = input(question(), output.into_iter().chain([words.clone(), question()]));
    let third = json!({"type": "reasoning", "id": "rs_3", "summary": [], "encrypted_content": "rs_3"});
    for body in [plain(&history), explicit(&history)] {
        let turn = turn(Wire::Responses, body);
        assert_eq!(asked(&turn, "")["input"], json!([question(), third, words, question()]));
    }
}

#[test]
fn calls_whose_state_is_lost_are_ordinary_ones() {
    let history = json!([
        question(),
        {"type": "function_call", "call_id": format!("dc1_{}", "x".repeat(60)), "name": "get_weather", "arguments": "{}"},
        {"type": "function_call_output", "call_id": format!("dc1_{}", "x".repeat(60)), "output": "sunny"},
    ]);
    let turn = turn(Wire::Responses, plain(&history));
    let asked = asked(&turn, "");
    let id = asked["input"][2]["call_id"].clone();
    assert_eq!(id.as_str().map(str::len), Some(9));
    assert_eq!(
        asked["input"],
        json!([
            question(),
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "(These calls were made by a program whose state was lost on its way back, so it did not go on.)"}]},
            {"type": "function_call", "call_id": id, "name": "get_weather", "arguments": "{}"},
            {"type": "function_call_output", "call_id": id, "output": "sunny"},
        ])
    );
}

#[test]
fn clients_that_know_programs_carry_them_as_items() {
    let said = said();
    let mut state = state(&said);
    state.seed = "seed-0".to_owned();
    let first = turn(Wire::Responses, explicit(&json!([question()])));
    assert!(first.explicit);
    let response = handed_out(&first, &said, &state, &[call(0), call(1)]);
    let run = state.run();
    let program = &response["output"][1];
    assert_eq!(response["output"][0], thought());
    assert_eq!(program["type"], "program");
    assert_eq!(program["id"], format!("prog_{run}"));
    assert_eq!(program["call_id"], format!("call_prog_{run}"));
    assert_eq!(program["code"], CODE);
    let caller = json!({"type": "program", "caller_id": program["call_id"]});
    assert_eq!(response["output"][2]["caller"], caller);
    assert_eq!(response["output"][3]["call_id"], format!("call_{run}_0_1"));

    let mut history = input(question(), items(&response).into_iter().chain(answers(&response)));
    let again = turn(Wire::Responses, explicit(&history));
    let live = again.conversation.live().expect("the program goes on");
    assert_eq!((live.run, &live.id, &live.state), (run, &format!("call_prog_{run}"), &state));
    assert_eq!(live.journal().expect("whole").entries().len(), 2);

    let mut speaker = again.speaker(CallDeltas::Whole);
    speaker.head(&said.head);
    let shown = json!({"status": "success", "data": "sunny!"});
    speaker.result(&Ended { program: &live.id, state: &live.state, shown: &shown });
    let response = speaker.body(&Usage::default()).expect("a response");
    let result = json!({
        "id": format!("prog_out_{run}"), "type": "program_output", "call_id": format!("call_prog_{run}"),
        "result": shown.to_string(), "status": "completed",
    });
    assert_eq!(response["output"], json!([result]));
    history.as_array_mut().expect("items").extend([result, json!({"role": "user", "content": "Thanks."})]);
    let last = turn(Wire::Responses, explicit(&history));
    let Item::Block(block) = &last.conversation.items[1] else { panic!("{:?}", last.conversation) };
    assert_eq!((block.is_closed, block.result.as_ref()), (true, Some(&shown)));
    let mut told = told();
    told.as_array_mut().expect("items").push(json!({"role": "user", "content": "Thanks."}));
    assert_eq!(asked(&last, "sunny!")["input"], told);
    assert_eq!(asked(&last, "")["store"], false);
}

#[test]
fn programs_are_found_again_by_their_ids_alone() {
    let said = said();
    let state = state(&said);
    let mut body = explicit(&json!([question()]));
    body.as_object_mut().expect("an object").shift_remove("store");
    let first = turn(Wire::Responses, body.clone());
    let response = handed_out(&first, &said, &state, &[call(0)]);
    let by_id = |item: Value| match item["type"].as_str() {
        Some("function_call") => item,
        _ => json!({"type": "item_reference", "id": item["id"]}),
    };
    body["input"] = input(question(), items(&response).into_iter().map(by_id).chain(answers(&response)));
    let again = turn(Wire::Responses, body.clone());
    let live = again.conversation.live().expect("the program goes on");
    assert_eq!((&live.state, live.journal().expect("whole").entries().len()), (&state, 1));
    body["input"].as_array_mut().expect("items").extend([
        json!({"type": "item_reference", "id": format!("prog_out_{}", state.run())}),
        json!({"type": "item_reference", "id": "msg_0123"}),
    ]);
    let last = turn(Wire::Responses, body);
    let Item::Block(block) = &last.conversation.items[1] else { panic!("{:?}", last.conversation) };
    assert!(block.is_closed);
    let Item::Message(message) = &last.conversation.items[2] else { panic!("{:?}", last.conversation) };
    assert!(message["content"][0]["text"].as_str().is_some_and(|text| text.contains("not stored here")));
}

#[test]
fn programs_that_others_wrote_down_are_run_as_they_stand() {
    let program = json!({"type": "program", "id": "prog_a", "call_id": "call_a", "code": CODE, "fingerprint": "fp"});
    let caller = json!({"type": "program", "caller_id": "call_a"});
    let function = |id: &str| json!({"type": "function_call", "call_id": id, "name": "get_weather", "arguments": "{\"city\":\"Oslo\"}", "caller": caller});
    let output = |id: &str| json!({"type": "function_call_output", "call_id": id, "output": [{"type": "input_text", "text": "sunny"}]});
    let history = json!([
        question(),
        thought(),
        program,
        function("a"),
        function("b"),
        output("b"),
        output("a"),
        function("c"),
        output("c"),
    ]);
    let first = turn(Wire::Responses, explicit(&history));
    let live = first.conversation.live().expect("the program goes on");
    assert_eq!((live.state.seed.as_str(), live.rounds.len()), ("call_a", 2));
    let calls: Vec<u32> = live.journal().expect("whole").entries().iter().map(|entry| entry.call.0).collect();
    assert_eq!(calls, [1, 0, 2]);
    assert_eq!(asked(&first, "")["input"][1], thought());

    let wrong = |item: Value| {
        let history = input(question(), [item]);
        match read(Wire::Responses, explicit(&history)) {
            Err(error) => error.param,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(wrong(function("a")), "input[1].caller");
    assert_eq!(wrong(json!({"type": "program_output", "call_id": "call_a", "result": "1"})), "input[1].call_id");
    assert_eq!(wrong(json!({"type": "program", "call_id": "call_a"})), "input[1].code");

    // A message overtakes it.
    let overtaken = turn(Wire::Responses, explicit(&json!([program, function("a"), question()])));
    assert!(overtaken.conversation.live().is_none());
    assert_eq!(overtaken.conversation.items.len(), 2);
}

#[test]
fn what_a_client_wants_stored_is_refused_with_advice() {
    for key in ["previous_response_id", "conversation"] {
        let mut body = plain(&json!("Hello"));
        body[key] = json!("x_1");
        let error = read(Wire::Responses, body).expect_err("nothing is stored");
        assert_eq!(error.param, key);
        assert!(error.message.contains("input += response.output"), "{}", error.message);
    }
    // Without code mode it is the provider's affair.
    let passed = read(Wire::Responses, json!({"model": "m", "input": "Hello", "previous_response_id": "resp_1"}));
    assert!(matches!(passed, Ok(Reading::PassThrough(None))));
}

#[test]
fn functions_of_a_namespace_keep_their_names() {
    let function = json!({"type": "function", "name": "find", "defer_loading": true});
    let body = json!({
        "model": "m", "input": "Who?", "store": false,
        "tools": [
            {"type": "namespace", "name": "crm", "description": "Customers", "tools": [function]},
            {"type": "tool_search"}, {"type": "web_search"}, {"type": "custom", "name": "patch"},
        ],
    });
    let turn = turn(Wire::Responses, body);
    assert_eq!(turn.search_tool.as_deref(), Some("tool_search"));
    let asked = turn.ask(&turn.transcript(), Urge::AsTheClientSays);
    let names: Vec<&str> = asked["tools"]
        .as_array()
        .expect("tools")
        .iter()
        .filter_map(|tool| tool.get("name").or(tool.get("type"))?.as_str())
        .collect();
    assert_eq!(names, ["execute", "search", "web_search", "patch"]);
    let (said, find) = (said(), Call { tool: "crm.find".to_owned(), ..call(0) });
    let response = handed_out(&turn, &said, &state(&said), std::slice::from_ref(&find));
    let item = &response["output"][1];
    assert_eq!((&item["namespace"], &item["name"]), (&json!("crm"), &json!("find")));
}

fn stream_of(events: &[Value]) -> Vec<u8> {
    let line = |event: &Value| format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap_or_default());
    events.iter().map(line).collect::<String>().into_bytes()
}

/// A model's stream: a thought, some words, a call of a tool.
fn model_events() -> Vec<Value> {
    let response = json!({"id": "resp_1", "object": "response", "created_at": 7, "model": "m-1", "status": "in_progress", "output": [], "tools": [{"name": "execute"}]});
    let message = |content: Value, status: &str| json!({"id": "msg_1", "type": "message", "role": "assistant", "status": status, "content": content});
    let part = |text: &str| json!({"type": "output_text", "text": text, "annotations": []});
    let function = |arguments: &str| json!({"id": "fc_1", "type": "function_call", "call_id": "call_1", "name": "patch", "arguments": arguments, "status": "completed"});
    let output = json!([thought(), message(json!([part("Hi!")]), "completed"), function("{}")]);
    let mut end = response.clone();
    end["status"] = json!("completed");
    end["output"] = output;
    end["usage"] = json!({"input_tokens": 3, "output_tokens": 2, "total_tokens": 5});
    let of = |event: &str, at: u64, key: &str, value: Value| json!({"type": event, "output_index": at, key: value, "sequence_number": 99});
    vec![
        json!({"type": "response.created", "response": response, "sequence_number": 0}),
        of("response.output_item.added", 0, "item", json!({"type": "reasoning", "id": "rs_1", "summary": []})),
        of("response.output_item.done", 0, "item", thought()),
        of("response.output_item.added", 1, "item", message(json!([]), "in_progress")),
        of("response.content_part.added", 1, "part", part("")),
        of("response.output_text.delta", 1, "delta", json!("Hi")),
        of("response.output_text.delta", 1, "delta", json!("!")),
        of("response.output_text.done", 1, "text", json!("Hi!")),
        of("response.content_part.done", 1, "part", part("Hi!")),
        of("response.output_item.done", 1, "item", message(json!([part("Hi!")]), "completed")),
        of("response.output_item.added", 2, "item", function("")),
        of("response.function_call_arguments.delta", 2, "delta", json!("{}")),
        of("response.output_item.done", 2, "item", function("{}")),
        json!({"type": "response.completed", "response": end, "sequence_number": 13}),
    ]
}

#[test]
fn a_stream_is_heard_wherever_it_is_cut() {
    let stream = stream_of(&model_events());
    for size in [1, 7, 100, stream.len()] {
        let (mut reader, mut listener) = (SseReader::default(), Wire::Responses.listener());
        let (mut text, mut thoughts, mut natives) = (String::new(), 0, 0);
        for piece in stream.chunks(size) {
            for event in reader.read(piece).expect("events") {
                let heard = listener.hear(&event).expect("heard");
                text.push_str(&heard.text);
                thoughts += usize::from(heard.opaque.is_some());
                natives += usize::from(heard.native.is_some());
            }
        }
        assert!(listener.is_over());
        let said = listener.finish().expect("an answer");
        assert_eq!((text.as_str(), thoughts, natives), ("Hi!", 1, 9));
        assert_eq!(said.saying.text.as_deref(), Some("Hi!"));
        assert_eq!(Value::Object(said.saying.opaque), json!({"items": [thought()]}));
        assert_eq!((said.head.id.as_str(), said.head.created), ("resp_1", Some(7)));
        let calls: Vec<_> = said.saying.calls.iter().map(|call| (call.name.as_str(), call.id.as_str())).collect();
        assert_eq!(calls, [("patch", "call_1")]);
    }
    for (event, message) in [
        (json!({"type": "error", "code": "server_error", "message": "Oh.", "param": null}), "Oh."),
        (json!({"type": "error", "error": {"message": "Oh.", "type": "server_error"}}), "Oh."),
        (json!({"type": "response.failed", "response": {"error": {"code": "server_error", "message": "Oh."}}}), "Oh."),
    ] {
        let heard = Wire::Responses.listener().hear(&Event { name: None, data: event.to_string() });
        let Err(dacapo_wire::Unheard::Error(body)) = heard else { panic!("{heard:?}") };
        assert_eq!((&body["error"]["message"], &body["error"]["type"]), (&json!(message), &json!("server_error")));
    }
}

/// What a client hears of a stream of this model, event by event: its type, its place, and what is said.
fn passed(upstream: Wire, events: &[Event]) -> (Vec<String>, Value) {
    let mut body = plain(&json!("Hello"));
    body["stream"] = json!(true);
    body["tools"].as_array_mut().expect("tools").push(json!({"type": "custom", "name": "patch"}));
    let turn = turn(upstream, body);
    let (mut speaker, mut listener) = (turn.speaker(CallDeltas::Whole), upstream.listener());
    let mut told = Vec::new();
    speaker.begins();
    for event in events {
        let heard = listener.hear(event).expect("heard");
        if let Some(head) = listener.head() {
            speaker.head(head);
        }
        if !heard.is_empty() {
            told.extend(speaker.pass(heard));
        }
    }
    let said = listener.finish().expect("an answer");
    told.extend(speaker.answer(&said, Passed::All));
    let mut usage = Usage::default();
    usage.add(said.usage.as_ref());
    told.extend(speaker.finish(&usage));
    let mut lines = Vec::new();
    let mut last = Value::Null;
    for (number, event) in told.iter().enumerate() {
        let data: Value = serde_json::from_str(&event.data).expect("JSON");
        assert_eq!(event.name.as_deref(), data["type"].as_str());
        assert_eq!(data["sequence_number"], number);
        let said = ["delta", "text", "arguments"].iter().find_map(|key| data.get(key)?.as_str()).unwrap_or_default();
        let kind = event.name.as_deref().unwrap_or_default().trim_start_matches("response.");
        lines.push(format!("{} {kind} {said}", data["output_index"]).trim_end().to_owned());
        last = data;
    }
    (lines, last)
}

#[test]
fn a_stream_of_the_same_wire_passes_with_its_calls_whole() {
    let events: Vec<Event> = model_events().iter().map(|event| Event { name: None, data: event.to_string() }).collect();
    let (lines, last) = passed(Wire::Responses, &events);
    assert_eq!(
        lines,
        [
            "null created",
            "null in_progress",
            "0 output_item.added",
            "0 output_item.done",
            "1 output_item.added",
            "1 content_part.added",
            "1 output_text.delta Hi",
            "1 output_text.delta !",
            "1 output_text.done Hi!",
            "1 content_part.done",
            "1 output_item.done",
            "2 output_item.added",
            "2 function_call_arguments.delta {}",
            "2 function_call_arguments.done {}",
            "2 output_item.done",
            "null completed",
        ]
    );
    let response = &last["response"];
    assert_eq!((&response["id"], &response["status"]), (&json!("resp_1"), &json!("completed")));
    assert_eq!(response["tools"][0]["name"], "get_weather");
    assert_eq!(response["usage"]["total_tokens"], 5);
    assert_eq!(response["usage"]["output_tokens_details"], json!({"reasoning_tokens": 0}));
    let ids: Vec<&str> =
        response["output"].as_array().expect("items").iter().filter_map(|item| item["id"].as_str()).collect();
    assert_eq!(ids, ["rs_1", "msg_1", "fc_dc.patch.call_1"]);
}

#[test]
fn a_stream_of_another_wire_becomes_items() {
    let chunk = |delta: Value, finish: Value| {
        json!({"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 7, "model": "m-1",
            "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})
    };
    let function =
        json!({"index": 0, "id": "call_1", "type": "function", "function": {"name": "patch", "arguments": "{}"}});
    let chunks = [
        chunk(json!({"role": "assistant", "content": null}), Value::Null),
        chunk(json!({"reasoning_content": "Hm."}), Value::Null),
        chunk(json!({"content": "Hi"}), Value::Null),
        chunk(json!({"content": "!"}), Value::Null),
        chunk(json!({"tool_calls": [function]}), Value::Null),
        chunk(json!({}), json!("tool_calls")),
    ];
    let events: Vec<Event> = chunks.iter().map(|chunk| Event { name: None, data: chunk.to_string() }).collect();
    let (lines, last) = passed(Wire::Chat, &events);
    assert_eq!(
        lines,
        [
            "null created",
            "null in_progress",
            "0 output_item.added",
            "0 reasoning_summary_part.added",
            "0 reasoning_summary_text.delta Hm.",
            "0 reasoning_summary_text.done Hm.",
            "0 reasoning_summary_part.done",
            "0 output_item.done",
            "1 output_item.added",
            "1 content_part.added",
            "1 output_text.delta Hi",
            "1 output_text.delta !",
            "1 output_text.done Hi!",
            "1 content_part.done",
            "1 output_item.done",
            "2 output_item.added",
            "2 function_call_arguments.delta {}",
            "2 function_call_arguments.done {}",
            "2 output_item.done",
            "null completed",
        ]
    );
    let response = &last["response"];
    assert_eq!(response["id"], "resp_chatcmpl-1");
    let kinds: Vec<&str> =
        response["output"].as_array().expect("items").iter().filter_map(|item| item["type"].as_str()).collect();
    assert_eq!(kinds, ["reasoning", "message", "function_call"]);
    assert_eq!(response["output"][1]["content"][0]["text"], "Hi!");
}

#[test]
fn answers_come_back_from_clients_that_keep_only_ids() {
    let first = turn(Wire::Chat, plain(&json!("Hello")));
    let answer = json!({"id": "c", "model": "m", "choices": [{"message": {"role": "assistant", "content": "Grüß Gott"}, "finish_reason": "length"}]});
    let said = Wire::Chat.said(answer).expect("an answer");
    let mut speaker = first.speaker(CallDeltas::Whole);
    speaker.head(&said.head);
    speaker.answer(&said, Passed::All);
    let response = speaker.body(&Usage::default()).expect("a response");
    assert_eq!(
        (&response["status"], &response["incomplete_details"]["reason"]),
        (&json!("incomplete"), &json!("max_output_tokens"))
    );
    let reference = json!({"id": response["output"][0]["id"]});
    let again = turn(Wire::Chat, plain(&json!([question(), reference, {"role": "user", "content": "More."}])));
    assert_eq!(asked(&again, "")["messages"][1], json!({"role": "assistant", "content": "Grüß Gott"}));
    // It does not reach a provider as it is.
    let passed = read(Wire::Responses, json!({"model": "m", "input": [question(), reference]}));
    let Ok(Reading::PassThrough(Some(body))) = passed else { panic!("{passed:?}") };
    assert_eq!(body["input"][1]["content"][0]["text"], "Grüß Gott");
}

#[test]
fn a_chat_model_is_asked_in_its_own_words() {
    let function = |id: &str| json!({"type": "function_call", "call_id": format!("call_{id}"), "name": "patch", "arguments": "{}"});
    let called = |id: &str| json!({"id": format!("call_{id}"), "type": "function", "function": {"name": "patch", "arguments": "{}"}});
    let mut body = plain(&json!([
        question(), {"type": "web_search_call", "id": "ws_1", "status": "completed"},
        {"type": "reasoning", "id": "rs_dc_1", "summary": [{"type": "summary_text", "text": "Hm."}]}, function("1"), function("2"),
        {"type": "function_call_output", "call_id": "call_1", "output": "done"},
        {"type": "function_call_output", "call_id": "call_2", "output": "done"},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "And this?"}, {"type": "input_image", "image_url": "data:image/png;base64,AA=="}]},
    ]));
    body["instructions"] = json!("Be brief.");
    body["max_output_tokens"] = json!(100);
    body["reasoning"] = json!({"effort": "minimal"});
    body["text"] = json!({"format": {"type": "json_object"}, "verbosity": "low"});
    body["truncation"] = json!("auto");
    body["tool_choice"] = json!("required");
    let turn = turn(Wire::Chat, body);
    assert_eq!(turn.dropped, ["truncation", "text.verbosity"]);
    let mut asked = asked(&turn, "");
    asked["tools"] = Value::Null;
    assert_eq!(
        asked,
        json!({
            "model": "m", "max_completion_tokens": 100, "reasoning_effort": "low", "response_format": {"type": "json_object"},
            "messages": [
                {"role": "system", "content": "Be brief."},
                {"role": "user", "content": "How is the weather in Oslo?"},
                {"role": "assistant", "content": null, "reasoning_content": "Hm.", "tool_calls": [called("1"), called("2")]},
                {"role": "tool", "tool_call_id": "call_1", "content": "done"},
                {"role": "tool", "tool_call_id": "call_2", "content": "done"},
                {"role": "user", "content": [{"type": "text", "text": "And this?"}, {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}]},
            ],
            "tools": null, "tool_choice": "required",
        })
    );
}

#[test]
fn a_program_that_was_written_as_text_stays_text() {
    let said = Wire::Responses
        .said(json!({"id": "r", "model": "m", "output": [{"type": "custom_tool_call", "id": "ct_1", "call_id": "c", "name": "execute", "input": CODE}]}))
        .expect("an answer");
    let turn = turn(Wire::Responses, plain(&json!("Hello")));
    let saying: Saying = said.saying.normalized(&turn.offer, &[]);
    let carried: Saying = serde_json::from_value(serde_json::to_value(&saying).expect("JSON")).expect("a saying");
    let written = |saying: &Saying| {
        let mut transcript = turn.transcript();
        transcript.saying(saying, &["1".to_owned()], &[]);
        transcript.entries().to_vec()
    };
    let entries = written(&carried);
    assert_eq!(entries, written(&saying));
    assert_eq!((&entries[0]["type"], &entries[0]["input"]), (&json!("custom_tool_call"), &json!(CODE)));
    assert_eq!(entries[1]["type"], "custom_tool_call_output");
    let call: &ModelCall = &carried.calls[0];
    assert_eq!(call.arguments, json!({"code": CODE}).to_string());
}

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
