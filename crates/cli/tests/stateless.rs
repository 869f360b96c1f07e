//! Nothing is kept that the next request needs: any replica can take any turn, also one that was just started.

#[path = "../../gateway/tests/gateway/client_conversation.rs"]
#[expect(clippy::unwrap_used, reason = "a client that is answered wrongly cannot go on")]
mod client_conversation;
mod common;

use std::path::Path;

use client_conversation::{Call, ClientConversation};
use common::Served;
use dacapo_wire::Wire;
use serde_json::{Value, json};

fn gateway() -> Served {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/stateless.toml");
    Served::start(&["--script", script.to_str().expect("UTF-8")], &[])
}

fn ask(url: &str, body: &Value) -> String {
    let agent = ureq::Agent::new_with_defaults();
    let sent = agent.post(url).header("content-type", "application/json").send(body.to_string());
    sent.expect("an answer").body_mut().read_to_string().expect("a body")
}

/// What the client's tools say.
fn execute(call: &Call) -> String {
    match call.name.as_str() {
        "list_parts" => json!(["frame", "wheel", "bell", "saddle"]).to_string(),
        "stock_of" => json!({"left": call.args["part"].as_str().map_or(0, str::len) % 5}).to_string(),
        _ => format!("ordered {}", call.args["part"].as_str().unwrap_or_default()),
    }
}

/// A conversation of several turns, each sent to what `choose` gives; all responses as they came.
fn converse(mut choose: impl FnMut(usize) -> String, mut talk: ClientConversation) -> Vec<String> {
    talk.user("Order what is short for a bicycle.");
    let mut questions = 1;
    let mut responses: Vec<String> = Vec::new();
    while responses.len() < 40 {
        let (path, body) = talk.request();
        let body_text = ask(&format!("{}{path}", choose(responses.len())), &body);
        let response = talk.read_response(&body_text);
        responses.push(body_text);
        for call in &response.calls {
            talk.answer(call, &execute(call), false);
        }
        if response.calls.is_empty() {
            if questions == 2 {
                break;
            }
            questions += 1;
            talk.user("And once more.");
        }
    }
    responses
}

/// Plain, explicit, streamed, and one call at a time.
fn talks(wire: Wire) -> impl Iterator<Item = ClientConversation> {
    let one_call = match wire {
        Wire::Chat | Wire::Responses => json!({"parallel_tool_calls": false}),
        Wire::Messages => json!({"tool_choice": {"type": "auto", "disable_parallel_tool_use": true}}),
    };
    [(false, json!({})), (true, json!({})), (true, json!({"stream": true})), (false, one_call)].into_iter().map(
        move |(explicit, extra)| {
            let mut talk = ClientConversation::new(
                wire,
                &[("list_parts", &["product"]), ("stock_of", &["part"]), ("order", &["part"])],
            );
            talk.explicit = explicit;
            talk.extra = extra;
            talk
        },
    )
}

#[test]
fn three_gateways_that_are_killed_between_turns_answer_as_one_that_stays() {
    for wire in Wire::ALL {
        for (alone, together) in talks(wire).zip(talks(wire)) {
            let stays = gateway();
            let expected = converse(|_| stays.url.clone(), alone);
            let mut replicas = [gateway(), gateway(), gateway()];
            let responses = converse(
                |turn| {
                    // Killed without warning, and started anew, just before it is its turn.
                    replicas[turn % 3] = gateway();
                    replicas[turn % 3].url.clone()
                },
                together,
            );
            assert!(expected.len() >= 6, "several turns: {expected:#?}");
            assert!(expected.last().expect("an answer").contains("ordered bell"), "{expected:#?}");
            assert_eq!(responses, expected, "{wire}");
        }
    }
}
