//! What `dacapo --version` says.

use std::sync::LazyLock;

/// The version, and the commit if `DACAPO_COMMIT` was set for the build, as `scripts/install` and `scripts/release` do.
pub(crate) fn version() -> &'static str {
    static VERSION: LazyLock<String> = LazyLock::new(|| {
        let version = env!("CARGO_PKG_VERSION");
        option_env!("DACAPO_COMMIT").map_or_else(|| version.to_owned(), |commit| format!("{version} ({commit})"))
    });
    &VERSION
}
