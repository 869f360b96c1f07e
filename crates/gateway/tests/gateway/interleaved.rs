//! Many conversations at once: none gets data of another.

use dacapo_wire::Wire;
use serde_json::json;

use crate::client_conversation::ClientConversation;
use crate::common::{Model, RunningGateway, options, post_to};

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
struct InterleavedConversation {
    name: String,
    conversation: ClientConversation,
    answer: Option<String>,
}

impl InterleavedConversation {
    /// On any wire, plain or explicit, streamed or not.
    fn new(number: usize) -> InterleavedConversation {
        let name = format!("talk{number}");
        let mut conversation = ClientConversation::new(Wire::ALL[number % 3], &[("ask", &["about"])]);
        conversation.explicit = number.is_multiple_of(2);
        conversation.extra = json!({"stream": number % 5 < 2});
        conversation.user(&name);
        InterleavedConversation { name, conversation, answer: None }
    }

    async fn send_next(&mut self, url: &str) {
        let (path, body) = self.conversation.request();
        let answered = post_to(&format!("{url}{path}"), &body).await;
        let response = self.conversation.read_response(&answered.text);
        for call in &response.calls {
            let answer_text = format!("<{}>", call.args["about"].as_str().unwrap());
            self.conversation.answer(call, &answer_text, false);
        }
        if response.calls.is_empty() {
            self.answer = Some(response.text);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn two_hundred_interleaved_conversations_each_get_their_own_answer() {
    let model = Model::start(SCRIPT).await;
    let mut few = options(&model);
    // Fewer places than programs: some are resumed, some are replayed.
    few.warm.programs_max = Some(40);
    let gateways = [
        RunningGateway::start(options(&model)).await,
        RunningGateway::start(few.clone()).await,
        RunningGateway::start(few).await,
    ];
    let mut waiting: Vec<InterleavedConversation> = (0..200).map(InterleavedConversation::new).collect();
    let mut done: Vec<InterleavedConversation> = Vec::new();
    // An order that is neither first come first served nor the same twice; a failure can be repeated.
    let mut state: u64 = 20_261_115;
    let mut random = |below: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(state >> 33).unwrap() % below
    };
    while !waiting.is_empty() {
        let mut running = tokio::task::JoinSet::new();
        for _ in 0..16.min(waiting.len()) {
            let mut conversation = waiting.swap_remove(random(waiting.len()));
            let url = gateways[random(3)].url.clone();
            running.spawn(async move {
                conversation.send_next(&url).await;
                conversation
            });
        }
        for conversation in running.join_all().await {
            if conversation.answer.is_some() { done.push(conversation) } else { waiting.push(conversation) }
        }
    }
    let mut dice: Vec<String> = Vec::new();
    for conversation in &done {
        let name = &conversation.name;
        let answer = conversation.answer.as_ref().unwrap();
        let expected = format!("{name} got <<<{name}-a>+<{name}-b>>>, dice ");
        assert!(answer.starts_with(&expected), "{answer}");
        dice.push(answer[expected.len()..].to_owned());
    }
    dice.sort();
    dice.dedup();
    assert_eq!((done.len(), dice.len()), (200, 200));
}
