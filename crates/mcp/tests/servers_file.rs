//! The file in which people keep their servers, with all that it may have in it.

use std::collections::BTreeMap;

use dacapo_mcp::{IgnoredKey, ServersFile};

fn parse(text: &str) -> Result<ServersFile, String> {
    let environment = [("HOME", "/home/me"), ("EMPTY", ""), ("TOKEN", "abcdefgh")];
    let environment = environment.map(|(name, value)| (name.to_owned(), value.to_owned()));
    ServersFile::parse(text, &BTreeMap::from(environment)).map_err(|error| error.to_string())
}

/// The names of the servers that can be used, and what is wrong with the others.
fn read(text: &str) -> Vec<Result<String, String>> {
    let servers = parse(text).expect("a file of servers").servers.into_iter();
    servers.map(|server| server.spec.map(|_| server.name).map_err(|error| error.to_string())).collect()
}

#[test]
fn the_files_of_desktop_clients_and_editors_are_read() {
    let file = r#"{"mcpServers": {
        "files": {"command": "npx", "args": ["-y", "server", "${HOME}/x"], "env": {"A": "${EMPTY:-b}"}, "cwd": null},
        "web": {"type": "http", "url": "https://example.com/${env:TOKEN}", "headers": {"Authorization": "Bearer ${TOKEN}"}},
        "off": {"command": "x", "disabled": true}}}"#;
    assert_eq!(read(file), [Ok("files".to_owned()), Ok("web".to_owned()), Ok("off".to_owned())]);
    let editors = "\u{feff}{\"servers\": {\"a\": {\"type\": \"stdio\", \"command\": \"x\"}}, \"inputs\": []}";
    assert_eq!(read(editors), [Ok("a".to_owned())]);
}

#[test]
fn keys_that_mean_nothing_here_are_noticed() {
    let file = parse(r#"{"mcpServers": {"a": {"command": "x", "autoApprove": []}}, "theme": "dark"}"#).expect("a file");
    let ignored = |path: &str| IgnoredKey { path: path.to_owned() };
    assert_eq!(file.ignored_keys, [ignored("theme"), ignored("mcpServers.a.autoApprove")]);
    assert_eq!(file.ignored_keys[1].to_string(), "mcpServers.a.autoApprove means nothing here and is ignored");
}

#[test]
fn a_server_that_cannot_be_read_costs_itself_and_says_where_it_is_wrong() {
    let cases = [
        (
            r#"{"command": "x", "env": {"A": "${NOT_SET}"}}"#,
            "mcpServers.a.env.A: the environment variable `NOT_SET` is not set; set it, or write ${NOT_SET:-default}",
        ),
        (
            r#"{"command": "x", "args": ["${input:key}"]}"#,
            "mcpServers.a.args[0]: `${input:key}` cannot be filled in here; write ${NAME} or ${NAME:-default} for an environment variable",
        ),
        (r#"{"command": "x", "args": "y"}"#, "mcpServers.a.args: expected an array of strings, found a string"),
        (r#"{"command": "x", "env": {"PORT": 80}}"#, "mcpServers.a.env.PORT: expected a string, found a number"),
        (r#"{"command": "x", "disabled": "no"}"#, "mcpServers.a.disabled: expected a boolean, found a string"),
        (r#"{"command": "x", "url": "http://y"}"#, "mcpServers.a: has both `command` and `url`; keep one of them"),
        (r#"{"url": "localhost:80"}"#, "mcpServers.a.url: expected a URL that begins with http:// or https://"),
        (
            r#"{"type": "sse", "url": "http://y"}"#,
            "mcpServers.a.type: the HTTP+SSE transport of 2024 is not supported; give the server's Streamable HTTP address",
        ),
        (r#"{"type": "http", "command": "x"}"#, "mcpServers.a: has no `url`, which its `type` needs"),
        ("{}", "mcpServers.a: has neither `command` (a program to start) nor `url` (a server to reach)"),
        ("7", "mcpServers.a: expected an object, found a number"),
    ];
    for (entry, message) in cases {
        let file = format!(r#"{{"mcpServers": {{"a": {entry}, "good": {{"command": "x"}}}}}}"#);
        assert_eq!(read(&file), [Err(message.to_owned()), Ok("good".to_owned())]);
    }
}

#[test]
fn a_default_may_have_variables_of_its_own() {
    let cases = [
        ("${NOT_SET:-${ALSO_NOT:-${HOME}}}/x", "/home/me/x"),
        ("${HOME:-${NOT_SET}}/${EMPTY:-a}$}{", "/home/me/a$}{"),
        ("${NOT_SET:-{\"a\": 1}}", "{\"a\": 1}"),
    ];
    for (written, meant) in cases {
        let file = serde_json::json!({"mcpServers": {"a": {"command": written}}}).to_string();
        let printed = format!("{:?}", parse(&file));
        assert!(printed.contains(&format!("endpoint: {meant:?}")), "{printed}");
    }
    let fails = [
        (
            "${NOT_SET:-${HOME}",
            "a `${` has no `}` of its own; write ${NAME} or ${NAME:-default} for an environment variable",
        ),
        (
            "${NOT_SET:-${ALSO_NOT}}",
            "the environment variable `ALSO_NOT` is not set; set it, or write ${ALSO_NOT:-default}",
        ),
    ];
    for (written, message) in fails {
        let file = serde_json::json!({"mcpServers": {"a": {"command": written}}}).to_string();
        assert_eq!(read(&file), [Err(format!("mcpServers.a.command: {message}"))]);
    }
}

#[test]
fn a_server_that_is_switched_off_need_not_work() {
    for entry in [r#""env": {"A": "${NOT_SET}"}, "command": "x""#, r#""type": "sse""#, r#""args": 7"#] {
        let file = format!(r#"{{"mcpServers": {{"a": {{{entry}, "disabled": true}}}}}}"#);
        assert_eq!(read(&file), [Ok("a".to_owned())]);
    }
}

#[test]
fn a_file_that_is_none_says_so() {
    let fails = |text: &str| parse(text).expect_err("no file of servers");
    assert_eq!(fails("{"), "the file is not JSON: EOF while parsing an object at line 1 column 1");
    assert_eq!(fails("[]"), "the file: expected an object with `mcpServers`, found an array");
    assert_eq!(
        fails(r#"{"mcpServers": []}"#),
        "mcpServers: expected an object with one entry per server, found an array"
    );
    assert_eq!(fails("{}"), "the file: expected an object with `mcpServers`, found an object");
}

#[test]
fn what_is_printed_for_debugging_has_no_secrets() {
    let file =
        parse(r#"{"mcpServers": {"a": {"command": "x", "args": ["--key", "hidden"], "env": {"T": "${TOKEN}"}}}}"#);
    let printed = format!("{:?}", file.expect("a file"));
    assert!(!printed.contains("hidden") && !printed.contains("abcdefgh"), "{printed}");
}
