//! Gateways that are killed at any moment, a Redis that is, and clients that repeat their requests: no payment is made
//! twice, and every conversation ends.
//!
//! `DACAPO_CONVERSATIONS=10000 cargo test -p dacapo --test owners_faults -- --nocapture` plays as many as one likes.
//! `DACAPO_SEED` chooses the same faults once more, as far as the machine is as fast.

#![expect(clippy::print_stdout, reason = "a failure is to be seen again")]

#[path = "../../gateway/tests/gateway/client_conversation.rs"]
#[expect(clippy::unwrap_used, reason = "a client that is answered wrongly cannot go on")]
mod client_conversation;
mod common;
#[expect(dead_code, reason = "other tests use more of it")]
mod office;

use std::collections::BTreeMap;
use std::io::Write;
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, RwLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use client_conversation::ClientConversation;
use common::Served;
use dacapo_wire::Wire;
use office::{Office, Redis};
use serde_json::{Value, json};

/// Conversations go on until so many gateways were killed, unless `DACAPO_CONVERSATIONS` says how many there are.
const KILLS: usize = 5;
/// After so many gateways, Redis is killed too.
const REDIS_EVERY: usize = 3;
const AT_ONCE: usize = 4;
/// A minute: a Redis that writes to a busy disk answers late.
const TRIES_MAX: usize = 300;

/// What came of a conversation.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum End {
    /// All three payments were made.
    Paid,
    /// The model was told that it is not known whether a payment was made.
    Unknown,
    /// The client was told that its request was cut off.
    CutOff,
    /// The model was told that a payment was not made, because it could not be recorded.
    NotSent,
}

/// How often clients asked for the same again.
#[derive(Debug, Default)]
struct Repetitions {
    /// They hung up before the first byte, or in mid-stream.
    hung_up: AtomicUsize,
    /// They got an error, or a response that broke off.
    failed: AtomicUsize,
    /// They had got all of the response.
    after_the_end: AtomicUsize,
}

/// Numbers that look random. The first is printed, so that a failure can be seen again.
struct Chance(AtomicU64);

impl Chance {
    fn new() -> Chance {
        let named = std::env::var("DACAPO_SEED").ok().and_then(|seed| seed.parse().ok());
        let seed = named.unwrap_or_else(|| SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |now| now.as_secs()));
        println!("DACAPO_SEED={seed}");
        Chance(AtomicU64::new(seed))
    }

    fn below(&self, end: u64) -> u64 {
        let mut number = self.0.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
        number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (number ^ (number >> 31)) % end
    }
}

/// What all conversations share.
struct Faults<'a> {
    replicas: &'a [RwLock<Served>],
    chance: &'a Chance,
    repetitions: &'a Repetitions,
}

impl Faults<'_> {
    /// The address of one of the gateways.
    fn url(&self) -> String {
        let number = self.chance.below(self.replicas.len() as u64) as usize;
        self.replicas[number].read().expect("no panic").url.clone()
    }
}

/// Repeats the same request until there is a response, at whichever gateway.
fn ask(faults: &Faults<'_>, talk: &ClientConversation) -> (u16, String) {
    let Faults { chance, repetitions, .. } = faults;
    let (path, body) = talk.request();
    let config = ureq::Agent::config_builder().http_status_as_error(false).build();
    let agent = ureq::Agent::new_with_config(config);
    let mut last = String::new();
    for _ in 0..TRIES_MAX {
        // Some clients lose their connection before the first byte, or in mid-stream, and ask for the same again.
        if chance.below(8) == 0 {
            hang_up(&faults.url(), path, &body, Duration::from_millis(chance.below(250)));
            repetitions.hung_up.fetch_add(1, Ordering::Relaxed);
        }
        let request = agent.post(format!("{}{path}", faults.url())).header("content-type", "application/json");
        let mut response = match request.send(body.to_string()) {
            Ok(response) => response,
            Err(error) => {
                last = error.to_string();
                repetitions.failed.fetch_add(1, Ordering::Relaxed);
                std::thread::sleep(Duration::from_millis(200));
                continue;
            }
        };
        let status = response.status().as_u16();
        // A response that breaks off, or a server's error, is a reason to try again.
        match response.body_mut().read_to_string() {
            // In a stream that has begun, that is an event.
            Ok(text) if text.contains("; try again") => last = text,
            // So it is for a client that forgets what it has got.
            Ok(text) if status < 500 && chance.below(8) == 0 => {
                repetitions.after_the_end.fetch_add(1, Ordering::Relaxed);
                last = text;
                continue;
            }
            Ok(text) if status < 500 => return (status, text),
            other => last = format!("{status} {other:?}"),
        }
        repetitions.failed.fetch_add(1, Ordering::Relaxed);
        std::thread::sleep(Duration::from_millis(200));
    }
    panic!("no response after {TRIES_MAX} tries: {last}");
}

/// Sends a request and hangs up after a while, whatever has come by then.
fn hang_up(url: &str, path: &str, body: &Value, after: Duration) {
    let (address, base) = url.trim_start_matches("http://").split_once('/').expect("a path");
    // A gateway that was just killed is not there.
    let Ok(mut connection) = TcpStream::connect(address) else { return };
    let body = body.to_string();
    let head = format!("POST /{base}{path} HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\n");
    if write!(connection, "{head}content-length: {}\r\n\r\n{body}", body.len()).is_ok() {
        std::thread::sleep(after);
    }
}

