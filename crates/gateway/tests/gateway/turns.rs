//! Everything that a client asks for holds.

use std::time::{Duration, Instant};

use dacapo_wire::Wire;
use futures_util::StreamExt;
use serde_json::{Value, json};

use crate::client_conversation::ClientConversation;
use crate::common::{HttpResponse, Model, RunningGateway, ask, options, post_json, post_to, post_with, send_to, tool};
use crate::pairs::long_history;

fn search() -> Value {
    tool("web_search", &["query"])
}

fn with(mut body: Value, more: &Value) -> Value {
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    body
}

const SCRIPT: &str = r#"
[[turn]]
when = { user = "slowly", after = "user" }
text = "This answer is long enough that nobody takes it for a remark before a program, so it is passed on as it comes, word for word."
chunk_delay_ms = 40

[[turn]]
when = { user = "preamble", after = "user" }
text = "I'll look that up."
program = "return await web_search({ query: 'x' });"

[[turn]]
when = { user = "nothing", after = "user" }
program = "const x = 1;"

[[turn]]
when = { user = "nothing", after = "tool" }
text = "{{result}}"

[[turn]]
text = "Here you are."
"#;

#[tokio::test(flavor = "multi_thread")]
async fn text_is_passed_on_as_it_arrives_also_before_a_program() {
    let model = Model::start(SCRIPT).await;
    let gateway = RunningGateway::start(options(&model)).await;

    let asked = Instant::now();
    let client = reqwest::Client::builder().tls_certs_only([]).build().unwrap();
    let request = with(ask("slowly"), &json!({"stream": true})).to_string();
    let response = client.post(format!("{}/chat/completions", gateway.url)).body(request).send().await.unwrap();
    let mut pieces = response.bytes_stream();
    let mut first_text_at = None;
    while let Some(piece) = pieces.next().await {
        let piece = String::from_utf8_lossy(&piece.unwrap()).into_owned();
        if piece.contains("This") {
            first_text_at.get_or_insert(asked.elapsed());
        }
    }
    // Relative to each other: the first words came while the last were not yet said.
    assert!(first_text_at.unwrap() + Duration::from_millis(400) < asked.elapsed(), "{first_text_at:?}");

    let preamble = with(ask("preamble"), &json!({"stream": true}));
    let shown = |response: &HttpResponse| {
        let message = response.streamed()["choices"][0]["message"].clone();
        assert_eq!(message["tool_calls"].as_array().unwrap().len(), 1);
        message["content"].clone()
    };
    let streamed = post_json(&gateway.url, &preamble).await;
    assert_eq!(shown(&streamed), "I'll look that up.");
    // For clients that would take it for the answer.
    let held = post_with(&gateway.url, &preamble, &[("x-dacapo-hold-text-chars", "40")]).await;
    assert_eq!(shown(&held), Value::Null);
    let refused = post_with(&gateway.url, &preamble, &[("x-dacapo-hold-text-chars", "some")]).await;
    assert_eq!(refused.status, 400);
}

