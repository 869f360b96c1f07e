//! What the `OTEL_*` variables ask for.

use std::time::Duration;

use axum::http::{HeaderMap, HeaderName, HeaderValue};

use super::trace_context::TraceId;
use crate::options::Environment;

/// How traces are sampled and exported.
#[derive(Debug, Clone)]
pub(crate) struct TraceSettings {
    pub(super) protocol: Protocol,
    pub(super) url: String,
    /// They may hold keys.
    pub(super) headers: HeaderMap,
    pub(super) timeout: Duration,
    pub(super) sampler: Sampler,
    /// Attributes of this process; the name of the service is among them.
    pub(super) resource: Vec<(String, String)>,
    pub(super) queue_spans_max: usize,
    pub(super) batch_spans_max: usize,
    pub(super) batch_delay: Duration,
}

/// How a collector is spoken to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Protocol {
    /// `http/protobuf`, the specification's default.
    Http,
    Grpc,
}

/// Which requests are traced.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Sampler {
    by_parent: ByParent,
    /// Of the requests that no parent decides about.
    share: f64,
}

/// Whether the caller's decision counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ByParent {
    Counts,
    IsIgnored,
}

impl Sampler {
    pub(super) fn samples(self, id: TraceId, parent: Option<bool>) -> bool {
        if let (ByParent::Counts, Some(is_sampled)) = (self.by_parent, parent) {
            return is_sampled;
        }
        // The last 63 bits decide, so that all services that see the trace decide alike.
        let number = u64::from_be_bytes(id[8..].try_into().expect("it has 16 bytes")) >> 1;
        #[expect(clippy::cast_precision_loss, reason = "the last bits do not matter")]
        let place = number as f64 / (1_u64 << 63) as f64;
        // Rounded, the last places are 1.
        place < self.share || self.share >= 1.0
    }
}

impl TraceSettings {
    /// `None` if no traces are asked for.
    pub(crate) fn read(environment: &Environment, mistakes: &mut Vec<String>) -> Option<TraceSettings> {
        let mut variables = Variables { environment, mistakes };
        let is_disabled = variables.get("OTEL_SDK_DISABLED").is_some_and(|value| value.eq_ignore_ascii_case("true"));
        let exporter = variables.get("OTEL_TRACES_EXPORTER");
        let own = variables.get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT");
        let common = variables.get("OTEL_EXPORTER_OTLP_ENDPOINT");
        let is_wanted = match exporter {
            Some("none") => false,
            Some("otlp") => true,
            None => own.is_some() || common.is_some(),
            Some(other) => {
                variables.wrong("OTEL_TRACES_EXPORTER", &format!("`{other}` is not known here; use otlp or none"));
                false
            }
        };
        if is_disabled || !is_wanted {
            return None;
        }
        let protocol = variables.protocol();
        let url = match protocol {
            Protocol::Http => {
                let base = common.unwrap_or("http://localhost:4318").trim_end_matches('/');
                own.map_or_else(|| format!("{base}/v1/traces"), str::to_owned)
            }
            Protocol::Grpc => {
                let base = own.or(common).unwrap_or("http://localhost:4317").trim_end_matches('/');
                format!("{base}{GRPC_METHOD}")
            }
        };
        if !reqwest::Url::parse(&url).is_ok_and(|url| matches!(url.scheme(), "http" | "https")) {
            let name = if own.is_some() { "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT" } else { "OTEL_EXPORTER_OTLP_ENDPOINT" };
            variables.wrong(name, "is not an address; write it like http://localhost:4318");
        }
        let resource = variables.resource();
        Some(TraceSettings {
            protocol,
            url,
            headers: variables.headers(),
            timeout: Duration::from_millis(variables.whole("OTEL_EXPORTER_OTLP_TIMEOUT", 10_000)),
            sampler: variables.sampler(),
            resource,
            queue_spans_max: variables.whole("OTEL_BSP_MAX_QUEUE_SIZE", 2_048) as usize,
            batch_spans_max: variables.whole("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", 512) as usize,
            batch_delay: Duration::from_millis(variables.whole("OTEL_BSP_SCHEDULE_DELAY", 5_000)),
        })
    }
}

/// The path of the only call that we make.
const GRPC_METHOD: &str = "/opentelemetry.proto.collector.trace.v1.TraceService/Export";

struct Variables<'a, 'm> {
    environment: &'a Environment,
    mistakes: &'m mut Vec<String>,
}

