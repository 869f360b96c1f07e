//! A fault costs its call, or its server, and nothing else.

use std::time::{Duration, Instant};

use dacapo_mcp::{Fleet, FleetOptions, ServerPhase, ServersFile, TransportKind, parse_json};
use dacapo_runner::{ToolCall, ToolHost, ToolServers};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::{LONG, call, environment, fake, file, ok, options, refused, start, tools, until};

#[tokio::test]
async fn what_a_server_must_not_do_costs_one_call() {
    let options = FleetOptions { call_timeout: Duration::from_millis(800), answer_bytes_max: 1 << 20, ..options() };
    let fleet = start(json!({"a": fake("modern")}), options).await;
    let advice = "ask for less: a page, a filter, fewer fields";
    for (tool, args, message) in [
        (
            "never",
            json!({}),
            "`a.never` was not answered within 0.8 s and was cancelled; it is unknown whether the call was executed".to_owned(),
        ),
        (
            "big",
            json!({"bytes": 2_000_000}),
            format!("`a.big` was executed, but its answer was not taken: at most 1048576 bytes are taken and it has 2000002 bytes; {advice}"),
        ),
        (
            "ask",
            json!({}),
            "`a.ask` wants an answer to \"What is your name?\" before it goes on; nobody can be asked here, so it was given up"
                .to_owned(),
        ),
        (
            "echo",
            json!({"neither": "content"}),
            r#"`a.echo` was answered with something that is no result of a tool: {"neither":"content"}"#.to_owned(),
        ),
        (
            "garbage",
            json!({}),
            "`a.garbage` was executed, but its answer was not taken: it is no valid JSON-RPC message".to_owned(),
        ),
    ] {
        assert_eq!(call(&fleet, "a", tool, args).await, refused(&message));
        let said = json!({"content": [], "structuredContent": tool});
        assert_eq!(call(&fleet, "a", "echo", said).await, ok(&json!(tool)));
    }
    assert_eq!(fleet.states()[0].phase, ServerPhase::Ready);

    let fleet = start(json!({"a": fake("modern")}), crate::options()).await;
    let refusal = call(&fleet, "a", "big", json!({"bytes": 50_000_000})).await;
    let line = "at most 8388608 bytes are taken and it has 50000083 bytes";
    assert_eq!(refusal, refused(&format!("`a.big` was executed, but its answer was not taken: {line}; {advice}")));
    assert_eq!(call(&fleet, "a", "echo", json!({"content": []})).await, ok(&Value::Null));
}

#[tokio::test]
async fn a_server_that_hangs_while_it_starts_delays_only_programs_that_may_need_it() {
    let servers = json!({"fine": fake("modern"), "my-attic": fake("silent")});
    let fleet = Fleet::start(
        ServersFile::parse(&json!({"mcpServers": servers}).to_string(), &environment()).unwrap(),
        options(),
    );
    until("the other server", || fleet.states()[0].phase == ServerPhase::Ready).await;
    let is_waited_for =
        async |program: &str| tokio::time::timeout(Duration::from_millis(200), fleet.ready_for(program)).await.is_err();
    for program in
        ["return await fine.echo({})", "return [1, 2].map(String)", "const { echo } = fine; return await echo({})"]
    {
        assert!(!is_waited_for(program).await, "{program}");
    }
    for program in
        ["return await my_attic.look({})", "myAttic.look()", "return await look({})", "return await tools[name]({})"]
    {
        assert!(is_waited_for(program).await, "{program}");
    }
}

