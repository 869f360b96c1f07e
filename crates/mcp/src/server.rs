//! Our own MCP server: `search` and `execute` over the tools of the servers behind it.
//!
//! Start reading at `execute`: a program runs as a task of its own (`program_task`), so that it goes on while the client asks
//! a person to approve a call (`elicitation`, `suspended`), and with a store in another process (`kept_programs`). `reply`
//! makes the result of `execute`.

mod elicitation;
mod http;
mod kept_programs;
mod log_forwarder;
mod program_task;
mod progress_reporter;
mod reply;
mod session;
mod suspended;
mod tools;

use std::collections::BTreeMap;
use std::fmt::Write;
use std::io;
use std::mem;
use std::sync::Arc;
use std::time::Duration;

use dacapo_replay::{ANSWER_TOKENS_DEFAULT, SearchText};
use dacapo_runner::{ApprovalVerdict, CancellationToken, Execution, JournalStore, Runner, ToolServers};
use futures_util::future::BoxFuture;
#[expect(deprecated, reason = "clients set levels until the protocol has removed it")]
use rmcp::model::SetLevelRequestParams;
use rmcp::model::{
    CacheScope, CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, Implementation,
    InputRequiredResult, InputResponses, ListToolsResult, PaginatedRequestParams, ServerCapabilities, ServerConfig,
};
use rmcp::service::{RequestContext, ServerInitializeError};
use rmcp::transport::stdio_pipes;
use rmcp::{ErrorData, RoleServer, ServerHandler, ServiceExt};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use tokio::sync::{Semaphore, SemaphorePermit};

use elicitation::ApprovalRoute;
use kept_programs::{FoundBy, KeptProgram, KeptPrograms, Taken};
use log_forwarder::LogForwarder;
use program_task::{
    ApprovalRequest, CallSummary, CanAsk, GivenValues, ProgramDigest, ProgramSource, ProgramTask, ProgramToRun,
};
use progress_reporter::ProgressReporter;
use reply::{brief, reply};
use session::Session;
use suspended::{ResumeOutcome, SUSPENDED_MAX, SuspendedProgram, SuspendedPrograms, random_state};

pub use http::{HTTP_PATH, HttpAuth, serve_http};
pub use kept_programs::StoreSharing;
pub use tools::context_cost_text;

/// The MCP server that clients talk to. Clones share the same programs and servers.
#[derive(Clone)]
pub struct McpServer {
    shared: Arc<ServerShared>,
    session: Arc<Session>,
}

struct ServerShared {
    runner: Arc<Runner>,
    servers: Arc<dyn ToolServers>,
    result_chars_max: usize,
    suspended: Arc<SuspendedPrograms>,
    /// Where programs that wait for a person survive this process. `None`: they do not.
    kept: Option<Arc<KeptPrograms>>,
    /// Permits for programs that run.
    run_permits: Semaphore,
    /// Permits for programs that wait for a person while the client's request is open.
    wait_permits: Semaphore,
}

impl std::fmt::Debug for McpServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("McpServer").finish_non_exhaustive()
    }
}

/// Characters of JSON that a result may have, unless the configuration says otherwise.
pub(crate) const RESULT_CHARS_DEFAULT: usize = 25_000;

/// Programs that run at the same time. Further ones wait.
const RUNNING_MAX: usize = 32;

/// Tools that are listed when a program is given up.
const LISTED_TOOLS_MAX: usize = 20;

/// The result of a request that the client cancelled. The client does not read it.
const CANCELLED: &str = "cancelled";

const OTHER_PROGRAM: &str = "this `requestState` belongs to another program; nothing was run";
const STORE_FAILED: &str =
    "the store of programs that wait cannot be reached, so the program waits on; send the same once more";

/// A program's calls reach us one by one. This long is waited for further ones, so that one question asks for all.
const GATHER_WAIT: Duration = Duration::from_millis(10);

/// How long clients may cache our list of tools, which never changes.
const TOOL_LIST_TTL_MS: u64 = 24 * 60 * 60 * 1_000;

