//! Nothing that was said, and no key, is in the log, the metrics or the traces, at any level.

mod common;
#[expect(dead_code, reason = "other tests use more of it")]
mod office;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use common::Served;
use dacapo_wire::{ProgramMode, Wire};
use office::{Office, Redis, RemoteLedger};
use serde_json::{Value, json};

/// Every text that must not be seen begins with it.
const MARK: &str = "MARK";

/// Programs that succeed, fail, are wrong, and search; and an upstream that fails.
const SCRIPT: &str = r#"
[[turn]]
when = { user = "MARK-broken" }
error = { status = 500, message = "MARK-upstream-error" }

[[turn]]
when = { user = "MARK-syntax", after = "user" }
program = "const MARK_syntax = = 'MARK-program';"

[[turn]]
when = { user = "MARK-throw", after = "user" }
program = "store('MARK-stored', 1); console.log('MARK-logged'); throw new Error('MARK-thrown');"

[[turn]]
when = { user = "MARK-wrong", after = "user" }
program = "return await get_thing({ MARK_argument: 1 });"

[[turn]]
when = { after = "user" }
reasoning = "MARK-reasoning"
program = "const MARK_program = await get_thing({ name: 'MARK-argument' }); return { MARK_program };"

[[turn]]
text = "MARK-answer"
"#;

/// Takes whatever is sent to it.
fn collector() -> (String, Arc<Mutex<Vec<u8>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    let taken = Arc::<Mutex<Vec<u8>>>::default();
    let sink = Arc::clone(&taken);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut reader = BufReader::new(stream.expect("a connection"));
            let mut length = 0;
            loop {
                let mut line = String::new();
                reader.read_line(&mut line).expect("a line");
                if let Some(value) = line.to_lowercase().strip_prefix("content-length:") {
                    length = value.trim().parse().expect("a number");
                }
                if line.trim().is_empty() {
                    break;
                }
            }
            let mut body = vec![0; length];
            reader.read_exact(&mut body).expect("a body");
            sink.lock().expect("no panic").extend(body);
            let answer = "HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
            reader.get_mut().write_all(answer.as_bytes()).expect("it is read");
        }
    });
    (url, taken)
}

fn post(url: &str, path: &str, body: &Value) -> Value {
    let agent: ureq::Agent = ureq::Agent::config_builder().http_status_as_error(false).build().into();
    let request = agent.post(format!("{url}{path}")).header("content-type", "application/json");
    let request = request.header("authorization", "Bearer MARK-client-key").header("x-dacapo-MARK", "MARK-header");
    let text = request.send(body.to_string()).expect("an answer").body_mut().read_to_string().expect("a body");
    serde_json::from_str(&text).unwrap_or(Value::Null)
}

fn play(url: &str) {
    let tools = json!([{"type": "function", "function": {"name": "get_thing", "description": "MARK-description",
        "parameters": {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"],
                       "additionalProperties": false}}}]);
    for user in ["MARK-question", "MARK-syntax", "MARK-throw", "MARK-wrong", "MARK-broken"] {
        let messages = json!([{"role": "system", "content": "MARK-system"}, {"role": "user", "content": user}]);
        let mut request = json!({"model": "m", "messages": messages, "tools": tools});
        let response = post(url, "/chat/completions", &request);
        let message = response["choices"][0]["message"].clone();
        let Some(calls) = message["tool_calls"].as_array().cloned() else { continue };
        let messages = request["messages"].as_array_mut().expect("messages");
        messages.push(message);
        for call in calls {
            messages.push(json!({"role": "tool", "tool_call_id": call["id"], "content": "MARK-result"}));
        }
        post(url, "/chat/completions", &request);
        // The same, with an answer that is an error, an id that was clipped, and as a stream.
        let messages = request["messages"].as_array_mut().expect("messages");
        messages.last_mut().expect("a message")["is_error"] = json!(true);
        post(url, "/chat/completions", &request);
        let clipped = request.to_string().replace("_d", "_MARKd");
        post(url, "/chat/completions", &serde_json::from_str(&clipped).expect("JSON"));
        request["stream"] = json!(true);
        post(url, "/chat/completions", &request);
    }
    post(url, "/chat/completions", &json!({"MARK-key": ["MARK-value"]}));
    post(url, "/step", &json!({"program": {"code": "return 'MARK-step'"}}));
    post(url, "/MARK-path", &json!({}));
}

/// A gateway that is listened to.
struct Watched {
    gateway: Child,
    url: String,
    log: JoinHandle<String>,
    traced: Arc<Mutex<Vec<u8>>>,
}

/// What can be known of a gateway from outside.
struct Seen {
    log: String,
    metrics: String,
    traces: String,
}

