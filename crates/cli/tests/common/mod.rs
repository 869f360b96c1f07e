//! The gateway as a process of its own.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

pub(crate) const SECRET: &str = "a secret that all replicas share";

/// `dacapo serve`, killed when it is dropped.
pub(crate) struct Served {
    child: Child,
    /// With `/v1`.
    pub(crate) url: String,
}

impl Served {
    /// With more settings from the environment.
    pub(crate) fn start(arguments: &[&str], environment: &[(&str, &str)]) -> Served {
        let mut child = Command::new(env!("CARGO_BIN_EXE_dacapo"))
            .args(["serve", "--listen", "127.0.0.1:0"])
            .args(arguments)
            .env("DACAPO_SECRET", SECRET)
            .env("DACAPO_LOG", "warn")
            .envs(environment.iter().copied())
            .stderr(Stdio::piped())
            .spawn()
            .expect("dacapo starts");
        let mut lines = BufReader::new(child.stderr.take().expect("stderr")).lines();
        let url = lines
            .by_ref()
            .map(|line| line.expect("UTF-8"))
            .find_map(|line| line.strip_prefix("dacapo listens on ").map(str::to_owned))
            .expect("dacapo listens");
        // Whatever else it says must not fill the pipe.
        std::thread::spawn(move || lines.for_each(drop));
        Served { child, url }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.child.kill().expect("it runs");
        self.child.wait().expect("it was killed");
    }
}
