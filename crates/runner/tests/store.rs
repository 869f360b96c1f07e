//! What the memory store keeps, and for how long.

use std::time::Duration;

use dacapo_replay::{Answer, CallIndex, Journal, JournalEntry, JsonText};
use dacapo_runner::{JournalStore, MemoryStore, StoreError, StoreKey};
use serde_json::json;
use tokio::time::advance;

const MINUTE: Duration = Duration::from_mins(1);

fn key(name: &str) -> StoreKey {
    StoreKey::new("a tenant", name)
}

async fn get(store: &dyn JournalStore, name: &str) -> Option<String> {
    store.get(&[key(name)]).await.expect("memory can be reached").remove(0)
}

async fn put(store: &dyn JournalStore, name: &str, text: &str) {
    store.put(&key(name), text).await.expect("memory can be reached");
}

#[tokio::test(start_paused = true)]
async fn a_text_expires_when_it_has_not_been_used_for_its_time() {
    let store = MemoryStore::new(1_000, MINUTE);
    put(&store, "run", "state").await;
    advance(MINUTE / 2).await;
    assert_eq!(get(&store, "run").await.as_deref(), Some("state"));
    advance(MINUTE * 3 / 4).await;
    assert_eq!(get(&store, "run").await.as_deref(), Some("state"), "reading it has renewed it");
    advance(MINUTE).await;
    assert_eq!(get(&store, "run").await, None);
    let expired = store.expired(&[key("run"), key("other")]).await.expect("memory can be reached");
    assert_eq!(expired, [true, false], "that it was there is remembered");
    put(&store, "run", "state").await;
    assert_eq!(store.expired(&[key("run")]).await.expect("memory can be reached"), [false]);
}

#[tokio::test]
async fn a_full_store_forgets_what_was_used_least_recently() {
    let store = MemoryStore::new(10, MINUTE);
    put(&store, "a", "aaaa").await;
    put(&store, "b", "bbbb").await;
    assert!(get(&store, "a").await.is_some());
    put(&store, "c", "cccc").await;
    let found = store.get(&[key("a"), key("b"), key("c")]).await.expect("memory can be reached");
    assert_eq!(found, [Some("aaaa".to_owned()), None, Some("cccc".to_owned())]);
}

#[tokio::test]
async fn a_later_text_replaces_an_earlier_one_and_tenants_do_not_share_names() {
    let store = MemoryStore::new(1_000, MINUTE);
    put(&store, "run", "one").await;
    put(&store, "run", "two").await;
    assert_eq!(get(&store, "run").await.as_deref(), Some("two"));
    let other = store.get(&[StoreKey::new("another tenant", "run")]).await.expect("memory can be reached");
    assert_eq!(other, [None]);
}

#[test]
fn keys_are_the_same_in_every_release() {
    assert_eq!(StoreKey::new("acme", "run:0").as_str(), "dacapo:1:822b33ad87c148a0:run:0");
}

#[tokio::test]
async fn journals_are_stored_and_one_that_cannot_be_read_is_an_error() {
    let store = MemoryStore::new(1_000, MINUTE);
    let answer = Answer::Ok(JsonText::from(&json!({ "rain": true })));
    let journal: Journal = [JournalEntry::new(CallIndex(0), "weather", Some(&json!({})), answer)].into_iter().collect();
    store.put_journal(&key("run"), &journal).await.expect("memory can be reached");
    let found = store.get_journal(&key("run")).await.expect("it can be read").expect("it is there");
    assert_eq!(found.entries(), journal.entries());
    assert!(store.get_journal(&key("other")).await.expect("memory can be reached").is_none());

    put(&store, "run", r#"{"version": 9}"#).await;
    let error = store.get_journal(&key("run")).await.expect_err("its version is not known");
    assert!(matches!(error, StoreError::Unreadable(_)), "{error:?}");
}
