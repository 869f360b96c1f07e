//! Clients with keys, as they were configured.

use dacapo_replay::Limits;
use dacapo_wire::CodeMode;

use super::set_limits;
use crate::http::{ApiClient, ApiClients, ClientRules};
use crate::options::{ClientOptions, GatewayOptions};

impl GatewayOptions {
    pub(super) fn clients(&mut self, limits: &Limits, errors: &mut Vec<String>) -> ApiClients {
        let mut clients: Vec<ApiClient> = Vec::new();
        for (at, client) in self.clients.iter_mut().enumerate() {
            if client.name.is_empty() {
                errors.push(format!("client[{at}].name: is missing"));
            }
            if clients.iter().any(|known| known.name == client.name) {
                errors.push(format!(
                    "client[{at}].name: `{}` is there twice; a client with several keys has a list in key_sha256",
                    client.name
                ));
            }
            if client.key_sha256.is_empty() {
                errors.push(format!("client[{at}].key_sha256: is missing; `dacapo key` prints it"));
            }
            let rules = rules(at, client, limits, errors);
            match ApiClient::new(&client.name, &client.key_sha256, client.requests_per_minute, rules) {
                Some(mut known) => {
                    known.servers.clone_from(&client.servers);
                    let client = known;
                    for known in clients.iter().filter(|known| known.shares_a_key(&client)) {
                        errors.push(format!(
                            "client[{at}].key_sha256: `{}` has the same key, so it is not known whose requests they are",
                            known.name
                        ));
                    }
                    clients.push(client);
                }
                None => errors.push(format!(
                    "client[{at}].key_sha256: must be the SHA-256 of the key in 64 hex digits; `dacapo key` prints it"
                )),
            }
        }
        ApiClients::new(clients)
    }
}

fn rules(at: usize, client: &mut ClientOptions, limits: &Limits, errors: &mut Vec<String>) -> ClientRules {
    let mode = client.mode.as_deref().and_then(|text| {
        let mode = CodeMode::parse(text);
        if mode.is_none() {
            errors.push(format!("client[{at}].mode: `{text}` is not known; use plain, explicit, native or off"));
        }
        mode
    });
    if client.turns_max == Some(0) {
        errors.push(format!("client[{at}].turns_max: must be at least 1"));
    }
    let limits = (!client.limits.is_empty()).then(|| {
        let mut limits = *limits;
        set_limits(&mut limits, &client.limits, &format!("client[{at}].limits"), errors);
        limits
    });
    ClientRules { models: std::mem::take(&mut client.models), mode, turns_max: client.turns_max, limits }
}
