//! Addresses of MCP servers that a request may name, as patterns.

use dacapo_replay::matches_pattern;
use dacapo_runner::AddressReach;
use reqwest::Url;

/// Addresses that fit a pattern such as `https://*.example.com/mcp/*`. A `*` in the host stands for hosts only, and one in
/// the path for paths only.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AllowedUrl {
    scheme: String,
    host: String,
    port: u16,
    path: String,
    written: String,
}

impl AllowedUrl {
    pub(crate) fn parse(written: &str) -> Result<AllowedUrl, &'static str> {
        let (scheme, rest) = written.split_once("://").ok_or("needs http:// or https:// at its beginning")?;
        let scheme_port = match scheme {
            "https" => 443,
            "http" => 80,
            _ => return Err("needs http:// or https:// at its beginning"),
        };
        let (authority, path) = match rest.find('/') {
            Some(at) => rest.split_at(at),
            None => (rest, "*"),
        };
        if authority.contains('@') {
            return Err("must not have a user or a password");
        }
        let is_port = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let (host, port) = match authority.rsplit_once(':') {
            Some((host, port)) if is_port(port) => (host, port.parse().map_err(|_large| "has no such port")?),
            _ => (authority, scheme_port),
        };
        if host.is_empty() {
            return Err("needs a host");
        }
        let (scheme, host, path) = (scheme.to_owned(), host.to_ascii_lowercase(), path.to_owned());
        Ok(AllowedUrl { scheme, host, port, path, written: written.to_owned() })
    }

    /// As the configuration has it.
    pub(crate) fn written(&self) -> &str {
        &self.written
    }

    /// Which machines may be connected to for this address; `None` if it does not fit. A host that is named in full may be
    /// one of the operator's own network.
    pub(crate) fn reach(&self, url: &Url) -> Option<AddressReach> {
        let has_user = !url.username().is_empty() || url.password().is_some();
        let fits = !has_user
            && url.scheme() == self.scheme
            && url.port_or_known_default() == Some(self.port)
            && url.host_str().is_some_and(|host| matches_pattern(&self.host, host))
            && matches_pattern(&self.path, url.path());
        let reach = if self.host.contains('*') { AddressReach::Public } else { AddressReach::Any };
        fits.then_some(reach)
    }
}

/// Who connects to the MCP servers that requests name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Connectors {
    /// The model's provider, if it speaks the client's wire. Otherwise the gateway does.
    #[default]
    Provider,
    Gateway,
}

impl Connectors {
    /// By its name in the configuration.
    pub(crate) fn parse(text: &str) -> Option<Connectors> {
        [Connectors::Provider, Connectors::Gateway].into_iter().find(|connectors| connectors.name() == text)
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Connectors::Provider => "provider",
            Connectors::Gateway => "gateway",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_fits_addresses_part_by_part() {
        let reach = |pattern: &str, url: &str| {
            let pattern = AllowedUrl::parse(pattern).expect("a pattern");
            pattern.reach(&Url::parse(url).expect("an address"))
        };
        let (any, public) = (Some(AddressReach::Any), Some(AddressReach::Public));
        for (pattern, url, expected) in [
            ("https://mcp.example.com", "https://mcp.example.com/any/path", any),
            ("https://mcp.example.com/mcp", "https://mcp.example.com/mcp", any),
            ("https://mcp.example.com/mcp", "https://mcp.example.com/other", None),
            ("https://mcp.example.com/a/*", "https://mcp.example.com/a/../b", None),
            ("https://mcp.example.com", "http://mcp.example.com/", None),
            ("https://mcp.example.com", "https://mcp.example.com:8443/", None),
            ("http://127.0.0.1:9000/*", "http://127.0.0.1:9000/mcp", any),
            ("http://127.0.0.1:9000/*", "http://2130706433:9000/mcp", any),
            ("http://[::1]:9000", "http://[::1]:9000/mcp", any),
            ("https://*.example.com/*", "https://a.b.example.com/mcp", public),
            ("https://*.example.com/*", "https://evil.com/.example.com/mcp", None),
            ("https://*.example.com/*", "https://user:key@a.example.com/mcp", None),
            ("https://mcp.example.com", "https://mcp.example.com@evil.com/", None),
            ("https://*", "https://169.254.169.254/latest", public),
        ] {
            assert_eq!(reach(pattern, url), expected, "{pattern} {url}");
        }
        for wrong in ["mcp.example.com", "ftp://a", "https://", "https://me@a", "https://a:99999"] {
            assert!(AllowedUrl::parse(wrong).is_err(), "{wrong}");
        }
    }
}
