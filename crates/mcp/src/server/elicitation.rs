//! Asks the person who uses a client, through the client.

use dacapo_runner::{ApprovalQuestion, ApprovalVerdict, QuestionText};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use rmcp::model::{ElicitRequest, ElicitRequestParams, ElicitationSchema, InputRequest, ProtocolVersion};
use rmcp::service::RequestContext;
use rmcp::{Peer, RoleServer};
use serde_json::{Value, json};

use super::program_task::ApprovalRequest;
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

const ALLOW_FOR_PROGRAM: &str = "allow for this program";
const DENY_ALL_COVERS: &str =
    "\n\"deny all\" denies this call and all further calls of this program that need approval.";

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

pub(super) fn request(question: &ApprovalQuestion) -> InputRequest {
    InputRequest::Elicitation(ElicitRequest::new(ApprovalForm::new(question).into_params()))
}

pub(super) fn ask(
    peer: &Peer<RoleServer>,
    request: ApprovalRequest,
) -> BoxFuture<'_, (ApprovalRequest, ApprovalVerdict)> {
    async move {
        let form = ApprovalForm::new(&request.question);
        let choices = form.choices;
        let verdict = match peer.create_elicitation_with_timeout(form.into_params(), Some(APPROVAL_TIMEOUT)).await {
            Ok(result) => read(&serde_json::to_value(result).unwrap_or_default(), choices),
            Err(_) => ApprovalVerdict::NoAnswer,
        };
        (request, verdict)
    }
    .boxed()
}

/// The form that a client shows to a person.
pub(super) struct ApprovalForm {
    message: String,
    choices: &'static [(&'static str, ApprovalVerdict)],
}

const CHOICES: [(&str, ApprovalVerdict); 4] = [
    ("allow once", ApprovalVerdict::AllowOnce),
    ("deny", ApprovalVerdict::Deny),
    ("deny all", ApprovalVerdict::DenyAll),
    (ALLOW_FOR_PROGRAM, ApprovalVerdict::AllowForProgram),
];
/// If the person cannot see all of a call, further calls like it are not allowed unseen.
const CHOICES_IF_INCOMPLETE: &[(&str, ApprovalVerdict)] = CHOICES.split_at(3).0;

impl ApprovalForm {
    pub(super) fn new(question: &ApprovalQuestion) -> ApprovalForm {
        let QuestionText { text, hidden_chars } = question.text();
        if hidden_chars > 0 {
            let message = format!("{text}\n\nDeny the call unless you know the rest of it.{DENY_ALL_COVERS}");
            return ApprovalForm { message, choices: CHOICES_IF_INCOMPLETE };
        }
        let coverage = question.coverage();
        let message = format!("{text}\n\n\"{ALLOW_FOR_PROGRAM}\" allows {coverage}.{DENY_ALL_COVERS}");
        ApprovalForm { message, choices: &CHOICES }
    }

    /// Reads a person's verdict. Everything but a clear yes is a no.
    pub(super) fn read(&self, response: &Value) -> ApprovalVerdict {
        read(response, self.choices)
    }

    fn into_params(self) -> ElicitRequestParams {
        let names: Vec<&str> = self.choices.iter().map(|(name, _)| *name).collect();
        let schema = json!({
            "type": "object",
            "properties": { "decision": { "type": "string", "title": "Allow this call?", "enum": names } },
            "required": ["decision"],
        });
        let requested_schema: ElicitationSchema = serde_json::from_value(schema).expect("it is a form");
        ElicitRequestParams::FormElicitationParams { meta: None, message: self.message, requested_schema }
    }
}

/// Whether a person has denied this call and all further ones.
pub(super) fn denies_all(response: &Value) -> bool {
    read(response, &CHOICES) == ApprovalVerdict::DenyAll
}

fn read(response: &Value, choices: &[(&str, ApprovalVerdict)]) -> ApprovalVerdict {
    let decision = response["content"]["decision"].as_str().filter(|_| response["action"] == "accept");
    let chosen = choices.iter().find(|(name, _)| decision == Some(name));
    chosen.map_or(ApprovalVerdict::Deny, |(_, verdict)| *verdict)
}
