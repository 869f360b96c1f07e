//! Gateways that are killed at any moment, and clients that repeat their requests: no payment is made twice, and every
//! conversation ends.
//!
//! `DACAPO_CONVERSATIONS=10000 cargo test -p dacapo --test owners_faults -- --nocapture` plays as many as one likes, and
//! `DACAPO_SEED` plays the same once more.

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
const AT_ONCE: usize = 4;
const TRIES_MAX: usize = 60;

/// What came of a conversation.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum End {
    /// All three payments were made.
    Paid,
    /// The model was told that it is not known whether a payment was made.
    Unknown,
    /// The client was told that its request was cut off.
    CutOff,
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

/// Repeats the same request until there is a response, at whichever gateway.
fn ask(replicas: &[RwLock<Served>], talk: &ClientConversation, chance: &Chance) -> (u16, String) {
    let (path, body) = talk.request();
    let config = ureq::Agent::config_builder().http_status_as_error(false).build();
    let agent = ureq::Agent::new_with_config(config);
    let mut last = String::new();
    for _ in 0..TRIES_MAX {
        // Some clients lose their connection before the first byte, or in mid-stream, and ask for the same again.
        if chance.below(8) == 0 {
            let url = replicas[chance.below(replicas.len() as u64) as usize].read().expect("no panic").url.clone();
            hang_up(&url, path, &body, Duration::from_millis(chance.below(250)));
        }
        let url = replicas[chance.below(replicas.len() as u64) as usize].read().expect("no panic").url.clone();
        let request = agent.post(format!("{url}{path}")).header("content-type", "application/json");
        let mut response = match request.send(body.to_string()) {
            Ok(response) => response,
            Err(error) => {
                last = error.to_string();
                std::thread::sleep(Duration::from_millis(200));
                continue;
            }
        };
        let status = response.status().as_u16();
        // A response that breaks off, or a server's error, is a reason to try again.
        match response.body_mut().read_to_string() {
            Ok(text) if status < 500 => return (status, text),
            other => last = format!("{status} {other:?}"),
        }
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

fn converse(replicas: &[RwLock<Served>], number: usize, chance: &Chance) -> End {
    let wire = Wire::ALL[number % 3];
    let mut talk = ClientConversation::new(wire, &[("stock_of", &["part"])]);
    if number.is_multiple_of(2) {
        talk.extra = json!({"stream": true});
    }
    talk.user(&format!("conversation {number}"));
    for _ in 0..10 {
        let (status, text) = ask(replicas, &talk, chance);
        // In a stream that has begun, the same is an event.
        if status == 424 || text.contains("interrupted_error") {
            return End::CutOff;
        }
        assert_eq!(status, 200, "{wire}: {text}");
        let response = talk.read_response(&text);
        if response.calls.is_empty() {
            return match response.text.as_str() {
                "paid <nothing at error/message>" => End::Paid,
                text if text.contains("it is not known whether it took effect") => End::Unknown,
                text => panic!("conversation {number} on {wire} ended with {text}"),
            };
        }
        for call in &response.calls {
            talk.answer(call, "4", false);
        }
    }
    panic!("conversation {number} does not end");
}

#[test]
fn no_payment_is_made_twice_whatever_is_killed() {
    let (office, redis, chance) = (Office::new(), Redis::start(), Chance::new());
    let environment = [("DACAPO_STORE_KIND", "redis"), ("DACAPO_STORE_URL", redis.url.as_str())];
    let replicas: Vec<RwLock<Served>> = (0..2).map(|_| RwLock::new(office.gateway(&environment))).collect();
    let (next, is_over, killed) = (AtomicUsize::new(0), AtomicBool::new(false), AtomicUsize::new(0));
    let ends = Mutex::new(BTreeMap::new());
    let wanted: Option<usize> =
        std::env::var("DACAPO_CONVERSATIONS").ok().map(|count| count.parse().expect("a number"));
    let goes_on = || match wanted {
        Some(wanted) => next.load(Ordering::Relaxed) < wanted,
        None => killed.load(Ordering::Relaxed) < KILLS,
    };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while goes_on() && !is_over.load(Ordering::Relaxed) {
                // Long enough for a client to hear that whoever was at its request is gone.
                std::thread::sleep(Duration::from_millis(4_000 + chance.below(3_000)));
                let started = office.gateway(&environment);
                // The one before is killed when it is dropped, in the middle of whatever it does.
                *replicas[killed.load(Ordering::Relaxed) % replicas.len()].write().expect("no panic") = started;
                killed.fetch_add(1, Ordering::Relaxed);
            }
        });
        let workers: Vec<_> = (0..AT_ONCE)
            .map(|_| {
                scope.spawn(|| {
                    while goes_on() {
                        let end = converse(&replicas, next.fetch_add(1, Ordering::Relaxed), &chance);
                        *ends.lock().expect("no panic").entry(end).or_insert(0) += 1;
                    }
                })
            })
            .collect();
        let outcomes: Vec<_> = workers.into_iter().map(std::thread::ScopedJoinHandle::join).collect();
        is_over.store(true, Ordering::Relaxed);
        for outcome in outcomes {
            outcome.expect("every conversation ends");
        }
    });
    let ends = ends.into_inner().expect("no panic");
    let killed = killed.into_inner();
    println!("{ends:?}, {killed} gateways killed");
    let payments: Vec<(String, usize)> =
        office.executed().into_iter().filter(|(call, _)| call.starts_with("pay ")).collect();
    let twice: Vec<_> = payments.iter().filter(|(_, count)| *count > 1).collect();
    assert!(twice.is_empty(), "{twice:?}");
    assert_eq!(ends.values().sum::<usize>(), next.into_inner(), "every conversation ends");
    let paid = ends.get(&End::Paid).copied().unwrap_or_default();
    assert!(paid > 0 && payments.len() >= 3 * paid, "{ends:?}, {} payments", payments.len());
}
