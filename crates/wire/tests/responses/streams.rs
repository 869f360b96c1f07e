//! Streams, as models tell them and as clients are told.

use crate::*;

fn stream_of(events: &[Value]) -> Vec<u8> {
    let line = |event: &Value| format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap_or_default());
    events.iter().map(line).collect::<String>().into_bytes()
}

#[test]
fn a_stream_is_decoded_wherever_it_is_cut() {
    let stream = stream_of(&model_events());
    for size in [1, 7, 100, stream.len()] {
        let (mut reader, mut decoder) = (SseReader::default(), ProviderSide::RESPONSES.decoder());
        let (mut text, mut thoughts, mut natives) = (String::new(), 0, 0);
        for piece in stream.chunks(size) {
            for event in reader.read(piece).expect("events") {
                let delta = decoder.decode_event(&event).expect("delta");
                text.push_str(&delta.text);
                thoughts += usize::from(delta.reasoning.is_some());
                natives += usize::from(delta.native.is_some());
            }
        }
        assert!(decoder.is_complete());
        let model_response = decoder.finish().expect("an answer");
        assert_eq!((text.as_str(), thoughts, natives), ("Hi!", 1, 9));
        assert_eq!(model_response.message.text.as_deref(), Some("Hi!"));
        assert_eq!(json!(model_response.message.reasoning), json!({"items": [thought()]}));
        assert_eq!((model_response.meta.id.as_str(), model_response.meta.created), ("resp_1", Some(7)));
        let calls: Vec<_> =
            model_response.message.calls.iter().map(|call| (call.name.as_str(), call.id.as_str())).collect();
        assert_eq!(calls, [("patch", "call_1")]);
    }
    for (event, message) in [
        (json!({"type": "error", "code": "server_error", "message": "Oh.", "param": null}), "Oh."),
        (json!({"type": "error", "error": {"message": "Oh.", "type": "server_error"}}), "Oh."),
        (json!({"type": "response.failed", "response": {"error": {"code": "server_error", "message": "Oh."}}}), "Oh."),
    ] {
        let delta = ProviderSide::RESPONSES.decoder().decode_event(&SseEvent { name: None, data: event.to_string() });
        let Err(dacapo_wire::StreamError::Provider(body)) = delta else { panic!("{delta:?}") };
        assert_eq!((&body["error"]["message"], &body["error"]["type"]), (&json!(message), &json!("server_error")));
    }
}

/// What a client gets of a stream of this model, event by event: its type, its place, and what is said.
fn passed(provider: ProviderSide, events: &[SseEvent]) -> (Vec<String>, Value) {
    let mut body = plain(&json!("Hello"));
    body["stream"] = json!(true);
    body["tools"].as_array_mut().expect("tools").push(json!({"type": "custom", "name": "patch"}));
    let turn = turn(provider, body);
    let (mut encoder, mut decoder) = (turn.encoder(CallDeltas::Whole), provider.decoder());
    let mut sent = Vec::new();
    encoder.response_started();
    for event in events {
        let delta = decoder.decode_event(event).expect("delta");
        if let Some(meta) = decoder.meta() {
            encoder.meta(meta);
        }
        if !delta.is_empty() {
            sent.extend(encoder.delta(delta));
        }
    }
    let model_response = decoder.finish().expect("an answer");
    sent.extend(encoder.answer(&model_response, AnswerParts::All));
    let mut usage = TurnUsage::default();
    usage.add(model_response.usage.as_ref());
    sent.extend(encoder.finish(&usage));
    let mut lines = Vec::new();
    let mut last = Value::Null;
    for (number, event) in sent.iter().enumerate() {
        let data: Value = serde_json::from_str(&event.data).expect("JSON");
        assert_eq!(event.name.as_deref(), data["type"].as_str());
        assert_eq!(data["sequence_number"], number);
        let content = ["delta", "text", "arguments"].iter().find_map(|key| data.get(key)?.as_str()).unwrap_or_default();
        let kind = event.name.as_deref().unwrap_or_default().trim_start_matches("response.");
        lines.push(format!("{} {kind} {content}", data["output_index"]).trim_end().to_owned());
        last = data;
    }
    (lines, last)
}

#[test]
fn a_stream_of_the_same_wire_passes_with_its_calls_whole() {
    let events: Vec<SseEvent> =
        model_events().iter().map(|event| SseEvent { name: None, data: event.to_string() }).collect();
    let (lines, last) = passed(ProviderSide::RESPONSES, &events);
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
    assert_eq!(ids[..2], ["rs_1", "msg_1"]);
    assert!(ids[2].starts_with("fc_dcd_"), "{ids:?}");
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
    let events: Vec<SseEvent> = chunks.iter().map(|chunk| SseEvent { name: None, data: chunk.to_string() }).collect();
    let (lines, last) = passed(ProviderSide::CHAT, &events);
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
fn messages_of_one_answer_are_paragraphs_elsewhere() {
    let message = |text: &str| json!({"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]});
    let model_response = response(&json!([message("One."), message(""), message("Two.")]));
    assert_eq!(model_response.message.text.as_deref(), Some("One.\n\nTwo."));
    let mut decoder = ProviderSide::RESPONSES.decoder();
    let mut text = String::new();
    for (at, delta) in [(0, "On"), (0, "e."), (1, ""), (2, "Tw"), (2, "o.")] {
        let event = json!({"type": "response.output_text.delta", "output_index": at, "delta": delta});
        text.push_str(&decoder.decode_event(&SseEvent { name: None, data: event.to_string() }).expect("delta").text);
    }
    assert_eq!(text, "One.\n\nTwo.");
}
