//! Every command and snippet of the README and of the book is run, or says in a comment above it why not.
//!
//! The blocks of a page run one after the other in a folder of their own, against a gateway whose models are played from
//! `docs.toml`. A comment in the line above a block says what is special about it:
//!
//! - `<!-- not run: REASON -->`
//! - `<!-- background -->`: a server, which the blocks below talk to
//! - `<!-- prints -->`: what the block before it has written
//! - `<!-- with: python-more -->`: needs an environment that `scripts/test-tools --more` makes

use std::fmt::Write as _;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Where the pages say that the gateway listens.
const DOCUMENTED: &str = "127.0.0.1:8787";

/// A fenced block.
struct Block {
    line: usize,
    language: String,
    text: String,
    mark: Mark,
}

enum Mark {
    Run,
    NotRun(String),
    Background,
    Prints,
    With(String),
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the repository")
}

fn pages() -> Vec<PathBuf> {
    let mut pages = vec![root().join("README.md")];
    let docs = std::fs::read_dir(root().join("docs")).expect("docs");
    pages.extend(
        docs.map(|entry| entry.expect("a file").path()).filter(|path| path.extension().is_some_and(|it| it == "md")),
    );
    pages.sort();
    pages
}

fn blocks(page: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut lines = page.lines().enumerate();
    let mut above = "";
    while let Some((at, line)) = lines.next() {
        let Some(language) = line.strip_prefix("```") else {
            above = line;
            continue;
        };
        let text: Vec<&str> = lines.by_ref().map(|(_, line)| line).take_while(|line| *line != "```").collect();
        let comment = above.strip_prefix("<!-- ").and_then(|rest| rest.strip_suffix(" -->")).unwrap_or_default();
        let mark = match comment.split_once(": ") {
            Some(("not run", reason)) => Mark::NotRun(reason.to_owned()),
            Some(("with", environment)) => Mark::With(environment.to_owned()),
            _ if comment == "background" => Mark::Background,
            _ if comment == "prints" => Mark::Prints,
            _ => Mark::Run,
        };
        blocks.push(Block { line: at + 1, language: language.to_owned(), text: text.join("\n") + "\n", mark });
        above = "";
    }
    blocks
}

/// A process that is killed when it is dropped.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended by itself.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// A folder in which a page is tried out.
struct Workplace {
    folder: tempfile::TempDir,
    address: String,
    server: Option<Server>,
}

impl Workplace {
    fn new() -> Workplace {
        let folder = tempfile::tempdir().expect("a folder");
        let modules = root().join("target/test-tools/node_modules");
        std::os::unix::fs::symlink(modules, folder.path().join("node_modules")).expect("a link");
        let port = TcpListener::bind("127.0.0.1:0").and_then(|it| it.local_addr()).expect("a port").port();
        let mut workplace = Workplace { folder, address: format!("127.0.0.1:{port}"), server: None };
        let script = root().join("crates/cli/tests/docs.toml");
        workplace.start(&format!("dacapo serve --script {}", script.display()));
        workplace
    }

    fn command(&self, program: impl AsRef<Path>) -> Command {
        let bin = Path::new(env!("CARGO_BIN_EXE_dacapo")).parent().expect("a folder");
        let tools = root().join("target/test-tools");
        let path = std::env::var("PATH").unwrap_or_default();
        let path = [bin.to_owned(), tools.join("python/bin"), tools.join("node24/node_modules/.bin")]
            .map(|folder| folder.display().to_string())
            .join(":")
            + ":"
            + &path;
        let mut command = Command::new(program.as_ref());
        command.current_dir(self.folder.path()).env("PATH", path).env("HOME", self.folder.path());
        command.env("DACAPO_LISTEN", &self.address).env_remove("DACAPO_SECRET");
        command.env("OPENAI_API_KEY", "sk-test").env("ANTHROPIC_API_KEY", "sk-test").env("NO_COLOR", "1");
        command.env("OPENAI_AGENTS_DISABLE_TRACING", "1").stdin(Stdio::null());
        command
    }

    /// With the address that the gateway has here.
    fn local(&self, text: &str) -> String {
        text.replace(DOCUMENTED, &self.address)
    }

