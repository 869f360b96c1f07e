//! Tokens of servers that people have logged in to, in files that only their user can read.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind, Write as _};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::token_request::LoginTokens;
use crate::lock::lock;

const FORMAT: &str = "dacapo tokens 1";

/// The tokens of one server.
#[derive(Debug)]
pub(super) struct TokenFile {
    path: PathBuf,
    url: String,
    /// Tokens that could not be written, such as in a file system that is mounted read-only. They are good as long as this
    /// process lives.
    unwritten: Mutex<Option<Unwritten>>,
}

struct Unwritten(LoginTokens);

impl std::fmt::Debug for Unwritten {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Unwritten(…)")
    }
}

#[derive(Serialize, Deserialize)]
struct SavedTokens<'a> {
    format: Cow<'a, str>,
    /// For people who look into the file.
    url: Cow<'a, str>,
    tokens: Cow<'a, LoginTokens>,
}

impl TokenFile {
    /// The file of the server at this URL.
    pub(super) fn new(directory: &Path, url: &str) -> TokenFile {
        let mut name = String::new();
        for byte in &Sha256::digest(url.as_bytes())[..16] {
            write!(name, "{byte:02x}").expect("a string takes what is written");
        }
        TokenFile { path: directory.join(name + ".json"), url: url.to_owned(), unwritten: Mutex::default() }
    }

    /// The tokens; `None` if nobody has logged in.
    pub(super) fn load(&self) -> Result<Option<LoginTokens>, String> {
        if let Some(Unwritten(tokens)) = &*lock(&self.unwritten) {
            return Ok(Some(tokens.clone()));
        }
        let text = match fs::read(&self.path) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(self.failed("read", &error)),
        };
        // The error of the parser would show a part of the text.
        let saved = serde_json::from_slice(&text).ok().filter(|saved: &SavedTokens<'_>| saved.format == FORMAT);
        saved
            .map(|saved| Some(saved.tokens.into_owned()))
            .ok_or_else(|| self.failed("read", &"it is no file of tokens"))
    }

    /// Replaces the tokens.
    pub(super) fn save(&self, tokens: &LoginTokens) -> Result<(), String> {
        let saved = SavedTokens { format: FORMAT.into(), url: Cow::Borrowed(&self.url), tokens: Cow::Borrowed(tokens) };
        self.write(&saved).map_err(|error| self.failed("written", &error))?;
        *lock(&self.unwritten) = None;
        Ok(())
    }

    /// Replaces the tokens, if need be in memory only: the old ones are of no use any more.
    pub(super) fn keep(&self, tokens: &LoginTokens) {
        if let Err(error) = self.save(tokens) {
            tracing::warn!(error, "new tokens are kept in memory only; the next start may need a new login");
            *lock(&self.unwritten) = Some(Unwritten(tokens.clone()));
        }
    }

    /// A refresh token is often good for one use. Processes that share the file refresh one after the other, and the second
    /// finds the tokens of the first.
    pub(super) async fn lock_refresh(&self) -> Option<File> {
        let path = self.path.with_extension("lock");
        let locked = tokio::task::spawn_blocking(move || {
            let file = OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(path)?;
            file.lock()?;
            Ok::<File, io::Error>(file)
        });
        // Where no file can be written, nobody else writes tokens either.
        locked.await.ok()?.ok()
    }

    /// Replaces the file as a whole.
    fn write(&self, saved: &SavedTokens<'_>) -> io::Result<()> {
        let directory = self.path.parent().unwrap_or(Path::new("/"));
        DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
        let draft = self.path.with_extension(format!("{}.tmp", std::process::id()));
        // An earlier process with our process id may have left a file.
        drop(fs::remove_file(&draft));
        let written = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft).and_then(|mut file| {
            file.write_all(&serde_json::to_vec(saved)?)?;
            file.sync_all()?;
            fs::rename(&draft, &self.path)
        });
        if written.is_err() {
            drop(fs::remove_file(&draft));
        }
        written
    }

    fn failed(&self, what: &str, error: &dyn std::fmt::Display) -> String {
        format!("{} cannot be {what}: {error}", self.path.display())
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use serde_json::json;

    use super::*;

    fn tokens(token: &str) -> LoginTokens {
        let client = json!({ "id": "c", "method": "none" });
        let tokens = json!({ "access_token": token, "client": client, "token_endpoint": "t", "resource": "r" });
        serde_json::from_value(tokens).expect("tokens")
    }

    fn token(file: &TokenFile) -> Option<String> {
        file.load().expect("it can be read").map(|tokens| tokens.access_token)
    }

    #[test]
    fn only_the_user_can_read_tokens_and_other_servers_have_others() {
        let directory = tempfile::tempdir().expect("a directory");
        let folder = directory.path().join("tokens");
        let file = TokenFile::new(&folder, "https://a.example/mcp");
        assert_eq!(token(&file), None);
        file.save(&tokens("first")).expect("it is written");
        file.save(&tokens("second")).expect("it is written");
        let mode = |path: &Path| fs::metadata(path).expect("it exists").permissions().mode() & 0o777;
        assert_eq!((mode(&folder), mode(&file.path)), (0o700, 0o600));
        assert_eq!(token(&TokenFile::new(&folder, "https://a.example/mcp")).as_deref(), Some("second"));
        assert_eq!(token(&TokenFile::new(&folder, "https://b.example/mcp")), None);
        assert_eq!(fs::read_dir(&folder).expect("a directory").count(), 1, "no drafts are left");
    }

    #[test]
    fn what_is_no_file_of_tokens_is_said_without_its_text() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = TokenFile::new(directory.path(), "https://a.example/mcp");
        fs::write(&file.path, "secret-token").expect("a file");
        let error = file.load().err().expect("it is wrong");
        assert!(error.ends_with("cannot be read: it is no file of tokens"), "{error}");
    }

    #[test]
    fn tokens_that_cannot_be_written_are_good_as_long_as_the_process() {
        let directory = tempfile::tempdir().expect("a directory");
        let in_the_way = directory.path().join("file");
        fs::write(&in_the_way, "").expect("a file");
        let file = TokenFile { path: in_the_way.join("a.json"), ..TokenFile::new(&in_the_way, "https://a.example") };
        file.keep(&tokens("new"));
        assert_eq!(token(&file).as_deref(), Some("new"));
        assert!(file.save(&tokens("by a person")).is_err(), "a failure to save is reported");
    }
}
