//! Our own MCP server: `search` and `execute` over all that is behind it.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::io;
use std::mem;
use std::sync::Arc;
use std::time::Duration;

use dacapo_replay::ANSWER_TOKENS_DEFAULT;
use futures_util::future::BoxFuture;
use rmcp::model::{
    CacheScope, CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, Implementation,
    InputRequiredResult, InputResponses, ListToolsResult, PaginatedRequestParams, ProgressNotificationParam,
    ProgressToken, ServerCapabilities, ServerConfig,
};
use rmcp::service::{RequestContext, ServerInitializeError};
use rmcp::transport::stdio_pipes;
use rmcp::{ErrorData, Peer, RoleServer, ServerHandler, ServiceExt};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio_util::sync::CancellationToken;

use crate::elicit::{self, Route};
use crate::execution::Execution;
use crate::offer;
use crate::reply::{brief, reply};
use crate::run::Runner;
use crate::running::{Account, Identity, News, Question, Running, Word};
use crate::servers::Servers;
use crate::suspended::{Away, Return, SUSPENDED_MAX, Suspended};

/// What a client talks to. Cheap to clone: all share the same programs and servers.
#[derive(Clone)]
pub struct Server {
    shared: Arc<Shared>,
}

struct Shared {
    runner: Arc<Runner>,
    servers: Arc<dyn Servers>,
    result_chars_max: usize,
    suspended: Arc<Suspended>,
    places: Semaphore,
    /// Programs that wait for a person while their clients stay.
    waiting: Semaphore,
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server").finish_non_exhaustive()
    }
}

/// Characters of JSON that a result may have, unless told otherwise.
pub(crate) const RESULT_CHARS_DEFAULT: usize = 25_000;

/// Programs that run at the same time; more wait for their turn.
const RUNNING_MAX: usize = 32;

/// Tools that are named with what a program has done.
const NAMED_MAX: usize = 20;

/// Nobody reads it.
const CANCELLED: &str = "cancelled";

/// Calls that are made together are asked for together.
const GATHERING: Duration = Duration::from_millis(10);