impl<'a> Variables<'a, '_> {
    /// An empty variable is as good as none, says the specification.
    fn get(&mut self, name: &str) -> Option<&'a str> {
        self.environment.get(name, self.mistakes).map(str::trim).filter(|value| !value.is_empty())
    }

    fn wrong(&mut self, name: &str, mistake: &str) {
        self.mistakes.push(format!("{name}: {mistake}"));
    }

    /// A variable for traces only, or else the one for all signals.
    fn traces_or_all(&mut self, end: &str) -> (String, Option<&'a str>) {
        let own = format!("OTEL_EXPORTER_OTLP_TRACES_{end}");
        let common = format!("OTEL_EXPORTER_OTLP_{end}");
        if let Some(value) = self.get(&own) {
            return (own, Some(value));
        }
        let value = self.get(&common);
        (common, value)
    }

    fn protocol(&mut self) -> Protocol {
        match self.traces_or_all("PROTOCOL") {
            (_, None | Some("http/protobuf")) => Protocol::Http,
            (_, Some("grpc")) => Protocol::Grpc,
            (name, Some(other)) => {
                self.wrong(&name, &format!("`{other}` is not spoken here; use http/protobuf or grpc"));
                Protocol::Http
            }
        }
    }

    fn whole(&mut self, name: &str, default: u64) -> u64 {
        let Some(value) = self.get(name) else { return default };
        value.parse().ok().filter(|number| *number > 0).unwrap_or_else(|| {
            self.wrong(name, &format!("`{value}` is not a whole number above 0"));
            default
        })
    }

    fn headers(&mut self) -> HeaderMap {
        let (name, list) = self.traces_or_all("HEADERS");
        let mut headers = HeaderMap::new();
        for (key, value) in self.pairs(&name, list) {
            let header = HeaderName::try_from(key.as_str()).ok().zip(HeaderValue::try_from(value).ok());
            match header {
                Some((key, mut value)) => {
                    value.set_sensitive(true);
                    headers.insert(key, value);
                }
                None => self.wrong(&name, &format!("`{key}` cannot be a header")),
            }
        }
        headers
    }

    fn resource(&mut self) -> Vec<(String, String)> {
        const NAME: &str = "OTEL_RESOURCE_ATTRIBUTES";
        let list = self.get(NAME);
        let mut resource = self.pairs(NAME, list);
        let service = self.get("OTEL_SERVICE_NAME").map(str::to_owned);
        let given = resource.iter().position(|(key, _)| key == "service.name").map(|at| resource.remove(at).1);
        resource.insert(0, ("service.name".to_owned(), service.or(given).unwrap_or_else(|| "dacapo".to_owned())));
        resource.push(("service.version".to_owned(), env!("CARGO_PKG_VERSION").to_owned()));
        resource
    }

    /// `key=value,key=value`, with values as in addresses.
    fn pairs(&mut self, name: &str, list: Option<&str>) -> Vec<(String, String)> {
        let mut pairs = Vec::new();
        for pair in list.into_iter().flat_map(|list| list.split(',')).map(str::trim).filter(|pair| !pair.is_empty()) {
            match pair.split_once('=').map(|(key, value)| (key.trim(), percent_decoded(value.trim()))) {
                Some((key, Some(value))) if !key.is_empty() => pairs.push((key.to_owned(), value)),
                // The value may be a key, so it is not shown.
                _ => self.wrong(name, "is not a list of key=value pairs with commas between them"),
            }
        }
        pairs
    }

    fn sampler(&mut self) -> Sampler {
        const NAME: &str = "OTEL_TRACES_SAMPLER";
        const ARGUMENT: &str = "OTEL_TRACES_SAMPLER_ARG";
        let name = self.get(NAME).unwrap_or("parentbased_always_on");
        let (by_parent, rule) = match name.strip_prefix("parentbased_") {
            Some(rule) => (ByParent::Counts, rule),
            None => (ByParent::IsIgnored, name),
        };
        let share = match rule {
            "always_on" => 1.0,
            "always_off" => 0.0,
            "traceidratio" => {
                let text = self.get(ARGUMENT).unwrap_or("1");
                text.parse().ok().filter(|share| (0.0..=1.0).contains(share)).unwrap_or_else(|| {
                    self.wrong(ARGUMENT, &format!("`{text}` is not a number from 0 to 1"));
                    1.0
                })
            }
            _ => {
                let known = "always_on, always_off or traceidratio, also with parentbased_ before it";
                self.wrong(NAME, &format!("`{name}` is not known here; use {known}"));
                1.0
            }
        };
        Sampler { by_parent, share }
    }
}

