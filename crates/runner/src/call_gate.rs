//! What a call passes before it is sent: the policy, and a person where the policy asks for one.

use tokio_util::sync::CancellationToken;

use crate::approval::{Approval, ApprovalQuestion, ApprovedDefinitions, Approver};
use crate::policy::{Decision, Denial, Policy};
use crate::tool_host::{CallError, ToolCall, ToolDigest, ToolHost};

/// How often a person is asked about one call whose tool changes while the person decides.
const ASKS_MAX: usize = 3;

/// Decides about calls, each by itself. A process has one for all of its programs.
#[derive(Debug, Default)]
pub struct CallGate {
    policy: Policy,
    approved: ApprovedDefinitions,
}

impl CallGate {
    /// A gate with this policy, at which nobody has approved anything so far.
    pub fn new(policy: Policy) -> CallGate {
        CallGate { policy, approved: ApprovedDefinitions::default() }
    }

    /// The policy's decision about a tool, by what its server says of it now.
    pub fn decide(&self, server: &str, tool: &str, host: &dyn ToolHost) -> Decision {
        self.policy.decide(server, tool, &host.annotations(server, tool))
    }

    /// Applies the stricter of an earlier decision about the tool and the decision now: a tool may leave its server's list,
    /// or lose its annotations, while a program runs. The error is for the program.
    pub async fn authorise(
        &self,
        call: &mut ToolCall,
        earlier: Decision,
        host: &dyn ToolHost,
        approver: &dyn Approver,
        cancel: &CancellationToken,
    ) -> Result<(), CallError> {
        let denied = self.denial(call, earlier, host, approver, cancel).await.err();
        denied.map_or(Ok(()), |denial| Err(CallError(denial.message(&call.server, &call.tool))))
    }

    async fn denial(
        &self,
        call: &mut ToolCall,
        earlier: Decision,
        host: &dyn ToolHost,
        approver: &dyn Approver,
        cancel: &CancellationToken,
    ) -> Result<(), Denial> {
        if earlier != Decision::Deny {
            host.tools_confirmed(&call.server, cancel).await;
        }
        for _ask in 0..ASKS_MAX {
            match earlier.max(self.decide(&call.server, &call.tool, host)) {
                Decision::Allow => return Ok(()),
                Decision::Deny => return Err(Denial::ByPolicy),
                Decision::Ask => {}
            }
            let definition = host.definition(&call.server, &call.tool);
            self.ask(call, definition, approver).await?;
            // What a person has approved may be something else by now.
            if host.definition(&call.server, &call.tool) == definition {
                call.approved = definition;
                return Ok(());
            }
        }
        Err(Denial::KeepsChanging)
    }

    async fn ask(
        &self,
        call: &ToolCall,
        definition: Option<ToolDigest>,
        approver: &dyn Approver,
    ) -> Result<(), Denial> {
        let change = self.approved.change(call, definition);
        match approver.approve(ApprovalQuestion { call: call.clone(), definition, change }).await {
            Approval::Given => {
                self.approved.insert(call, definition);
                Ok(())
            }
            Approval::Declined => Err(Denial::ByPerson),
            Approval::AllDeclined => Err(Denial::ByPersonForAll),
            Approval::Unavailable => Err(Denial::NobodyToAsk),
        }
    }
}
