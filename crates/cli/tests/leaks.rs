//! Nothing that was said, and no key, is in the log, the metrics or the traces, at any level.

mod common;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use self::common::Served;

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
        let (collector, traced) = collector();
        let mut gateway = Command::new(env!("CARGO_BIN_EXE_dacapo"))
            .args(["serve", "--listen", "127.0.0.1:0", "--upstream", &upstream.url])
            .envs([("DACAPO_LOG", level), ("DACAPO_LOG_FORMAT", format), ("DACAPO_SECRET", common::SECRET)])
            .envs([("OPENAI_API_KEY", "MARK-upstream-key"), ("OTEL_EXPORTER_OTLP_ENDPOINT", collector.as_str())])
            .envs([("OTEL_EXPORTER_OTLP_HEADERS", "x-key=MARK-collector-key"), ("DACAPO_STORE_KIND", "memory")])
            .env("DACAPO_DRAIN_SECONDS", "0")
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
        let reader = std::thread::spawn(move || {
            let mut rest = String::new();
            log.read_to_string(&mut rest).expect("UTF-8");
            rest
        });
        play(&url);
        let metrics = ureq::get(url.replace("/v1", "/metrics")).call().expect("metrics");
        let metrics = metrics.into_body().read_to_string().expect("a body");
        let pid = rustix::process::Pid::from_child(&gateway);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("it runs");
        gateway.wait().expect("it ends");
        written += &reader.join().expect("it was read");

        assert!(metrics.contains("dacapo_programs_total"), "{metrics}");
        let traced = traced.lock().expect("no panic");
        assert!(traced.windows(11).any(|part| part == b"run_program"), "there are traces");
        for (what, text) in
            [("log", &written), ("metrics", &metrics), ("traces", &String::from_utf8_lossy(&traced).into_owned())]
        {
            let leaks: Vec<&str> = text.lines().filter(|line| line.contains(MARK)).collect();
            assert_eq!(leaks, Vec::<&str>::new(), "in the {what} at {level}");
        }
        lines_of_levels.push(written.lines().count());
    }
    assert!(lines_of_levels[4] > lines_of_levels[2] && lines_of_levels[2] > 10, "{lines_of_levels:?}");
}
