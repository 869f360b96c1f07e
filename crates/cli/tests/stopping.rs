//! How `dacapo serve` ends when it gets a signal.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

/// A gateway that would drain for this long, and its address.
fn start(drain_seconds: u32) -> (Child, String) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_dacapo"))
        .args(["serve", "--listen", "127.0.0.1:0"])
        .env("DACAPO_DRAIN_SECONDS", drain_seconds.to_string())
        .stderr(Stdio::piped())
        .spawn()
        .expect("dacapo starts");
    let mut lines = BufReader::new(child.stderr.take().expect("stderr")).lines();
    let url = lines
        .by_ref()
        .map(|line| line.expect("UTF-8"))
        .find_map(|line| Some(line.strip_prefix("dacapo listens on ")?.trim_end_matches("/v1").to_owned()))
        .expect("dacapo listens");
    std::thread::spawn(move || lines.for_each(drop));
    (child, url)
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
