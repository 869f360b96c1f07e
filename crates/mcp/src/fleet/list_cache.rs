//! Tool lists on disk, so that the next start answers at once.
//!
//! A file is a hint: one that is missing, broken, or of another server or version is as good as none.

use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::Value;

const FORMAT: &str = "dacapo tool list 1";
const FILE_BYTES_MAX: u64 = 64 << 20;

#[derive(Serialize, Deserialize)]
struct File {
    format: String,
    server: String,
    tools: Vec<Value>,
}

/// Where the list of one server is kept.
#[derive(Debug, Clone)]
pub(super) struct ListCache {
    directory: PathBuf,
    server: String,
}

impl ListCache {
    pub(super) fn new(directory: &Path, fingerprint: &[u8; 32]) -> ListCache {
        let mut server = String::new();
        for byte in fingerprint {
            write!(server, "{byte:02x}").expect("a string takes what is written");
        }
        ListCache { directory: directory.to_owned(), server }
    }

    pub(super) fn load(&self) -> Option<Vec<Value>> {
        let path = self.path();
        if fs::metadata(&path).ok()?.len() > FILE_BYTES_MAX {
            return None;
        }
        let file: File = serde_json::from_slice(&fs::read(path).ok()?).ok()?;
        (file.format == FORMAT && file.server == self.server).then_some(file.tools)
    }

    /// Readers see the old list or the new one, never a part.
    pub(super) fn store(&self, tools: Vec<Value>) -> io::Result<()> {
        fs::create_dir_all(&self.directory)?;
        let file = File { format: FORMAT.to_owned(), server: self.server.clone(), tools };
        let draft = self.directory.join(format!("{}.{}.tmp", self.server, std::process::id()));
        fs::write(&draft, serde_json::to_vec(&file)?)?;
        fs::rename(&draft, self.path())
    }

    fn path(&self) -> PathBuf {
        self.directory.join(format!("{}.json", self.server))
    }
}
