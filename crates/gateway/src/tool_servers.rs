//! Tools of MCP servers, which the gateway offers to programs and whose calls it executes itself.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use dacapo_replay::{Answer, Call, Effect, Tool, Toolbox};
use dacapo_runner::{
    Approval, Availability, CallError, CallGate, CancellationToken, Decision, Policy, ToolCall, ToolOutput, ToolServers,
};
use dacapo_wire::ServerTools;
use serde_json::Value;

use crate::observe::CallOutcome;

/// The servers, and the policy for calls of their tools.
pub(crate) struct DeployedServers {
    host: Arc<dyn ToolServers>,
    gate: CallGate,
    /// What was offered last, by the servers that clients may use. There are as many as there are different lists in the
    /// configuration.
    offers: Mutex<Vec<Offer>>,
}

/// Tools of servers that some clients may use.
pub(crate) struct OfferedTools {
    pub tools: ServerTools,
    /// By server and tool, when they were offered.
    pub decisions: ServerDecisions,
    /// The servers that the request names itself.
    pub of_request: BTreeMap<String, Arc<dyn ToolServers>>,
}

/// What the policy says to the tools of each server.
pub(crate) type ServerDecisions = BTreeMap<String, BTreeMap<String, Decision>>;

/// What was offered, and what it was made of.
struct Offer {
    servers: Option<Vec<String>>,
    toolbox: Arc<Toolbox>,
    unavailable: Vec<String>,
    offered: Arc<OfferedTools>,
}

/// How many servers there are, by whether their tools can be called.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ServerCounts {
    pub ready: usize,
    pub starting: usize,
    pub failed: usize,
}

impl DeployedServers {
    pub(crate) fn new(host: Arc<dyn ToolServers>, policy: Policy) -> DeployedServers {
        DeployedServers { host, gate: CallGate::new(policy), offers: Mutex::default() }
    }

    /// The tools of these servers, or of all, as they are now.
    pub(crate) fn offer(&self, servers: Option<&[String]>) -> Arc<OfferedTools> {
        let is_offered = |name: &str| servers.is_none_or(|servers| servers.iter().any(|server| server == name));
        let toolbox = self.host.toolbox();
        let unavailable: Vec<String> = (self.host.statuses().into_iter())
            .filter(|server| is_offered(&server.name))
            .filter(|server| matches!(server.availability, Availability::Starting | Availability::Failed(_)))
            .map(|server| server.name)
            // Tools of a server that has failed stay known. Their calls say what is wrong with it.
            .filter(|name| !toolbox.catalog().tools().iter().any(|tool| tool.server.as_ref() == Some(name)))
            .collect();
        let mut offers = self.offers.lock().unwrap_or_else(PoisonError::into_inner);
        let known = offers.iter().position(|offer| offer.servers.as_deref() == servers);
        if let Some(offer) = known.map(|at| &offers[at])
            && Arc::ptr_eq(&offer.toolbox, &toolbox)
            && offer.unavailable == unavailable
        {
            return Arc::clone(&offer.offered);
        }
        let tools = || toolbox.catalog().tools().iter().filter(|tool| tool.server.as_deref().is_some_and(is_offered));
        let mut decisions = ServerDecisions::new();
        for (server, tool) in tools().filter_map(|tool| Some((tool.server.as_deref()?, &tool.name))) {
            let decision = self.gate.decide(server, tool, &*self.host);
            decisions.entry(server.to_owned()).or_default().insert(tool.to_owned(), decision);
        }
        let offered = Arc::new(OfferedTools {
            tools: ServerTools::new(tools(), unavailable.clone()),
            decisions,
            of_request: BTreeMap::new(),
        });
        let servers = servers.map(<[String]>::to_vec);
        let offer = Offer { servers, toolbox, unavailable, offered: Arc::clone(&offered) };
        match known {
            Some(at) => offers[at] = offer,
            None => offers.push(offer),
        }
        offered
    }

    /// Executes a call, if the policy allows it, or asks and has this answer.
    async fn call(&self, call: &mut ToolCall, earlier: Decision, approval: Approval) -> Result<ToolOutput, CallError> {
        // Whoever drops this future cancels the call.
        let cancel = CancellationToken::new();
        let allowed = self.gate.authorise(call, earlier, &*self.host, &approval, &cancel).await;
        match allowed {
            Ok(()) => self.host.call(call, &cancel).await,
            Err(CallError(message)) => Ok(refused(message)),
        }
    }

    /// Whether there is a server of this name, for whichever client.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.host.names().iter().any(|known| known == name)
    }

    pub(crate) fn counts(&self) -> ServerCounts {
        let mut counts = ServerCounts::default();
        for server in self.host.statuses() {
            match server.availability {
                Availability::Ready => counts.ready += 1,
                Availability::Starting | Availability::StartingKnown => counts.starting += 1,
                Availability::Failed(_) => counts.failed += 1,
            }
        }
        counts
    }
}

impl OfferedTools {
    /// Whether a person has to be asked before a call of the tool.
    pub(crate) fn asks(&self, tool: &Tool) -> bool {
        self.decision(tool) == Some(Decision::Ask)
    }

    fn decision(&self, tool: &Tool) -> Option<Decision> {
        self.decisions.get(tool.server.as_deref()?)?.get(&tool.name).copied()
    }

    /// Executes a call of a tool that was offered; `approval` is what a person decided about it.
    pub(crate) async fn call(
        &self,
        deployed: Option<&DeployedServers>,
        tool: &Tool,
        call: &Call,
        approval: Approval,
    ) -> ToolOutput {
        let Value::Object(args) = &call.args else {
            return refused(format!("`{}` takes an object", call.tool));
        };
        let earlier = self.decision(tool).unwrap_or(Decision::Deny);
        let mut call = ToolCall {
            server: tool.server.clone().unwrap_or_default(),
            tool: tool.name.clone(),
            args: args.clone(),
            idempotency_key: call.key.clone(),
            approved: None,
        };
        let output = match (self.of_request.get(&call.server), deployed) {
            (Some(host), _) if earlier == Decision::Allow || approval == Approval::Given => {
                host.call(&call, &CancellationToken::new()).await
            }
            (Some(_), _) if approval == Approval::Declined => {
                Ok(refused(format!("not allowed: the user declined `{}.{}`", call.server, call.tool)))
            }
            (Some(_), _) => Ok(refused(format!(
                "not allowed: the request wants to approve calls of `{}.{}` (`require_approval`), and cannot be asked here",
                call.server, call.tool
            ))),
            (None, Some(deployed)) => deployed.call(&mut call, earlier, approval).await,
            (None, None) => Ok(refused(format!("there is no server `{}`", call.server))),
        };
        output.unwrap_or_else(|CallError(message)| without_attachments(Answer::error(message)))
    }
}

/// For a call that is not sent.
fn refused(message: String) -> ToolOutput {
    without_attachments(CallOutcome::Refused.error(message))
}

/// The output of a call without images and files.
pub(crate) fn without_attachments(answer: Answer) -> ToolOutput {
    ToolOutput { answer, attachments: Vec::new() }
}

/// Whether a call of the tool must not be sent twice.
pub(crate) fn is_write(tool: &Tool) -> bool {
    tool.effect() == Effect::Write
}

impl fmt::Debug for OfferedTools {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OfferedTools").field("tools", &self.tools).finish_non_exhaustive()
    }
}

impl fmt::Debug for DeployedServers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeployedServers").field("names", &self.host.names()).finish_non_exhaustive()
    }
}
