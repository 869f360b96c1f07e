//! Lists of tools on disk, so that they are known at once after the next start.
//!
//! A file that is missing, broken, or of another server or version is ignored.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::tool_list::{Shapes, ToolList};

const FORMAT: &str = "dacapo tool list 2";
const FILE_BYTES_MAX: u64 = 64 << 20;
/// Older lists are ignored.
const AGE_MAX: Duration = Duration::from_hours(30 * 24);

/// Two servers of one process may write the same file at the same time.
static DRAFTS: AtomicU64 = AtomicU64::new(0);

#[derive(Serialize, Deserialize)]
struct CachedList<'a> {
    format: Cow<'a, str>,
    server: Cow<'a, str>,
    /// When the server listed them, in seconds since 1970.
    listed_at: u64,
    tools: Cow<'a, [Value]>,
    /// Whether it declares resources.
    #[serde(default)]
    resources: bool,
    #[serde(default)]
    shapes: BTreeMap<Cow<'a, str>, Cow<'a, str>>,
}

/// Where the list of one server is cached.
#[derive(Debug, Clone)]
pub(super) struct ListCache {
    directory: PathBuf,
    server: String,
}

impl ListCache {
    /// `started_in` is the directory in which the process starts, if the configuration does not name one.
    pub(super) fn new(directory: &Path, fingerprint: &[u8; 32], started_in: Option<&Path>) -> ListCache {
        let place = started_in.map_or(&b""[..], |path| path.as_os_str().as_bytes());
        let mut server = String::new();
        for byte in Sha256::new_with_prefix(fingerprint).chain_update(place).finalize() {
            write!(server, "{byte:02x}").expect("a string takes what is written");
        }
        ListCache { directory: directory.to_owned(), server }
    }

    /// The tools, whether there are resources, and the shapes of answers.
    pub(super) fn load(&self) -> Option<(Vec<Value>, bool, Shapes)> {
        let path = self.path();
        if fs::metadata(&path).ok()?.len() > FILE_BYTES_MAX {
            return None;
        }
        let file: CachedList<'_> = serde_json::from_slice(&fs::read(path).ok()?).ok()?;
        let is_recent = now().saturating_sub(file.listed_at) <= AGE_MAX.as_secs();
        let is_known = file.format == FORMAT && file.server == self.server && is_recent;
        let shapes = file.shapes.into_iter().map(|(tool, shape)| (tool.into_owned(), shape.into_owned()));
        is_known.then(|| (file.tools.into_owned(), file.resources, shapes.collect()))
    }

    /// Replaces the file as a whole, readable only for the user.
    pub(super) fn store(&self, list: &ToolList) -> io::Result<()> {
        // A directory that exists keeps its permissions.
        DirBuilder::new().recursive(true).mode(0o700).create(&self.directory)?;
        let (format, server, tools) = (FORMAT.into(), self.server.as_str().into(), list.listed.as_slice().into());
        let shapes = list.shapes().map(|(tool, shape)| (tool.into(), shape.into()));
        let (resources, shapes) = (list.has_resources, shapes.collect());
        let file = CachedList { format, server, listed_at: now(), tools, resources, shapes };
        let number = DRAFTS.fetch_add(1, Ordering::Relaxed);
        let draft = self.directory.join(format!("{}.{}.{number}.tmp", self.server, std::process::id()));
        // An earlier process with our process id may have left a file.
        drop(fs::remove_file(&draft));
        let stored = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft).and_then(|mut open| {
            open.write_all(&serde_json::to_vec(&file)?)?;
            fs::rename(&draft, self.path())
        });
        if stored.is_err() {
            drop(fs::remove_file(&draft));
        }
        stored
    }

    fn path(&self) -> PathBuf {
        self.directory.join(format!("{}.json", self.server))
    }
}

fn now() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
