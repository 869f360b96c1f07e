//! What is in force, as a file would say it.

use std::collections::BTreeMap;

use dacapo_replay::{Limit, Limits};
use dacapo_wire::TextTools;

use super::{Config, LogFormat, StepEndpoint};
use crate::http::ApiClient;
use crate::model_routes::ModelRule;
use crate::options::{
    ClientOptions, CodeModeOptions, EmbeddingsOptions, ErrorTextsOptions, GatewayOptions, InspectorOptions, McpOptions,
    ModelOptions, SearchOptions, StepOptions, StoreOptions, TargetOptions, TimeoutOptions, ToolsOptions,
    UpstreamOptions, WarmOptions,
};
use crate::store::StoreConfig;
use crate::upstream::{Upstream, UpstreamKind};

const HIDDEN: &str = "(hidden)";

impl Config {
    fn inspector_options(&self) -> InspectorOptions {
        InspectorOptions {
            enabled: Some(self.recorder.is_some()),
            conversations_max: self.recorder.map(|limits| limits.conversations_max),
            bytes_max: self.recorder.map(|limits| limits.bytes_max),
            force: self.recorder.filter(|limits| limits.is_forced).map(|_| true),
        }
    }

    fn store_options(&self) -> StoreOptions {
        let options = match &self.store {
            None => StoreOptions { kind: Some("off".to_owned()), ..StoreOptions::default() },
            Some(StoreConfig::Memory { bytes_max, ttl }) => StoreOptions {
                kind: Some("memory".to_owned()),
                ttl_seconds: Some(ttl.as_secs()),
                bytes_max: Some(*bytes_max),
                ..StoreOptions::default()
            },
            Some(StoreConfig::File { path, ttl }) => StoreOptions {
                kind: Some("file".to_owned()),
                path: Some(path.display().to_string()),
                ttl_seconds: Some(ttl.as_secs()),
                ..StoreOptions::default()
            },
            Some(StoreConfig::Redis { ttl, .. }) => StoreOptions {
                kind: Some("redis".to_owned()),
                url: Some(HIDDEN.to_owned()),
                ttl_seconds: Some(ttl.as_secs()),
                ..StoreOptions::default()
            },
        };
        StoreOptions {
            on_failure: Some(self.store_failure.name().to_owned()),
            turn_ttl_seconds: Some(self.turn_ttl.as_secs()),
            ..options
        }
    }

    fn error_texts_options(&self) -> ErrorTextsOptions {
        if self.error_texts.iter().all(|(tools, _)| tools == "*") {
            let expressions = self.error_texts.iter().map(|(_, expression)| expression.to_owned());
            return ErrorTextsOptions::AllTools(expressions.collect());
        }
        let mut by_tool: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (tools, expression) in self.error_texts.iter() {
            by_tool.entry(tools.to_owned()).or_default().push(expression.to_owned());
        }
        ErrorTextsOptions::ByTool(by_tool)
    }