/// Which permit a program holds.
#[derive(Clone, Copy, PartialEq, Eq)]
enum PermitKind {
    Run,
    Wait,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SearchArgs {
    query: Option<String>,
    #[serde(default)]
    queries: Vec<String>,
    limit: Option<usize>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ExecuteArgs {
    code: String,
}

impl McpServer {
    /// A server that runs programs over the tools of `servers`.
    pub fn new(runner: Runner, servers: Arc<dyn ToolServers>, result_chars_max: usize) -> McpServer {
        let shared = ServerShared {
            runner: Arc::new(runner),
            servers,
            result_chars_max,
            suspended: Arc::default(),
            kept: None,
            run_permits: Semaphore::new(RUNNING_MAX),
            wait_permits: Semaphore::new(SUSPENDED_MAX),
        };
        McpServer { shared: Arc::new(shared), session: Arc::default() }
    }

    /// Lets programs that wait for a person survive this process. What it stores is not sealed. Must be called before the
    /// server is used.
    #[must_use]
    pub fn with_store(mut self, store: Arc<dyn JournalStore>, sharing: StoreSharing) -> McpServer {
        let shared = Arc::get_mut(&mut self.shared).expect("the server is not used yet");
        shared.kept = Some(Arc::new(KeptPrograms::new(store, sharing)));
        self
    }

    /// How long a store has to remember programs that wait.
    pub const STORE_TTL: Duration = suspended::APPROVAL_TIMEOUT;

    /// The same server for another session.
    fn for_new_session(&self) -> McpServer {
        McpServer { session: Arc::default(), shared: Arc::clone(&self.shared) }
    }

    /// Builds the function names and the search index before the first client needs them.
    pub(crate) fn warm_up(&self) {
        let server = self.clone();
        tokio::spawn(async move { server.search(SearchText::Query(String::new()), Some(1)).await });
    }

    /// `limit` is for each query.
    async fn search(&self, text: SearchText, limit: Option<usize>) -> CallToolResult {
        let servers = &self.shared.servers;
        servers.ready().await;
        let default = match &text {
            SearchText::Query(_) => tools::LIMIT_DEFAULT,
            SearchText::Queries(_) => tools::LIMIT_EACH_DEFAULT,
        };
        let limit = text.hits(limit.unwrap_or(default).clamp(1, tools::LIMIT_MAX));
        let host = Arc::clone(servers);
        let searching = tokio::task::spawn_blocking(move || {
            let toolbox = host.toolbox();
            let (results, found) = toolbox.search(&text, limit, text.tokens(ANSWER_TOKENS_DEFAULT));
            let functions = toolbox.catalog().functions();
            let names = results.hits.iter().map(|hit| functions[hit.tool.0 as usize].expression()).collect();
            (names, found)
        });
        let (names, found): (Vec<String>, _) = match searching.await {
            Ok(found) => found,
            Err(error) => return failure(format!("the search failed: {error}")),
        };
        let mut structured = json!({ "declarations": found.text, "functions": names, "total": found.total });
        let mut text = found.text;
        let unavailable = brief(&servers.unavailable());
        if !unavailable.is_empty() {
            // Writing to a string cannot fail.
            writeln!(text, "// not available now: {}", unavailable.join("; ")).unwrap_or_default();
            structured["unavailable"] = json!(unavailable);
        }
        let mut result = CallToolResult::success(vec![ContentBlock::text(text)]);
        result.structured_content = Some(structured);
        result
    }

    async fn execute(&self, program: String, context: &RequestContext<RoleServer>) -> CallToolResponse {
        let route = ApprovalRoute::of(context);
        // Its client did not get an answer to its request, and sends it again.
        if let (ApprovalRoute::Elicitation, Some(kept)) = (route, &self.shared.kept) {
            match kept.take_by_code(&program).await {
                Ok(Some(waiting)) => return self.resume_kept(waiting, None, context).await,
                Ok(None) => {}
                Err(error) => tracing::warn!(%error, "whether a program has waited is not known"),
            }
        }
        let Some(permit) = self.run_permit(context).await else { return failure(CANCELLED.to_owned()).into() };
        let given = GivenValues { stored: self.session.stored(), reuse: self.session.take_record(context) };
        let program = ProgramToRun { source: ProgramSource::Code(program), given: Arc::new(given) };
        let task = self.start(program, context).await;
        self.follow_program(task, permit, context).await
    }

    async fn start(&self, program: ProgramToRun, context: &RequestContext<RoleServer>) -> ProgramTask {
        self.shared.servers.ready_for(program.code()).await;
        let can_ask = match ApprovalRoute::of(context) {
            ApprovalRoute::None => CanAsk::Nobody,
            ApprovalRoute::InputRequired | ApprovalRoute::Elicitation => CanAsk::Client,
        };
        let servers: Arc<dyn ToolServers> = Arc::clone(&self.shared.servers);
        ProgramTask::start(Arc::clone(&self.shared.runner), servers, program, can_ask, context.meta.0.0.clone())
    }

    /// Goes on with a program that another process has begun, with what a person has said about the calls that it waited
    /// for. Without that, the person is asked again.
    async fn resume_kept(
        &self,
        waiting: KeptProgram,
        responses: Option<InputResponses>,
        context: &RequestContext<RoleServer>,
    ) -> CallToolResponse {
        let Some(permit) = self.run_permit(context).await else { return failure(CANCELLED.to_owned()).into() };
        let KeptProgram { run, given, asked } = waiting;
        let program = ProgramToRun { source: ProgramSource::Resumed(run), given };
        let mut task = self.start(program, context).await;
        let mut responses = responses.unwrap_or_default();
        let denies_all = responses.values().find(|response| elicitation::denies_all(response)).cloned();
        for (key, call) in asked {
            // No answer is a no.
            let response = denies_all.clone().or_else(|| responses.remove(&key)).unwrap_or_default();
            task.already_answered(call, response);
        }
        self.follow_program(task, permit, context).await
    }

    /// Waits until the program may run. `None` if the client cancels its request before.
    async fn run_permit(&self, context: &RequestContext<RoleServer>) -> Option<SemaphorePermit<'_>> {
        context.ct.run_until_cancelled(self.shared.run_permits.acquire()).await?.ok()
    }

    /// Goes on with a program whose client has asked a person.
    async fn resume(
        &self,
        state: &str,
        program: &str,
        responses: Option<InputResponses>,
        context: &RequestContext<RoleServer>,
    ) -> CallToolResponse {
        let digest = ProgramDigest::of(program);
        if let Some(kept) = &self.shared.kept {
            let taken = if self.shared.suspended.has(state, digest) {
                // One that another process has gone on with meanwhile is given up here.
                kept.take_own(state).await.map(|is_ours| if is_ours { None } else { Some(Taken::Nothing) })
            } else {
                kept.take(state, program).await.map(Some)
            };
            match taken {
                Ok(Some(Taken::Program(waiting))) => return self.resume_kept(*waiting, responses, context).await,
                Ok(Some(Taken::OtherProgram)) => return failure(OTHER_PROGRAM.to_owned()).into(),
                Ok(Some(Taken::Nothing)) => drop(self.shared.suspended.take(state, digest)),
                Ok(None) => {}
                Err(error) => {
                    tracing::warn!(%error, "a program cannot go on");
                    return failure(STORE_FAILED.to_owned()).into();
                }
            }
        }
        let suspended = match self.shared.suspended.take(state, digest) {
            ResumeOutcome::Resumed(suspended) => suspended,
            ResumeOutcome::OtherProgram => {
                return failure(OTHER_PROGRAM.to_owned()).into();
            }
            ResumeOutcome::Expired(summary) => {
                return given_up("the answer that the program waited for came twice, or too late", summary).into();
            }
            ResumeOutcome::Unknown => {
                let message = "the program that waited for this answer is gone, and which calls it made is not known \
                               any more; look before you run it again";
                return failure(message.to_owned()).into();
            }
        };
        let SuspendedProgram { mut task, requests } = *suspended;
        let Some(permit) = self.run_permit(context).await else { return failure(CANCELLED.to_owned()).into() };
        let mut responses = responses.unwrap_or_default();
        let mut answered: Vec<(ApprovalRequest, ApprovalVerdict)> = Vec::new();
        for (key, request) in requests {
            let verdict = responses.remove(&key).map_or(ApprovalVerdict::Deny, |response| {
                elicitation::ApprovalForm::new(&request.question).read(&response)
            });
            answered.push((request, verdict));
        }
        // The questions were asked together. Whoever denies all at one of them means the others too.
        let denies_all = answered.iter().any(|(_, verdict)| *verdict == ApprovalVerdict::DenyAll);
        for (request, verdict) in answered {
            task.answer(request, if denies_all { ApprovalVerdict::DenyAll } else { verdict });
        }
        self.follow_program(task, permit, context).await
    }

    /// Reports progress and passes on approval requests until the program ends, or until the client has to ask a person
    /// and call again.
    async fn follow_program(
        &self,
        mut task: ProgramTask,
        mut permit: SemaphorePermit<'_>,
        context: &RequestContext<RoleServer>,
    ) -> CallToolResponse {
        let mut permit_kind = PermitKind::Run;
        let route = ApprovalRoute::of(context);
        let level = context.meta.log_level();
        let _logs = level.map(|level| LogForwarder::start(&*self.shared.servers, level, context.peer.clone()));
        let mut reporter = ProgressReporter::new(context);
        let mut asking: Option<BoxFuture<'_, (ApprovalRequest, ApprovalVerdict)>> = None;
        let mut kept_as = None;
        loop {
            if asking.is_none() && !task.open.is_empty() {
                match route {
                    ApprovalRoute::InputRequired => return self.suspend(task).await,
                    ApprovalRoute::Elicitation => {
                        asking = task.open.pop_front().map(|request| elicitation::ask(&context.peer, request));
                        if let Some(kept) = &self.shared.kept {
                            let state = kept_as.insert(random_state());
                            kept.keep(state, task.to_keep(&BTreeMap::new()), FoundBy::Code).await;
                        }
                    }
                    ApprovalRoute::None => {
                        for request in mem::take(&mut task.open) {
                            task.answer(request, ApprovalVerdict::NoAnswer);
                        }
                    }
                }
            }
            // If all of its calls wait for approval, the program cannot go on until a person answers. It gives its permit to
            // run to others meanwhile.
            let unapproved = task.open.len() + usize::from(asking.is_some());
            if asking.is_some()
                && permit_kind == PermitKind::Run
                && task.ledger.summary().open <= unapproved
                && let Ok(other) = self.shared.wait_permits.try_acquire()
            {
                drop(mem::replace(&mut permit, other));
                permit_kind = PermitKind::Wait;
            }
            let answered = async {
                match asking.as_mut() {
                    Some(asking) => asking.await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                () = context.ct.cancelled() => {
                    self.may_go_on(kept_as).await;
                    let session = Arc::clone(&self.session);
                    tokio::spawn(async move {
                        if let Some(execution) = task.cancelled().await {
                            session.keep_record(execution.record);
                        }
                    });
                    return failure(CANCELLED.to_owned()).into();
                }
                ended = &mut task.execution => {
                    let report = task.latest_progress();
                    reporter.report(&report).await;
                    return match ended {
                        Ok(mut execution) => {
                            self.session.keep(&task.given.stored, &mut execution, context);
                            self.shared.servers.observed(&execution.shapes);
                            self.reply(&execution).into()
                        }
                        Err(error) => failure(format!("dacapo failed, not the program: {error}")).into(),
                    };
                }
                Some(request) = task.requests.recv() => task.enqueue(request),
                (request, mut verdict) = answered => {
                    asking = None;
                    if !self.may_go_on(kept_as.take()).await {
                        verdict = ApprovalVerdict::NoAnswer;
                    }
                    if permit_kind == PermitKind::Wait {
                        let Some(other) = self.run_permit(context).await else { continue };
                        drop(mem::replace(&mut permit, other));
                        permit_kind = PermitKind::Run;
                    }
                    task.answer(request, verdict);
                }
                Some(line) = task.logs.recv() => reporter.log(&line).await,
                Ok(()) = task.progress.changed() => {
                    let report = task.latest_progress();
                    reporter.report(&report).await;
                }
            }
        }
    }

    /// Takes a program that is kept, before it goes on or is given up here. False if another process could go on with it too.
    async fn may_go_on(&self, kept_as: Option<String>) -> bool {
        let (Some(kept), Some(state)) = (&self.shared.kept, kept_as) else { return true };
        kept.take_own(&state).await.unwrap_or_else(|error| {
            tracing::warn!(%error, "a call that a person has allowed is not sent");
            false
        })
    }

    fn reply(&self, execution: &Execution) -> CallToolResult {
        let shapes = self.session.new_shapes(execution);
        reply(execution, &shapes, &self.shared.servers.unavailable(), self.shared.result_chars_max)
    }

    async fn suspend(&self, mut task: ProgramTask) -> CallToolResponse {
        tokio::time::sleep(GATHER_WAIT).await;
        while let Ok(request) = task.requests.try_recv() {
            task.enqueue(request);
        }
        let requests: BTreeMap<String, ApprovalRequest> = (task.oldest_by_tool().into_iter().enumerate())
            .map(|(number, request)| (format!("approval-{number}"), request))
            .collect();
        let elicitations =
            requests.iter().map(|(key, request)| (key.clone(), elicitation::request(&request.question))).collect();
        let to_keep = task.to_keep(&requests);
        match self.shared.suspended.put(SuspendedProgram { task, requests }) {
            Ok(state) => {
                if let Some(kept) = &self.shared.kept {
                    kept.keep(&state, to_keep, FoundBy::State).await;
                }
                InputRequiredResult::new(Some(elicitations), Some(state)).into()
            }
            Err(summary) => given_up("too many programs wait for approvals; answer some of them first", summary).into(),
        }
    }
}

impl ServerHandler for McpServer {
    #[expect(deprecated, reason = "clients set levels until the protocol has removed it")]
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().enable_logging().build())
            .with_server_info(Implementation::new("dacapo", env!("CARGO_PKG_VERSION")).with_title("Da Capo"))
            .with_instructions(tools::instructions(&self.shared.servers.names()))
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let mut list = ListToolsResult::with_all_items(tools::tools());
        (list.ttl_ms, list.cache_scope) = (Some(TOOL_LIST_TTL_MS), Some(CacheScope::Public));
        Ok(list)
    }

