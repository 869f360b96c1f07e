//! What is done for a response while it is sent, in the task of its connection.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use dacapo_runner::BoxFuture;

/// The work on the response that a connection sends. It is polled with the connection, so that handing a piece of the
/// response over wakes no other task, and also while the client reads nothing, so that it notices its deadline.
///
/// A connection has one request at a time, and so one response to work on.
#[derive(Clone, Default)]
pub(super) struct ConnectionWork(Arc<Mutex<CurrentWork>>);

#[derive(Default)]
struct CurrentWork {
    slot: WorkSlot,
    /// Whether it has been polled.
    has_begun: bool,
}

/// Empty when the work is done or cancelled.
#[derive(Clone, Default)]
struct WorkSlot(Arc<Mutex<Option<BoxFuture<'static, ()>>>>);

/// Cancels the work when it is dropped.
pub(super) struct CancelWork(WorkSlot);

impl Drop for CancelWork {
    fn drop(&mut self) {
        let cancelled = self.0.lock().take();
        // After the lock was released.
        drop(cancelled);
    }
}

impl WorkSlot {
    fn lock(&self) -> MutexGuard<'_, Option<BoxFuture<'static, ()>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn poll(&self, task: &mut Context<'_>) {
        let mut slot = self.lock();
        if let Some(work) = slot.as_mut()
            && work.as_mut().poll(task).is_ready()
        {
            *slot = None;
        }
    }
}

impl ConnectionWork {
    /// Begins with it when the connection has been polled.
    pub(super) fn start(&self, work: impl Future<Output = ()> + Send + 'static) -> CancelWork {
        let slot = WorkSlot(Arc::new(Mutex::new(Some(Box::pin(work)))));
        *self.lock() = CurrentWork { slot: slot.clone(), has_begun: false };
        CancelWork(slot)
    }

    /// Polls the work as long as the connection lasts.
    pub(super) async fn with<T>(self, connection: impl Future<Output = T>) -> T {
        let mut connection = pin!(connection);
        poll_fn(|task| {
            loop {
                // What the work hands over leaves in the same turn of the task.
                self.begun().poll(task);
                if let Poll::Ready(end) = connection.as_mut().poll(task) {
                    return Poll::Ready(end);
                }
                if self.lock().has_begun {
                    return Poll::Pending;
                }
            }
        })
        .await
    }

    fn begun(&self) -> WorkSlot {
        let mut current = self.lock();
        current.has_begun = true;
        current.slot.clone()
    }

    fn lock(&self) -> MutexGuard<'_, CurrentWork> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use tokio::sync::{mpsc, oneshot};

    use super::super::self_waking::SelfWaking;
    use super::*;

    #[test]
    fn what_the_work_hands_over_arrives_in_the_same_turn_of_the_task() {
        let work = ConnectionWork::default();
        let starts = work.clone();
        let connection = async move {
            let mut all = Vec::new();
            // One response after the other.
            for response in 0..3 {
                let (pieces, mut receiver) = mpsc::channel(1);
                let _work = starts.start(async move {
                    for piece in 0..4 {
                        pieces.send(10 * response + piece).await.unwrap();
                    }
                });
                while let Some(piece) = receiver.recv().await {
                    all.push(piece);
                }
            }
            all
        };
        let served = SelfWaking::new(work.with(connection)).now_or_never();
        assert_eq!(served, Some(vec![0, 1, 2, 3, 10, 11, 12, 13, 20, 21, 22, 23]));
    }

    #[test]
    fn work_is_cancelled_with_what_waits_for_it_and_not_with_earlier_work() {
        let work = ConnectionWork::default();
        let (earlier, later) = (oneshot::channel::<()>(), oneshot::channel::<()>());
        let waits_for = |sender: oneshot::Sender<()>| async move {
            std::future::pending::<()>().await;
            drop(sender);
        };
        let cancels_earlier = work.start(waits_for(earlier.0));
        let cancels_later = work.start(waits_for(later.0));
        drop(cancels_earlier);
        assert!(earlier.1.now_or_never().is_some(), "it was dropped");
        let mut later = later.1;
        assert!((&mut later).now_or_never().is_none(), "it is still there");
        drop(cancels_later);
        assert!(later.now_or_never().is_some());
    }
}
