//! What every store promises, whatever it keeps texts in.

use std::sync::Arc;
use std::time::Duration;

use dacapo_gateway::{open_file_store, open_redis_store, sealed_store};
use dacapo_runner::{JournalStore, MemoryStore, StoreKey};

use crate::common::Redis;

const TTL: Duration = Duration::from_mins(1);

fn key(name: &str) -> StoreKey {
    StoreKey::new("a tenant", name)
}

async fn text(store: &dyn JournalStore, name: &str) -> Option<String> {
    store.get(&[key(name)]).await.expect("it is read").pop().flatten()
}

#[tokio::test]
async fn whoever_claims_first_leaves_all_that_belongs_to_the_claim() {
    let folder = tempfile::tempdir().expect("a folder");
    let redis = Redis::start().await;
    let file = |name: &str| open_file_store(&folder.path().join(name), TTL).expect("it opens");
    let stores: [(&str, Arc<dyn JournalStore>); 4] = [
        ("memory", Arc::new(MemoryStore::new(1 << 20, TTL))),
        ("file", file("store")),
        ("redis", open_redis_store(&redis.1, TTL).expect("an address")),
        ("sealed", sealed_store(file("sealed"), "a secret")),
    ];
    for (name, store) in stores {
        store.put(&key("reason"), "an old one").await.expect("it is stored");
        let reasons = ["of the first", "of the second"].map(|reason| vec![(key("reason"), reason.to_owned())]);
        let known = store.put_new_with(&key("claim"), "first", &reasons[0]).await.expect("it is looked at");
        assert_eq!(known, None, "{name}");
        let known = store.put_new_with(&key("claim"), "second", &reasons[1]).await.expect("it is looked at");
        assert_eq!(known.as_deref(), Some("first"), "{name}");
        assert_eq!(text(&*store, "claim").await.as_deref(), Some("first"), "{name}");
        assert_eq!(text(&*store, "reason").await.as_deref(), Some("of the first"), "{name}");

        for (known, is_there) in [("second", false), ("first", true), ("first", false)] {
            let replaced = store.replace_with(&key("claim"), known, "third", &reasons[1]).await;
            assert_eq!(replaced.expect("it is looked at"), is_there, "{name} {known}");
            let reason = text(&*store, "reason").await;
            let replaced = text(&*store, "claim").await.as_deref() == Some("third");
            assert_eq!(reason.as_deref(), Some(if replaced { "of the second" } else { "of the first" }), "{name}");
        }
        let replaced = store.replace_with(&key("never"), "", "third", &reasons[0]).await;
        assert!(!replaced.expect("it is looked at") && text(&*store, "never").await.is_none(), "{name}");

        let several = [(key("claim"), "third".to_owned()), (key("other"), "third".to_owned())];
        let known: Result<Vec<_>, _> = store.put_new_all(&several).await.into_iter().collect();
        assert_eq!(known.expect("both are looked at"), [Some("third".to_owned()), None], "{name}");
        assert_eq!(text(&*store, "other").await.as_deref(), Some("third"), "{name}");

        store.put_soon(&key("claim"), "ended").await.expect("it is stored");
        assert_eq!(text(&*store, "claim").await.as_deref(), Some("ended"), "{name}");
    }
    let reopened = file("store");
    assert_eq!(text(&*reopened, "claim").await.as_deref(), Some("ended"), "what is stored soon survives a stop");
}
