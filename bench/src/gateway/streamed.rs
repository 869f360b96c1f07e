//! What clients wait for streamed answers, from the first byte sent to the last one received.

use std::time::Duration;

use dacapo_wire::Wire;

use super::client::Connection;
use super::client_conversation::ClientConversation;
use super::conversation::{KINDS, TOOLS};
use super::cost::Delivery;
use super::played::{Played, play};
use super::servers::Servers;
use crate::sample::Sample;

pub(crate) fn run(servers: &Servers, conversations: usize) -> anyhow::Result<()> {
    let tools = serde_json::from_str(TOOLS)?;
    let mut model = Connection::open(servers.model)?;
    let mut gateways = [Connection::open(servers.gateway)?, Connection::open(servers.cold)?];
    let mut played: [Vec<Played>; 2] = Default::default();
    // In turns, so that whatever else the machine does falls on both alike.
    for number in 0..=conversations {
        for (gateway, played) in gateways.iter_mut().zip(&mut played) {
            let talk = ClientConversation::declared(Wire::Chat, &tools);
            let one = play(gateway, (&mut model, Wire::Chat), talk, Delivery::Streamed)?;
            // The first one warms up.
            played.extend(one.into_iter().filter(|_| number > 0));
        }
    }
    println!("\nthe same conversation, streamed: microseconds, p50 / p99; added: p50 less that of the model alone\n");
    println!("{:30} {:>15} {:>15} {:>15} {:>9} {:>9}", "", "model alone", "on, warm", "on, cold", "+ warm", "+ cold");
    for (kind, name) in KINDS {
        let of_kind = |played: &[Played], time: fn(&Played) -> Duration| {
            Sample::of(played.iter().filter(|played| played.kind == kind).map(time).collect())
        };
        let [warm, cold] = played.each_ref().map(|played| of_kind(played, |played| played.taken));
        let alone = of_kind(&played[0], |played| played.alone);
        let shown = |sample: &Sample| format!("{:.0} / {:.0}", sample.quantile(50), sample.quantile(99));
        println!(
            "{name:30} {:>15} {:>15} {:>15} {:>9.0} {:>9.0}",
            shown(&alone),
            shown(&warm),
            shown(&cold),
            warm.quantile(50) - alone.quantile(50),
            cold.quantile(50) - alone.quantile(50),
        );
    }
    println!("{:>98}", "target     ≤ 400     ≤ 700");
    Ok(())
}
