//! A client that orders the parts of a bicycle.

use std::path::Path;

use dacapo_wire::Wire;
use serde_json::{Value, json};

use crate::client_conversation::{Call, ClientConversation};
use crate::common::Served;

fn execute(call: &Call) -> String {
    match call.name.as_str() {
        "list_parts" => json!(["frame", "wheel", "bell", "saddle"]).to_string(),
        "stock_of" => json!({"left": call.args["part"].as_str().map_or(0, str::len) % 5}).to_string(),
        _ => format!("ordered {}", call.args["part"].as_str().unwrap_or_default()),
    }
}

/// All requests of a conversation with two programs: one that fails, and one that uses its calls again.
pub(crate) fn requests(url: &str, wire: Wire, explicit: bool) -> Vec<Value> {
    let tools: [(&str, &[&str]); 3] = [("list_parts", &["product"]), ("stock_of", &["part"]), ("order", &["part"])];
    let mut talk = ClientConversation::new(wire, &tools);
    talk.explicit = explicit;
    talk.user("Order what is short for a bicycle.");
    let mut requests = Vec::new();
    loop {
        let (path, body) = talk.request();
        let agent = ureq::Agent::new_with_defaults();
        let sent = agent.post(format!("{url}{path}")).header("content-type", "application/json").send(body.to_string());
        let text = sent.expect("an answer").body_mut().read_to_string().expect("a body");
        requests.push(body);
        let response = talk.read_response(&text);
        for call in &response.calls {
            talk.answer(call, &execute(call), false);
        }
        if response.calls.is_empty() {
            talk.user("Thanks.");
            requests.push(talk.request().1);
            return requests;
        }
    }
}

/// A gateway whose model orders parts of a bicycle.
pub(crate) fn gateway(arguments: &[&str]) -> Served {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/stateless.toml");
    Served::start(&[&["--script", script.to_str().expect("UTF-8")], arguments].concat(), &[])
}