    /// What is in force, as a file would say it, with the secrets hidden.
    pub fn into_toml(self) -> String {
        let (inspector, store, errors) = (self.inspector_options(), self.store_options(), self.error_texts_options());
        let (tls_cert, tls_key) = self.tls.map(|tls| (tls.cert, tls.key)).unzip();
        let options = GatewayOptions {
            listen: Some(self.listen.to_string()),
            tls_cert,
            tls_key,
            metrics_listen: self.metrics_listen.map(|address| address.to_string()),
            secret: Some(if self.secret_is_random { "(random)" } else { HIDDEN }.to_owned()),
            secrets_old: vec![HIDDEN.to_owned(); self.secrets_old],
            allow_unauthenticated: self.allow_unauthenticated.then_some(true),
            cors_origins: self.cors_origins.list().to_vec(),
            other_routes: Some(self.other_routes),
            body_bytes_max: Some(self.body_bytes_max),
            body_values_max: Some(self.body_values_max),
            memory_bytes_max: self.memory_bytes_max,
            turns_max: Some(self.turns_max),
            turns_max_per_client: Some(self.turns_max_per_client),
            bodies_bytes_max: Some(self.bodies_bytes_max),
            drain_seconds: Some(self.drain.as_secs()),
            shutdown_seconds: Some(self.shutdown.as_secs()),
            step_seconds_max: Some(self.step_timeout.as_secs()),
            demo_model: Some(self.has_demo_model),
            log: Some(self.log.to_string()),
            log_format: Some(if self.log_format == LogFormat::Json { "json" } else { "text" }.to_owned()),
            code_mode: CodeModeOptions {
                default: Some(self.code_mode.default.name().to_owned()),
                declarations_tokens_max: Some(self.code_mode.declarations_tokens_max),
                hold_text_chars: Some(self.code_mode.hold_text_chars),
                attempts_max: Some(self.code_mode.attempts_max),
                model_calls_max: Some(self.code_mode.model_calls_max),
                models: self
                    .code_mode
                    .models
                    .into_iter()
                    .map(|(model, mode)| (model, mode.name().to_owned()))
                    .collect(),
                callers: Some(self.code_mode.callers.name().to_owned()),
                model_callers: self
                    .code_mode
                    .model_callers
                    .into_iter()
                    .map(|(model, callers)| (model, callers.name().to_owned()))
                    .collect(),
                direct_tools: self.code_mode.direct_tools,
                text_models: self.code_mode.text_models,
            },
            warm: WarmOptions { programs_max: Some(self.warm.count_max), bytes_max: Some(self.warm.bytes_max) },
            timeouts: TimeoutOptions {
                header_seconds: Some(self.header_timeout.as_secs()),
                body_seconds: Some(self.body_timeout.as_secs()),
                turn_seconds: Some(self.turn_timeout.as_secs()),
                connect_seconds: Some(self.connect_timeout.as_secs()),
                idle_seconds: Some(self.idle_timeout.as_secs()),
                keep_alive_seconds: Some(self.keep_alive.as_secs()),
            },
            inspector,
            step: StepOptions { enabled: Some(self.step_endpoint == StepEndpoint::Served) },
            search: SearchOptions {
                embeddings: self
                    .embeddings
                    .map(|embeddings| EmbeddingsOptions { upstream: embeddings.upstream, model: embeddings.model }),
            },
            store,
            mcp: McpOptions {
                servers: self.mcp_servers.as_ref().map(|file| file.display().to_string()),
                allow_urls: self.mcp_allowed.iter().map(|allowed| allowed.written().to_owned()).collect(),
                connectors: Some(self.mcp_connectors.name().to_owned()),
            },
            tools: ToolsOptions {
                effects: self
                    .effects
                    .iter()
                    .map(|(pattern, effect)| (pattern.to_owned(), effect.name().to_owned()))
                    .collect(),
                errors,
            },
            limits: Limit::ALL.iter().map(|limit| (limit.name().to_owned(), self.limits.get(*limit))).collect(),
            clients: self.clients.into_iter().map(|client| client_options(client, &self.limits)).collect(),
            models: self.models.into_iter().map(|rule| model_options(rule, &self.upstreams)).collect(),
            upstreams: self.upstreams.into_iter().map(upstream_options).collect(),
        };
        toml::to_string(&options).expect("it is made of tables and plain values")
    }
}

fn client_options(client: ApiClient, limits_of_all: &Limits) -> ClientOptions {
    ClientOptions {
        key_sha256: client.keys().map(|_| HIDDEN.to_owned()).collect(),
        requests_per_minute: client.rate.as_ref().map(|rate| rate.requests_per_minute),
        name: client.name,
        servers: client.servers,
        models: client.rules.models,
        mode: client.rules.mode.map(|mode| mode.name().to_owned()),
        turns_max: client.rules.turns_max,
        limits: client.rules.limits.map(|limits| changed_limits(&limits, limits_of_all)).unwrap_or_default(),
    }
}

/// The limits that are not those of all clients.
fn changed_limits(limits: &Limits, of_all: &Limits) -> BTreeMap<String, u64> {
    let changed = Limit::ALL.iter().filter(|limit| limits.get(**limit) != of_all.get(**limit));
    changed.map(|limit| (limit.name().to_owned(), limits.get(*limit))).collect()
}

fn model_options(rule: ModelRule, upstreams: &[Upstream]) -> ModelOptions {
    let ask = rule.targets.into_iter().map(|target| TargetOptions {
        model: target.model,
        upstream: upstreams.get(target.upstream).map(|upstream| upstream.name.clone()),
    });
    ModelOptions { name: rule.name, ask: ask.collect() }
}

fn upstream_options(upstream: Upstream) -> UpstreamOptions {
    UpstreamOptions {
        custom_execute: (upstream.execute_input == TextTools::ForPrograms).then_some(true),
        hold_text_chars: upstream.hold_text_chars,
        wires: Some(upstream.providers.iter().map(|provider| provider.wire().name().to_owned()).collect()),
        name: upstream.name,
        models: upstream.models,
        base_url: match &upstream.kind {
            UpstreamKind::Http { base_url, .. } => Some(without_secrets(base_url)),
            UpstreamKind::Scripted(_) => None,
        },
        api_key_env: upstream.key_from,
        script: upstream.script_from,
        retries_max: Some(upstream.retries_max),
        retry_wait_seconds_max: Some(upstream.retry_wait_max.as_secs()),
    }
}

/// An address may hold a password, or a key in its query.
fn without_secrets(url: &str) -> String {
    let Ok(mut url) = reqwest::Url::parse(url) else { return HIDDEN.to_owned() };
    let is_plain = url.username().is_empty() && url.password().is_none() && url.query().is_none();
    if is_plain {
        return url.as_str().trim_end_matches('/').to_owned();
    }
    url.set_query(None);
    // Neither can fail for http.
    url.set_username("").unwrap_or_default();
    url.set_password(None).unwrap_or_default();
    format!("{url} {HIDDEN}")
}