    /// Clients before 2026-07-28 set the level for their session; later ones with each request.
    #[expect(deprecated, reason = "clients set levels until the protocol has removed it")]
    async fn set_level(
        &self,
        request: SetLevelRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.session.pass_logs(LogForwarder::start(&*self.shared.servers, request.level, context.peer));
        Ok(())
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let args = request.arguments.unwrap_or_default();
        match &*request.name {
            tools::SEARCH => Ok(match read(args) {
                Ok(SearchArgs { query, queries, limit }) => match SearchText::new(query, queries) {
                    Ok(text) => self.search(text, limit).await.into(),
                    Err(error) => failure(error.to_string()).into(),
                },
                Err(message) => failure(message).into(),
            }),
            tools::EXECUTE => Ok(match (read(args), request.request_state) {
                (Ok(ExecuteArgs { code }), Some(state)) => {
                    self.resume(&state, &code, request.input_responses, &context).await
                }
                (Ok(ExecuteArgs { code }), None) => self.execute(code, &context).await,
                (Err(message), _) => failure(message).into(),
            }),
            other => {
                let message = format!("there is no tool `{other}` here; call functions inside `{}`", tools::EXECUTE);
                Err(ErrorData::invalid_params(message, None))
            }
        }
    }
}

fn read<T: DeserializeOwned>(args: Map<String, Value>) -> Result<T, String> {
    serde_json::from_value(Value::Object(args)).map_err(|error| format!("wrong arguments: {error}"))
}

