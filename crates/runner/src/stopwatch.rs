//! Wall-clock time that a program may take, without the time that people take to answer.

use std::sync::Mutex;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use crate::lock::lock;

#[derive(Debug)]
pub(crate) struct Stopwatch {
    allowed: Duration,
    reading: Mutex<StopwatchReading>,
    changed: Notify,
}

#[derive(Debug)]
struct StopwatchReading {
    used: Duration,
    since: Instant,
    /// How many [`StopwatchPause`]s there are now. Time passes while there is none.
    pauses: usize,
}

/// The stopwatch does not count while this exists.
#[derive(Debug)]
pub(crate) struct StopwatchPause<'a>(&'a Stopwatch);

impl Stopwatch {
    pub(crate) fn start(allowed: Duration) -> Stopwatch {
        let reading = StopwatchReading { used: Duration::ZERO, since: Instant::now(), pauses: 0 };
        Stopwatch { allowed, reading: Mutex::new(reading), changed: Notify::new() }
    }

    pub(crate) fn pause(&self) -> StopwatchPause<'_> {
        let mut reading = lock(&self.reading);
        if reading.pauses == 0 {
            let passed = reading.since.elapsed();
            reading.used += passed;
        }
        reading.pauses += 1;
        self.changed.notify_one();
        StopwatchPause(self)
    }

    pub(crate) fn has_expired(&self) -> bool {
        self.remaining().is_some_and(|remaining| remaining.is_zero())
    }

    /// Ends when the time is used up. Only one task at a time may wait for it.
    pub(crate) async fn expired(&self) {
        loop {
            let changed = self.changed.notified();
            match self.remaining() {
                None => changed.await,
                Some(Duration::ZERO) => return,
                Some(remaining) => tokio::select! {
                    () = tokio::time::sleep(remaining) => {}
                    () = changed => {}
                },
            }
        }
    }

    /// `None` while it is paused.
    fn remaining(&self) -> Option<Duration> {
        let reading = lock(&self.reading);
        (reading.pauses == 0).then(|| self.allowed.saturating_sub(reading.used + reading.since.elapsed()))
    }
}

impl Drop for StopwatchPause<'_> {
    fn drop(&mut self) {
        let mut reading = lock(&self.0.reading);
        reading.pauses -= 1;
        if reading.pauses == 0 {
            reading.since = Instant::now();
        }
        self.0.changed.notify_one();
    }
}
