//! Journals in their serialised form.

use dacapo_replay::{Answer, ArgsDigest, CallIndex, Journal, JournalEntry, JournalFormatError, JsonText};
use proptest::prelude::*;
use serde_json::{Value, json};

/// Files of earlier releases stay readable for ever. Samples are added here and never changed.
#[test]
fn journals_of_version_1_are_read() {
    let journal = Journal::from_json(include_str!("journals/v1/every_kind_of_entry.json")).expect("it is a journal");
    let text = |json: &str| JsonText::parse(json).expect("it is JSON");
    let error = |message: &str, data| Answer::Error { message: message.to_owned(), data };
    let forecast = json!({ "city": "Ærøskøbing", "days": 3, "at": [54.8906, 10.4111] });
    let expected = [
        JournalEntry::new(
            CallIndex(1),
            "weather.forecast",
            Some(&forecast),
            Answer::Ok(text(r#"{ "rain": 0.30000000000000004, "id": 12345678901234567890123 }"#)),
        ),
        JournalEntry::with_digest(
            CallIndex(0),
            "mail.send",
            ArgsDigest([0x00, 0xc0, 0xff, 0xee]),
            Answer::Ok(text("null")),
        ),
        JournalEntry::new(CallIndex(3), "notes", None, Answer::Ok(text(r#""a \"quoted\"\nline \u00e9\ud83d\ude00""#))),
        JournalEntry::new(CallIndex(2), "files.read", Some(&json!({ "path": "/a" })), error("no such file", None)),
        JournalEntry::new(
            CallIndex(4),
            "files.read",
            Some(&json!({})),
            error("rate limited", Some(text(r#"{ "retry_after_s": 1.50 }"#))),
        ),
    ];
    assert_eq!(journal.entries(), expected);
}

#[test]
fn a_journal_of_a_later_release_is_refused_as_such() {
    let later = r#"{"version": 2, "entries": {"0": []}, "more": true}"#;
    let error = Journal::from_json(later).expect_err("its version is not known");
    assert_eq!(error, JournalFormatError::UnknownVersion { found: 2 });
    let message = "the journal has version 2, and this release reads version 1; update dacapo to read it";
    assert_eq!(error.to_string(), message);
}

#[test]
fn what_is_wrong_is_named_with_its_place() {
    let cases = [
        ("nonsense", "it is not JSON: expected ident at line 1 column 2"),
        ("{}", "version: is missing"),
        (r#"{"version": 1}"#, "entries: is missing"),
        (r#"{"version": "1", "entries": []}"#, "version: invalid type: string \"1\", expected u64"),
        (r#"{"version": 1, "entries": [{"call": 0, "tool": "a"}]}"#, "entries[0]: needs `ok` or `error`"),
        (
            r#"{"version": 1, "entries": [{"call": 0, "tool": "a", "ok": 1}, {"call": 0, "tool": "a", "ok": 1}]}"#,
            "entries[1].call: call 0 is answered already by entries[0]",
        ),
        (
            r#"{"version": 1, "entries": [{"call": 0, "tool": "a", "args_digest": "c0ffee", "ok": 1}]}"#,
            "entries[0].args_digest: must have eight hexadecimal digits",
        ),
        (
            r#"{"version": 1, "entries": [{"call": 0, "tool": "a", "args": {}, "args_digest": "00c0ffee", "ok": 1}]}"#,
            "entries[0].args_digest: goes only without `args`",
        ),
    ];
    for (text, message) in cases {
        let error = Journal::from_json(text).expect_err("it is no journal");
        assert_eq!(error.to_string(), format!("the journal cannot be read: {message}"), "{text}");
    }
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "\\PC{0,20}".prop_map(Value::from),
        "[\\x00-\\x1f\"\\\\]{0,8}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 30, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::vec(("\\PC{0,10}", inner), 0..6)
                .prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    })
}

fn any_answer() -> impl Strategy<Value = Answer> {
    let data = prop::option::of(any_json().prop_map(|data| JsonText::from(&data)));
    prop_oneof![
        any_json().prop_map(|value| Answer::Ok(JsonText::from(&value))),
        ("\\PC{0,20}", data).prop_map(|(message, data)| Answer::Error { message, data }),
    ]
}

#[derive(Debug, Clone)]
enum Args {
    Unknown,
    Known(Value),
    Digest([u8; 4]),
}

fn any_journal() -> impl Strategy<Value = Journal> {
    let args =
        prop_oneof![Just(Args::Unknown), any_json().prop_map(Args::Known), any::<[u8; 4]>().prop_map(Args::Digest),];
    prop::collection::btree_map(any::<u32>(), ("\\PC{1,12}", args, any_answer()), 0..8).prop_map(|entries| {
        let entries = entries.into_iter().rev().map(|(call, (tool, args, answer))| match args {
            Args::Unknown => JournalEntry::new(CallIndex(call), tool, None, answer),
            Args::Known(args) => JournalEntry::new(CallIndex(call), tool, Some(&args), answer),
            Args::Digest(bytes) => JournalEntry::with_digest(CallIndex(call), tool, ArgsDigest(bytes), answer),
        });
        entries.collect()
    })
}

proptest! {
    #[test]
    fn a_journal_comes_back_as_it_was(journal in any_journal()) {
        let again = Journal::from_json(&journal.to_json()).expect("it was written by us");
        prop_assert_eq!(again.entries(), journal.entries());
        prop_assert_eq!((again.fingerprint(), again.bytes()), (journal.fingerprint(), journal.bytes()));
    }
}