impl Watched {
    fn start(arguments: &[&str], environment: &[(&str, &str)]) -> Watched {
        let (collector, traced) = collector();
        let mut gateway = Command::new(env!("CARGO_BIN_EXE_dacapo"))
            .args(["serve", "--listen", "127.0.0.1:0"])
            .args(arguments)
            .envs([("DACAPO_SECRET", common::SECRET), ("OTEL_EXPORTER_OTLP_ENDPOINT", collector.as_str())])
            .envs([("OTEL_EXPORTER_OTLP_HEADERS", "x-key=MARK-collector-key"), ("DACAPO_DRAIN_SECONDS", "0")])
            .envs(environment.iter().copied())
            .stderr(Stdio::piped())
            .spawn()
            .expect("it starts");
        let mut log = BufReader::new(gateway.stderr.take().expect("stderr"));
        let mut written = String::new();
        let url = loop {
            let start = written.len();
            assert_ne!(log.read_line(&mut written).expect("UTF-8"), 0, "it listens: {written}");
            if let Some(url) = written[start..].strip_prefix("dacapo listens on ") {
                break url.trim().to_owned();
            }
        };
        let log = std::thread::spawn(move || {
            log.read_to_string(&mut written).expect("UTF-8");
            written
        });
        Watched { gateway, url, log, traced }
    }

    fn stop(mut self) -> Seen {
        let metrics = ureq::get(self.url.replace("/v1", "/metrics")).call().expect("metrics");
        let metrics = metrics.into_body().read_to_string().expect("a body");
        let pid = rustix::process::Pid::from_child(&self.gateway);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("it runs");
        self.gateway.wait().expect("it ends");
        let log = self.log.join().expect("it was read");
        let traces = String::from_utf8_lossy(&self.traced.lock().expect("no panic")).into_owned();
        assert!(metrics.contains("dacapo_programs_total"), "{metrics}");
        assert!(traces.contains("run_program"), "there are traces");
        Seen { log, metrics, traces }
    }
}

fn assert_nothing_leaks<'a>(texts: impl IntoIterator<Item = (&'static str, &'a str)>, when: &str) {
    for (what, text) in texts {
        // Lines may be long: what stands around it says enough.
        let around = |(at, _): (usize, &str)| {
            text.chars().skip(text[..at].chars().count().saturating_sub(60)).take(120).collect::<String>()
        };
        let leaks: Vec<String> = text.match_indices(MARK).take(20).map(around).collect();
        assert_eq!(leaks, Vec::<String>::new(), "in the {what} {when}");
    }
}

#[test]
fn nothing_that_was_said_is_in_the_log_the_metrics_or_the_traces() {
    let folder = tempfile::tempdir().expect("a folder");
    let script = folder.path().join("script.toml");
    std::fs::write(&script, SCRIPT).expect("it is written");
    // It is a gateway itself, and must not make programs of what it is sent.
    let off = [("DACAPO_CODE_MODE_DEFAULT", "off")];
    let upstream = Served::start(&["--script", script.to_str().expect("UTF-8")], &off);
    let mut lines_of_levels = Vec::new();
    for (level, format) in [("error", "text"), ("warn", "json"), ("info", "text"), ("debug", "json"), ("trace", "text")]
    {
        let environment = [
            ("DACAPO_LOG", level),
            ("DACAPO_LOG_FORMAT", format),
            ("OPENAI_API_KEY", "MARK-upstream-key"),
            ("DACAPO_STORE_KIND", "memory"),
        ];
        let gateway = Watched::start(&["--upstream", &upstream.url], &environment);
        play(&gateway.url);
        let Seen { log, metrics, traces } = gateway.stop();
        let texts = [("log", log.as_str()), ("metrics", metrics.as_str()), ("traces", traces.as_str())];
        assert_nothing_leaks(texts, &format!("at {level}"));
        lines_of_levels.push(log.lines().count());
    }
    assert!(lines_of_levels[4] > lines_of_levels[2] && lines_of_levels[2] > 10, "{lines_of_levels:?}");
}

/// The request of a client that names a server and how to log in there.
fn naming(wire: Wire, url: &str, options: &Value, mode: ProgramMode) -> Value {
    let mut server = match wire {
        Wire::Messages => json!({"type": "url", "name": "remote", "url": url, "authorization_token": "MARK-token"}),
        _ => json!({
            "type": "mcp", "server_label": "remote", "server_url": url, "require_approval": "never",
            "allowed_tools": ["pay", "get_balance"], "authorization": "MARK-token", "headers": {"x-team": "MARK-team", "x-key": "MARK-key"},
        }),
    };
    for (key, value) in options.as_object().expect("an object") {
        match (wire, key.as_str()) {
            (Wire::Messages, "authorization") => server["authorization_token"] = value.clone(),
            (Wire::Messages, _) => {}
            _ => server[key] = value.clone(),
        }
    }
    let (tool, programs) = match wire {
        Wire::Messages => (
            json!({
                "type": "mcp_toolset", "mcp_server_name": "remote",
                "configs": {"close_account": {"enabled": false}},
            }),
            json!({"type": "code_execution_20260120", "name": "code_execution"}),
        ),
        _ => (server.clone(), json!({"type": "programmatic_tool_calling"})),
    };
    let tools = if mode == ProgramMode::Explicit { vec![tool, programs] } else { vec![tool] };
    match wire {
        Wire::Messages => json!({
            "model": "m", "max_tokens": 4096, "messages": [{"role": "user", "content": "by name"}],
            "mcp_servers": [server], "tools": tools,
        }),
        _ => json!({"model": "m", "input": "by name", "store": true, "tools": tools}),
    }
}

