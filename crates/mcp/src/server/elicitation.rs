//! Asks the person who uses a client, through the client.

use dacapo_runner::{ToolCall, approval_question};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use rmcp::model::{ElicitRequest, ElicitRequestParams, ElicitationSchema, InputRequest, ProtocolVersion};
use rmcp::service::RequestContext;
use rmcp::{Peer, RoleServer};
use serde_json::{Value, json};

use super::program_task::{ApprovalRequest, ApprovalVerdict};
use super::suspended::APPROVAL_TIMEOUT;

/// How a client can ask a person, if it can.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ApprovalRoute {
    /// The result of the client's request is `input_required`; the client asks and calls again.
    InputRequired,
    /// We send the client an elicitation request while its own request is open.
    Elicitation,
    None,
}

const ALLOW_ONCE: &str = "allow once";
const ALLOW_FOR_PROGRAM: &str = "allow for this program";
const DENY: &str = "deny";

impl ApprovalRoute {
    pub(super) fn of(context: &RequestContext<RoleServer>) -> ApprovalRoute {
        let elicitation = context.client_capabilities().and_then(|capabilities| capabilities.elicitation);
        // A client that names no mode has forms, which were the only mode when elicitation was introduced.
        let has_forms = elicitation.is_some_and(|modes| modes.form.is_some() || modes.url.is_none());
        let is_modern = context.protocol_version().is_some_and(|version| version >= ProtocolVersion::V_2026_07_28);
        match (has_forms, is_modern) {
            (false, _) => ApprovalRoute::None,
            (true, true) => ApprovalRoute::InputRequired,
            (true, false) => ApprovalRoute::Elicitation,
        }
    }
}

pub(super) fn request(call: &ToolCall) -> InputRequest {
    InputRequest::Elicitation(ElicitRequest::new(params(call)))
}

pub(super) fn ask(
    peer: &Peer<RoleServer>,
    request: ApprovalRequest,
) -> BoxFuture<'_, (ApprovalRequest, ApprovalVerdict)> {
    async move {
        let verdict = match peer.create_elicitation_with_timeout(params(&request.call), Some(APPROVAL_TIMEOUT)).await {
            Ok(result) => read(&serde_json::to_value(result).unwrap_or_default()),
            Err(_) => ApprovalVerdict::NoAnswer,
        };
        (request, verdict)
    }
    .boxed()
}

/// Reads a person's verdict. Everything but a clear yes is a no.
pub(super) fn read(response: &Value) -> ApprovalVerdict {
    match (response["action"].as_str(), response["content"]["decision"].as_str()) {
        (Some("accept"), Some(ALLOW_ONCE)) => ApprovalVerdict::AllowOnce,
        (Some("accept"), Some(ALLOW_FOR_PROGRAM)) => ApprovalVerdict::AllowForProgram,
        _ => ApprovalVerdict::Deny,
    }
}

fn params(call: &ToolCall) -> ElicitRequestParams {
    let schema = json!({
        "type": "object",
        "properties": { "decision": { "type": "string", "title": "Allow this call?", "enum": [ALLOW_ONCE, ALLOW_FOR_PROGRAM, DENY] } },
        "required": ["decision"],
    });
    let requested_schema: ElicitationSchema = serde_json::from_value(schema).expect("it is a form");
    ElicitRequestParams::FormElicitationParams { meta: None, message: approval_question(call), requested_schema }
}
