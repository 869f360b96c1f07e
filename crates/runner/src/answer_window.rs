//! How long a program waits for more answers, before it goes on with those that are there.

use std::time::{Duration, Instant};

use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};

/// A step of a program takes about this long to begin and to end. Waiting up to as long for one more answer costs nothing if
/// it comes, because it saves a step.
const IDLE_MAX: Duration = Duration::from_micros(50);
/// Answers that have arrived are not held back longer than this, however fast others follow.
const OPEN_MAX: Duration = Duration::from_millis(1);

/// Takes the answers of running calls that arrive right after others, so that one step of the program takes them all.
pub async fn gather_answers<F: Future>(running: &mut FuturesUnordered<F>, answers: &mut Vec<F::Output>) {
    let mut window = AnswerWindow::open();
    loop {
        while let Some(Some(next)) = running.next().now_or_never() {
            answers.push(next);
            window.answer_arrived();
        }
        if running.is_empty() || window.is_over() {
            return;
        }
        tokio::task::yield_now().await;
    }
}

/// The time in which answers that arrive right after others are taken by the same step.
#[derive(Debug)]
pub struct AnswerWindow {
    opened_at: Instant,
    last_answer_at: Instant,
}

impl AnswerWindow {
    /// Opens when an answer has arrived.
    pub fn open() -> AnswerWindow {
        let now = Instant::now();
        AnswerWindow { opened_at: now, last_answer_at: now }
    }

    /// Another answer has arrived.
    pub fn answer_arrived(&mut self) {
        self.last_answer_at = Instant::now();
    }

    /// Whether the program goes on with the answers that are there.
    pub fn is_over(&self) -> bool {
        let now = Instant::now();
        now - self.last_answer_at > IDLE_MAX || now - self.opened_at > OPEN_MAX
    }
}