fn converse(faults: &Faults<'_>, number: usize) -> End {
    let wire = Wire::ALL[number % 3];
    let mut talk = ClientConversation::new(wire, &[("stock_of", &["part"])]);
    if number.is_multiple_of(2) {
        talk.extra = json!({"stream": true});
    }
    talk.user(&format!("conversation {number}"));
    for _ in 0..10 {
        let (status, text) = ask(faults, &talk);
        // In a stream that has begun, the same is an event.
        if status == 424 || text.contains("was cut off after it had called functions with effects") {
            return End::CutOff;
        }
        assert_eq!(status, 200, "{wire}: {text}");
        let response = talk.read_response(&text);
        if response.calls.is_empty() {
            return match response.text.as_str() {
                "paid <nothing at error/message>" => End::Paid,
                text if text.contains("it is not known whether it took effect") => End::Unknown,
                text if text.contains("it was not sent, because it could not be recorded") => End::NotSent,
                text => panic!("conversation {number} on {wire} ended with {text}"),
            };
        }
        for call in &response.calls {
            talk.answer(call, "4", false);
        }
    }
    panic!("conversation {number} does not end");
}

/// What was paid in each conversation, by its number.
fn payments(office: &Office) -> BTreeMap<usize, Vec<String>> {
    let mut payments: BTreeMap<usize, Vec<String>> = BTreeMap::new();
    for (call, count) in office.executed() {
        let Some(args) = call.strip_prefix("pay ") else { continue };
        let args: Value = serde_json::from_str(args).expect("JSON");
        let number = args["to"].as_str().and_then(|to| to.strip_prefix("conversation ")).and_then(|to| to.parse().ok());
        let paid = payments.entry(number.expect("a conversation")).or_default();
        paid.extend(std::iter::repeat_n(args["amount"].to_string(), count));
    }
    payments
}

#[test]
fn no_payment_is_made_twice_whatever_is_killed() {
    let (office, mut redis, chance) = (Office::new(), Redis::start(), Chance::new());
    let url = redis.url.clone();
    let environment = [("DACAPO_STORE_KIND", "redis"), ("DACAPO_STORE_URL", url.as_str())];
    let replicas: Vec<RwLock<Served>> = (0..2).map(|_| RwLock::new(office.gateway(&environment))).collect();
    let (next, is_over) = (AtomicUsize::new(0), AtomicBool::new(false));
    let (gateways_killed, redis_killed) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let (ends, repetitions) = (Mutex::new(BTreeMap::new()), Repetitions::default());
    let wanted: Option<usize> =
        std::env::var("DACAPO_CONVERSATIONS").ok().map(|count| count.parse().expect("a number"));
    let goes_on = || match wanted {
        Some(wanted) => next.load(Ordering::Relaxed) < wanted,
        None => gateways_killed.load(Ordering::Relaxed) < KILLS,
    };
    let faults = Faults { replicas: &replicas, chance: &chance, repetitions: &repetitions };
    let ended: Vec<std::thread::Result<()>> = std::thread::scope(|scope| {
        scope.spawn(|| {
            while goes_on() && !is_over.load(Ordering::Relaxed) {
                // Long enough for a client to hear that whoever was at its request is gone.
                std::thread::sleep(Duration::from_millis(4_000 + chance.below(3_000)));
                let started = office.gateway(&environment);
                // The one before is killed when it is dropped, in the middle of whatever it does.
                let killed = gateways_killed.load(Ordering::Relaxed);
                *replicas[killed % replicas.len()].write().expect("no panic") = started;
                gateways_killed.fetch_add(1, Ordering::Relaxed);
                if killed.is_multiple_of(REDIS_EVERY) {
                    std::thread::sleep(Duration::from_millis(chance.below(2_000)));
                    redis.restart(Duration::from_millis(chance.below(1_500)));
                    redis_killed.fetch_add(1, Ordering::Relaxed);
                }
                if wanted.is_some() {
                    println!("{} conversations, {} kills", next.load(Ordering::Relaxed), killed + 1);
                }
            }
        });
        let workers: Vec<_> = (0..AT_ONCE)
            .map(|_| {
                scope.spawn(|| {
                    while goes_on() {
                        let number = next.fetch_add(1, Ordering::Relaxed);
                        let end = converse(&faults, number);
                        ends.lock().expect("no panic").insert(number, end);
                    }
                })
            })
            .collect();
        let ended = workers.into_iter().map(std::thread::ScopedJoinHandle::join).collect();
        is_over.store(true, Ordering::Relaxed);
        ended
    });
    let (ends, payments) = (ends.into_inner().expect("no panic"), payments(&office));
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for (number, end) in &ends {
        let paid = payments.get(number).map(|paid| paid.join(",")).unwrap_or_default();
        *counts.entry(format!("{end:?}, paid {paid}")).or_default() += 1;
    }
    println!("{gateways_killed:?} gateways and {redis_killed:?} times Redis killed, {repetitions:?}, {counts:#?}");
    let amounts = |paid: &Vec<String>| paid.iter().collect::<std::collections::BTreeSet<_>>().len();
    let twice: Vec<_> = payments.iter().filter(|(_, paid)| amounts(paid) < paid.len()).collect();
    assert!(twice.is_empty(), "paid twice: {twice:?}");
    assert!(ended.iter().all(Result::is_ok) && ends.len() == next.into_inner(), "every conversation ends");
    let lost: Vec<_> = ends
        .iter()
        .filter(|(number, end)| **end == End::Paid && payments.get(number).is_none_or(|paid| paid.len() != 3))
        .collect();
    assert!(lost.is_empty(), "said to be paid, and not paid: {lost:?}");
    assert!(ends.values().any(|end| *end == End::Paid), "{counts:?}");
}
