//! The inspector page, in a real browser. `scripts/test-tools` installs Chromium and what drives it.

#[path = "../../gateway/tests/gateway/client_conversation.rs"]
#[expect(clippy::unwrap_used, reason = "a client that is answered wrongly cannot go on")]
mod client_conversation;
mod common;
mod parts_conversation;

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use common::SECRET;
use dacapo_wire::Wire;
use parts_conversation::{gateway, requests};

/// A gateway that records conversations, killed when it is dropped.
struct Recording {
    child: Child,
    address: String,
}

impl Recording {
    fn start() -> Recording {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/stateless.toml");
        let mut command = Command::new(env!("CARGO_BIN_EXE_dacapo"));
        command
            .args(["serve", "--inspect", "--listen", "127.0.0.1:0", "--script"])
            .arg(script)
            .env("DACAPO_LOG", "warn");
        let mut child = command.stderr(Stdio::piped()).spawn().expect("it starts");
        let mut lines = BufReader::new(child.stderr.take().expect("stderr")).lines().map(|line| line.expect("UTF-8"));
        let printed =
            lines.find_map(|line| line.strip_prefix("dacapo records conversations; see them at ").map(str::to_owned));
        std::thread::spawn(move || lines.for_each(drop));
        Recording { child, address: printed.expect("an address") }
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        self.child.kill().expect("it runs");
        self.child.wait().expect("it was killed");
    }
}

#[test]
fn the_page_works_in_a_browser() {
    let recording = Recording::start();
    let (gateway, folder) = (gateway(&[]), tempfile::tempdir().expect("a folder"));
    let (transcript, saved) = (folder.path().join("request.json"), folder.path().join("page.html"));
    let last = requests(&gateway.url, Wire::Chat, false).pop().expect("a request");
    std::fs::write(&transcript, last.to_string()).expect("it is written");
    let mut replay = Command::new(env!("CARGO_BIN_EXE_dacapo"));
    replay.arg("replay").arg(&transcript).arg("--html").arg(&saved).env("DACAPO_SECRET", SECRET);
    assert!(replay.status().expect("it runs").success());
    let base = gateway.url.strip_suffix("v1").expect("it ends in /v1");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests-tools/browser/inspector.mjs");
    let mut run = Command::new("node");
    // scripts/screenshots takes the pictures of the documentation in the same way.
    run.arg(script)
        .arg(base)
        .arg(&recording.address)
        .arg(&transcript)
        .arg(&saved)
        .args(std::env::var_os("DACAPO_IMAGES"));
    let run = run.output().expect("Node.js");
    let told = String::from_utf8_lossy(&run.stdout);
    assert!(run.status.success(), "{told}{}", String::from_utf8_lossy(&run.stderr));
}
