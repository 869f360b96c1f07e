//! Which lines of the log are shown.

use tracing_subscriber::filter::{LevelFilter, Targets};

/// Ours at this level. The libraries below us have much to say that is of use to their authors, so only their warnings are
/// shown.
pub(crate) fn log_filter(level: LevelFilter) -> Targets {
    Targets::new().with_default(level.min(LevelFilter::WARN)).with_target("dacapo", level)
}
