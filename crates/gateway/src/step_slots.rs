//! Programs that run at the same moment: which client's goes next.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

/// A fixed number of places for running programs. Waiting clients take turns, and if there are several clients, no one
/// gets all places, so that a client with many long programs delays another by little.
#[derive(Debug)]
pub(crate) struct StepSlots(Mutex<StepQueues>);

#[derive(Debug)]
struct StepQueues {
    free: usize,
    per_client_max: usize,
    running: BTreeMap<Arc<str>, usize>,
    /// Clients that wait, in the order in which they are next. While a place is free, all of them have as many places
    /// as one client may have.
    waiting: VecDeque<ClientQueue>,
}

#[derive(Debug)]
struct ClientQueue {
    client: Arc<str>,
    steps: VecDeque<oneshot::Sender<StepSlot>>,
}

/// A place for one running program. It is given to the next on drop.
#[derive(Debug)]
pub(crate) struct StepSlot {
    /// `None` in a slot that nobody took.
    slots: Option<Arc<StepSlots>>,
    client: Arc<str>,
}

/// How many kinds of clients share the places.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tenancy {
    Single,
    Several,
}

impl StepSlots {
    pub(crate) fn new(count: usize, tenancy: Tenancy) -> Arc<StepSlots> {
        let per_client_max = match tenancy {
            Tenancy::Single => count,
            Tenancy::Several => (count - (count / 4).max(1)).max(1),
        };
        let (running, waiting) = (BTreeMap::new(), VecDeque::new());
        Arc::new(StepSlots(Mutex::new(StepQueues { free: count, per_client_max, running, waiting })))
    }

    /// Waits for a place.
    pub(crate) async fn acquire(self: &Arc<Self>, client: &Arc<str>) -> StepSlot {
        let waiter = {
            let mut queues = self.queues();
            if queues.may_start(client) {
                return queues.start(self, client);
            }
            queues.enqueue(client)
        };
        waiter.await.expect("whoever waits holds the queues, and they drop no waiter")
    }

    fn queues(&self) -> MutexGuard<'_, StepQueues> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl StepQueues {
    fn may_start(&self, client: &str) -> bool {
        self.free > 0 && self.running.get(client).is_none_or(|running| *running < self.per_client_max)
    }

    fn start(&mut self, slots: &Arc<StepSlots>, client: &Arc<str>) -> StepSlot {
        self.free -= 1;
        *self.running.entry(Arc::clone(client)).or_default() += 1;
        StepSlot { slots: Some(Arc::clone(slots)), client: Arc::clone(client) }
    }

    fn stop(&mut self, client: &str) {
        self.free += 1;
        if let Some(running) = self.running.get_mut(client) {
            *running -= 1;
            if *running == 0 {
                self.running.remove(client);
            }
        }
    }

    fn enqueue(&mut self, client: &Arc<str>) -> oneshot::Receiver<StepSlot> {
        let (sender, receiver) = oneshot::channel();
        match self.waiting.iter_mut().find(|queue| queue.client == *client) {
            Some(queue) => {
                // Requests whose clients have left would pile up while all places are taken.
                queue.steps.retain(|step| !step.is_closed());
                queue.steps.push_back(sender);
            }
            None => self.waiting.push_back(ClientQueue { client: Arc::clone(client), steps: [sender].into() }),
        }
        receiver
    }

    /// Gives free places to those who wait, one client after the other.
    fn dispatch(&mut self, slots: &Arc<StepSlots>) {
        while let Some(at) = self.waiting.iter().position(|queue| self.may_start(&queue.client)) {
            let Some(mut queue) = self.waiting.remove(at) else { return };
            let Some(step) = queue.steps.pop_front() else { continue };
            if let Err(mut unwanted) = step.send(self.start(slots, &queue.client)) {
                // The request was cancelled while it waited. The slot must not give itself back: that takes the lock.
                unwanted.slots = None;
                self.stop(&queue.client);
            }
            if !queue.steps.is_empty() {
                self.waiting.push_back(queue);
            }
        }
    }
}

impl Drop for StepSlot {
    fn drop(&mut self) {
        let Some(slots) = self.slots.take() else { return };
        let mut queues = slots.queues();
        queues.stop(&self.client);
        queues.dispatch(&slots);
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    fn client(name: &str) -> Arc<str> {
        Arc::from(name)
    }

    #[test]
    fn waiting_clients_take_turns() {
        let slots = StepSlots::new(1, Tenancy::Single);
        let first = slots.acquire(&client("ann")).now_or_never().unwrap();
        let mut waiting: Vec<_> = ["ann", "ann", "ann", "bob", "eve", "bob"]
            .into_iter()
            .map(|name| {
                (name, {
                    let slots = Arc::clone(&slots);
                    async move { slots.acquire(&client(name)).await }.boxed()
                })
            })
            .collect();
        for (_, step) in &mut waiting {
            assert!(step.now_or_never().is_none());
        }
        let (mut running, mut order) = (Some(first), Vec::new());
        while !waiting.is_empty() {
            drop(running.take());
            let mut next = None;
            for (at, (_, step)) in waiting.iter_mut().enumerate() {
                if let Some(slot) = step.now_or_never() {
                    next = Some((at, slot));
                }
            }
            let (at, slot) = next.expect("somebody is next");
            order.push(waiting.remove(at).0);
            running = Some(slot);
        }
        assert_eq!(order, ["ann", "bob", "eve", "ann", "bob", "ann"]);
    }

    #[test]
    fn of_several_clients_none_has_all_places() {
        let slots = StepSlots::new(4, Tenancy::Several);
        let ann = client("ann");
        let held: Vec<StepSlot> = (0..3).map(|_| slots.acquire(&ann).now_or_never().unwrap()).collect();
        assert!(slots.acquire(&ann).now_or_never().is_none());
        let bob = slots.acquire(&client("bob")).now_or_never().expect("a place is left for others");
        drop((held, bob));
        let queues = slots.queues();
        assert_eq!((queues.free, queues.running.len()), (4, 0));
    }

    #[test]
    fn who_stops_waiting_keeps_no_place() {
        let slots = StepSlots::new(1, Tenancy::Single);
        let (ann, bob) = (client("ann"), client("bob"));
        let first = slots.acquire(&ann).now_or_never().unwrap();
        let mut left = Box::pin(slots.acquire(&ann));
        assert!((&mut left).now_or_never().is_none());
        let mut given = Box::pin(slots.acquire(&bob));
        assert!((&mut given).now_or_never().is_none());
        drop(left);
        drop(first);
        // The place is bob's already, but nobody has looked.
        drop(given);
        assert!(slots.acquire(&client("eve")).now_or_never().is_some());
    }
}