/// Our tools never change.
const TTL_MS: u64 = 24 * 60 * 60 * 1_000;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SearchArgs {
    query: String,
    limit: Option<usize>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ExecuteArgs {
    code: String,
}

impl Server {
    pub fn new(runner: Runner, servers: Arc<dyn Servers>, result_chars_max: usize) -> Server {
        let shared = Shared {
            runner: Arc::new(runner),
            servers,
            result_chars_max,
            suspended: Arc::default(),
            places: Semaphore::new(RUNNING_MAX),
            waiting: Semaphore::new(SUSPENDED_MAX),
        };
        Server { shared: Arc::new(shared) }
    }

    /// Makes functions and index of what there is, so that the first client need not wait for them.
    pub(crate) fn warm_up(&self) {
        let server = self.clone();
        tokio::spawn(async move { server.search(SearchArgs { query: String::new(), limit: Some(1) }).await });
    }

    async fn search(&self, args: SearchArgs) -> CallToolResult {
        let servers = &self.shared.servers;
        servers.ready().await;
        let limit = args.limit.unwrap_or(offer::LIMIT_DEFAULT).clamp(1, offer::LIMIT_MAX);
        let (owners, query) = (Arc::clone(servers), args.query);
        let searching = tokio::task::spawn_blocking(move || {
            let toolbox = owners.toolbox();
            let (results, found) = toolbox.search(&query, limit, ANSWER_TOKENS_DEFAULT);
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
        let Some(place) = self.place(context).await else { return failure(CANCELLED.to_owned()).into() };
        self.shared.servers.ready().await;
        let can_ask = !matches!(Route::of(context), Route::None);
        let servers: Arc<dyn Servers> = Arc::clone(&self.shared.servers);
        let running = Running::start(Arc::clone(&self.shared.runner), servers, program, can_ask);
        self.attend(running, place, context).await
    }

    /// `None` if the client goes before it is its turn.
    async fn place(&self, context: &RequestContext<RoleServer>) -> Option<SemaphorePermit<'_>> {
        context.ct.run_until_cancelled(self.shared.places.acquire()).await?.ok()
    }

    /// The client is back with what the person said.
    async fn resume(
        &self,
        state: &str,
        program: &str,
        responses: Option<InputResponses>,
        context: &RequestContext<RoleServer>,
    ) -> CallToolResponse {
        let away = match self.shared.suspended.back(state, Identity::of(program)) {
            Return::Welcome(away) => away,
            Return::OtherProgram => {
                let message = "this `requestState` belongs to another program; nothing was run".to_owned();
                return failure(message).into();
            }
            Return::Past(account) => {
                return gone("the answer that the program waited for came twice, or too late", account).into();
            }
            Return::Unknown => {
                let message = "the program that waited for this answer is gone, and which calls it made is not known \
                               any more; look before you run it again";
                return failure(message.to_owned()).into();
            }
        };
        let Away { mut running, asked } = *away;
        let Some(place) = self.place(context).await else { return failure(CANCELLED.to_owned()).into() };
        let mut responses = responses.unwrap_or_default();
        for (key, question) in asked {
            let word = responses.remove(&key).map_or(Word::No, |response| elicit::read(&response));
            running.answer(question, word);
        }
        self.attend(running, place, context).await
    }

    /// Stays with a program until it ends, or until its client has to ask somebody.
    async fn attend(
        &self,
        mut running: Running,
        mut place: SemaphorePermit<'_>,
        context: &RequestContext<RoleServer>,
    ) -> CallToolResponse {
        let mut stands_still = false;
        let route = Route::of(context);
        let mut reporter = Reporter::new(context);
        let mut asking: Option<BoxFuture<'_, (Question, Word)>> = None;
        loop {
            if asking.is_none() && !running.open.is_empty() {
                match route {
                    Route::InputRequired => return self.suspend(running).await,
                    Route::Elicitation => {
                        asking = running.open.pop_front().map(|question| elicit::ask(&context.peer, question));
                    }
                    Route::None => {
                        for question in std::mem::take(&mut running.open) {
                            running.answer(question, Word::Silence);
                        }
                    }
                }
            }
            // With nothing else on its way, the program stands still until somebody answers: others may run.
            let questions = running.open.len() + usize::from(asking.is_some());
            if asking.is_some()
                && !stands_still
                && running.ledger.account().open <= questions
                && let Ok(other) = self.shared.waiting.try_acquire()
            {
                drop(mem::replace(&mut place, other));
                stands_still = true;
            }
            let answered = async {
                match asking.as_mut() {
                    Some(asking) => asking.await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                // Dropping the program cancels it. Nobody reads the answer.
                () = context.ct.cancelled() => return failure(CANCELLED.to_owned()).into(),
                ended = &mut running.ending => {
                    let news = running.news.borrow_and_update().clone();
                    reporter.report(&news).await;
                    return match ended {
                        Ok(execution) => self.reply(&execution).into(),
                        Err(error) => failure(format!("dacapo failed, not the program: {error}")).into(),
                    };
                }
                Some(question) = running.questions.recv() => running.hear(question),
                (question, word) = answered => {
                    asking = None;
                    if stands_still {
                        let Some(other) = self.place(context).await else { continue };
                        drop(mem::replace(&mut place, other));
                        stands_still = false;
                    }
                    running.answer(question, word);
                }
                Ok(()) = running.news.changed() => {
                    let news = running.news.borrow_and_update().clone();
                    reporter.report(&news).await;
                }
            }
        }
    }

    fn reply(&self, execution: &Execution) -> CallToolResult {
        reply(execution, &self.shared.servers.unavailable(), self.shared.result_chars_max)
    }

    async fn suspend(&self, mut running: Running) -> CallToolResponse {
        tokio::time::sleep(GATHERING).await;
        while let Ok(question) = running.questions.try_recv() {
            running.hear(question);
        }
        let mut asked = BTreeMap::new();
        for (number, question) in running.by_tool().into_iter().enumerate() {
            asked.insert(format!("approval-{number}"), question);
        }
        let requests = asked.iter().map(|(key, question)| (key.clone(), elicit::request(&question.ask))).collect();
        match self.shared.suspended.put(Away { running, asked }) {
            Ok(state) => InputRequiredResult::new(Some(requests), Some(state)).into(),
            Err(account) => gone("too many programs wait for approvals; answer some of them first", account).into(),
        }
    }
}

impl ServerHandler for Server {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
            .with_server_info(Implementation::new("dacapo", env!("CARGO_PKG_VERSION")).with_title("Da Capo"))
            .with_instructions(offer::instructions(&self.shared.servers.names()))
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let mut list = ListToolsResult::with_all_items(offer::tools());
        (list.ttl_ms, list.cache_scope) = (Some(TTL_MS), Some(CacheScope::Public));
        Ok(list)
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let args = request.arguments.unwrap_or_default();
        match &*request.name {
            offer::SEARCH => Ok(match read(args) {
                Ok(args) => self.search(args).await.into(),
                Err(message) => failure(message).into(),
            }),
            offer::EXECUTE => Ok(match (read(args), request.request_state) {
                (Ok(ExecuteArgs { code }), Some(state)) => {
                    self.resume(&state, &code, request.input_responses, &context).await
                }
                (Ok(ExecuteArgs { code }), None) => self.execute(code, &context).await,
                (Err(message), _) => failure(message).into(),
            }),
            other => {
                let message = format!("there is no tool `{other}` here; call functions inside `{}`", offer::EXECUTE);
                Err(ErrorData::invalid_params(message, None))
            }
        }
    }
}

/// Tells the client how far its program has come, if it wants to know.
struct Reporter<'a> {
    peer: &'a Peer<RoleServer>,
    token: Option<ProgressToken>,
    /// Calls done when it was last told; progress must increase.
    told: Option<usize>,
}

impl<'a> Reporter<'a> {
    fn new(context: &'a RequestContext<RoleServer>) -> Reporter<'a> {
        Reporter { peer: &context.peer, token: context.meta.get_progress_token(), told: None }
    }

    async fn report(&mut self, news: &News) {
        let Some(token) = self.token.clone().filter(|_| self.told < Some(news.done)) else { return };
        self.told = Some(news.done);
        #[expect(clippy::cast_precision_loss, reason = "nobody makes so many calls")]
        let progress = ProgressNotificationParam::new(token, news.done as f64).with_message(&*news.message);
        // A client that is gone does not need it.
        drop(self.peer.notify_progress(progress).await);
    }
}

fn read<T: DeserializeOwned>(args: Map<String, Value>) -> Result<T, String> {
    serde_json::from_value(Value::Object(args)).map_err(|error| format!("wrong arguments: {error}"))
}

fn failure(message: String) -> CallToolResult {
    CallToolResult::error(vec![ContentBlock::text(message)])
}

/// A program that does not go on, and what it has done until then.
fn gone(why: &str, account: Account) -> CallToolResult {
    let Account { calls, open } = account;
    let mut named: Vec<String> =
        calls.iter().take(NAMED_MAX).map(|(tool, count)| format!("{tool} ({count})")).collect();
    if calls.len() > NAMED_MAX {
        named.push(format!("{} more", calls.len() - NAMED_MAX));
    }
    let mut message = match named.len() {
        0 => format!("{why}. It had completed no calls"),
        _ => format!("{why}. It had completed these calls, do not repeat them blindly: {}", named.join(", ")),
    };
    if open > 0 {
        write!(message, "; {open} more waited for approval or for their answers").unwrap_or_default();
    }
    let mut result = failure(message.clone());
    let error = json!({ "name": "AbortError", "message": message });
    result.structured_content = Some(json!({ "status": "error", "error": error, "calls": calls }));
    result
}

/// Serves the client at our stdin and stdout until it leaves, or until `stop`.
pub async fn serve_stdio(server: Server, stop: CancellationToken) -> io::Result<()> {
    server.warm_up();
    let running = match server.serve_with_ct(stdio_pipes(), stop).await {
        Ok(running) => running,
        Err(ServerInitializeError::ConnectionClosed(_) | ServerInitializeError::Cancelled) => return Ok(()),
        Err(error) => return Err(io::Error::other(error)),
    };
    running.waiting().await.map(drop).map_err(io::Error::other)
}
