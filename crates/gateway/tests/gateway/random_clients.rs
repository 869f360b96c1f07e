//! Random clients and random programs, on all wires, plain and explicit, with and without a store. Whatever clients make
//! of their histories, no write is executed again that the record holds, none is lost silently, and every conversation
//! ends.
//!
//! `DACAPO_CONVERSATIONS` is the number of conversations, `DACAPO_SEED` the seed of the first one; each further one has
//! the next seed. A failure prints the seed and what happened:
//!
//! ```sh
//! DACAPO_CONVERSATIONS=1 DACAPO_SEED=4711 cargo test -p dacapo-gateway random_clients -- --nocapture
//! ```

use std::sync::Arc;

use dacapo_gateway::{GatewayOptions, UpstreamOptions};
use dacapo_wire::Wire;

use crate::common::{RunningGateway, SECRET};
use crate::random_client::{OnFailure, Played, RandomClient, RandomModels};

const CONVERSATIONS_DEFAULT: u64 = 240;
/// The same conversations in every run, so that a failure comes from a change.
const SEED_DEFAULT: u64 = 1001;
const AT_ONCE: usize = 6;

#[tokio::test(flavor = "multi_thread")]
#[expect(clippy::print_stdout, reason = "with the seed a failure can be repeated")]
async fn random_clients_execute_no_write_twice_and_lose_none() {
    let number = |name: &str| std::env::var(name).ok().map(|value| value.parse::<u64>().unwrap());
    let count = number("DACAPO_CONVERSATIONS").unwrap_or(CONVERSATIONS_DEFAULT);
    let first = number("DACAPO_SEED").unwrap_or(SEED_DEFAULT);
    println!("{count} conversations from DACAPO_SEED={first}");
    let models = RandomModels::default();
    let url = models.serve().await;
    let stateless = [RunningGateway::start(options(&url)).await, RunningGateway::start(options(&url)).await];
    let mut with_store = options(&url);
    with_store.store.kind = Some("memory".to_owned());
    let with_store = [RunningGateway::start(with_store).await];
    let urls = |gateways: &[RunningGateway]| -> Arc<[String]> { gateways.iter().map(|it| it.url.clone()).collect() };
    let (stateless, with_store) = (urls(&stateless), urls(&with_store));
    let http = reqwest::Client::builder().tls_certs_only([]).build().unwrap();

    let mut totals = Totals::default();
    let mut running = tokio::task::JoinSet::new();
    for seed in first..first + count {
        if running.len() >= AT_ONCE {
            totals.add(running.join_next().await.unwrap().unwrap());
        }
        let gateways = if seed % 3 == 0 { &with_store } else { &stateless };
        let client = RandomClient::new(seed, Arc::clone(gateways), models.clone(), http.clone(), OnFailure::Stop);
        running.spawn(client.play());
    }
    while let Some(done) = running.join_next().await {
        totals.add(done.unwrap());
    }
    println!("{totals:?}");
    assert_eq!(totals.conversations, count);
    assert!(totals.failures.is_empty(), "{}", totals.failures.join("\n\n"));
}

/// Models whose names end in `-b` are asked on another wire than the client's, so that a change of the model is also a
/// change of the provider.
fn options(url: &str) -> GatewayOptions {
    let mut options = GatewayOptions { secret: Some(SECRET.to_owned()), ..GatewayOptions::default() };
    options.warm.programs_max = Some(10);
    let upstream = |models: &str, wires: &[Wire]| UpstreamOptions {
        name: models.chars().filter(char::is_ascii_lowercase).collect(),
        models: vec![models.to_owned()],
        wires: Some(wires.iter().map(|wire| wire.name().to_owned()).collect()),
        base_url: Some(url.to_owned()),
        ..UpstreamOptions::default()
    };
    options.upstreams.push(upstream("*-b", &[Wire::Messages]));
    options.upstreams.push(upstream("m*", &Wire::ALL));
    options
}

#[derive(Debug, Default)]
struct Totals {
    conversations: u64,
    requests: usize,
    executed: usize,
    failures: Vec<String>,
}

impl Totals {
    fn add(&mut self, played: Played) {
        self.conversations += 1;
        self.requests += played.requests;
        self.executed += played.executed;
        self.failures.extend(played.failure.map(|failure| failure.story));
    }
}
