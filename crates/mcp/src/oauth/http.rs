//! Requests to authorization servers, with bounds on what they answer.

use std::time::Duration;

use reqwest::redirect::Policy;
use reqwest::{Client, RequestBuilder, StatusCode, Url};
use serde_json::Value;

const TIMEOUT: Duration = Duration::from_secs(30);
const REDIRECTS_MAX: usize = 5;
const BODY_BYTES_MAX: usize = 1 << 20;

/// A client that follows redirects within an origin, and only those of requests without a body: tokens and codes go
/// nowhere else.
pub(super) fn client() -> Result<Client, String> {
    let policy = Policy::custom(|attempt| {
        let is_read = !matches!(attempt.status(), StatusCode::TEMPORARY_REDIRECT | StatusCode::PERMANENT_REDIRECT);
        let same_origin = attempt.previous().first().is_some_and(|first| first.origin() == attempt.url().origin());
        if is_read && same_origin && attempt.previous().len() <= REDIRECTS_MAX {
            attempt.follow()
        } else {
            attempt.stop()
        }
    });
    let client = Client::builder().redirect(policy).timeout(TIMEOUT).build();
    client.map_err(|error| format!("cannot prepare for HTTP: {error}"))
}

/// A response: its status, the header that says what authorization is wanted, and its JSON if it has some.
pub(super) struct HttpAnswer {
    pub(super) status: StatusCode,
    pub(super) challenge: Option<String>,
    pub(super) json: Option<Value>,
}

/// Sends a request. The error says what failed without the address, which may hold a secret.
pub(super) async fn send(request: RequestBuilder) -> Result<HttpAnswer, String> {
    let failed = |error: reqwest::Error| {
        let error = error.without_url();
        let cause = std::error::Error::source(&error).map(|cause| format!(": {cause}"));
        format!("{error}{}", cause.unwrap_or_default())
    };
    let mut response = request.send().await.map_err(failed)?;
    let status = response.status();
    let challenge = response.headers().get("www-authenticate").and_then(|value| value.to_str().ok()).map(str::to_owned);
    let is_json = response
        .headers()
        .get("content-type")
        .and_then(|kind| kind.to_str().ok())
        .is_some_and(|kind| kind.contains("json"));
    let mut body = Vec::new();
    while is_json && let Some(chunk) = response.chunk().await.map_err(failed)? {
        body.extend_from_slice(&chunk);
        if body.len() > BODY_BYTES_MAX {
            return Err(format!("the answer has more than {BODY_BYTES_MAX} bytes"));
        }
    }
    Ok(HttpAnswer { status, challenge, json: serde_json::from_slice(&body).ok() })
}

/// The fields of a form, as a body.
pub(super) fn form(fields: &[(&str, &str)]) -> String {
    let mut url = Url::parse("http://form.invalid").expect("it is a URL");
    url.query_pairs_mut().extend_pairs(fields);
    url.query().unwrap_or_default().to_owned()
}

/// What an authorization server says is wrong: `error`, and its description.
pub(super) fn error_text(answer: &HttpAnswer) -> String {
    let field = |name: &str| answer.json.as_ref().and_then(|json| json[name].as_str());
    match (field("error"), field("error_description")) {
        (Some(error), Some(why)) => format!("{error}: {why}"),
        (Some(error), None) => error.to_owned(),
        (None, _) => format!("HTTP {}", answer.status),
    }
}