#[tokio::test(flavor = "multi_thread")]
async fn fields_that_are_not_ours_pass_in_place_in_both_directions() {
    let raw = r#"{"id":"r1","object":"chat.completion","created":1767225600,"model":"m-2026","provider":"acme","choices":[{"index":0,"message":{"role":"assistant","content":"hi","refusal":null,"annotations":[{"type":"url_citation"}]},"logprobs":{"content":[{"token":"hi","logprob":-0.5}]},"finish_reason":"stop","native_finish_reason":"eos"}],"service_tier":"default","system_fingerprint":"fp_1","usage":{"prompt_tokens":7,"completion_tokens":1,"total_tokens":8,"cost":0.25}}"#;
    let script = format!("[[turn]]\nraw = '''{raw}'''\ncontent_type = \"application/json\"\n");
    let model = Model::start(&script).await;
    let gateway = RunningGateway::start(options(&model)).await;
    let image = json!([{"type": "text", "text": "what is this?"}, {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}]);
    let request = json!({
        "messages": [{"role": "developer", "content": "Be brief."}, {"role": "user", "content": image, "name": "ann"}],
        "seed": 18_446_744_073_709_551_615_u64, "temperature": 0.0, "model": "m", "max_completion_tokens": 50,
        "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {}}}, "logprobs": true, "top_logprobs": 1,
        "tools": [{"type": "web_search", "filters": {}}, search()], "tool_choice": "auto", "chat_template_kwargs": {"a": [1]},
        "metadata": {"k": "v"}, "stream_options": null,
    });
    let answered = post_json(&gateway.url, &request).await.json();
    let mut expected: Value = serde_json::from_str(raw).unwrap();
    expected["usage"]["dacapo"] = json!({"model_calls": 1, "input_tokens": 7, "cached_tokens": 0, "cache_written_tokens": 0, "output_tokens": 1,
            "programs": 0, "rounds": 0, "calls": 0, "tokens_kept_out": 0});
    assert_eq!(answered, expected);

    let asked = model.asked().remove(0);
    let keys = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    assert_eq!(keys(&asked), keys(&request));
    for key in keys(&request).iter().filter(|key| *key != "tools") {
        assert_eq!(asked[key], request[key], "{key}");
    }
    assert_eq!(asked["tools"][0]["function"]["name"], "execute");
    assert_eq!(asked["tools"][1], request["tools"][0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_code_mode_has_no_part_in_passes_byte_for_byte() {
    let model = Model::start("[[turn]]\ntext = \"one two\"\n").await;
    let gateway = RunningGateway::start(options(&model)).await;
    let plain = json!({"model": "m", "messages": [{"role": "user", "content": "hi"}]});
    for request in [
        plain.clone(),
        with(plain.clone(), &json!({"stream": true})),
        with(plain.clone(), &json!({"n": 2, "tools": [search()]})),
        with(
            plain,
            &json!({"tools": [search()], "tool_choice": {"type": "function", "function": {"name": "web_search"}}}),
        ),
    ] {
        let direct = post_json(&model.url, &request).await;
        let through = post_json(&gateway.url, &request).await;
        assert_eq!((through.status, &through.text), (direct.status, &direct.text));
        let asked = model.asked();
        assert_eq!(asked[0].to_string(), asked[1].to_string());
    }
    let off = post_with(&gateway.url, &ask("hi"), &[("x-dacapo-mode", "off")]).await;
    assert_eq!((off.status, model.asked()[0]["tools"][0]["function"]["name"].clone()), (200, json!("web_search")));
    let unknown = post_with(&gateway.url, &ask("hi"), &[("x-dacapo-mode", "on")]).await;
    assert_eq!(unknown.json()["error"]["message"], "x-dacapo-mode: must be off, plain, explicit or native");
}

#[tokio::test(flavor = "multi_thread")]
async fn usage_is_streamed_only_if_it_was_asked_for_and_sums_all_calls_of_the_turn() {
    let model = Model::start(SCRIPT).await;
    let gateway = RunningGateway::start(options(&model)).await;
    let whole = post_json(&gateway.url, &ask("nothing")).await.json();
    let stream = with(ask("nothing"), &json!({"stream": true}));
    let without = post_json(&gateway.url, &stream).await;
    assert_eq!(without.streamed().get("usage"), None);
    let asked = with(stream, &json!({"stream_options": {"include_usage": true}}));
    let with_usage = post_json(&gateway.url, &asked).await;
    assert_eq!(with_usage.streamed()["usage"], whole["usage"]);
    assert_eq!(whole["usage"]["dacapo"]["model_calls"], 2);
    let counted: u64 = whole["usage"]["prompt_tokens"].as_u64().unwrap();
    let requests = model.asked();
    assert!(requests.iter().skip(2).all(|request| request["stream_options"]["include_usage"] == true));
    assert!(counted > 2 * 150, "both prompts count: {counted}");
    let actual = whole["choices"][0]["message"]["content"].as_str().unwrap();
    assert_eq!(
        actual,
        r#"{"status":"success","data":null,"note":"the program returned no value; `return` what you need to see"}"#
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn reasoning_goes_back_to_its_provider_as_it_came() {
    let script = r#"
[[turn]]
when = { after = "user" }
reasoning = "Think first."
details = [{ type = "reasoning.encrypted", data = "c2VjcmV0", index = 0 }]
calls = [{ name = "execute", arguments = { code = "return await web_search({ query: 'x' });" }, signature = "sig-1" }]

[[turn]]
when = { after = "tool" }
text = "done"
"#;
    let model = Model::start(script).await;
    let gateway = RunningGateway::start(options(&model)).await;
    for stream in [false, true] {
        let mut request = with(ask("hi"), &json!({"stream": stream}));
        let first = post_json(&gateway.url, &request).await;
        let first = if stream { first.streamed() } else { first.json() };
        let call = first["choices"][0]["message"]["tool_calls"][0].clone();
        let messages = request["messages"].as_array_mut().unwrap();
        // Only the id comes back, as from clients that keep nothing else.
        messages.push(json!({"role": "assistant", "tool_calls": [{"id": call["id"], "type": "function", "function": call["function"]}]}));
        messages.push(json!({"role": "tool", "tool_call_id": call["id"], "content": "found"}));
        model.asked();
        post_json(&gateway.url, &request).await;
        let shown = model.asked().remove(0)["messages"][1].clone();
        assert_eq!(shown["reasoning_content"], "Think first.");
        assert_eq!(
            shown["reasoning_details"],
            json!([{"type": "reasoning.encrypted", "data": "c2VjcmV0", "index": 0}])
        );
        assert_eq!(shown["tool_calls"][0]["extra_content"]["google"]["thought_signature"], "sig-1");
        assert_eq!(shown["tool_calls"][0]["id"].as_str().unwrap().len(), 9);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn with_many_tools_the_model_searches_and_keeps_what_it_found() {
    let script = r#"
[[turn]]
when = { step = 0 }
search = { query = "send a mail to somebody", limit = 2 }

[[turn]]
when = { step = 1 }
program = """
const [found] = await search("send mail", { limit: 1 });
return await send_mail({ to: found.name });"""

[[turn]]
when = { step = 2 }
text = "{{result/data}}"
"#;
    let model = Model::start(script).await;
    let gateway = RunningGateway::start(options(&model)).await;
    let mut tools: Vec<Value> = (0..1_000).map(|number| tool(&format!("tool_{number}"), &["a", "b", "c"])).collect();
    tools.push(tool("send_mail", &["to"]));
    let mut request = with(ask("write to her"), &json!({"tools": tools}));
    let first = post_json(&gateway.url, &request).await.json();
    let call = first["choices"][0]["message"]["tool_calls"][0].clone();
    assert_eq!(call["function"], json!({"name": "send_mail", "arguments": "{\"to\":\"send_mail\"}"}));
    let asked = model.asked();
    let names: Vec<&str> =
        asked[0]["tools"].as_array().unwrap().iter().map(|tool| tool["function"]["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["execute", "search"]);
    let found = asked[1]["messages"][2]["content"].as_str().unwrap();
    assert!(found.contains("function send_mail("), "{found}");

    let messages = request["messages"].as_array_mut().unwrap();
    messages.push(first["choices"][0]["message"].clone());
    messages.push(json!({"role": "tool", "tool_call_id": call["id"], "content": "sent"}));
    let last = post_json(&gateway.url, &request).await.json();
    assert_eq!(last["choices"][0]["message"]["content"], "sent");
    let later = model.asked().remove(0);
    // What was shown before stands where it stood, byte for byte.
    assert_eq!(later["tools"].to_string(), asked[0]["tools"].to_string());
    let before = asked[1]["messages"].as_array().unwrap();
    assert_eq!(json!(later["messages"].as_array().unwrap()[..before.len()]).to_string(), json!(before).to_string());
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_that_make_no_sense_are_told_where() {
    let model = Model::start("[[turn]]\ntext = \"hi\"\n").await;
    let gateway = RunningGateway::start(options(&model)).await;
    let cases = [
        (json!([]), "body: must be a JSON object"),
        (json!({"model": "m"}), "messages: is missing"),
        (json!({"model": "m", "messages": [3]}), "messages[0]: must be an object"),
        (with(ask("x"), &json!({"tools": {}})), "tools: must be an array"),
        (
            with(ask("x"), &json!({"tools": [{"type": "function", "function": {}}]})),
            "tools[0].function.name: expected a string, found nothing",
        ),
        (
            with(ask("x"), &json!({"code_mode": {"explict": true}})),
            "code_mode.explict: is not known; the only key is `explicit`",
        ),
        (
            with(
                ask("x"),
                &json!({"tools": [{"type": "function", "allowed_callers": ["me"], "function": {"name": "a"}}]}),
            ),
            "tools[0].allowed_callers: \"me\" is not known; use \"direct\" or \"programmatic\"",
        ),
    ];
    for (request, expected) in cases {
        let answered = post_json(&gateway.url, &request).await;
        assert_eq!((answered.status, answered.json()["error"]["message"].as_str().unwrap()), (400, expected));
    }
    assert_eq!(model.asked().len(), 0);
}

/// Whoever wonders why a request has no programs reads it in the response.
#[tokio::test(flavor = "multi_thread")]
async fn a_response_says_which_mode_it_had_and_why() {
    let model = Model::start("[[turn]]\ntext = \"hello\"\n").await;
    let mut options = options(&model);
    options.code_mode.models = [("plain-*".to_owned(), "off".to_owned())].into();
    let gateway = RunningGateway::start(options).await;
    let with_tools = with(ask("hi"), &json!({"tools": [search()]}));
    let off = ("x-dacapo-mode", "off");
    let cases = [
        (with_tools.clone(), [].as_slice(), "plain"),
        (with(with_tools.clone(), &json!({"stream": true})), &[], "plain"),
        (with(with_tools.clone(), &json!({"code_mode": {"explicit": true}})), &[], "explicit"),
        (with(with_tools.clone(), &json!({"stop": ["END"]})), &[], "off; reason=stop"),
        (with(with_tools.clone(), &json!({"n": 2, "stream": true})), &[], "off; reason=n"),
        (with(with_tools.clone(), &json!({"code_mode": false})), &[], "off; reason=code_mode"),
        (with_tools.clone(), &[off], "off; reason=x-dacapo-mode"),
        (with(with_tools, &json!({"model": "plain-1"})), &[], "off; reason=configuration"),
        (json!({"model": "m", "messages": [{"role": "user", "content": "hi"}]}), &[], "off; reason=no-tools"),
    ];
    for (request, headers, expected) in cases {
        let answered = post_with(&gateway.url, &request, headers).await;
        assert_eq!(answered.headers["x-dacapo-mode"].to_str().unwrap(), expected, "{request}");
    }
}

/// The id is that of the log. The upstream's own is for whoever asks its provider.
#[tokio::test(flavor = "multi_thread")]
async fn a_response_names_its_request_and_that_of_the_upstream() {
    let script = "[[turn]]\nwhen = { user = \"fail\" }\nerror = { status = 429, message = \"Too many.\" }\n\n[[turn]]\ntext = \"hello\"\n";
    let model = Model::start(script).await;
    let gateway = RunningGateway::start(options(&model)).await;
    for user in ["hi", "fail"] {
        let with_tools = with(ask(user), &json!({"tools": [search()]}));
        let without_code_mode = with(with_tools.clone(), &json!({"code_mode": false}));
        for request in [with_tools, without_code_mode] {
            let given = post_with(&gateway.url, &request, &[("x-request-id", "mine-1")]).await;
            let made = post_json(&gateway.url, &request).await;
            let id = |response: &HttpResponse, name: &str| response.headers[name].to_str().unwrap().to_owned();
            assert_eq!(id(&given, "x-request-id"), "mine-1", "{request}");
            assert!(id(&made, "x-request-id").starts_with("req_"), "{request}: {:?}", made.headers);
            let of_upstream = id(&given, "x-dacapo-upstream-request-id");
            assert!(!of_upstream.is_empty() && of_upstream != "mine-1", "{request}: {of_upstream}");
            assert_eq!(of_upstream, id(&made, "x-dacapo-upstream-request-id"), "{request}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_goes_on_with_large_answers_where_it_was() {
    let script = r#"
        [[turn]]
        when = { after = "user" }
        program = """
        let bytes = 0;
        for (let page = 0; page < 3; page++) {
          bytes += JSON.stringify(await web_search({ query: `${page}` })).length;
          for (let number = 0; number < 2e5; number++) bytes += number % 2 - (number + 1) % 2;
        }
        return bytes;"""

        [[turn]]
        text = "{{result/data}}"
    "#;
    let model = Model::start(script).await;
    let gateway = RunningGateway::start(options(&model)).await;
    let mut conversation = ClientConversation::new(Wire::Chat, &[("web_search", &["query"])]);
    conversation.user("How much is there?");
    let page = Value::from(vec![json!({"title": "a page", "text": "what it says"}); 1_000]).to_string();
    let text = loop {
        let (path, body) = conversation.request();
        let response = conversation.read_response(&post_to(&format!("{}{path}", gateway.url), &body).await.text);
        let Some(call) = response.calls.first() else { break response.text };
        conversation.answer(call, &page, false);
    };
    assert_eq!(text, (3 * page.len()).to_string());
    // Only the first step began at the program's start.
    assert_eq!(steps(&gateway).await, (1, 3));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_computes_after_each_answer_is_restarted_once() {
    let script = r#"
        [[turn]]
        when = { after = "user" }
        program = """
        let sum = 0;
        for (let page = 0; page < 5; page++) {
          sum += (await web_search({ query: `${page}` })).hits;
          for (let number = 0; number < 3e5; number++) sum += number % 2 - (number + 1) % 2;
        }
        return sum;"""

        [[turn]]
        text = "{{result/data}}"
    "#;
    let model = Model::start(script).await;
    let gateway = RunningGateway::start(options(&model)).await;
    let mut conversation = ClientConversation::new(Wire::Chat, &[("web_search", &["query"])]);
    conversation.user("How many hits are there?");
    let text = loop {
        let (path, body) = conversation.request();
        let response = conversation.read_response(&post_to(&format!("{}{path}", gateway.url), &body).await.text);
        let Some(call) = response.calls.first() else { break response.text };
        conversation.answer(call, r#"{"hits": 4}"#, false);
    };
    assert_eq!(text, "20");
    // After the first answer, if not before, it took too long for the thread of its connection, which is remembered.
    let (cold, warm) = steps(&gateway).await;
    assert!(cold <= 2 && cold + warm == 6, "{cold} from its start, {warm} from where it was");
}

/// Steps that were run from the start of their program, and from where it was.
async fn steps(gateway: &RunningGateway) -> (u64, u64) {
    let metrics = reqwest::get(gateway.url.replace("/v1", "/metrics")).await.unwrap().text().await.unwrap();
    let steps = |start: &str| {
        let line =
            metrics.lines().find_map(|line| line.strip_prefix(&format!("dacapo_steps_total{{start=\"{start}\"}} ")));
        line.map_or(0, |count| count.parse::<u64>().unwrap())
    };
    (steps("cold"), steps("warm"))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_history_stays_whole_when_a_field_of_its_body_is_removed() {
    let model = Model::start(SCRIPT).await;
    let mut options = options(&model);
    options.upstreams[0].wires = Some(vec![Wire::Messages.name().to_owned()]);
    let gateway = RunningGateway::start(options).await;
    let mut conversation = ClientConversation::new(Wire::Messages, &[("web_search", &["query"])]);
    conversation.history = long_history();
    conversation.extra = json!({"thread": {"type": "create"}});
    conversation.user("Hello.");
    let (path, body) = conversation.request();
    let answered = send_to(&format!("{}{path}", gateway.url), &body, &[("x-dacapo-mode", "off")]).await;
    assert_eq!(answered.status, 200, "{}", answered.text);
    let asked = model.asked();
    assert_eq!((&asked[0]["messages"], asked[0].get("thread")), (&body["messages"], None));
}
