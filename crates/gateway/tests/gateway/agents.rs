//! What agents do to a conversation, on every pair of wires.

use dacapo_wire::Wire;
use serde_json::json;

use crate::client_conversation::{ClientConversation, ClientResponse, events};
use crate::common::{Model, RunningGateway, options, post_to};

/// A client and a model, and how the client wants its responses.
struct Pair<'a> {
    client: Wire,
    upstream: Wire,
    stream: bool,
    url: &'a str,
    model: &'a Model,
}

impl Pair<'_> {
    fn conversation(&self, tools: &[(&str, &[&str])]) -> ClientConversation {
        let mut conversation = ClientConversation::new(self.client, tools);
        conversation.extra = json!({"stream": self.stream});
        conversation
    }

    /// Sends the conversation, and returns the body of the response too.
    async fn send_raw(&self, conversation: &mut ClientConversation) -> (ClientResponse, String) {
        let (path, body) = conversation.request();
        let answered = post_to(&format!("{}{path}", self.url), &body).await;
        assert_eq!(answered.status, 200, "{self}: {}\n{body:#}", answered.text);
        (conversation.read_response(&answered.text), answered.text)
    }

    async fn send(&self, conversation: &mut ClientConversation) -> ClientResponse {
        self.send_raw(conversation).await.0
    }

    /// The history that the model read last, as text.
    fn shown(&self) -> String {
        let asked = self.model.asked().pop().unwrap();
        asked[if self.upstream == Wire::Responses { "input" } else { "messages" }].to_string()
    }
}

impl std::fmt::Display for Pair<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} to {}, stream {}", self.client, self.upstream, self.stream)
    }
}

async fn on_every_pair(script: &str, story: impl AsyncFn(&Pair<'_>)) {
    for upstream in Wire::ALL {
        let model = Model::start(script).await;
        let mut options = options(&model);
        options.upstreams[0].wires = Some(vec![upstream.name().to_owned()]);
        let gateway = RunningGateway::start(options).await;
        for client in Wire::ALL {
            for stream in [false, true] {
                story(&Pair { client, upstream, stream, url: &gateway.url, model: &model }).await;
                model.asked();
            }
        }
    }
}

const SEARCH: [(&str, &[&str]); 1] = [("web_search", &["query"])];

/// Agents compact by it.
#[tokio::test(flavor = "multi_thread")]
async fn usage_is_the_size_of_the_context() {
    let script = r#"
[[turn]]
when = { after = "user" }
program = "return 1;"
usage = { prompt_tokens = 1000, completion_tokens = 10 }

[[turn]]
when = { after = "tool", step = 1 }
program = "const a = await web_search({ query: 'a' }); return await web_search({ query: a });"
usage = { prompt_tokens = 1200, completion_tokens = 20 }

[[turn]]
text = "Done."
usage = { prompt_tokens = 1500, completion_tokens = 5 }
"#;
    on_every_pair(script, async |pair| {
        let mut conversation = pair.conversation(&SEARCH);
        conversation.user("Look it up.");
        // Two model calls, none, one: what the last of them read, what all wrote, and the sums.
        for (calls, input, output, sums) in [(2, 1200, 30, (2200, 30)), (0, 1200, 0, (0, 0)), (1, 1500, 5, (1500, 5))] {
            let (response, text) = pair.send_raw(&mut conversation).await;
            let usage = &response.usage;
            let figure = |name: &str| usage[name].as_u64().unwrap_or_default();
            let (read, written) = match pair.client {
                Wire::Chat => (figure("prompt_tokens"), figure("completion_tokens")),
                Wire::Responses => (figure("input_tokens"), figure("output_tokens")),
                Wire::Messages => {
                    let cached = figure("cache_read_input_tokens") + figure("cache_creation_input_tokens");
                    (figure("input_tokens") + cached, figure("output_tokens"))
                }
            };
            assert_eq!((read, written), (input, output), "{pair}: {usage}");
            if pair.client != Wire::Messages {
                assert_eq!(figure("total_tokens"), input + output, "{pair}: {usage}");
            }
            let ours = &usage["dacapo"];
            let ours = ["model_calls", "input_tokens", "output_tokens"].map(|name| ours[name].as_u64().unwrap());
            assert_eq!(ours, [calls, sums.0, sums.1], "{pair}: {usage}");
            if pair.client == Wire::Messages && pair.stream {
                let started = events(&text)[0]["message"]["usage"].clone();
                assert!(started["input_tokens"].as_u64().unwrap() > 0, "{pair}: {started}");
            }
            for call in &response.calls {
                conversation.answer(call, "found", false);
            }
        }
    })
    .await;
}
