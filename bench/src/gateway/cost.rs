//! CPU that the gateway takes for a request, by kind and by wire. Only its own threads are counted, so that neither the
//! client nor the model is.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::ensure;
use dacapo_wire::Wire;
use serde_json::{Value, json};

use super::OTHERS_IDS;
use super::client::Connection;
use super::client_conversation::ClientConversation;
use super::conversation::{REQUESTS, TOOLS, tool_answer};
use super::servers::{ANSWER_HEADER, GATEWAY_THREADS, PROXY_THREADS, STREAM_HEADER, Servers};
use crate::baseline::Measured;
use crate::sample::Threads;

/// Conversations that are played in step, so that each kind of request is measured many times in a row.
const IN_STEP: usize = 16;
pub(super) const QUESTION: &str =
    "Who are our best customers of this year, and what did they buy for, in dollars? Put it into a report.";

/// How clients and gateway are set up.
pub(crate) struct Way {
    pub name: String,
    gateway: SocketAddr,
    /// Whose CPU is counted.
    threads: Threads,
    /// Takes the same requests, if it is measured.
    empty_proxy: Option<SocketAddr>,
    wire: Wire,
    delivery: Delivery,
    /// Declared as Chat Completions does it.
    tools: Value,
    /// Messages before the question.
    history: usize,
    /// Added to every answer of a tool.
    answer_bytes: usize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Delivery {
    Whole,
    Streamed,
}

/// The least CPU per request of all batches, in microseconds.
pub(crate) struct Cost {
    program: f64,
    middle: f64,
    result: f64,
    /// Of a request in a conversation.
    all: f64,
    pass_through: f64,
    /// The same through a proxy that does nothing.
    empty_proxy: f64,
    /// Reading the last body into a tree, on this thread.
    parsing: f64,
    body_bytes: usize,
}

/// All rows, or the one with this name.
pub(crate) fn run(
    servers: &Servers,
    only: Option<&str>,
    batches: usize,
    measured: &mut Measured,
) -> anyhow::Result<()> {
    let way = |name: &str, gateway, wire| Way {
        empty_proxy: Some(servers.empty_proxy),
        ..Way::new(name, gateway, Threads::named(GATEWAY_THREADS), wire)
    };
    let mut ways = vec![
        way("chat, cold", servers.cold, Wire::Chat),
        Way { delivery: Delivery::Streamed, ..way("chat, streamed", servers.gateway, Wire::Chat) },
    ];
    for (wire, gateway) in &servers.by_wire {
        ways.push(way(wire.name(), *gateway, *wire));
    }
    ways.extend(larger(|name| way(name, servers.gateway, Wire::Chat)));
    let names: Vec<String> = ways.iter().map(|way| way.name.clone()).collect();
    ways.retain(|way| only.is_none_or(|only| way.name == only));
    ensure!(!ways.is_empty(), "there is no such row; there are: {}", names.join("; "));
    println!("\nCPU of the gateway's threads per request in µs, one request at a time, least of {batches} batches");
    println!(
        "{:30} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9}",
        "", "program", "middle", "result", "mean", "mode off", "proxy", "KB", "parsing"
    );
    // In turns, so that whatever else the machine does falls on all alike.
    let mut costs: Vec<Option<Cost>> = ways.iter().map(|_| None).collect();
    for number in 0..=batches {
        for (way, cost) in ways.iter().zip(&mut costs) {
            let taken = Cost::of_batch(way)?;
            // The first one warms up.
            if number > 0 {
                *cost = Some(taken.least(cost.take()));
            }
        }
    }
    for (way, cost) in ways.iter().zip(costs.iter().flatten()) {
        let columns = cost.columns().map(|column| format!(" {column:>9.0}")).concat();
        let (proxy, kilobytes) = (cost.empty_proxy, cost.body_bytes / 1_000);
        println!("{:30}{columns} {proxy:>9.0} {kilobytes:>9} {:>9.0}", way.name, cost.parsing);
        measured.add(&format!("gateway CPU, {}, µs", way.name), cost.all);
        measured.add(&format!("gateway CPU, {}, mode off, µs", way.name), cost.pass_through);
        measured.add(&format!("gateway CPU, {}, to the empty proxy", way.name), cost.all / cost.empty_proxy);
        let forwarded = cost.pass_through / cost.empty_proxy;
        measured.add(&format!("gateway CPU, {}, mode off, to the empty proxy", way.name), forwarded);
    }
    println!("{:30} {:>39} {:>9}", "target", "≤ 350, cold ≤ 650", "≤ 120");
    println!(
        "proxy: the requests of mode off through a proxy of the same libraries that does nothing but forward them"
    );
    Ok(())
}

/// Chat with more tools, a longer history, and larger answers.
pub(crate) fn larger(way: impl Fn(&str) -> Way) -> Vec<Way> {
    let mut ways = Vec::new();
    for count in [200, 2_000] {
        let way = way(&format!("chat, {count} tools"));
        ways.push(Way { tools: many_tools(&way.tools, count), ..way });
    }
    for history in [10, 100, 1_000] {
        ways.push(Way { history, ..way(&format!("chat, {history} messages of 1 KB")) });
    }
    for kilobytes in [10, 100] {
        ways.push(Way { answer_bytes: kilobytes * 1_000, ..way(&format!("chat, answers of {kilobytes} KB")) });
    }
    ways
}

impl Way {
    /// With twenty tools, and nothing before the question.
    pub(crate) fn new(name: &str, gateway: SocketAddr, threads: Threads, wire: Wire) -> Way {
        let tools = serde_json::from_str(TOOLS).expect("it is a list of tools");
        let (name, delivery) = (name.to_owned(), Delivery::Whole);
        Way { name, gateway, threads, empty_proxy: None, wire, delivery, tools, history: 0, answer_bytes: 0 }
    }
}

impl Cost {
    pub(crate) fn least(self, other: Option<Cost>) -> Cost {
        let Some(other) = other else { return self };
        Cost {
            program: self.program.min(other.program),
            middle: self.middle.min(other.middle),
            result: self.result.min(other.result),
            all: self.all.min(other.all),
            pass_through: self.pass_through.min(other.pass_through),
            empty_proxy: self.empty_proxy.min(other.empty_proxy),
            parsing: self.parsing.min(other.parsing),
            body_bytes: self.body_bytes,
        }
    }

