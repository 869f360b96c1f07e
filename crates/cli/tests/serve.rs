//! `dacapo serve` as an operator meets it: what it makes of its environment, and what it says in its log.

use std::ffi::{OsStr, OsString};
use std::io::{BufRead, BufReader, Read};
use std::os::unix::ffi::OsStringExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};

/// `dacapo serve` in an environment of its own.
fn serve(arguments: &[&str], environment: &[(&str, &OsStr)]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_dacapo"));
    command.args(["serve", "--listen", "127.0.0.1:0"]).args(arguments).env_clear();
    command.env("NO_COLOR", "1").env("SSL_CERT_FILE", "/nowhere/at/all").env("SSL_CERT_DIR", "/nowhere/at/all");
    command.envs(environment.iter().copied()).stderr(Stdio::piped()).stdout(Stdio::piped());
    command
}

fn text(output: &Output) -> (Option<i32>, &str) {
    (output.status.code(), std::str::from_utf8(&output.stderr).expect("UTF-8"))
}

#[test]
fn variables_of_others_do_not_stop_it() {
    let unreadable = OsString::from_vec(vec![b'x', 0xff]);
    let environment: [(&str, &OsStr); 6] = [
        ("DACAPO_PORT", "tcp://10.0.0.7:8787".as_ref()),
        ("DACAPO_SERVICE_HOST", "10.0.0.7".as_ref()),
        ("DACAPO_MCP_TOKEN", "token".as_ref()),
        ("DACAPO_CACHE_DIR", "/tmp".as_ref()),
        ("DACAPO_SECRETT", "0123456789abcdef".as_ref()),
        ("SOMETHING_ELSE", &unreadable),
    ];
    let printed = serve(&["--print-config"], &environment).output().expect("it runs");
    let notice = "dacapo: ignored environment variables that are no settings: DACAPO_PORT, DACAPO_SECRETT (did you mean \
                  DACAPO_SECRET?), DACAPO_SERVICE_HOST\n";
    assert_eq!(text(&printed), (Some(0), notice));

    let wrong: [(&str, &OsStr); 2] = [("DACAPO_SECRET", &unreadable), ("DACAPO_TURNS_MAX", "many".as_ref())];
    let refused = serve(&["--print-config"], &wrong).output().expect("it runs");
    let mistakes = "dacapo: DACAPO_SECRET: its value is not UTF-8\n\
                    dacapo: DACAPO_TURNS_MAX: is of type string; expected a whole number that is not negative\n";
    assert_eq!(text(&refused), (Some(2), mistakes));
}

#[test]
fn without_ca_certificates_it_says_what_to_do() {
    let refused = serve(&["--upstream", "https://localhost:1/v1"], &[]).output().expect("it runs");
    let (code, log) = text(&refused);
    let advice = "install ca-certificates, or set SSL_CERT_FILE to a file that holds them";
    assert!(code == Some(1) && log.contains("`upstream` has an https address") && log.contains(advice), "{log}");

    // Nobody asked for the providers that are there by default.
    let mut child = serve(&[], &[]).spawn().expect("it runs");
    let mut lines = BufReader::new(child.stderr.take().expect("stderr")).lines().map(|line| line.expect("UTF-8"));
    let warning = lines.find(|line| line.contains("no CA certificates") || line.starts_with("dacapo listens"));
    assert!(warning.as_ref().is_some_and(|line| line.contains(advice)), "{warning:?}");
    assert!(lines.any(|line| line.starts_with("dacapo listens")));
    child.kill().expect("it runs");
    child.wait().expect("it was killed");
}

fn post(url: &str, body: &Value) -> Value {
    let agent = ureq::Agent::new_with_defaults();
    let sent = agent.post(format!("{url}/chat/completions")).header("content-type", "application/json");
    let text = sent.send(body.to_string()).expect("an answer").body_mut().read_to_string().expect("a body");
    serde_json::from_str(&text).expect("JSON")
}

/// Sends a request to a gateway with this secret, and gives its answer and what the gateway logged.
fn logged(secret: &str, body: &Value) -> (Value, String) {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/stateless.toml");
    let environment: [(&str, &OsStr); 2] = [("DACAPO_SECRET", secret.as_ref()), ("DACAPO_LOG", "warn".as_ref())];
    let mut child = serve(&["--script", script.to_str().expect("UTF-8")], &environment).spawn().expect("it runs");
    let mut stderr = BufReader::new(child.stderr.take().expect("stderr"));
    let mut line = String::new();
    stderr.read_line(&mut line).expect("UTF-8");
    let url = line.trim().strip_prefix("dacapo listens on ").expect("the address");
    let answer = post(url, body);
    child.kill().expect("it runs");
    child.wait().expect("it was killed");
    let mut log = String::new();
    stderr.read_to_string(&mut log).expect("UTF-8");
    (answer, log)
}

#[test]
fn a_replica_says_in_its_log_that_it_cannot_open_a_state() {
    let tool = |name: &str| {
        let parameters =
            json!({"type": "object", "properties": {"product": {"type": "string"}, "part": {"type": "string"}}});
        json!({"type": "function", "function": {"name": name, "parameters": parameters}})
    };
    let mut body = json!({
        "model": "m",
        "messages": [{"role": "user", "content": "Order what is short for a bicycle."}],
        "tools": [tool("list_parts"), tool("stock_of"), tool("order")],
    });
    let (first, log) = logged("the secret of this replica", &body);
    assert_eq!(log, "");
    let message = first["choices"][0]["message"].clone();
    let id = message["tool_calls"][0]["id"].clone();
    let answer = json!({"role": "tool", "tool_call_id": id, "content": "[\"bell\"]"});
    // Twice in the history, as clients with retries have it.
    body["messages"].as_array_mut().expect("messages").extend([message.clone(), answer.clone(), message, answer]);

    let (_, log) = logged("the secret of this replica", &body);
    assert_eq!(log, "");
    let (_, log) = logged("a secret of another one", &body);
    let counts = "foreign=1 damaged=0 expired=0 missing=0";
    assert!(log.lines().count() == 1 && log.contains("WARN") && log.contains(counts), "{log}");
}
