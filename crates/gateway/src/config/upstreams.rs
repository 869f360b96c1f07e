//! Upstreams, as they were configured or as the environment implies them.

use std::time::Duration;

use dacapo_scripted::ScriptedModel;
use dacapo_wire::{ProviderSide, TextTools, Wire};

use crate::embeddings::EmbeddingsConfig;
use crate::options::{EmbeddingsOptions, Environment, GatewayOptions, UpstreamOptions};
use crate::upstream::{Secret, Upstream, UpstreamKind, UpstreamSource};

impl GatewayOptions {
    pub(super) fn upstreams(
        &mut self,
        environment: &Environment,
        pass_client_key: bool,
        errors: &mut Vec<String>,
    ) -> Vec<Upstream> {
        let mut upstreams = Vec::new();
        let has_demo = self.upstreams.iter().any(|upstream| upstream.models.iter().any(|model| model == "demo"));
        let is_default = self.upstreams.is_empty();
        for (at, options) in std::mem::take(&mut self.upstreams).into_iter().enumerate() {
            let kind = match (&options.base_url, &options.script) {
                (Some(url), None) => http(url, &format!("upstream[{at}].base_url"), errors).map(|base_url| {
                    let name = options.api_key_env.as_ref();
                    let key = name.and_then(|name| key(environment, name, errors));
                    if let (Some(name), None) = (name.filter(|name| !environment.is_unreadable(name)), &key) {
                        errors.push(format!("upstream[{at}].api_key_env: the variable {name} is not set"));
                    }
                    UpstreamKind::Http { base_url, key, pass_client_key }
                }),
                (None, Some(script)) => match read_script(script) {
                    Ok(script) => Some(UpstreamKind::Scripted(script)),
                    Err(error) => {
                        errors.push(format!("upstream[{at}].script: {error}"));
                        None
                    }
                },
                _ => {
                    errors.push(format!("upstream[{at}]: needs `base_url`, or `script` instead"));
                    None
                }
            };
            if options.name.is_empty() {
                errors.push(format!("upstream[{at}].name: is missing"));
            }
            if options.models.is_empty() {
                errors.push(format!("upstream[{at}].models: is empty; [\"*\"] means all"));
            }
            let providers = providers(at, &options, errors);
            upstreams.extend(kind.map(|kind| {
                let default = Upstream::new(&options.name, "", kind);
                Upstream {
                    providers: providers.unwrap_or(default.providers),
                    models: options.models,
                    execute_input: match options.custom_execute {
                        Some(true) => TextTools::ForPrograms,
                        _ => TextTools::No,
                    },
                    hold_text_chars: options.hold_text_chars,
                    key_from: options.api_key_env,
                    script_from: options.script,
                    retries_max: options.retries_max.unwrap_or(default.retries_max),
                    retry_wait_max: options.retry_wait_seconds_max.map_or(default.retry_wait_max, Duration::from_secs),
                    ..default
                }
            }));
        }
        if !has_demo && self.demo_model != Some(false) {
            let script_from = Some("demo".to_owned());
            upstreams.insert(
                0,
                Upstream {
                    script_from,
                    ..Upstream::new("demo", "demo", UpstreamKind::Scripted(ScriptedModel::demo()))
                },
            );
        }
        if is_default {
            let url = environment.get("ANTHROPIC_BASE_URL", errors).unwrap_or("https://api.anthropic.com");
            if let Some(base_url) = http(&format!("{}/v1", url.trim_end_matches('/')), "ANTHROPIC_BASE_URL", errors) {
                let key = key(environment, "ANTHROPIC_API_KEY", errors);
                let key_from = key.as_ref().map(|_| "ANTHROPIC_API_KEY".to_owned());
                let kind = UpstreamKind::Http { base_url, key, pass_client_key };
                let providers = vec![ProviderSide::MESSAGES];
                upstreams.push(Upstream {
                    providers,
                    key_from,
                    source: UpstreamSource::Default,
                    ..Upstream::new("anthropic", "claude-*", kind)
                });
            }
            let url = environment.get("OPENAI_BASE_URL", errors).unwrap_or("https://api.openai.com/v1");
            if let Some(base_url) = http(url, "OPENAI_BASE_URL", errors) {
                let key = key(environment, "OPENAI_API_KEY", errors);
                let key_from = key.as_ref().map(|_| "OPENAI_API_KEY".to_owned());
                let kind = UpstreamKind::Http { base_url, key, pass_client_key };
                let providers = vec![ProviderSide::CHAT, ProviderSide::RESPONSES];
                upstreams.push(Upstream {
                    providers,
                    key_from,
                    source: UpstreamSource::Default,
                    ..Upstream::new("openai", "*", kind)
                });
            }
        }
        upstreams
    }

    pub(super) fn embeddings(&mut self, upstreams: &[Upstream], errors: &mut Vec<String>) -> Option<EmbeddingsConfig> {
        let EmbeddingsOptions { upstream: name, model } = self.search.embeddings.take()?;
        if model.is_empty() {
            errors.push("search.embeddings.model: is missing".to_owned());
        }
        let upstream = upstreams.iter().find(|upstream| upstream.name == name);
        match upstream.map(|upstream| &upstream.kind) {
            Some(UpstreamKind::Http { base_url, key, .. }) => {
                Some(EmbeddingsConfig { upstream: name, base_url: base_url.clone(), key: key.clone(), model })
            }
            Some(UpstreamKind::Scripted(_)) => {
                errors.push(format!("search.embeddings.upstream: `{name}` is a script, which has no embeddings"));
                None
            }
            None => {
                errors.push(format!(
                    "search.embeddings.upstream: there is no upstream `{name}`; name one of [[upstream]]"
                ));
                None
            }
        }
    }
}

/// A key from the environment; an empty one is none.
fn key(environment: &Environment, name: &str, errors: &mut Vec<String>) -> Option<Secret> {
    let key = environment.get(name, errors)?.trim();
    if !key.bytes().all(|byte| byte.is_ascii_graphic()) {
        errors.push(format!("{name}: has characters that no key can have"));
    }
    (!key.is_empty()).then(|| Secret(key.to_owned()))
}

fn http(url: &str, key: &str, errors: &mut Vec<String>) -> Option<String> {
    let is_usable =
        reqwest::Url::parse(url).is_ok_and(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
    if !is_usable {
        errors.push(format!("{key}: `{url}` is not an http(s) address; write it like https://api.openai.com/v1"));
        return None;
    }
    Some(url.trim_end_matches('/').to_owned())
}

/// The wires that an upstream speaks, if they were written.
fn providers(at: usize, options: &UpstreamOptions, errors: &mut Vec<String>) -> Option<Vec<ProviderSide>> {
    let names = options.wires.as_ref()?;
    if names.is_empty() {
        errors.push(format!("upstream[{at}].wires: is empty; leave it out, or name chat, responses or messages"));
    }
    let mut providers = Vec::new();
    for name in names {
        match Wire::parse(name).and_then(ProviderSide::of) {
            Some(provider) => providers.push(provider),
            None => {
                errors.push(format!("upstream[{at}].wires: `{name}` is not known; use chat, responses or messages"));
            }
        }
    }
    Some(providers)
}

fn read_script(path: &str) -> Result<ScriptedModel, String> {
    if path == "demo" {
        return Ok(ScriptedModel::demo());
    }
    let text = std::fs::read_to_string(path).map_err(|error| format!("{path}: {error}"))?;
    ScriptedModel::parse(&text).map_err(|error| format!("{path}: {error}"))
}