/// It is sent `initialize` by then, which it refuses. It does not start twice in the time that it has, so that the next
/// attempt has to know.
#[tokio::test]
async fn a_server_without_initialize_that_answers_the_first_request_too_late_is_connected() {
    let options = FleetOptions { connect_timeout: Duration::from_secs(12), ..options() };
    let fleet = Fleet::start(file(&json!({"a": fake("modern late")}), &environment()), options);
    let begun = Instant::now();
    while fleet.states()[0].phase != ServerPhase::Ready {
        assert!(begun.elapsed() < 2 * LONG, "{:?}", fleet.states()[0].phase);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(fleet.states()[0].protocol_version.as_deref(), Some("2026-07-28"));
}

#[tokio::test]
async fn a_server_that_dies_in_the_middle_of_a_call_is_started_again_by_the_next() {
    // Nobody but a call starts it again within this test.
    let slow = FleetOptions { retry_min: Duration::from_hours(1), retry_max: Duration::from_hours(1), ..options() };
    let fleet = start(json!({"a": fake("legacy"), "b": fake("legacy")}), slow).await;
    assert_eq!(
        call(&fleet, "a", "die", json!({})).await,
        refused(
            "`a.die` was lost: its process ended (exit status: 1); the last it wrote: out of memory; \
             it is unknown whether the call was executed. The next call connects again"
        )
    );
    until("the end to be noticed", || matches!(fleet.states()[0].phase, ServerPhase::Failed { .. })).await;
    assert_eq!(tools(&fleet), ["a.echo", "a.odd", "a.die", "a.env", "b.echo", "b.odd", "b.die", "b.env"]);
    assert_eq!(call(&fleet, "a", "echo", json!({"content": []})).await, ok(&Value::Null));
    assert_eq!(call(&fleet, "b", "echo", json!({"content": []})).await, ok(&Value::Null));
}

#[tokio::test]
async fn servers_that_fail_cost_only_their_own_tools() {
    let options = FleetOptions {
        connect_timeout: Duration::from_secs(5),
        retry_min: Duration::from_hours(1),
        retry_max: Duration::from_hours(1),
        ..options()
    };
    let mut disabled = fake("legacy");
    disabled["disabled"] = json!(true);
    let servers = json!({
        "good": fake("legacy"), "silent": fake("silent"), "exits": fake("exits"), "flood": fake("flood"),
        "missing": {"command": "no-such-program"}, "unset": {"command": "true", "env": {"A": "${UNSET}"}},
        "disabled": disabled, "unreachable": {"url": "http://127.0.0.1:9/mcp"},
    });
    let fleet = start(servers, options).await;
    let states = fleet.states();
    let phase = |name: &str| states.iter().find(|state| state.name == name).unwrap().phase.clone();
    let reason = |name: &str| match phase(name) {
        ServerPhase::Failed { reason, retry_in } => (reason, retry_in.is_some()),
        other => panic!("{name} is {other:?}"),
    };
    assert_eq!(phase("good"), ServerPhase::Ready);
    assert_eq!(phase("flood"), ServerPhase::Ready);
    assert_eq!(phase("disabled"), ServerPhase::Disabled);
    assert!(reason("silent").0.starts_with("it did not answer within 5 s"), "{:?}", reason("silent"));
    assert_eq!(reason("exits"), ("its process ended (exit status: 3)".to_owned(), true));
    let wrote = &states.iter().find(|state| state.name == "exits").unwrap().stderr;
    assert_eq!(wrote.last().map(String::as_str), Some("cannot find module 'left-pad'"));
    let missing = "cannot start `no-such-program`: there is no such program in PATH; install it or give its full path";
    assert_eq!(reason("missing"), (missing.to_owned(), true));
    let unset =
        "mcpServers.unset.env.A: the environment variable `UNSET` is not set; set it, or write ${UNSET:-default}";
    assert_eq!(reason("unset"), (unset.to_owned(), false));
    assert!(reason("unreachable").0.contains("Connection refused"), "{:?}", reason("unreachable"));
    assert_eq!(states.last().unwrap().transport, Some(TransportKind::Http));

    assert_eq!(tools(&fleet).len(), 8);
    assert_eq!(call(&fleet, "good", "echo", json!({"content": []})).await, ok(&Value::Null));
    assert_eq!(call(&fleet, "flood", "echo", json!({"content": []})).await, ok(&Value::Null));
    assert_eq!(
        call(&fleet, "exits", "echo", json!({})).await,
        refused(
            "`exits.echo` was not executed: the server `exits` is not available: its process ended (exit status: 3)"
        )
    );
    let flooded = &fleet.states()[3].stderr;
    assert!((1..=40).contains(&flooded.len()) && flooded.iter().all(|line| line.len() < 1100));
}

#[tokio::test]
async fn cancelling_a_call_ends_it_at_once_and_tells_the_server() {
    let fleet = start(json!({"a": fake("legacy")}), options()).await;
    let cancel = CancellationToken::new();
    let never = ToolCall {
        server: "a".into(),
        tool: "never".into(),
        args: serde_json::Map::new(),
        idempotency_key: "k".into(),
        approved: None,
    };
    let soon = async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        cancel.cancel();
    };
    let (called, ()) = tokio::join!(fleet.call(&never, &cancel), soon);
    assert_eq!(called, refused("`a.never` was cancelled"));
    loop {
        let output = call(&fleet, "a", "cancelled", json!({})).await;
        if output == ok(&json!(1)) {
            break;
        }
        assert_eq!(output, ok(&json!(0)));
    }
}

