//! The file that the gateway is configured by.

use std::borrow::Cow;
use std::path::{Path, PathBuf};

/// The file that a flag names, or else the environment, or else the one in the current directory, if there is one.
pub(crate) fn config_file(named: Option<&Path>) -> Option<Cow<'_, Path>> {
    let by_environment = || std::env::var_os("DACAPO_CONFIG").filter(|path| !path.is_empty()).map(PathBuf::from);
    let here = || Some(PathBuf::from("dacapo.toml")).filter(|path| path.exists());
    named.map(Cow::Borrowed).or_else(|| by_environment().or_else(here).map(Cow::Owned))
}
