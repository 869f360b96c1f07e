//! Searches that we answer instead of the provider.

use crate::*;

fn deferred(messages: &Value) -> Value {
    let mut body = plain(messages);
    body["tools"][0]["defer_loading"] = json!(true);
    let search = json!({"type": "tool_search_tool_regex_20251119", "name": "tool_search_tool_regex"});
    body["tools"].as_array_mut().expect("a list").push(search);
    body
}

fn thinking(text: &str) -> Value {
    json!({"type": "thinking", "thinking": text, "signature": text})
}

/// What the client is told of a message that searches, and of the next.
fn searched_content(turn: &Turn, queries: &[&str]) -> Value {
    let tool = turn.search_tool.as_deref().expect("it is declared");
    let mut encoder = turn.encoder(CallDeltas::Whole);
    encoder.response_started();
    let response = decoded(answer(&json!([thinking("first"), {"type": "text", "text": "Let me look."}]), "tool_use"));
    encoder.meta(&response.meta);
    for (number, query) in queries.iter().enumerate() {
        let found = ["get_weather".to_owned()];
        encoder.tools_searched(&ToolsSearched {
            response: &response,
            tool,
            number,
            seed: "seed",
            text: &dacapo_catalog::SearchText::from(*query),
            limit: None,
            found: &found,
        });
    }
    encoder.response_started();
    let response = decoded(answer(&json!([thinking("second"), {"type": "text", "text": "No idea."}]), "end_turn"));
    encoder.meta(&response.meta);
    encoder.answer(&response, AnswerParts::All);
    encoder.body(&usage()).expect("an answer")["content"].take()
}

#[test]
fn searches_are_told_as_the_providers_and_made_again_for_the_model() {
    let question = json!({"role": "user", "content": "How is the weather?"});
    let turn = turn_for(ProviderSide::MESSAGES, deferred(&json!([question])));
    let content = searched_content(&turn, &["weather", "sky"]);
    let tool = "tool_search_tool_regex";
    let found = json!({"type": "tool_search_tool_search_result",
        "tool_references": [{"type": "tool_reference", "tool_name": "get_weather"}]});
    let (first, second) = (&content[2]["id"], &content[4]["id"]);
    assert_eq!(
        content,
        json!([
            thinking("first"),
            {"type": "text", "text": "Let me look."},
            {"type": "server_tool_use", "id": first, "name": tool, "input": {"pattern": "weather"}},
            {"type": "tool_search_tool_result", "tool_use_id": first, "content": found},
            {"type": "server_tool_use", "id": second, "name": tool, "input": {"pattern": "sky"}},
            {"type": "tool_search_tool_result", "tool_use_id": second, "content": found},
            thinking("second"),
            {"type": "text", "text": "No idea."},
        ])
    );
    let next = json!({"role": "user", "content": "Go on."});
    let history = json!([question, {"role": "assistant", "content": content}, next]);
    let turn = turn_for(ProviderSide::MESSAGES, deferred(&history));
    let call = |query: &str| ModelCall {
        name: "search".to_owned(),
        arguments: json!({"query": query}).to_string(),
        ..ModelCall::default()
    };
    let ConversationItem::Search(search) = &turn.conversation.items[1] else { panic!("{:?}", turn.conversation) };
    assert_eq!(search.calls, [call("weather"), call("sky")]);
    assert!(turn.conversation.live().is_none());
    let asked = ask(&turn);
    let shown = asked["messages"][1]["content"].as_array().expect("a list");
    assert_eq!(shown[..2], [thinking("first"), json!({"type": "text", "text": "Let me look."})]);
    assert_eq!((shown[2]["name"].as_str(), shown[3]["name"].as_str()), (Some("search"), Some("search")));
    let answer = json!({"role": "assistant", "content": [thinking("second"), {"type": "text", "text": "No idea."}]});
    assert_eq!((&asked["messages"][3], &asked["messages"][4]), (&answer, &next));

    // The state of a program has the searches before it, and only what came after them is of its own message.
    let mut state = state(&json!({}));
    state.model_messages.insert(0, search.clone());
    let ids = sealer().seal(&state, &RoundHeader::default(), &[super::asked(0)]);
    let mut content = content.as_array().expect("a list").clone();
    content.pop();
    content.push(json!({"type": "tool_use", "id": ids[0], "name": "get_weather", "input": {}}));
    let result = json!({"type": "tool_result", "tool_use_id": ids[0], "content": "sunny"});
    let history = json!([
        question, {"role": "assistant", "content": content}, {"role": "user", "content": [result]},
    ]);
    let turn = turn_for(ProviderSide::MESSAGES, deferred(&history));
    let live = turn.conversation.live().expect("it goes on");
    assert_eq!((live.run, turn.conversation.items.len()), (state.run(), 2));
    let asked = ask(&turn);
    assert_eq!(asked["messages"][1]["content"][0], thinking("first"));
    assert_eq!(asked["messages"][3]["content"][0], thinking("second"));
}

#[test]
fn text_that_was_held_back_is_told_before_searches() {
    let mut body = deferred(&json!([{"role": "user", "content": "How is the weather?"}]));
    body["stream"] = json!(true);
    let turn = turn_for(ProviderSide::MESSAGES, body);
    // The text of this stream comes last.
    for held in [false, true] {
        let mut encoder = turn.encoder(CallDeltas::Whole);
        encoder.response_started();
        let mut decoder = ProviderSide::MESSAGES.decoder();
        let mut sent = Vec::new();
        for event in events(STREAM, 100) {
            let delta = decoder.decode_event(&event).expect("in order");
            decoder.meta().into_iter().for_each(|meta| encoder.meta(meta));
            if !(delta.is_empty() || held && delta.kind == DeltaKind::Text) {
                sent.extend(encoder.delta(delta));
            }
        }
        let response = decoder.finish().expect("a whole message");
        let tool = turn.search_tool.as_deref().expect("it is declared");
        let search = ToolsSearched {
            response: &response,
            tool,
            number: 0,
            seed: "seed",
            text: &dacapo_catalog::SearchText::from("sky"),
            limit: None,
            found: &[],
        };
        sent.extend(encoder.tools_searched(&search));
        sent.extend(encoder.finish(&usage()));
        let expected = response.native["content"].as_array().expect("a list");
        let content = assembled(&sent).native["content"].as_array().expect("a list").clone();
        assert_eq!(content[..4], expected[..4]);
        assert_eq!((content.len(), &content[4]["name"]), (6, &json!(tool)));
    }
}