#[tokio::test]
async fn nothing_is_left_of_a_server_after_shutdown_or_drop() {
    let processes = async |fleet: &Fleet| -> Vec<u32> {
        let output = call(fleet, "a", "processes", json!({})).await.unwrap();
        let dacapo_replay::Answer::Ok(json) = output.answer else { panic!("{output:?}") };
        serde_json::from_str(json.as_str()).unwrap()
    };
    let gone = |processes: &[u32]| processes.iter().all(|id| !is_alive(*id));

    let fleet = start(json!({"a": fake("legacy")}), options()).await;
    let after_shutdown = processes(&fleet).await;
    assert!(after_shutdown.iter().all(|id| is_alive(*id)));
    fleet.shutdown().await;
    until("the processes to end", || gone(&after_shutdown)).await;
    assert_eq!(
        call(&fleet, "a", "echo", json!({})).await,
        refused("`a.echo` was not executed: the server `a` is not available: it was shut down")
    );

    let fleet = start(json!({"a": fake("legacy")}), options()).await;
    let after_drop = processes(&fleet).await;
    drop(fleet);
    until("the processes to end", || gone(&after_drop)).await;

    // The runtime ends first, as it does when `main` returns early.
    let with_runtime = std::thread::spawn(move || {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime.block_on(async {
            let fleet = start(json!({"a": fake("legacy")}), options()).await;
            let left = processes(&fleet).await;
            (fleet, left)
        })
    });
    let (fleet, left) = with_runtime.join().unwrap();
    until("the processes to end", || gone(&left)).await;
    drop(fleet);
}

/// A zombie is dead, whoever does not bury it.
fn is_alive(process: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat"));
    stat.is_ok_and(|stat| !stat.rsplit(')').next().unwrap_or_default().trim_start().starts_with('Z'))
}

#[tokio::test]
async fn paths_in_a_file_start_from_where_the_file_is() {
    use std::os::unix::fs::PermissionsExt;

    let directory = tempfile::tempdir().unwrap();
    for name in ["bin", "work"] {
        std::fs::create_dir(directory.path().join(name)).unwrap();
    }
    std::fs::write(directory.path().join("work/here"), "").unwrap();
    let script = directory.path().join("bin/server");
    std::fs::write(&script, "#!/bin/sh\ntest -f here && exec \"$@\"\n").unwrap();
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o700)).unwrap();
    let mut server = fake("legacy");
    let program = server["command"].take();
    server["args"].as_array_mut().unwrap().insert(0, program);
    server["command"] = json!("bin/server");
    server["cwd"] = json!("work");
    let text = json!({"mcpServers": {"a": server}}).to_string();
    let file = ServersFile::read(&parse_json(&text).unwrap(), &environment(), Some(directory.path())).unwrap();
    let fleet = Fleet::start(file, options());
    fleet.settled(LONG).await;
    assert_eq!(fleet.states()[0].phase, ServerPhase::Ready);
}

#[tokio::test]
async fn a_reason_is_one_short_line() {
    let servers = json!({
        "long": {"command": format!("/nowhere/{}", "é".repeat(1000))},
        "lines": {"command": "/nowhere/a\nb"},
    });
    let fleet = start(servers, options()).await;
    let reasons = fleet.states().into_iter().map(|state| match state.phase {
        ServerPhase::Failed { reason, .. } => reason,
        other => panic!("{other:?}"),
    });
    let reasons: Vec<String> = reasons.collect();
    assert_eq!(reasons[0], format!("cannot start `/nowhere/{}…", "é".repeat(200 - 23)));
    assert_eq!(reasons[1], "cannot start `/nowhere/a");
}
