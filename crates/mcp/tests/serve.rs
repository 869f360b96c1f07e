//! Our MCP server as clients of both eras see it.

mod common;

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::{Desk, LOGS, Room, TRACES};
use dacapo_mcp::{McpServer, StoreSharing};
use dacapo_runner::{LogSeverity, MemoryStore, Policy, RunLimits, Runner, ServerLog};
use rmcp::model::{
    CallToolRequest, CallToolRequestParams, CallToolResponse, CallToolResult, ClientCapabilities, ClientConfig,
    ClientRequest, ContentBlock, ElicitRequestParams, ElicitResult, ElicitationAction, ElicitationCapability,
    Implementation, ProgressNotificationParam, ProtocolVersion, RequestMetaObject,
};
use rmcp::service::{NotificationContext, PeerRequestOptions, RequestContext, RunningService};
use rmcp::{ClientHandler, ClientLifecycleMode, ClientServiceExt, ErrorData, RoleClient, ServiceExt};
use serde_json::{Map, Value, json};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Era {
    Legacy,
    Modern,
}

const ERAS: [Era; 2] = [Era::Legacy, Era::Modern];

/// A client whose user gives these answers, in order.
#[derive(Clone, Default)]
struct User {
    says: Option<&'static str>,
    asked: Arc<Mutex<Vec<String>>>,
    /// The choices of the last question.
    offered: Arc<Mutex<Value>>,
    progress: Arc<Mutex<Vec<(f64, String)>>>,
    logged: Arc<Mutex<Vec<Value>>>,
}

impl ClientHandler for User {
    fn get_info(&self) -> ClientConfig {
        let mut capabilities = ClientCapabilities::default();
        capabilities.elicitation = self.says.map(|_| ElicitationCapability::default());
        ClientConfig::new(capabilities, Implementation::new("test", "1"))
    }

