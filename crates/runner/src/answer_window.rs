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
    let opened_at = Instant::now();
    let mut last_answer_at = opened_at;
    while !running.is_empty() {
        let now = Instant::now();
        if let Some(Some(next)) = running.next().now_or_never() {
            answers.push(next);
            last_answer_at = now;
        } else if now - last_answer_at > IDLE_MAX || now - opened_at > OPEN_MAX {
            return;
        } else {
            tokio::task::yield_now().await;
        }
    }
}
