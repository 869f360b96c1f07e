//! A future that wakes its own task while it is polled, without a detour over the scheduler.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use futures_util::task::AtomicWaker;

/// So often a future is polled in a row. After that other tasks have their turn.
const POLLS_MAX: u32 = 16;

/// Polls a future again at once if it was woken while it was polled.
///
/// The connection and the handler of its request are one task, and wake each other for every piece of a body. The runtime
/// would queue the task each time and wake another thread to take it, which costs more than what the task does.
pub(super) struct SelfWaking<F> {
    future: Pin<Box<F>>,
    wakes: Arc<Wakes>,
    waker: Waker,
}

/// Wakes the task, unless its future is being polled.
struct Wakes {
    state: AtomicU8,
    task: AtomicWaker,
}

const IDLE: u8 = 0;
const POLLED: u8 = 1;
const WOKEN: u8 = 2;

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if self.state.swap(WOKEN, Ordering::AcqRel) == IDLE {
            self.task.wake();
        }
    }
}

impl<F: Future> SelfWaking<F> {
    pub(super) fn new(future: F) -> SelfWaking<F> {
        let wakes = Arc::new(Wakes { state: AtomicU8::new(IDLE), task: AtomicWaker::new() });
        SelfWaking { future: Box::pin(future), waker: Waker::from(Arc::clone(&wakes)), wakes }
    }
}

impl<F: Future> Future for SelfWaking<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<F::Output> {
        let SelfWaking { future, wakes, waker } = &mut *self;
        wakes.task.register(task.waker());
        for _ in 0..POLLS_MAX {
            wakes.state.swap(POLLED, Ordering::AcqRel);
            if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(waker)) {
                return Poll::Ready(output);
            }
            if wakes.state.compare_exchange(POLLED, IDLE, Ordering::AcqRel, Ordering::Acquire).is_ok() {
                return Poll::Pending;
            }
        }
        wakes.state.store(IDLE, Ordering::Release);
        task.waker().wake_by_ref();
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::time::Duration;

    use futures_util::FutureExt;

    use super::*;

    /// Wakes itself so often before it is ready.
    fn waking_itself(times: u32) -> impl Future<Output = ()> {
        let mut left = times;
        poll_fn(move |task| {
            if left == 0 {
                return Poll::Ready(());
            }
            left -= 1;
            task.waker().wake_by_ref();
            Poll::Pending
        })
    }

    #[tokio::test]
    async fn a_future_that_wakes_itself_is_polled_in_a_row_but_not_for_ever() {
        assert_eq!(SelfWaking::new(waking_itself(POLLS_MAX - 1)).now_or_never(), Some(()));
        let mut longer = SelfWaking::new(waking_itself(5 * POLLS_MAX));
        assert_eq!((&mut longer).now_or_never(), None);
        longer.await;
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn wakes_of_other_threads_are_not_lost() {
        for _ in 0..2_000 {
            let (sender, receiver) = tokio::sync::oneshot::channel();
            let task = tokio::spawn(SelfWaking::new(async move {
                waking_itself(2).await;
                receiver.await
            }));
            std::thread::yield_now();
            sender.send(7).unwrap();
            assert_eq!(tokio::time::timeout(Duration::from_secs(30), task).await.unwrap().unwrap(), Ok(7));
        }
    }
}