fn percent_decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes().iter();
    while let Some(&byte) = rest.next() {
        if byte == b'%' {
            let digits = [*rest.next()?, *rest.next()?];
            bytes.push(u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?);
        } else {
            bytes.push(byte);
        }
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::{Sampler, TraceSettings};
    use crate::options::Environment;

    fn read(variables: &[(&str, &str)]) -> (Option<TraceSettings>, Vec<String>) {
        let variables = variables.iter().map(|(name, value)| ((*name).into(), (*value).into()));
        let mut mistakes = Vec::new();
        let settings = TraceSettings::read(&Environment::new(variables), &mut mistakes);
        (settings, mistakes)
    }

    #[test]
    fn traces_are_off_unless_they_are_asked_for() {
        let endpoint = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4318/");
        assert!(read(&[]).0.is_none());
        assert!(read(&[("OTEL_SERVICE_NAME", "x"), ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")]).0.is_none());
        assert!(read(&[endpoint, ("OTEL_SDK_DISABLED", "true")]).0.is_none());
        assert!(read(&[endpoint, ("OTEL_TRACES_EXPORTER", "none")]).0.is_none());
        let url = |variables: &[(&str, &str)]| read(variables).0.map(|settings| settings.url);
        assert_eq!(url(&[endpoint]).as_deref(), Some("http://collector:4318/v1/traces"));
        assert_eq!(url(&[("OTEL_TRACES_EXPORTER", "otlp")]).as_deref(), Some("http://localhost:4318/v1/traces"));
        let own = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://traces:1/here");
        assert_eq!(url(&[endpoint, own]).as_deref(), Some("http://traces:1/here"));
        let grpc = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "grpc");
        let method = "/opentelemetry.proto.collector.trace.v1.TraceService/Export";
        assert_eq!(url(&[grpc, endpoint]), Some(format!("http://collector:4318{method}")));
        assert_eq!(url(&[grpc, ("OTEL_TRACES_EXPORTER", "otlp")]), Some(format!("http://localhost:4317{method}")));
    }

    #[test]
    fn all_mistakes_are_told_without_a_value_that_may_be_a_key() {
        let (_, mistakes) = read(&[
            ("OTEL_TRACES_EXPORTER", "otlp"),
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "collector"),
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "sk-secret"),
            ("OTEL_TRACES_SAMPLER", "traceidratio"),
            ("OTEL_TRACES_SAMPLER_ARG", "2"),
            ("OTEL_BSP_SCHEDULE_DELAY", "soon"),
        ]);
        let expected = [
            "OTEL_EXPORTER_OTLP_PROTOCOL: `http/json` is not spoken here; use http/protobuf or grpc",
            "OTEL_EXPORTER_OTLP_ENDPOINT: is not an address; write it like http://localhost:4318",
            "OTEL_EXPORTER_OTLP_HEADERS: is not a list of key=value pairs with commas between them",
            "OTEL_TRACES_SAMPLER_ARG: `2` is not a number from 0 to 1",
            "OTEL_BSP_SCHEDULE_DELAY: `soon` is not a whole number above 0",
        ];
        assert_eq!(mistakes, expected);
    }

    #[test]
    fn a_sampler_follows_the_caller_or_the_id() {
        let sampler = |name, share| {
            let variables = [("OTEL_TRACES_EXPORTER", "otlp"), ("OTEL_TRACES_SAMPLER", name)];
            let variables = [&variables[..], &[("OTEL_TRACES_SAMPLER_ARG", share)]].concat();
            read(&variables).0.expect("traces are asked for").sampler
        };
        let ids = |at: u8| [at; 16];
        let low: fn(Sampler, u8) -> bool = |sampler, at| sampler.samples([at; 16], None);
        let tenth = sampler("parentbased_traceidratio", "0.1");
        assert!(low(tenth, 0x10) && !low(tenth, 0x40) && tenth.samples(ids(0x40), Some(true)));
        assert!(!tenth.samples(ids(0x10), Some(false)));
        assert!(!sampler("always_off", "1").samples(ids(0), Some(true)));
        assert!(sampler("always_on", "0").samples(ids(0xff), Some(false)));
    }
}
