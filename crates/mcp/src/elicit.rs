//! How a client is asked to ask the person who uses it.

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use rmcp::model::{ElicitRequest, ElicitRequestParams, ElicitationSchema, InputRequest, ProtocolVersion};
use rmcp::service::RequestContext;
use rmcp::{Peer, RoleServer};
use serde_json::{Value, json};

use crate::approval::question;
use crate::ask::Ask;
use crate::running::{Question, Word};
use crate::suspended::PATIENCE;

/// The way to a person, as far as the client has one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Route {
    /// The answer to the request is a question; the client comes back with what was said.
    InputRequired,
    /// A request of ours, while the client's own is open.
    Elicitation,
    None,
}

const ONCE: &str = "allow once";
const WHOLE_PROGRAM: &str = "allow for this program";
const NO: &str = "deny";

impl Route {
    pub(crate) fn of(context: &RequestContext<RoleServer>) -> Route {
        let elicitation = context.client_capabilities().and_then(|capabilities| capabilities.elicitation);
        // A client that names no mode has forms: there was nothing else when it was written.
        let has_forms = elicitation.is_some_and(|modes| modes.form.is_some() || modes.url.is_none());
        let is_modern = context.protocol_version().is_some_and(|version| version >= ProtocolVersion::V_2026_07_28);
        match (has_forms, is_modern) {
            (false, _) => Route::None,
            (true, true) => Route::InputRequired,
            (true, false) => Route::Elicitation,
        }
    }
}

pub(crate) fn request(ask: &Ask) -> InputRequest {
    InputRequest::Elicitation(ElicitRequest::new(params(ask)))
}

pub(crate) fn ask(peer: &Peer<RoleServer>, asked: Question) -> BoxFuture<'_, (Question, Word)> {
    async move {
        let word = match peer.create_elicitation_with_timeout(params(&asked.ask), Some(PATIENCE)).await {
            Ok(result) => read(&serde_json::to_value(result).unwrap_or_default()),
            Err(_) => Word::Silence,
        };
        (asked, word)
    }
    .boxed()
}

/// What a person said. Only a clear yes is one.
pub(crate) fn read(response: &Value) -> Word {
    match (response["action"].as_str(), response["content"]["decision"].as_str()) {
        (Some("accept"), Some(ONCE)) => Word::Once,
        (Some("accept"), Some(WHOLE_PROGRAM)) => Word::WholeProgram,
        _ => Word::No,
    }
}

fn params(ask: &Ask) -> ElicitRequestParams {
    let schema = json!({
        "type": "object",
        "properties": { "decision": { "type": "string", "title": "Allow this call?", "enum": [ONCE, WHOLE_PROGRAM, NO] } },
        "required": ["decision"],
    });
    let requested_schema: ElicitationSchema = serde_json::from_value(schema).expect("it is a form");
    ElicitRequestParams::FormElicitationParams { meta: None, message: question(ask), requested_schema }
}
