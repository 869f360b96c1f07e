//! What `dacapo --version` says.

use std::sync::LazyLock;

/// The version, and the commit where the build was told: `scripts/install` and `scripts/release` set `DACAPO_COMMIT`.
pub(crate) fn version() -> &'static str {
    static VERSION: LazyLock<String> = LazyLock::new(|| {
        let version = env!("CARGO_PKG_VERSION");
        option_env!("DACAPO_COMMIT").map_or_else(|| version.to_owned(), |commit| format!("{version} ({commit})"))
    });
    &VERSION
}
