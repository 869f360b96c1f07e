//! Any bytes as a serialised journal: an error, or a journal that is the same when it is written and read again.
#![no_main]

use dacapo_replay::Journal;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let Ok(journal) = Journal::from_json(text) else { return };
    let again = Journal::from_json(&journal.to_json()).expect("it was written by us");
    assert_eq!(again.entries(), journal.entries());
    assert_eq!(again.fingerprint(), journal.fingerprint());
});
