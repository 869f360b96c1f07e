//! What observing costs: the same conversations through a gateway that records for the inspector and exports one trace in
//! a hundred, beside one that does neither. Both count for Prometheus, which cannot be switched off.

use std::time::Duration;

use super::client::Connection;
use super::conversation::{Conversation, KINDS};
use super::load;
use super::servers::Servers;
use crate::sample::Sample;

/// Both gateways take turns, so that they meet the same noise.
const SLICES: u32 = 4;

pub(crate) fn run(servers: &Servers, conversations: usize, time: Duration) -> anyhow::Result<()> {
    let mut gateways = [Connection::open(servers.gateway)?, Connection::open(servers.observing)?];
    let mut taken: [[Vec<Duration>; KINDS.len()]; 2] = Default::default();
    for number in 0..=conversations {
        for (connection, taken) in gateways.iter_mut().zip(&mut taken) {
            for sent in Conversation::play(connection, "text")? {
                // The first one warms up.
                let kind = KINDS.iter().position(|(kind, _)| *kind == sent.kind && number > 0);
                if let Some(at) = kind {
                    taken[at].push(sent.taken);
                }
            }
        }
    }
    println!("\nall observing on (inspector, 1 % traces) beside all off; metrics are counted by both: p50 in µs");
    println!("{:30} {:>9} {:>9} {:>9} {:>9}", "", "off", "on", "on/off", "+ µs");
    let [off, on] = taken;
    for (((_, name), off), on) in KINDS.iter().zip(off).zip(on) {
        let (off, on) = (Sample::of(off).quantile(50), Sample::of(on).quantile(50));
        println!("{name:30} {off:>9.0} {on:>9.0} {:>9.3} {:>9.0}", on / off, on - off);
    }
    let play = |connection: &mut Connection| Conversation::play(connection, "text").map(drop);
    let (mut off, mut on) = (0.0, 0.0);
    for _ in 0..SLICES {
        off += load(servers.gateway, time / SLICES, play)?.per_second / f64::from(SLICES);
        on += load(servers.observing, time / SLICES, play)?.per_second / f64::from(SLICES);
    }
    println!("{:30} {off:>9.0} {on:>9.0} {:>9.3}", "requests per second", on / off);
    println!("{:30} {:>9} {:>9} {:>9} {:>9}", "target", "", "", "≥ 0.95", "≤ 50");
    Ok(())
}
