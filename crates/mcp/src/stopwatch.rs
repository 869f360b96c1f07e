//! Wall-clock time that a program may take, without the time that people take to answer.

use std::sync::Mutex;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use crate::lock::lock;

#[derive(Debug)]
pub(crate) struct Stopwatch {
    allowed: Duration,
    reading: Mutex<Reading>,
    changed: Notify,
}

#[derive(Debug)]
struct Reading {
    used: Duration,
    since: Instant,
    pauses: usize,
}

/// The watch stands still as long as this lives.
#[derive(Debug)]
pub(crate) struct Pause<'a>(&'a Stopwatch);

impl Stopwatch {
    pub(crate) fn start(allowed: Duration) -> Stopwatch {
        let reading = Reading { used: Duration::ZERO, since: Instant::now(), pauses: 0 };
        Stopwatch { allowed, reading: Mutex::new(reading), changed: Notify::new() }
    }

    pub(crate) fn pause(&self) -> Pause<'_> {
        let mut reading = lock(&self.reading);
        if reading.pauses == 0 {
            let passed = reading.since.elapsed();
            reading.used += passed;
        }
        reading.pauses += 1;
        self.changed.notify_one();
        Pause(self)
    }

    pub(crate) fn is_over(&self) -> bool {
        self.left().is_some_and(|left| left.is_zero())
    }

    /// Ends when the time is used up. One at a time may wait for it.
    pub(crate) async fn over(&self) {
        loop {
            let changed = self.changed.notified();
            match self.left() {
                None => changed.await,
                Some(Duration::ZERO) => return,
                Some(left) => tokio::select! {
                    () = tokio::time::sleep(left) => {}
                    () = changed => {}
                },
            }
        }
    }

    /// `None` while it stands still.
    fn left(&self) -> Option<Duration> {
        let reading = lock(&self.reading);
        (reading.pauses == 0).then(|| self.allowed.saturating_sub(reading.used + reading.since.elapsed()))
    }
}

impl Drop for Pause<'_> {
    fn drop(&mut self) {
        let mut reading = lock(&self.0.reading);
        reading.pauses -= 1;
        if reading.pauses == 0 {
            reading.since = Instant::now();
        }
        self.0.changed.notify_one();
    }
}