    /// Starts a server in place of the one that runs.
    fn start(&mut self, text: &str) {
        self.server = None;
        let mut command = self.command("bash");
        let text = format!("exec env {}", self.local(text).trim());
        let child = command.args(["-c", &text]).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        self.server = Some(Server(child.expect("bash starts")));
        let started = Instant::now();
        while std::net::TcpStream::connect(&self.address).is_err() {
            assert!(started.elapsed() < Duration::from_mins(1), "nobody listens on {}: {text}", self.address);
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn file(&self, name: &str, text: &str) -> String {
        std::fs::write(self.folder.path().join(name), self.local(text)).expect("it is written");
        name.to_owned()
    }

    /// Runs a block. `None` if it is no program.
    fn run(&self, block: &Block, environment: &str, is_script: bool) -> Option<Output> {
        let mut command = match block.language.as_str() {
            "sh" | "bash" => {
                let mut command = self.command("bash");
                command.args(["-euo", "pipefail", "-c", &self.local(&shell(&block.text).0)]);
                command
            }
            "python" => {
                let file = self.file("snippet.py", &block.text);
                let mut command = self.command(root().join(format!("target/test-tools/{environment}/bin/python")));
                command.arg(file);
                command
            }
            "js" => {
                let file = self.file("snippet.mjs", &block.text);
                let mut command = self.command("node");
                command.arg(file);
                command
            }
            "toml" => {
                let flag = if is_script { "--script" } else { "--config" };
                let file = self.file("snippet.toml", &block.text);
                let mut command = self.command(env!("CARGO_BIN_EXE_dacapo"));
                command.args(["serve", "--print-config", flag, &file]);
                command
            }
            _ => return None,
        };
        Some(command.output().expect("it starts"))
    }
}

/// The commands of a block, and what it says that they print: lines after those that begin with `$`.
fn shell(text: &str) -> (String, Option<String>) {
    if !text.starts_with("$ ") {
        return (text.to_owned(), None);
    }
    let (mut commands, mut printed, mut is_quoted) = (String::new(), String::new(), false);
    for line in text.lines() {
        let command = line.strip_prefix("$ ").or(is_quoted.then_some(line));
        match command {
            Some(command) => {
                is_quoted ^= command.matches('\'').count() % 2 == 1;
                commands.extend([command, "\n"]);
            }
            None => printed.extend([line, "\n"]),
        }
    }
    (commands, Some(printed))
}

/// Whether a text is what a page shows of it; `…` stands for anything.
fn is_shown_as(text: &str, shown: &str) -> bool {
    let mut rest = text.trim();
    let mut parts = shown.trim().split('…');
    let Some(start) = parts.next().and_then(|first| rest.strip_prefix(first)) else { return false };
    rest = start;
    let parts: Vec<&str> = parts.collect();
    for (at, part) in parts.iter().enumerate() {
        let is_last = at + 1 == parts.len();
        let found = if is_last && !part.is_empty() { rest.rfind(part) } else { rest.find(part) };
        let Some(found) = found else { return false };
        rest = &rest[found + part.len()..];
        if is_last && part.is_empty() {
            return true;
        }
    }
    rest.is_empty()
}

/// Tries a page out. Writes what failed, and what was not run.
fn try_page(path: &Path, failed: &mut String, not_run: &mut String) -> usize {
    let name = path.strip_prefix(root()).expect("it is in the repository").display().to_string();
    let page = std::fs::read_to_string(path).expect("UTF-8");
    let blocks = blocks(&page);
    let runnable = |block: &&Block| matches!(block.language.as_str(), "sh" | "bash" | "python" | "js" | "toml");
    if !blocks.iter().any(|block| runnable(&block)) {
        return 0;
    }
    let mut workplace = Workplace::new();
    let (mut printed, mut count) = (String::new(), 0);
    for block in &blocks {
        let place = format!("{name}:{}", block.line);
        let mut environment = "python";
        match &block.mark {
            Mark::NotRun(reason) => {
                writeln!(not_run, "{place}: {reason}").expect("text");
                continue;
            }
            Mark::Background => {
                workplace.start(&shell(&block.text).0);
                count += 1;
                continue;
            }
            Mark::Prints => {
                if !is_shown_as(&printed, &block.text) {
                    writeln!(failed, "{place}: was printed:\n{printed}").expect("text");
                }
                count += 1;
                continue;
            }
            Mark::With(other) if !root().join(format!("target/test-tools/{other}")).exists() => {
                writeln!(not_run, "{place}: {other} is not there; scripts/test-tools --more installs it")
                    .expect("text");
                continue;
            }
            Mark::With(other) => environment = other,
            Mark::Run => {}
        }
        let Some(output) = workplace.run(block, environment, name.ends_with("scripted-model.md")) else { continue };
        count += 1;
        printed = String::from_utf8_lossy(&output.stdout).into_owned();
        let errors = String::from_utf8_lossy(&output.stderr);
        if !output.status.success() {
            writeln!(failed, "{place}: {}\n{printed}{errors}", output.status).expect("text");
        }
        if let (Some(shown), "sh" | "bash") = (shell(&block.text).1, block.language.as_str())
            && !is_shown_as(&printed, &shown)
        {
            writeln!(failed, "{place}: was printed:\n{printed}{errors}").expect("text");
        }
    }
    count
}

#[test]
fn what_the_pages_tell_people_to_run_works() {
    let (mut failed, mut not_run, mut count) = (String::new(), String::new(), 0);
    for page in pages() {
        count += try_page(&page, &mut failed, &mut not_run);
    }
    #[expect(clippy::print_stderr, reason = "whoever reads the test's output sees what it did not try")]
    {
        eprintln!("{count} blocks were run; these were not:\n{not_run}");
    }
    assert!(failed.is_empty(), "{failed}");
    assert!(count > 20, "only {count} blocks were found");
}

#[test]
fn links_between_pages_lead_somewhere() {
    let mut broken = Vec::new();
    let more = ["ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md"].map(|name| root().join(name));
    for path in pages().into_iter().chain(more) {
        let page = std::fs::read_to_string(&path).expect("UTF-8");
        let targets = page.split("](").skip(1).filter_map(|rest| rest.split(')').next());
        for target in targets.filter(|target| !target.contains("://") && !target.is_empty() && !target.contains(' ')) {
            let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
            let to = if file.is_empty() { path.clone() } else { path.parent().expect("a folder").join(file) };
            let headings = || std::fs::read_to_string(&to).unwrap_or_default();
            let has_anchor = || headings().lines().any(|line| line.starts_with('#') && anchor_of(line) == anchor);
            if !to.exists() || (!anchor.is_empty() && !has_anchor()) {
                broken.push(format!("{}: {target}", path.display()));
            }
        }
    }
    assert!(broken.is_empty(), "{broken:#?}");
}

/// As GitHub makes it from a heading.
fn anchor_of(heading: &str) -> String {
    let text = heading.trim_start_matches('#').trim().to_lowercase();
    let kept = text.chars().filter(|letter| letter.is_alphanumeric() || matches!(letter, ' ' | '-' | '_'));
    kept.map(|letter| if letter == ' ' { '-' } else { letter }).collect()
}

#[test]
fn the_table_of_contents_has_every_page() {
    let contents = std::fs::read_to_string(root().join("docs/README.md")).expect("docs/README.md");
    let missing: Vec<String> = pages()
        .iter()
        .filter_map(|page| page.strip_prefix(root().join("docs")).ok())
        .map(|page| page.display().to_string())
        .filter(|page| page != "README.md" && !contents.contains(&format!("({page})")))
        .collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn the_change_log_keeps_its_form() {
    let log = std::fs::read_to_string(root().join("CHANGELOG.md")).expect("CHANGELOG.md");
    let mut sections: Vec<&str> = Vec::new();
    for line in log.lines().filter(|line| line.starts_with("##")) {
        if let Some(version) = line.strip_prefix("## ") {
            let is_release = version.split_once("] - ").is_some_and(|(number, date)| {
                number.starts_with('[') && number.matches('.').count() == 2 && date.len() == "2026-01-31".len()
            });
            assert!(version == "[Unreleased]" || is_release, "{line}");
            sections.clear();
        } else if let Some(section) = line.strip_prefix("### ") {
            let known = ["Added", "Changed", "Deprecated", "Removed", "Fixed", "Security", "Library", "Replay"];
            assert!(known.contains(&section) && !sections.contains(&section), "{line}: unknown, or there twice");
            sections.push(section);
        }
    }
    assert!(log.contains("## [Unreleased]"));
}
