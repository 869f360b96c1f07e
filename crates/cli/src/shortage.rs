//! The warning that address space is limited.

use std::io::{self, Write};

use dacapo_replay::Shortage;

/// Prints on stderr what programs have to do without, if anything.
pub(crate) fn warn_of_shortage(shortage: Option<Shortage>) -> io::Result<()> {
    shortage.map_or(Ok(()), |shortage| writeln!(io::stderr(), "warning: {shortage}"))
}
