//! Clients and models on every pair of wires: the same story, the same calls, the same answer.

use std::path::Path;

use dacapo_wire::Wire;
use serde_json::{Value, json};

use crate::client_conversation::{ClientConversation, ClientResponse};
use crate::common::{Model, RunningGateway, options, post_to};
use crate::scenarios::fence;

/// What a story says.
#[derive(Debug)]
enum Line {
    User(String),
    /// What the model says before its calls, and the calls of one round with what the client's tools say.
    Round(String, Vec<Expected>),
    Answer(String),
}

#[derive(Debug, Clone)]
struct Expected {
    name: String,
    args: Value,
    said: String,
    is_error: bool,
}

fn read(story: &str) -> Vec<Line> {
    let mut lines = Vec::new();
    let (mut says, mut round) = (String::new(), Vec::new());
    for line in story.lines() {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        match word {
            "user" => lines.push(Line::User(rest.to_owned())),
            "answer" => lines.push(Line::Answer(rest.to_owned())),
            "says" => rest.clone_into(&mut says),
            "round" => lines.push(Line::Round(std::mem::take(&mut says), std::mem::take(&mut round))),
            "call" => {
                let (name, rest) = rest.split_once(' ').unwrap();
                let (args, said) = rest.split_once(" = ").or_else(|| rest.split_once(" ! ")).unwrap();
                let is_error = rest.contains(" ! ");
                let args = serde_json::from_str(args).unwrap();
                round.push(Expected { name: name.to_owned(), args, said: said.to_owned(), is_error });
            }
            _ => panic!("unknown line: {line}"),
        }
    }
    lines
}

/// Tells the story, and says how often the model was asked.
async fn play_story(conversation: &mut ClientConversation, url: &str, story: &[Line]) {
    for line in story {
        match line {
            Line::User(text) => conversation.user(text),
            Line::Answer(text) => {
                let response = send(conversation, url).await;
                assert_eq!((response.calls.len(), &response.text), (0, text));
                assert!(response.usage["dacapo"]["model_calls"].as_u64().unwrap() > 0, "{}", response.usage);
            }
            Line::Round(says, expected) => {
                let response = send(conversation, url).await;
                assert_eq!(response.text, *says);
                let actual: Vec<(&str, &Value)> = response.calls.iter().map(|call| (&*call.name, &call.args)).collect();
                let wanted: Vec<(&str, &Value)> = expected.iter().map(|call| (&*call.name, &call.args)).collect();
                assert_eq!(actual, wanted);
                for (call, expected) in response.calls.iter().zip(expected) {
                    conversation.answer(call, &expected.said, expected.is_error);
                }
            }
        }
    }
}

async fn send(conversation: &mut ClientConversation, url: &str) -> ClientResponse {
    let (path, body) = conversation.request();
    let answered = post_to(&format!("{url}{path}"), &body).await;
    assert_eq!(answered.status, 200, "{}\n{body:#}", answered.text);
    conversation.read_response(&answered.text)
}

#[tokio::test(flavor = "multi_thread")]
async fn every_client_gets_the_same_story_from_every_model() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios/pairs/headlines.md");
    let text = std::fs::read_to_string(file).unwrap();
    let story = read(fence(&text, "```story").unwrap());
    let tools: [(&str, &[&str]); 2] = [("get_news", &["country"]), ("get_price", &["item"])];
    let mut wrong = Vec::new();
    for upstream in Wire::ALL {
        let model = Model::start(fence(&text, "```toml").unwrap()).await;
        let mut options = options(&model);
        options.upstreams[0].wires = Some(vec![upstream.name().to_owned()]);
        let gateway = RunningGateway::start(options).await;
        let ways = [(false, false), (true, false), (false, true), (true, true)];
        let clients = Wire::ALL.into_iter().flat_map(|client| ways.map(|way| (client, way)));
        for ((client, (stream, explicit)), earlier) in clients.flat_map(|it| [(it, vec![]), (it, long_history())]) {
            let mut conversation = ClientConversation::new(client, &tools);
            conversation.explicit = explicit;
            conversation.extra = json!({"stream": stream});
            conversation.history.clone_from(&earlier);
            let name =
                format!("{client} to {upstream}, stream {stream}, explicit {explicit}, {} before", earlier.len());
            let url = gateway.url.clone();
            let story = std::panic::AssertUnwindSafe(play_story(&mut conversation, &url, &story));
            let actual = futures_util::FutureExt::catch_unwind(story).await;
            let asked = model.asked();
            match actual {
                Ok(()) => check_prefixes(upstream, &asked, &earlier),
                Err(_) => wrong.push(name),
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// What user and model said before: too long for the gateway to read it without need.
pub(crate) fn long_history() -> Vec<Value> {
    let said = |number: usize| format!("{number}: {}", "\"so\" much,\nin so many words. ".repeat(30));
    let role = |number: usize| if number.is_multiple_of(2) { "user" } else { "assistant" };
    (0..40).map(|number| json!({"role": role(number), "content": said(number)})).collect()
}

/// Each request begins with the bytes of the one before: providers' prompt caches keep hitting. All that was said before
/// stands in it, word by word.
fn check_prefixes(wire: Wire, asked: &[Value], earlier: &[Value]) {
    let key = if wire == Wire::Responses { "input" } else { "messages" };
    for (entry, earlier) in asked[0][key].as_array().unwrap().iter().zip(earlier) {
        let content = &entry["content"];
        let text = content.as_str().or_else(|| content[0]["text"].as_str());
        assert_eq!((&entry["role"], text), (&earlier["role"], earlier["content"].as_str()));
    }
    assert!(asked[0][key].as_array().unwrap().len() > earlier.len());
    let entries = |body: &Value| body[key].as_array().unwrap().iter().map(Value::to_string).collect();
    let histories: Vec<Vec<String>> = asked.iter().map(entries).collect();
    assert_eq!(histories.len(), 5, "{asked:#?}");
    for pair in histories.windows(2) {
        assert!(pair[1].len() > pair[0].len() && pair[1].starts_with(&pair[0]), "{pair:#?}");
    }
    let around = |body: &Value| {
        let mut body = body.clone();
        body.as_object_mut().unwrap().shift_remove(key);
        body.to_string()
    };
    assert!(asked.iter().all(|body| around(body) == around(&asked[0])), "what stands before the history stays");
}
