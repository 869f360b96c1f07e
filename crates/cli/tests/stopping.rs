//! What `dacapo serve` does when it gets a signal.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, ChildStderr, Command, Stdio};

/// A gateway that would drain for this long, and its address.
fn start(drain_seconds: u32) -> (Child, String) {
    let (child, url, log) = spawn(
        Command::new(env!("CARGO_BIN_EXE_dacapo"))
            .args(["serve", "--listen", "127.0.0.1:0"])
            .env("DACAPO_DRAIN_SECONDS", drain_seconds.to_string()),
    );
    std::thread::spawn(move || log.for_each(drop));
    (child, url.trim_end_matches("/v1").to_owned())
}

fn signal(child: &Child, name: &str) {
    let kill = Command::new("kill").args(["-s", name, &child.id().to_string()]).status();
    assert!(kill.expect("kill starts").success());
}

fn status(url: &str) -> u16 {
    let agent = ureq::Agent::new_with_config(ureq::Agent::config_builder().http_status_as_error(false).build());
    agent.get(url).call().expect("the gateway answers").status().as_u16()
}

#[test]
fn when_the_system_asks_it_to_stop_a_gateway_drains_first() {
    let (mut child, url) = start(5);
    let ready = format!("{url}/readyz");
    assert_eq!(status(&ready), 200);
    signal(&child, "TERM");
    while status(&ready) == 200 {}
    assert_eq!(status(&ready), 503);
    assert_eq!(status(&format!("{url}/v1/models")), 200, "requests are still taken");
    assert!(child.wait().expect("it ends").success());
}

#[test]
fn an_interrupt_ends_a_gateway_without_waiting_and_so_does_a_second_signal() {
    let (mut child, _) = start(3_600);
    signal(&child, "INT");
    assert!(child.wait().expect("it ends").success());

    let (mut child, url) = start(3_600);
    signal(&child, "TERM");
    while status(&format!("{url}/readyz")) == 200 {}
    signal(&child, "TERM");
    assert_eq!(child.wait().expect("it ends").code(), Some(130));
}

/// A gateway with this file, and its log, which begins when it listens.
fn start_with(file: &Path) -> (Child, String, impl Iterator<Item = String> + use<>) {
    // Under `nohup` the tests ignore hangups, and a gateway would inherit that.
    let arguments =
        ["--default-signal=HUP", env!("CARGO_BIN_EXE_dacapo"), "serve", "--listen", "127.0.0.1:0", "--config"];
    spawn(Command::new("env").args(arguments).arg(file).env("NO_COLOR", "1"))
}

/// A gateway, its address with `/v1`, and the rest of its log.
fn spawn(command: &mut Command) -> (Child, String, impl Iterator<Item = String> + use<>) {
    let mut child = command.stderr(Stdio::piped()).spawn().expect("dacapo starts");
    let lines = |stderr: ChildStderr| BufReader::new(stderr).lines().map(|line| line.expect("UTF-8"));
    let mut lines = lines(child.stderr.take().expect("stderr"));
    let listens = |line: String| Some(line.strip_prefix("dacapo listens on ")?.to_owned());
    let url = lines.by_ref().find_map(listens).expect("dacapo listens");
    (child, url, lines)
}

#[test]
fn a_hangup_reads_the_file_again_and_a_wrong_one_changes_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("dacapo.toml");
    let write = |text: &str| std::fs::write(&file, text).expect("it is written");
    write("demo_model = true");
    let (mut child, url, mut log) = start_with(&file);
    let mut logged = |part: &str| log.find(|line| line.contains(part)).expect("the log goes on");
    let has_demo = || {
        let models = ureq::get(format!("{url}/models")).call().expect("the gateway answers");
        models.into_body().read_to_string().expect("text").contains("\"demo\"")
    };
    assert!(has_demo());

    write("demo_model = false\nturns_max = 0\nlisten = 5");
    signal(&child, "HUP");
    let mistake = logged("stays as it was");
    assert!(mistake.contains("listen: is of type integer"), "{mistake}");
    assert!(logged("stays as it was").contains("turns_max: must be at least 1"));
    assert!(has_demo());

    write("demo_model = false\nlog = \"debug\"");
    signal(&child, "HUP");
    assert!(logged("hold after a restart only").contains("settings=\"log\""));
    logged("the configuration was read again");
    assert!(!has_demo());
    signal(&child, "INT");
    assert!(child.wait().expect("it ends").success());
}