    /// Program, middle, result, mean, mode off.
    pub(crate) fn columns(&self) -> [f64; 5] {
        [self.program, self.middle, self.result, self.all, self.pass_through]
    }

    /// Plays conversations in step, then sends the same requests with code mode off.
    pub(crate) fn of_batch(way: &Way) -> anyhow::Result<Cost> {
        let mut connection = Connection::open(way.gateway)?;
        let mut conversations: Vec<ClientConversation> = (0..IN_STEP).map(|_| conversation(way)).collect();
        let mut taken = Vec::new();
        let mut bodies = Vec::new();
        for number in 0..REQUESTS {
            let answer = if number == 0 { "program" } else { "text" };
            let headers = headers(way, answer);
            let requests: Vec<(&str, String)> = conversations
                .iter()
                .map(ClientConversation::request)
                .map(|(path, body)| (path, body.to_string()))
                .collect();
            let post = |(path, body): &(&str, String)| connection.post_to(path, &headers, body).map(|reply| reply.0);
            let (replies, cpu) = way.threads.cpu_during(|| requests.iter().map(post).collect::<Result<Vec<_>, _>>())?;
            taken.push(per_request(cpu));
            for (conversation, reply) in conversations.iter_mut().zip(replies) {
                let response = conversation.read_response(std::str::from_utf8(&reply)?);
                ensure!(response.calls.is_empty() == (number == REQUESTS - 1), "{} calls", response.calls.len());
                for call in &response.calls {
                    let answer = tool_answer(&call.name, &call.args)?;
                    conversation.answer(call, &with_records(&answer, way.answer_bytes), false);
                }
            }
            bodies.extend(requests.into_iter().last());
        }
        let off = format!("{}{}", super::OFF, headers(way, "text"));
        let bodies: Vec<(&str, String)> =
            bodies.into_iter().map(|(path, body)| (path, body.replace(OTHERS_IDS.0, OTHERS_IDS.1))).collect();
        let passed = |connection: &mut Connection, threads: &Threads| {
            let mut passed = bodies.iter().cycle().take(IN_STEP / 2 * REQUESTS);
            let post = |(path, body): &(&str, String)| connection.post_to(path, &off, body).map(drop);
            let ((), cpu) = threads.cpu_during(|| passed.try_for_each(post))?;
            anyhow::Ok(per_request(cpu) / (REQUESTS / 2) as f64)
        };
        let pass_through = passed(&mut connection, &way.threads)?;
        let empty_proxy = match way.empty_proxy {
            Some(proxy) => passed(&mut Connection::open(proxy)?, &Threads::named(PROXY_THREADS))?,
            None => 0.0,
        };
        let last = bodies.last().map_or("", |(_, body)| body.as_str());
        let start = Instant::now();
        let request: Value = serde_json::from_str(last)?;
        let parsing = start.elapsed().as_secs_f64() * 1e6;
        ensure!(request.is_object(), "{request}");
        let middle = &taken[1..REQUESTS - 1];
        Ok(Cost {
            program: taken[0],
            middle: middle.iter().sum::<f64>() / middle.len() as f64,
            result: taken[REQUESTS - 1],
            all: taken.iter().sum::<f64>() / REQUESTS as f64,
            pass_through,
            empty_proxy,
            parsing,
            body_bytes: last.len(),
        })
    }
}

fn per_request(cpu: Duration) -> f64 {
    cpu.as_secs_f64() * 1e6 / IN_STEP as f64
}

fn conversation(way: &Way) -> ClientConversation {
    let mut conversation = ClientConversation::declared(way.wire, &way.tools);
    for number in 0..way.history {
        let role = if number % 2 == 0 { "user" } else { "assistant" };
        let text = format!("{number}: {}", "what was \"said\" before,\nin so many words. ".repeat(25));
        conversation.history.push(json!({"role": role, "content": text}));
    }
    conversation.user(QUESTION);
    if way.delivery == Delivery::Streamed {
        conversation.extra = json!({"stream": true});
    }
    conversation
}

/// An answer with a list of records that takes so many bytes.
fn with_records(answer: &str, bytes: usize) -> String {
    if bytes == 0 {
        return answer.to_owned();
    }
    let record = |number: usize| json!({"id": number, "state": "open", "note": "what else is known of it"}).to_string();
    let mut records = String::new();
    for number in 0.. {
        if records.len() >= bytes {
            break;
        }
        records += &record(number);
        records.push(',');
    }
    answer.replacen('{', &format!("{{\"records\":[{}],", records.trim_end_matches(',')), 1)
}

fn headers(way: &Way, answer: &str) -> String {
    let stream = if way.delivery == Delivery::Streamed { format!("{STREAM_HEADER}: yes\r\n") } else { String::new() };
    format!("{ANSWER_HEADER}: {answer}\r\n{stream}")
}

/// The twenty tools, and copies of them under other names.
fn many_tools(twenty: &Value, count: usize) -> Value {
    let tools = twenty.as_array().map_or(&[][..], Vec::as_slice);
    let copy = |(number, tool): (usize, &Value)| {
        let mut tool = tool.clone();
        if number >= tools.len() {
            let name = format!("{}_{number}", tool["function"]["name"].as_str().unwrap_or_default());
            tool["function"]["name"] = json!(name);
        }
        tool
    };
    tools.iter().cycle().take(count).enumerate().map(copy).collect()
}