fn failure(message: String) -> CallToolResult {
    CallToolResult::error(vec![ContentBlock::text(message)])
}

/// The result of a program that is given up: why, and which calls it has completed.
fn given_up(why: &str, summary: CallSummary) -> CallToolResult {
    let CallSummary { calls, open } = summary;
    let mut listed: Vec<String> =
        calls.iter().take(LISTED_TOOLS_MAX).map(|(tool, count)| format!("{tool} ({count})")).collect();
    if calls.len() > LISTED_TOOLS_MAX {
        listed.push(format!("{} more", calls.len() - LISTED_TOOLS_MAX));
    }
    let mut message = match listed.len() {
        0 => format!("{why}. It had completed no calls"),
        _ => format!("{why}. It had completed these calls, do not repeat them blindly: {}", listed.join(", ")),
    };
    if open > 0 {
        write!(message, "; {open} more waited for approval or for their answers").unwrap_or_default();
    }
    let error = json!({ "name": "AbortError", "message": message });
    let mut result = failure(message);
    result.structured_content = Some(json!({ "status": "error", "error": error, "calls": calls }));
    result
}

/// Serves the client at our stdin and stdout until it disconnects, or until `stop`.
pub async fn serve_stdio(server: McpServer, stop: CancellationToken) -> io::Result<()> {
    server.warm_up();
    let service = match server.serve_with_ct(stdio_pipes(), stop).await {
        Ok(service) => service,
        Err(ServerInitializeError::ConnectionClosed(_) | ServerInitializeError::Cancelled) => return Ok(()),
        Err(error) => return Err(io::Error::other(error)),
    };
    service.waiting().await.map(drop).map_err(io::Error::other)
}
