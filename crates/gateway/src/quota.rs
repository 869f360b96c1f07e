//! What requests share: how much of it is in use, by all clients and by each.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A resource with a limit for all clients together, and one for each.
#[derive(Debug)]
pub(crate) struct SharedQuota {
    max: usize,
    per_client_max: usize,
    used: Mutex<QuotaUse>,
}

#[derive(Debug, Default)]
struct QuotaUse {
    all: usize,
    by_client: BTreeMap<Arc<str>, usize>,
}

/// Who has used a quota up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SpentBy {
    AllClients,
    ThisClient,
}

/// What one request has taken of a quota. It is given back on drop.
#[derive(Debug)]
pub(crate) struct QuotaShare {
    quota: Arc<SharedQuota>,
    client: Arc<str>,
    /// What its client may take, all together.
    client_max: usize,
    amount: usize,
}

impl SharedQuota {
    pub(crate) fn new(max: usize, per_client_max: usize) -> Arc<SharedQuota> {
        Arc::new(SharedQuota { max, per_client_max, used: Mutex::default() })
    }

    pub(crate) fn take(self: &Arc<Self>, client: &Arc<str>, amount: usize) -> Result<QuotaShare, SpentBy> {
        self.take_within(self.per_client_max, client, amount)
    }

    /// The same, for a client that may have more or less than others.
    pub(crate) fn take_within(
        self: &Arc<Self>,
        client_max: usize,
        client: &Arc<str>,
        amount: usize,
    ) -> Result<QuotaShare, SpentBy> {
        let mut share = QuotaShare { quota: Arc::clone(self), client: Arc::clone(client), client_max, amount: 0 };
        share.grow(amount)?;
        Ok(share)
    }

    /// Whether nobody can take any more.
    pub(crate) fn is_spent(&self) -> bool {
        self.used().all >= self.max
    }

    /// How much is taken.
    pub(crate) fn taken(&self) -> usize {
        self.used().all
    }

    fn used(&self) -> MutexGuard<'_, QuotaUse> {
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl QuotaShare {
    /// Takes more of the quota.
    pub(crate) fn grow(&mut self, amount: usize) -> Result<(), SpentBy> {
        let mut used = self.quota.used();
        let of_client = used.by_client.get(&self.client).copied().unwrap_or_default();
        if used.all.saturating_add(amount) > self.quota.max {
            return Err(SpentBy::AllClients);
        }
        if of_client.saturating_add(amount) > self.client_max {
            return Err(SpentBy::ThisClient);
        }
        used.all += amount;
        used.by_client.insert(Arc::clone(&self.client), of_client + amount);
        drop(used);
        self.amount += amount;
        Ok(())
    }
}

impl Drop for QuotaShare {
    fn drop(&mut self) {
        let mut used = self.quota.used();
        used.all -= self.amount;
        let left = used.by_client.get(&self.client).copied().unwrap_or_default().saturating_sub(self.amount);
        if left == 0 {
            used.by_client.remove(&self.client);
        } else {
            used.by_client.insert(Arc::clone(&self.client), left);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_client_cannot_take_what_is_for_all() {
        let (ann, bob): (Arc<str>, Arc<str>) = ("ann".into(), "bob".into());
        let quota = SharedQuota::new(3, 2);
        let mut held = vec![quota.take(&ann, 1).unwrap(), quota.take(&ann, 1).unwrap()];
        assert_eq!(quota.take(&ann, 1).unwrap_err(), SpentBy::ThisClient);
        assert!(!quota.is_spent());
        held.push(quota.take(&bob, 1).unwrap());
        assert!(quota.is_spent());
        assert_eq!(quota.take(&bob, 1).unwrap_err(), SpentBy::AllClients);
        held.remove(0);
        assert_eq!(held[1].grow(1), Ok(()));
        assert_eq!(held[1].grow(usize::MAX), Err(SpentBy::AllClients));
        drop(held);
        let used = quota.used();
        assert_eq!((used.all, used.by_client.len()), (0, 0));
    }
}