#[test]
fn credentials_for_servers_that_requests_name_are_nowhere_but_at_these_servers() {
    let (office, redis) = (Office::new(), Redis::start());
    let remote = RemoteLedger::start(&office);
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/owners.toml");
    let script = ["--script", script.to_str().expect("UTF-8"), "--wire", "chat"];
    let (here, servers) = (format!("http://127.0.0.1:{}", remote.port), office.file("mcp.json"));
    let allowed = ["mcp", "echo", "fail", "broken", "elsewhere"].map(|path| format!("{here}/{path}"));
    let environment = [
        ("DACAPO_LOG", "trace"),
        ("DACAPO_MCP_SERVERS", servers.to_str().expect("UTF-8")),
        ("DACAPO_MCP_ALLOW_URLS", &format!("{},http://127.0.0.1:1/mcp", allowed.join(","))),
        ("DACAPO_STORE_KIND", "redis"),
        ("DACAPO_STORE_URL", redis.url.as_str()),
    ];
    let gateway = Watched::start(&script, &environment);
    let agent: ureq::Agent = ureq::Agent::config_builder().http_status_as_error(false).build().into();
    let mut said = String::new();
    let not_allowed = "http://127.0.0.1:9/mcp".to_owned();
    let urls = allowed.iter().cloned().chain(["http://127.0.0.1:1/mcp".to_owned(), not_allowed]);
    let ways = urls.map(|url| (url, json!({}))).chain([
        // What is wrong with them is said without them.
        (allowed[0].clone(), json!({"authorization": ["MARK-token"]})),
        (allowed[0].clone(), json!({"authorization": "MARK-\n"})),
        (allowed[0].clone(), json!({"headers": {"x-team": 7, "x-key": "MARK-key"}})),
        (allowed[0].clone(), json!({"headers": {"x team": "MARK-key"}})),
        (allowed[0].clone(), json!({"require_approval": "always"})),
    ]);
    for (url, options) in ways {
        for wire in [Wire::Responses, Wire::Messages] {
            for (is_streamed, mode) in
                [(false, ProgramMode::Plain), (true, ProgramMode::Plain), (false, ProgramMode::Explicit)]
            {
                let mut body = naming(wire, &url, &options, mode);
                body["stream"] = json!(is_streamed);
                let path = if wire == Wire::Messages { "/messages" } else { "/responses" };
                let request = agent.post(format!("{}{path}", gateway.url)).header("content-type", "application/json");
                let mut response = request.send(body.to_string()).expect("a response");
                let text = response.body_mut().read_to_string().expect("a body");
                said += &format!("{} {url} {wire} {is_streamed} {mode:?} {options}: {text}\n", response.status())
                    .replace(&options.to_string(), "…");
                let id =
                    serde_json::from_str::<Value>(&text).ok().and_then(|body| Some(body["id"].as_str()?.to_owned()));
                if let Some(id) = id.filter(|_| wire == Wire::Responses) {
                    let stored = agent.get(format!("{}/responses/{id}", gateway.url)).call().expect("a response");
                    said += &stored.into_body().read_to_string().expect("a body");
                }
            }
        }
    }
    let stored = String::from_utf8_lossy(&redis.written()).into_owned();
    let Seen { log, metrics, traces } = gateway.stop();
    let requests = remote.noted(".requests");
    let is_let_in = |request: &Value| request["authorization"] == "Bearer MARK-token";
    assert!(requests.iter().any(|request| request["path"] == "/mcp" && is_let_in(request)), "{requests:?}");
    assert!(requests.iter().any(|request| request["path"] == "/echo" && is_let_in(request)), "{requests:?}");
    assert!(said.contains("By name: 2 to ann"), "{said}");
    assert!(stored.len() > 10_000, "{}", stored.len());
    let texts = [("log", &log), ("metrics", &metrics), ("traces", &traces), ("responses", &said), ("store", &stored)];
    assert_nothing_leaks(texts.map(|(what, text)| (what, text.as_str())), "of a gateway with servers");
}
