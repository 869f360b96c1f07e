//! Requests of web pages: whose pages may read the responses (CORS).

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode, header};
use axum::middleware::Next;

use super::GatewayServer;

/// The origins whose web pages may use the gateway; none by default.
#[derive(Debug, Clone, Default)]
pub(crate) struct AllowedOrigins(Vec<String>);

/// Every origin.
const ANY: &str = "*";
/// What pages may send, and for how many seconds a browser need not ask again.
const METHODS: &str = "GET, POST, DELETE";
const PREFLIGHT_SECONDS: &str = "600";
/// Headers of responses that pages may read.
const EXPOSED: &str =
    "x-dacapo-mode, x-dacapo-dropped, x-request-id, x-dacapo-upstream-request-id, request-id, retry-after";

impl AllowedOrigins {
    /// `Err` names what is not an origin.
    pub(crate) fn new(origins: &[String]) -> Result<AllowedOrigins, String> {
        let is_origin = |text: &str| {
            let url = reqwest::Url::parse(text).ok().filter(|url| matches!(url.scheme(), "http" | "https"));
            url.is_some_and(|url| url.origin().ascii_serialization() == text)
        };
        match origins.iter().find(|text| *text != ANY && !is_origin(text)) {
            Some(wrong) => Err(wrong.clone()),
            None => Ok(AllowedOrigins(origins.to_vec())),
        }
    }

    pub(crate) fn has_any(&self) -> bool {
        self.0.iter().any(|known| known == ANY)
    }

    pub(crate) fn list(&self) -> &[String] {
        &self.0
    }

    /// The origin of a request, if its pages are allowed.
    pub(crate) fn allowed<'a>(&self, headers: &'a HeaderMap) -> Option<&'a HeaderValue> {
        let origin = headers.get(header::ORIGIN)?;
        self.0.iter().any(|known| known == ANY || known.as_bytes() == origin.as_bytes()).then_some(origin)
    }
}

/// Answers a browser's question whether a page may send a request, and lets pages read responses.
pub(super) async fn cors(State(server): State<GatewayServer>, request: Request, next: Next) -> Response<Body> {
    let Some(origin) = server.gateway.config.cors_origins.allowed(request.headers()).cloned() else {
        return next.run(request).await;
    };
    let is_question =
        request.method() == Method::OPTIONS && request.headers().contains_key("access-control-request-method");
    let mut response = if is_question { permission(request.headers()) } else { next.run(request).await };
    let headers = response.headers_mut();
    headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    headers.append(header::VARY, HeaderValue::from_static("origin"));
    headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static(EXPOSED));
    response
}

fn permission(asked: &HeaderMap) -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    let headers = response.headers_mut();
    headers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static(METHODS));
    headers.insert(header::ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static(PREFLIGHT_SECONDS));
    // Clients send headers of their own, which no list could name.
    if let Some(names) = asked.get(header::ACCESS_CONTROL_REQUEST_HEADERS) {
        headers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, names.clone());
    }
    if asked.contains_key("access-control-request-private-network") {
        let name = HeaderName::from_static("access-control-allow-private-network");
        headers.insert(name, HeaderValue::from_static("true"));
    }
    response
}
