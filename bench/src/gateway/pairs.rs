//! The same conversation on every pair of wires.

use std::net::SocketAddr;
use std::time::Duration;

use dacapo_wire::Wire;

use super::client::Connection;
use super::client_conversation::ClientConversation;
use super::conversation::{REQUESTS, TOOLS};
use super::cost::Delivery;
use super::played;
use super::servers::Servers;
use crate::sample::Sample;

/// A client's wire and a model's, and what each conversation took.
struct Pair {
    client: Wire,
    upstream: Wire,
    gateway: SocketAddr,
    /// Of all its requests together, less what the model alone takes.
    added: Vec<Duration>,
}

pub(crate) fn run(servers: &Servers, conversations: usize) -> anyhow::Result<()> {
    let pair = |client| {
        let pair = move |(upstream, gateway): &(Wire, SocketAddr)| Pair {
            client,
            upstream: *upstream,
            gateway: *gateway,
            added: Vec::new(),
        };
        servers.by_wire.iter().map(pair)
    };
    let mut pairs: Vec<Pair> = Wire::ALL.into_iter().flat_map(pair).collect();
    let tools = serde_json::from_str(TOOLS)?;
    // In turns, so that whatever else the machine does falls on all alike.
    for number in 0..=conversations {
        for pair in &mut pairs {
            let taken = play(pair, servers.model, ClientConversation::declared(pair.client, &tools))?;
            // The first one warms up.
            if number > 0 {
                pair.added.push(taken);
            }
        }
    }
    println!(
        "\none conversation of {REQUESTS} requests on every pair of wires: microseconds that the gateway adds, p50"
    );
    println!("{:30} {:>15} {:>15} {:>15}", "client", "chat model", "responses model", "messages model");
    let p50: Vec<f64> = pairs.iter().map(|pair| Sample::of(pair.added.clone()).quantile(50)).collect();
    for (row, client) in p50.chunks(Wire::ALL.len()).zip(Wire::ALL) {
        let shown: Vec<String> = row.iter().map(|micros| format!("{micros:>15.0}")).collect();
        println!("{:30} {}", client.name(), shown.join(" "));
    }
    let least = p50.iter().copied().fold(f64::INFINITY, f64::min);
    let most = p50.iter().copied().fold(0.0, f64::max);
    println!("dearest / cheapest: {:.2}; target ≤ 1.2", most / least);
    Ok(())
}

/// Plays it to its end.
fn play(pair: &Pair, model: SocketAddr, talk: ClientConversation) -> anyhow::Result<Duration> {
    let mut gateway = Connection::open(pair.gateway)?;
    let mut model = Connection::open(model)?;
    let played = played::play(&mut gateway, (&mut model, pair.upstream), talk, Delivery::Whole)?;
    let (taken, alone) = played.iter().fold(Default::default(), |(taken, alone): (Duration, Duration), played| {
        (taken + played.taken, alone + played.alone)
    });
    Ok(taken.saturating_sub(alone))
}
