//! The memory of this process: requests are refused before the operating system ends it.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use std::{fs, path::Path};

/// Reading the figure takes some microseconds, so it is not read for every request.
const MEASURED_EVERY: Duration = Duration::from_millis(100);
/// Above the limit, one request in this time is let in. An allocator may keep memory that nobody uses, and a gateway
/// must not refuse for ever because of it.
const LET_IN_EVERY: Duration = Duration::from_secs(1);

/// Has the allocator give back to the system what was freed some time ago. Allocators do that when more is freed, and in a
/// process at rest nothing is: what a burst of programs took would be charged until the next requests.
pub(crate) fn give_back_freed() {
    /// Allocators keep smaller blocks at hand; that of glibc would, once it had seen one of less than 32 MiB. Nothing is written
    /// to it, so that it takes no memory.
    const BLOCK_BYTES: usize = 64 << 20;
    let mut block = Vec::<u8>::new();
    if block.try_reserve_exact(BLOCK_BYTES).is_ok() {
        // Else the compiler may leave both out.
        drop(std::hint::black_box(block));
    }
}

/// What the process may take, and what it took when it was last measured.
#[derive(Debug)]
pub(crate) struct MemoryBudget {
    bytes_max: Option<u64>,
    measured: Mutex<Measurement>,
}

#[derive(Debug, Default)]
struct Measurement {
    at: Option<Instant>,
    resident_bytes: u64,
    let_in_at: Option<Instant>,
}

/// Whether another request may be taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MemoryVerdict {
    Enough,
    /// More memory is in use than may be. This request is let in all the same, and what is only cached should be released now.
    LetIn,
    Short {
        resident_bytes: u64,
        bytes_max: u64,
    },
}

impl MemoryBudget {
    pub(crate) fn new(bytes_max: Option<u64>) -> MemoryBudget {
        MemoryBudget { bytes_max, measured: Mutex::default() }
    }

    /// To be asked for every request.
    pub(crate) fn check(&self, now: Instant) -> MemoryVerdict {
        let Some(bytes_max) = self.bytes_max else { return MemoryVerdict::Enough };
        let mut measured = self.measured.lock().unwrap_or_else(PoisonError::into_inner);
        let is_older = |at: Option<Instant>, age| at.is_none_or(|at| now.saturating_duration_since(at) >= age);
        if is_older(measured.at, MEASURED_EVERY) {
            measured.at = Some(now);
            measured.resident_bytes = resident_bytes().unwrap_or(0);
        }
        if measured.resident_bytes <= bytes_max {
            return MemoryVerdict::Enough;
        }
        if is_older(measured.let_in_at, LET_IN_EVERY) {
            measured.let_in_at = Some(now);
            return MemoryVerdict::LetIn;
        }
        MemoryVerdict::Short { resident_bytes: measured.resident_bytes, bytes_max }
    }
}

/// What the limit of a container leaves for this process, if there is one: a fifth is kept for the requests that run.
pub(crate) fn container_bytes() -> Option<u64> {
    limit_bytes().map(|bytes| bytes / 5 * 4)
}

/// The least limit of the control groups that this process is in, of either version.
fn limit_bytes() -> Option<u64> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    let of_group = |line: &str| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (controllers, group) = (parts.next()?, parts.next()?);
        let (root, file) = match controllers {
            "" => ("/sys/fs/cgroup", "memory.max"),
            _ if controllers.split(',').any(|name| name == "memory") => {
                ("/sys/fs/cgroup/memory", "memory.limit_in_bytes")
            }
            _ => return None,
        };
        // Inside of a container the group may be named as it is outside, and be mounted at the root.
        let mut folders: Vec<_> = Path::new(group).ancestors().collect();
        folders.push(Path::new("/"));
        let limit = |folder: &Path| {
            let file = Path::new(root).join(folder.strip_prefix("/").unwrap_or(folder)).join(file);
            // `max`, and a number beyond any machine, mean no limit.
            fs::read_to_string(file).ok()?.trim().parse::<u64>().ok().filter(|bytes| *bytes < 1 << 60)
        };
        folders.into_iter().filter_map(limit).min()
    };
    groups.lines().filter_map(of_group).min()
}

/// Memory of this process that is in RAM; `None` where the system does not tell.
fn resident_bytes() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kib| kib << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn above_the_limit_one_request_in_a_second_is_let_in() {
        let start = Instant::now();
        let short = MemoryBudget::new(Some(1));
        let is_let_in = |ms| short.check(start + Duration::from_millis(ms)) == MemoryVerdict::LetIn;
        assert_eq!([0, 10, 500, 1_000, 1_200].map(is_let_in), [true, false, false, true, false]);
        assert_eq!(MemoryBudget::new(None).check(start), MemoryVerdict::Enough);
        assert_eq!(MemoryBudget::new(Some(u64::MAX)).check(start), MemoryVerdict::Enough);
    }
}
