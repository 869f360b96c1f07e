//! Many conversations at once: none hears of another.

use dacapo_wire::Wire;
use serde_json::json;

use crate::common::{Model, Running, options, post_to};
use crate::talk::Talk;

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
struct One {
    name: String,
    talk: Talk,
    answer: Option<String>,
}

impl One {
    /// On any wire, plain or explicit, streamed or not.
    fn new(number: usize) -> One {
        let name = format!("talk{number}");
        let mut talk = Talk::new(Wire::ALL[number % 3], &[("ask", &["about"])]);
        talk.explicit = number.is_multiple_of(2);
        talk.extra = json!({"stream": number % 5 < 2});
        talk.user(&name);
        One { name, talk, answer: None }
    }

    async fn go_on(&mut self, url: &str) {
        let (path, body) = self.talk.request();
        let answered = post_to(&format!("{url}{path}"), &body).await;
        let heard = self.talk.hear(&answered.text);
        for call in &heard.calls {
            let said = format!("<{}>", call.args["about"].as_str().unwrap());
            self.talk.answer(call, &said, false);
        }
        if heard.calls.is_empty() {
            self.answer = Some(heard.text);
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
    let mut waiting: Vec<One> = (0..200).map(One::new).collect();
    let mut done: Vec<One> = Vec::new();
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