    async fn create_elicitation(
        &self,
        request: ElicitRequestParams,
        _: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, ErrorData> {
        let ElicitRequestParams::FormElicitationParams { message, requested_schema, .. } = request else {
            panic!("only forms are asked for")
        };
        let schema = serde_json::to_value(requested_schema).expect("it is JSON");
        *self.offered.lock().expect("free") = schema["properties"]["decision"]["enum"].clone();
        self.asked.lock().expect("free").push(message);
        if self.says == Some("never") {
            std::future::pending::<()>().await;
        }
        Ok(match self.says {
            Some("decline") | None => ElicitResult::new(ElicitationAction::Decline),
            Some(decision) => {
                ElicitResult::new(ElicitationAction::Accept).with_content(json!({ "decision": decision }))
            }
        })
    }

    async fn on_progress(&self, params: ProgressNotificationParam, _: NotificationContext<RoleClient>) {
        self.progress.lock().expect("free").push((params.progress, params.message.unwrap_or_default()));
    }

    #[expect(deprecated, reason = "clients log until the protocol has removed it")]
    async fn on_logging_message(
        &self,
        message: rmcp::model::LoggingMessageNotificationParam,
        _: NotificationContext<RoleClient>,
    ) {
        self.logged.lock().expect("free").push(serde_json::to_value(message).expect("it is JSON"));
    }
}

type Client = RunningService<RoleClient, User>;

async fn connect(era: Era, user: User, desk: &Arc<Desk>) -> Client {
    connect_with(era, user, desk, 25_000).await
}

async fn connect_with(era: Era, user: User, desk: &Arc<Desk>, result_chars: usize) -> Client {
    connect_by(era, user, desk, result_chars, Policy::default()).await
}

async fn connect_by(era: Era, user: User, desk: &Arc<Desk>, result_chars: usize, policy: Policy) -> Client {
    let runner = Runner::new(policy, RunLimits::default()).expect("the sandbox starts");
    let server = McpServer::new(runner, Arc::new(Room(Arc::clone(desk))), result_chars);
    connect_to(server, era, user).await
}

/// A process of its own, which shares a store with others.
async fn connect_to_process(era: Era, user: User, desk: &Arc<Desk>, store: &Arc<MemoryStore>) -> Client {
    let runner = Runner::new(Policy::default(), RunLimits::default()).expect("the sandbox starts");
    let server = McpServer::new(runner, Arc::new(Room(Arc::clone(desk))), 25_000);
    connect_to(server.with_store(Arc::clone(store) as _, StoreSharing::OneProcess), era, user).await
}

async fn connect_to(server: McpServer, era: Era, user: User) -> Client {
    let (ours, theirs) = tokio::io::duplex(64 << 10);
    tokio::spawn(async move {
        let running = server.serve(ours).await.expect("the client says hello");
        running.waiting().await.expect("the server ends well");
    });
    let lifecycle = match era {
        Era::Legacy => ClientLifecycleMode::Initialize,
        Era::Modern => ClientLifecycleMode::Discover { preferred_versions: vec![ProtocolVersion::V_2026_07_28] },
    };
    user.serve_with_lifecycle(theirs, lifecycle).await.expect("the server answers")
}

fn call(tool: &'static str, args: Value) -> CallToolRequestParams {
    let Value::Object(args) = args else { panic!("arguments are an object") };
    CallToolRequestParams::new(tool).with_arguments(args)
}

async fn execute(client: &Client, code: &str) -> CallToolResult {
    client.call_tool(call("execute", json!({ "code": code }))).await.expect("it is answered")
}

fn text(result: &CallToolResult) -> &str {
    let ContentBlock::Text(text) = &result.content[0] else { panic!("{result:?}") };
    &text.text
}

fn structured(result: &CallToolResult) -> &Value {
    result.structured_content.as_ref().expect("it is structured")
}

#[tokio::test]
async fn a_client_sees_two_tools_whatever_is_behind() {
    for era in ERAS {
        let client = connect(era, User::default(), &Arc::new(Desk::new())).await;
        let tools = client.list_all_tools().await.expect("they are listed");
        let names: Vec<&str> = tools.iter().map(|tool| &*tool.name).collect();
        assert_eq!(names, ["search", "execute"]);
        for tool in &tools {
            assert!(tool.title.is_some() && tool.annotations.is_some());
            for schema in [Some(&tool.input_schema), tool.output_schema.as_ref()] {
                let schema = schema.expect("both schemas are there");
                assert_eq!(schema["type"], "object");
                assert!(has_no_boolean_schema(schema), "{schema:?}");
            }
        }
        let info = client.peer_info().expect("it said who it is");
        let instructions = info.instructions.as_deref().unwrap_or_default();
        assert!(instructions.ends_with("Servers: desk."), "{era:?} {instructions}");
    }
}

fn has_no_boolean_schema(schema: &Map<String, Value>) -> bool {
    let properties = schema.get("properties").and_then(Value::as_object);
    properties.into_iter().flatten().all(|(_, property)| property.as_object().is_some_and(has_no_boolean_schema))
        && schema.get("items").is_none_or(Value::is_object)
}

#[tokio::test]
async fn our_own_tools_cost_little_context_however_many_servers_there_are() {
    let many: Vec<String> = (0..100).map(|number| format!("server-number-{number}")).collect();
    let one = dacapo_mcp::context_cost_text(&["desk".to_owned()]);
    let hundred = dacapo_mcp::context_cost_text(&many);
    // About four characters make a token; `dacapo mcp --list` counts them.
    assert!(hundred.len() < 4 * 1_200, "{}", hundred.len());
    assert!(hundred.len() - one.len() < 450);
    assert!(hundred.contains(" more.\""));
}

#[tokio::test]
async fn functions_are_found_and_called() {
    for era in ERAS {
        let client = connect(era, User::default(), &Arc::new(Desk::new())).await;
        let found = client.call_tool(call("search", json!({ "query": "echo a value" }))).await.expect("it is answered");
        assert!(text(&found).contains("function echo(args"), "{}", text(&found));
        assert_eq!(structured(&found)["functions"][0], "desk.echo");
        assert!(text(&found).ends_with("// not available now: attic (no such file)\n"));
        assert_eq!(structured(&found)["unavailable"], json!(["attic (no such file)"]));
        // One query for each step of a task.
        let queries = json!({ "queries": ["fail with a message", "echo a value"] });
        let found = client.call_tool(call("search", queries)).await.expect("it is answered");
        let shown = text(&found);
        let [failing, echoing] = ["fail with a message", "echo a value"].map(|query| shown.find(query));
        assert!(failing.is_some() && failing < echoing, "an answer for each, in their order: {shown}");
        assert!(shown.contains("function fail(") && shown.contains("function echo("), "{shown}");

        let result = execute(&client, "console.warn('hm'); return [await desk.echo({value: 0.1}), 2]").await;
        let expected = json!({
            "status": "success",
            "data": [0.1, 2],
            "logs": [{ "level": "warn", "text": "hm" }],
            "calls": { "desk.echo": 1 },
        });
        assert_eq!(structured(&result), &expected);
        assert_eq!(text(&result), "[0.1,2]\n\nLogs:\n[warn] hm");
        assert_ne!(result.is_error, Some(true));
    }
}

#[tokio::test]
async fn calls_belong_to_the_trace_of_whoever_runs_the_program() {
    let trace = json!({"traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "tracestate": "a=1"});
    let trace = trace.as_object().expect("an object").clone();
    let mut meta = trace.clone();
    meta.insert("something".to_owned(), json!("else"));
    let client = connect(Era::Legacy, User::default(), &Arc::new(Desk::new())).await;
    let mut params = call("execute", json!({ "code": "return await desk.echo({value: 1})" }));
    params.meta = Some(RequestMetaObject::from(meta));
    client.call_tool(params).await.expect("it is answered");
    execute(&client, "return await desk.echo({value: 2})").await;
    assert_eq!(*TRACES.lock().expect("nobody panics"), [trace], "the second program has none");
}

#[tokio::test]
async fn an_error_shows_where_and_what_was_done_before() {
    let client = connect(Era::Legacy, User::default(), &Arc::new(Desk::new())).await;
    let result = execute(&client, "await desk.echo({value: 1});\nawait desk.fail({message: 'out of ink'})").await;
    assert_eq!(result.is_error, Some(true));
    let error = &structured(&result)["error"];
    assert_eq!(
        (&error["name"], &error["message"], &error["line"]),
        (&json!("ToolError"), &json!("out of ink"), &json!(2))
    );
    let text = text(&result);
    assert!(text.starts_with("ToolError: out of ink\n"), "{text}");
    assert!(text.contains("> 2 | await desk.fail") || text.contains("await desk.fail({message"), "{text}");
    let end = "Completed calls: desk.echo (0), desk.fail (1)\nServers not available now: attic (no such file)";
    assert!(text.ends_with(end), "{text}");
}

#[tokio::test]
async fn pictures_that_are_returned_reach_the_client_as_content() {
    let client = connect(Era::Modern, User::default(), &Arc::new(Desk::new())).await;
    let result = execute(&client, "await desk.draw({name: 'a'}); return desk.draw({name: 'b'})").await;
    assert_eq!(structured(&result)["data"]["handle"], "attachment:b/0");
    assert_eq!(result.content.len(), 2);
    assert!(matches!(&result.content[1], ContentBlock::Image(image) if image.mime_type == "image/png"));
}

#[tokio::test]
async fn a_session_keeps_what_programs_store_and_tells_what_answers_look_like_once() {
    let client = connect(Era::Modern, User::default(), &Arc::new(Desk::new())).await;
    let code = "const found = await desk.echo({value: {id: 7}}); store('found', found); store('gone', 1); return 1";
    let first = execute(&client, code).await;
    assert_eq!(structured(&first)["shapes"], json!(["desk.echo returns { id: number }"]));
    assert!(text(&first).ends_with("Shapes of answers:\ndesk.echo returns { id: number }"), "{}", text(&first));
    let code = "await desk.echo({value: {id: 8}}); store('gone', undefined); return [load('found'), load('gone')]";
    let second = execute(&client, code).await;
    assert_eq!(structured(&second)["data"], json!([{"id": 7}, null]));
    assert_eq!(structured(&second).get("shapes"), None);
    // Programs that run at the same time keep what each of them stores; one that fails keeps what it stored before.
    let (a, b) = tokio::join!(
        execute(&client, "await desk.echo({value: 1, after_ms: 20}); store('a', 1)"),
        execute(&client, "store('b', 2); await desk.echo({value: 1, after_ms: 20}); throw new Error('no')"),
    );
    assert_eq!((a.is_error, b.is_error), (Some(false), Some(true)));
    let third = execute(&client, "return [load('found').id, load('a'), load('b')]").await;
    assert_eq!(structured(&third)["data"], json!([7, 1, 2]));
}

#[tokio::test]
async fn calls_that_a_failed_program_completed_are_not_made_again_by_the_next() {
    for era in ERAS {
        let desk = Arc::new(Desk::new());
        let client = connect(era, User::default(), &desk).await;
        let made = || desk.call_counts().get("echo").copied().unwrap_or_default();
        let failed = execute(&client, "await desk.echo({value: 1}); await desk.echo({value: 2}); nothing.at.all").await;
        assert_eq!((failed.is_error, made()), (Some(true), 2));
        let mended = "return [await desk.echo({value: 1}), await desk.echo({value: 2}, {fresh: true}), await desk.echo({value: 3})]";
        let second = execute(&client, mended).await;
        assert_eq!(structured(&second)["data"], json!([1, 2, 3]));
        assert_eq!(structured(&second)["reused"], json!([{ "call": 0, "tool": "desk.echo", "args": { "value": 1 } }]));
        assert_eq!(made(), 4, "the second was asked for again, and the third is new");
        assert!(text(&second).contains("not executed again, unless {fresh: true}"), "{}", text(&second));
        // It was for the next program only.
        let third = execute(&client, "return await desk.echo({value: 1})").await;
        assert_eq!((structured(&third).get("reused"), made()), (None, 5), "{era:?}");
    }
}

#[tokio::test]
async fn what_is_of_a_kind_that_is_not_known_is_told_to_be_missing() {
    let client = connect(Era::Modern, User::default(), &Arc::new(Desk::new())).await;
    let result = execute(&client, "return [await desk.draw({name: 'odd'}), await desk.draw({name: 'b'})]").await;
    let missing = "1 of the images and files are of a kind that is not known here, and are left out.";
    assert_eq!(structured(&result)["missing"], missing);
    assert!(text(&result).ends_with(missing));
    assert_eq!(result.content.len(), 2);
}

#[tokio::test]
async fn calls_that_were_refused_or_not_waited_for_are_told_apart() {
    let client = connect(Era::Legacy, User::default(), &Arc::new(Desk::new())).await;
    let program = "
        await desk.erase({}).catch(() => 0);
        return Promise.race([desk.hang({}), desk.echo({value: 'quick'})])";
    let result = execute(&client, program).await;
    let expected = json!({
        "status": "success",
        "data": "quick",
        "refused": [{ "call": 0, "tool": "desk.erase", "args": {} }],
        "unfinished": [{ "call": 1, "tool": "desk.hang", "args": {} }],
        "calls": { "desk.echo": 1, "desk.hang": 1 },
    });
    assert_eq!(structured(&result), &expected);
    let end = "quick\nRefused, so not made: desk.erase (0)\nSent, but not waited for: desk.hang (1)";
    assert_eq!(text(&result), end);
}

#[tokio::test]
async fn long_results_are_cut_at_a_valid_place() {
    let client = connect_with(Era::Modern, User::default(), &Arc::new(Desk::new()), 1_000).await;
    let result = execute(&client, "return {rows: Array.from({length: 500}, (_, id) => ({id}))}").await;
    let data = &structured(&result)["data"];
    assert!(data.to_string().len() <= 1_000 && data["rows"].as_array().is_some_and(|rows| rows.len() > 80));
    let missing = structured(&result)["missing"].as_str().expect("it says so");
    assert!(missing.contains("data.rows has only the first ") && missing.contains("of 500 items"), "{missing}");
    assert!(text(&result).ends_with(missing));
}

#[tokio::test]
async fn a_client_that_wants_to_know_hears_of_progress() {
    for era in ERAS {
        let user = User::default();
        let client = connect(era, user.clone(), &Arc::new(Desk::new())).await;
        // The client adds a token to every request.
        let program = "
            console.log('first one'); await desk.echo({value: 1, after_ms: 30});
            console.warn('then two'); await desk.echo({value: 2, after_ms: 30})";
        execute(&client, program).await;
        tokio::time::sleep(Duration::from_millis(100)).await;
        let heard = user.progress.lock().expect("free").clone();
        assert!(heard.len() >= 2, "{era:?} {heard:?}");
        assert!(heard.windows(2).all(|pair| pair[0].0 < pair[1].0), "{heard:?}");
        assert!(heard.iter().any(|(_, message)| message.contains("desk.echo")), "{heard:?}");
        for line in ["first one", "[warn] then two"] {
            assert!(heard.iter().any(|(_, message)| message == line), "{era:?} {heard:?}");
        }
    }
}

/// Before 2026-07-28 a client sets a level for its session, after that with each request.
#[tokio::test]
#[expect(deprecated, reason = "clients set levels until the protocol has removed it")]
async fn a_client_that_sets_a_level_hears_what_servers_log() {
    use rmcp::model::{LoggingLevel, SetLevelRequestParams};
    for era in ERAS {
        let (silent, user) = (User::default(), User::default());
        let unasked = connect(era, silent.clone(), &Arc::new(Desk::new())).await;
        let client = connect(era, user.clone(), &Arc::new(Desk::new())).await;
        let mut params = call("execute", json!({ "code": "await desk.echo({value: 1, after_ms: 300})" }));
        match era {
            Era::Legacy => {
                client.set_level(SetLevelRequestParams::new(LoggingLevel::Warning)).await.expect("it is taken");
            }
            Era::Modern => {
                let mut meta = RequestMetaObject::default();
                meta.set_log_level(LoggingLevel::Warning);
                params.meta = Some(meta);
            }
        }
        let log = async {
            // The second of them comes when the program certainly runs.
            for severity in [LogSeverity::Info, LogSeverity::Error] {
                tokio::time::sleep(Duration::from_millis(100)).await;
                let (server, logger) = ("desk".to_owned(), Some("printer".to_owned()));
                let log = ServerLog { server, severity, logger, data: json!({ "ink": 0 }) };
                LOGS.send(Arc::new(log)).expect("somebody listens");
            }
        };
        let (result, other, ()) = tokio::join!(
            client.call_tool(params),
            execute(&unasked, "await desk.echo({value: 1, after_ms: 300})"),
            log
        );
        assert_eq!((result.expect("it is answered").is_error, other.is_error), (Some(false), Some(false)));
        tokio::time::sleep(Duration::from_millis(50)).await;
        let expected = json!([{ "level": "error", "logger": "desk/printer", "data": { "ink": 0 } }]);
        assert_eq!(json!(*user.logged.lock().expect("free")), expected, "{era:?}");
        assert!(silent.logged.lock().expect("free").is_empty(), "{era:?}");
    }
}

#[tokio::test]
async fn a_destructive_call_is_asked_for() {
    for era in ERAS {
        let user = User { says: Some("allow once"), ..User::default() };
        let desk = Arc::new(Desk::new());
        let client = connect(era, user.clone(), &desk).await;
        let result = execute(&client, "return [await desk.erase({what: 'a'}), await desk.erase({what: 'b'})]").await;
        assert_eq!(structured(&result)["data"], json!(["erased", "erased"]), "{era:?} {result:?}");
        let asked = user.asked.lock().expect("free").clone();
        assert_eq!(asked.len(), 2);
        let question = "A program wants to call `erase` of the server `desk` with\n  what: \"a\"\n\n\
                        \"allow for this program\" allows this call, and every further call by this program of `erase` of \
                        the server `desk` with arguments of this shape, whatever their values: { what: string }.\n\
                        \"deny all\" denies this call and all further calls of this program that need approval.";
        assert_eq!(asked[0], question);
        let choices = json!(["allow once", "deny", "deny all", "allow for this program"]);
        assert_eq!(*user.offered.lock().expect("free"), choices);
        assert_eq!(desk.call_counts(), [("erase".to_owned(), 2)].into());
    }
}

#[tokio::test]
async fn one_answer_may_be_for_the_whole_program() {
    for era in ERAS {
        let user = User { says: Some("allow for this program"), ..User::default() };
        let client = connect(era, user.clone(), &Arc::new(Desk::new())).await;
        let program = "
            await Promise.all([1, 2, 3].map(what => desk.erase({what})));
            await desk.erase({what: 4});
            return 'done'";
        assert_eq!(structured(&execute(&client, program).await)["data"], "done");
        assert_eq!(user.asked.lock().expect("free").len(), 1, "{era:?}");
    }
}

#[tokio::test]
async fn an_answer_for_the_whole_program_is_for_arguments_of_the_same_shape() {
    for era in ERAS {
        let user = User { says: Some("allow for this program"), ..User::default() };
        let client = connect(era, user.clone(), &Arc::new(Desk::new())).await;
        let program = "
            await Promise.all([desk.erase({what: 'a'}), desk.erase({what: 'b'}), desk.erase({what: {all: true}})]);
            await desk.erase({what: 'c', force: true});
            return desk.erase({what: 'd'})";
        assert_eq!(structured(&execute(&client, program).await)["data"], "erased");
        assert_eq!(user.asked.lock().expect("free").len(), 3, "{era:?}");
    }
}

#[tokio::test]
async fn whoever_denies_all_is_not_asked_again_by_this_program() {
    for era in ERAS {
        let user = User { says: Some("deny all"), ..User::default() };
        let desk = Arc::new(Desk::new());
        let client = connect(era, user.clone(), &desk).await;
        let program = "
            const denied = async args => desk.erase(args).catch(error => error.message);
            await Promise.all([denied({what: 1}), denied({what: 'b'}), denied({})]);
            return [await denied({what: {}}), await desk.echo({value: 'on'})]";
        let message = "not allowed: `desk.erase` needs the user's approval, and the user has denied all further calls of this \
                       program that need one; do not ask again, end the program";
        assert_eq!(structured(&execute(&client, program).await)["data"], json!([message, "on"]));
        assert_eq!(user.asked.lock().expect("free").len(), 1, "{era:?}");
        execute(&client, "await desk.erase({})").await;
        assert_eq!(user.asked.lock().expect("free").len(), 2, "another program asks again");
        assert_eq!(desk.call_counts(), [("echo".to_owned(), 1)].into());
    }
}

#[tokio::test]
async fn a_call_that_cannot_be_shown_whole_is_allowed_once_at_most() {
    for era in ERAS {
        for (says, executed) in [("allow for this program", 0), ("allow once", 1)] {
            let user = User { says: Some(says), ..User::default() };
            let desk = Arc::new(Desk::new());
            let client = connect(era, user.clone(), &desk).await;
            let program = "return desk.erase({what: 'x'.repeat(50_000) + '; rm -rf /' + 'y'.repeat(50_000)})";
            execute(&client, program).await;
            let asked = user.asked.lock().expect("free").remove(0);
            let first = "NOT EVERYTHING IS SHOWN: 80016 of 100025 characters of this call are missing below.";
            assert_eq!(asked.lines().next(), Some(first));
            assert_eq!(*user.offered.lock().expect("free"), json!(["allow once", "deny", "deny all"]));
            assert_eq!(desk.call_counts().get("erase").copied().unwrap_or_default(), executed, "{era:?} {says}");
        }
    }
}

#[tokio::test]
async fn a_tool_that_changed_since_it_was_approved_is_said_to_have_changed() {
    for era in ERAS {
        let user = User { says: Some("allow for this program"), ..User::default() };
        let desk = Arc::new(Desk::new());
        let client = connect(era, user.clone(), &desk).await;
        execute(&client, "await desk.erase({})").await;
        desk.revision.fetch_add(1, Ordering::SeqCst);
        execute(&client, "await desk.erase({})").await;
        let asked = user.asked.lock().expect("free").clone();
        let changed = "THE TOOL HAS CHANGED since it was last approved: its server describes it differently now.\n";
        assert_eq!(asked[1], format!("{changed}{}", asked[0]), "{era:?}");
    }
}

#[tokio::test]
async fn whoever_denies_all_denies_what_is_asked_at_the_same_time() {
    let ask = serde_json::from_value(json!([{ "decision": "ask" }])).expect("it is a rule");
    let desk = Arc::new(Desk::new());
    let user = User { says: Some("allow once"), ..User::default() };
    let client = connect_by(Era::Modern, user, &desk, 25_000, Policy::new(ask)).await;
    let program = "await Promise.allSettled([desk.echo({value: 1}), desk.erase({}), desk.draw({name: 'a'})]); return 1";
    let params = call("execute", json!({ "code": program }));
    let CallToolResponse::InputRequired(asked) = client.call_tool_once(params.clone()).await.expect("it is answered")
    else {
        panic!("a person has to be asked")
    };
    let mut keys = asked.input_requests.expect("there are questions").into_keys().collect::<Vec<_>>();
    keys.sort_unstable();
    assert_eq!(keys.len(), 3);
    let answers = keys
        .into_iter()
        .zip(["allow once", "allow once", "deny all"])
        .map(|(key, decision)| (key, json!({ "action": "accept", "content": { "decision": decision } })));
    let state = asked.request_state.expect("there is a state");
    let retry = params.with_input_responses(answers.collect()).with_request_state(state);
    let result = client.call_tool(retry).await.expect("it is answered");
    assert_eq!(structured(&result)["data"], 1);
    assert!(desk.call_counts().is_empty());
}

#[tokio::test]
async fn calls_that_are_made_together_are_asked_for_together() {
    let ask = serde_json::from_value(json!([{ "decision": "ask" }])).expect("it is a rule");
    let user = User { says: Some("allow once"), ..User::default() };
    let desk = Arc::new(Desk::new());
    let client = connect_by(Era::Modern, user, &desk, 25_000, Policy::new(ask)).await;
    let program = "return await Promise.all([desk.echo({value: 1}), desk.echo({value: 2}), desk.draw({name: 'a'})])";
    let params = call("execute", json!({ "code": program }));
    let mut rounds = Vec::new();
    let mut retry = params.clone();
    let data = loop {
        match client.call_tool_once(retry).await.expect("it is answered") {
            CallToolResponse::InputRequired(asked) => {
                let requests = asked.input_requests.expect("there are questions");
                rounds.push(requests.len());
                let yes = json!({ "action": "accept", "content": { "decision": "allow once" } });
                let answers = requests.into_keys().map(|key| (key, yes.clone())).collect();
                let state = asked.request_state.expect("there is a state");
                assert_eq!(state.len(), 32);
                retry = params.clone().with_input_responses(answers).with_request_state(state);
            }
            CallToolResponse::Complete(result) => break structured(&result)["data"].clone(),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(data[1], 2);
    assert_eq!(rounds, [2, 1], "one question per tool and round");
}

#[tokio::test]
async fn an_answer_for_a_program_that_is_gone_is_told_so() {
    let client = connect(Era::Modern, User::default(), &Arc::new(Desk::new())).await;
    let params = call("execute", json!({ "code": "return 1" })).with_request_state("made up");
    let result = client.call_tool(params).await.expect("it is answered");
    assert_eq!(result.is_error, Some(true));
    assert!(text(&result).contains("is not known any more; look before you run it again"), "{}", text(&result));
}

/// The state of a program that waits for somebody to answer.
async fn waiting(client: &Client, code: &str) -> (CallToolRequestParams, String) {
    match client.call_tool_once(call("execute", json!({ "code": code }))).await.expect("it is answered") {
        CallToolResponse::InputRequired(asked) => {
            let requests = asked.input_requests.expect("there are questions");
            let yes = json!({ "action": "accept", "content": { "decision": "allow once" } });
            let answers = requests.into_keys().map(|key| (key, yes.clone())).collect();
            let params = call("execute", json!({ "code": code })).with_input_responses(answers);
            (params, asked.request_state.expect("there is a state"))
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn an_answer_that_comes_twice_is_told_what_was_done() {
    let desk = Arc::new(Desk::new());
    let user = User { says: Some("allow once"), ..User::default() };
    let client = connect(Era::Modern, user, &desk).await;
    let (params, state) = waiting(&client, "await desk.echo({}); return desk.erase({what: 'all'})").await;
    let params = params.with_request_state(state);
    let first = client.call_tool(params.clone()).await.expect("it is answered");
    assert_eq!(structured(&first)["data"], "erased");
    let second = client.call_tool(params).await.expect("it is answered");
    assert_eq!(second.is_error, Some(true));
    assert!(text(&second).contains("do not repeat them blindly: desk.echo (1), desk.erase (1)"), "{}", text(&second));
    assert_eq!(structured(&second)["calls"], json!({ "desk.echo": 1, "desk.erase": 1 }));
    assert_eq!(desk.call_counts()["erase"], 1);
}

#[tokio::test]
async fn an_answer_to_one_program_is_none_to_another() {
    let desk = Arc::new(Desk::new());
    let user = User { says: Some("allow once"), ..User::default() };
    let client = connect(Era::Modern, user, &desk).await;
    let (params, state) = waiting(&client, "return desk.erase({what: 'all'})").await;
    let other = call("execute", json!({ "code": "return desk.erase({what: 'nothing'})" }));
    let refused = client.call_tool(other.with_request_state(&*state)).await.expect("it is answered");
    assert_eq!(text(&refused), "this `requestState` belongs to another program; nothing was run");
    assert!(desk.call_counts().is_empty());
    let result = client.call_tool(params.with_request_state(state)).await.expect("it is answered");
    assert_eq!(structured(&result)["data"], "erased", "the program has waited");
}

/// Each of the clients talks to another process.
#[tokio::test]
async fn a_program_that_waits_goes_on_in_one_other_process_and_only_there() {
    let (desk, store) = (Arc::new(Desk::new()), Arc::new(MemoryStore::new(1 << 20, McpServer::STORE_TTL)));
    let user = User { says: Some("allow once"), ..User::default() };
    let mut processes = Vec::new();
    for _ in 0..3 {
        processes.push(connect_to_process(Era::Modern, user.clone(), &desk, &store).await);
    }
    let program = "store('n', 1); await desk.echo({value: 1}); console.log(Math.random());
                   return [await desk.erase({what: 'all'}), load('n')]";
    let (params, state) = waiting(&processes[0], program).await;
    let other = call("execute", json!({ "code": "return 1" })).with_request_state(&*state);
    let refused = processes[1].call_tool(other).await.expect("it is answered");
    assert_eq!(text(&refused), "this `requestState` belongs to another program; nothing was run");
    let params = params.with_request_state(state);
    let result = processes[1].call_tool(params.clone()).await.expect("it is answered");
    assert_eq!(structured(&result)["data"], json!(["erased", 1]));
    for process in &processes {
        let again = process.call_tool(params.clone()).await.expect("it is answered");
        assert_eq!(again.is_error, Some(true), "{}", text(&again));
    }
    assert_eq!(desk.call_counts(), [("echo".to_owned(), 1), ("erase".to_owned(), 1)].into());
}

#[tokio::test]
async fn a_tool_that_has_changed_since_it_was_asked_about_is_asked_about_again_after_a_restart() {
    let (desk, store) = (Arc::new(Desk::new()), Arc::new(MemoryStore::new(1 << 20, McpServer::STORE_TTL)));
    let user = User { says: Some("deny"), ..User::default() };
    let first = connect_to_process(Era::Modern, user.clone(), &desk, &store).await;
    let (params, state) = waiting(&first, "return desk.erase({what: 'all'}).catch((error) => error.name)").await;
    desk.revision.fetch_add(1, Ordering::Relaxed);
    let second = connect_to_process(Era::Modern, user.clone(), &desk, &store).await;
    let result = second.call_tool(params.with_request_state(state)).await.expect("it is answered");
    assert_eq!(structured(&result)["data"], "ToolError", "the answer to the first question does not count");
    assert_eq!(user.asked.lock().expect("free").len(), 1);
    assert!(desk.call_counts().is_empty());
}

#[tokio::test]
async fn programs_that_wait_for_a_person_do_not_keep_others_from_running() {
    let user = User { says: Some("never"), ..User::default() };
    let client = Arc::new(connect(Era::Legacy, user.clone(), &Arc::new(Desk::new())).await);
    for _ in 0..40 {
        let client = Arc::clone(&client);
        tokio::spawn(async move { execute(&client, "return desk.erase({})").await });
    }
    while user.asked.lock().expect("free").len() < 40 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let other = execute(&client, "return 1");
    let other = tokio::time::timeout(Duration::from_secs(10), other).await.expect("it has its turn");
    assert_eq!(structured(&other)["data"], 1);
}

#[tokio::test]
async fn whoever_declines_is_heard_and_the_program_goes_on() {
    for era in ERAS {
        for says in ["decline", "deny"] {
            let user = User { says: Some(says), ..User::default() };
            let desk = Arc::new(Desk::new());
            let client = connect(era, user, &desk).await;
            let result = execute(&client, "return desk.erase({}).catch(error => error.message)").await;
            let message = "not allowed: the user was asked about `desk.erase` and declined";
            assert_eq!(structured(&result)["data"], message, "{era:?} {says}");
            assert!(desk.call_counts().is_empty());
        }
    }
}

#[tokio::test]
async fn where_nobody_can_be_asked_the_error_says_how_to_allow() {
    for era in ERAS {
        let client = connect(era, User::default(), &Arc::new(Desk::new())).await;
        let result = execute(&client, "await desk.erase({})").await;
        assert!(
            text(&result).contains(r#"add {"server":"desk","tool":"erase","decision":"allow"} to `dacapo.policy`"#)
        );
    }
}

#[tokio::test]
async fn cancelling_the_request_stops_the_program_and_its_calls() {
    for era in ERAS {
        let desk = Arc::new(Desk::new());
        let client = connect(era, User::default(), &desk).await;
        let request = CallToolRequest::new(call(
            "execute",
            json!({ "code": "await Promise.all([desk.hang({}), desk.hang({})])" }),
        ));
        let handle = client
            .send_cancellable_request(ClientRequest::CallToolRequest(request), PeerRequestOptions::no_options())
            .await
            .expect("it is sent");
        while desk.running.load(Ordering::SeqCst) < 2 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        handle.cancel(None).await.expect("it is told");
        while desk.cancelled.load(Ordering::SeqCst) < 2 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert_eq!(structured(&execute(&client, "return 1").await)["data"], 1, "the server goes on");
    }
}

#[tokio::test]
async fn wrong_arguments_are_told_to_the_model() {
    let client = connect(Era::Legacy, User::default(), &Arc::new(Desk::new())).await;
    let result = client.call_tool(call("execute", json!({ "program": "return 1" }))).await.expect("it is answered");
    assert_eq!(result.is_error, Some(true));
    assert!(text(&result).contains("unknown field `program`, expected `code`"), "{}", text(&result));
    let unknown = client.call_tool(call("desk.echo", json!({}))).await.expect_err("there is no such tool");
    assert!(unknown.to_string().contains("call functions inside `execute`"), "{unknown}");
}
