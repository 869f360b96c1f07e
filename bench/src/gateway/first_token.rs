//! Time to the first token of a streamed answer, beside that of the model alone.

use std::time::Duration;

use anyhow::Context;
use dacapo_wire::Wire;
use serde_json::{Value, json};

use super::client::Connection;
use super::client_conversation::{ClientConversation, path};
use super::conversation::TOOLS;
use super::servers::{ANSWER_HEADER, FIRST_TOKEN, STREAM_HEADER, Servers};
use crate::baseline::Measured;
use crate::sample::Sample;

pub(crate) fn run(servers: &Servers, requests: usize, measured: &mut Measured) -> anyhow::Result<()> {
    let tools: Value = serde_json::from_str(TOOLS)?;
    let headers = format!("{ANSWER_HEADER}: text\r\n{STREAM_HEADER}: paced\r\n");
    let off = format!("{}{headers}", super::OFF);
    let body = |wire| {
        let mut conversation = ClientConversation::declared(wire, &tools);
        conversation.user("Say what you know.");
        conversation.extra = json!({"stream": true});
        conversation.request().1.to_string()
    };
    let ways = [
        ("model alone", servers.model, Wire::Chat, &headers),
        ("chat, mode off", servers.gateway, Wire::Chat, &off),
        ("chat", servers.gateway, Wire::Chat, &headers),
        ("responses", servers.gateway, Wire::Responses, &headers),
        ("messages", servers.gateway, Wire::Messages, &headers),
    ];
    let mut connections = ways.iter().map(|way| Connection::open(way.1)).collect::<anyhow::Result<Vec<_>>>()?;
    let mut taken: Vec<(Vec<Duration>, Vec<Duration>)> = ways.iter().map(|_| Default::default()).collect();
    for number in 0..=requests {
        for (((_, _, wire, headers), connection), taken) in ways.iter().zip(&mut connections).zip(&mut taken) {
            let reply = connection.exchange(path(*wire), headers, &body(*wire), Some(FIRST_TOKEN))?;
            // The first one warms up.
            if number > 0 {
                taken.0.push(reply.awaited_at.context("no token came")?);
                taken.1.push(reply.taken);
            }
        }
    }
    println!(
        "\na streamed answer, a token every 2 ms, keep-alive clients, 20 tools: µs to the first token and to the end"
    );
    println!("{:30} {:>20} {:>9} {:>9}", "", "first: p50 / p99", "added", "end: p50");
    let mut alone = None;
    for ((name, ..), (first, whole)) in ways.iter().zip(taken) {
        let (first, whole) = (Sample::of(first), Sample::of(whole));
        let alone = *alone.get_or_insert(first.quantile(50));
        let added = first.quantile(50) - alone;
        let shown = format!("{:.0} / {:.0}", first.quantile(50), first.quantile(99));
        println!("{name:30} {shown:>20} {added:>9.0} {:>9.0}", whole.quantile(50));
        if *name != "model alone" {
            measured.add(&format!("first token, {name}, added µs"), added.max(1.0));
        }
    }
    println!("{:30} {:>30}", "target", "≤ 1000");
    Ok(())
}
