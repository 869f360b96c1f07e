//! Many conversations at once: none hears of another.

use crate::common::{Model, Running, options, post_json, tool};
use serde_json::{Value, json};

const SCRIPT: &str = r#"
[[turn]]
when = { after = "user" }
program = """
const name = "{{user}}";
const parts = await Promise.all([ask({ about: name + "-a" }), ask({ about: name + "-b" })]);
let last = parts.join("+");
for (let i = 0; i < 2; i++) last = await ask({ about: last });
return { name, last, dice: Math.random() };"""

[[turn]]
when = { after = "tool" }
text = "{{result/data/name}} got {{result/data/last}}, dice {{result/data/dice}}"
"#;

/// A conversation that stops after each request, for others to go on.
struct Talk {
    name: String,
    history: Vec<Value>,
    answer: Option<String>,
}

impl Talk {
    fn new(number: usize) -> Talk {
        let name = format!("talk{number}");
        Talk { history: vec![json!({"role": "user", "content": name})], name, answer: None }
    }

    async fn go_on(&mut self, url: &str) {
        let body = json!({"model": "m", "messages": self.history, "tools": [tool("ask", &["about"])]});
        let answered = post_json(url, &body).await;
        let message = answered.json()["choices"][0]["message"].clone();
        self.history.push(message.clone());
        for call in message["tool_calls"].as_array().into_iter().flatten() {
            let args: Value = serde_json::from_str(call["function"]["arguments"].as_str().unwrap()).unwrap();
            let content = format!("<{}>", args["about"].as_str().unwrap());
            self.history.push(json!({"role": "tool", "tool_call_id": call["id"], "content": content}));
        }
        if message.get("tool_calls").is_none() {
            self.answer = Some(message["content"].as_str().unwrap().to_owned());
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn two_hundred_interleaved_conversations_each_get_their_own_answer() {
    let model = Model::start(SCRIPT).await;
    let mut few = options(&model);
    // Fewer places than programs: some are resumed, some are replayed.
    few.warm.programs_max = Some(40);
    let gateways =
        [Running::start(options(&model)).await, Running::start(few.clone()).await, Running::start(few).await];
    let mut waiting: Vec<Talk> = (0..200).map(Talk::new).collect();
    let mut done: Vec<Talk> = Vec::new();
    // An order that is neither first come first served nor the same twice; a failure can be repeated.
    let mut state: u64 = 20_261_115;
    let mut chance = |below: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(state >> 33).unwrap() % below
    };
    while !waiting.is_empty() {
        let mut running = tokio::task::JoinSet::new();
        for _ in 0..16.min(waiting.len()) {
            let mut talk = waiting.swap_remove(chance(waiting.len()));
            let url = gateways[chance(3)].url.clone();
            running.spawn(async move {
                talk.go_on(&url).await;
                talk
            });
        }
        for talk in running.join_all().await {
            if talk.answer.is_some() { done.push(talk) } else { waiting.push(talk) }
        }
    }
    let mut dice: Vec<String> = Vec::new();
    for talk in &done {
        let name = &talk.name;
        let answer = talk.answer.as_ref().unwrap();
        let expected = format!("{name} got <<<{name}-a>+<{name}-b>>>, dice ");
        assert!(answer.starts_with(&expected), "{answer}");
        dice.push(answer[expected.len()..].to_owned());
    }
    dice.sort();
    dice.dedup();
    assert_eq!((done.len(), dice.len()), (200, 200));
}
