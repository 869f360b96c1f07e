//! Messages to and from a server over HTTP, with a bound on each response.

use std::borrow::Cow;
use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use dacapo_catalog::shorten;
use dacapo_runner::AddressReach;
use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use http::header::{ACCEPT, CONTENT_TYPE, WWW_AUTHENTICATE};
use http::{HeaderMap, HeaderName, HeaderValue};
use reqwest::redirect::Policy;
use reqwest::{Client, Response, StatusCode};
use rmcp::model::{ClientJsonRpcMessage, ClientRequest, ErrorData, RequestId, ServerJsonRpcMessage};
use rmcp::transport::common::http_header::{EVENT_STREAM_MIME_TYPE, HEADER_SESSION_ID, JSON_MIME_TYPE};
use rmcp::transport::streamable_http_client::{
    HttpStatusError, SseError, StreamableHttpClient, StreamableHttpError, StreamableHttpPostResponse,
};
use sse_stream::{Sse, SseStream};

use super::public_addresses::PublicResolver;
use super::rejected_response::{invalid, too_long};
use super::server_auth::ServerAuth;

const REDIRECTS_MAX: usize = 10;
/// Shorter than servers keep idle connections. A request on a connection that the server is closing is lost, and it is
/// unknown whether it arrived.
const IDLE_MAX: Duration = Duration::from_secs(2);
const ERROR_BYTES_MAX: usize = 64 * 1024;
/// Of a body that is no JSON-RPC message.
const SHOWN_CHARS_MAX: usize = 200;

type Headers = HashMap<HeaderName, HeaderValue>;
type PostResult = Result<StreamableHttpPostResponse, StreamableHttpError<reqwest::Error>>;

/// rmcp's own client reads a response to its end, however long it is. This one replaces a response that is too long by an
/// error, and keeps the address, which may hold credentials, out of all errors.
#[derive(Debug, Clone)]
pub(super) struct HttpClient {
    client: Client,
    bytes_max: usize,
    auth: Arc<ServerAuth>,
}

impl HttpClient {
    pub(super) fn new(bytes_max: usize, reach: AddressReach, auth: ServerAuth) -> Result<HttpClient, String> {
        // Only these redirects keep the body, and no other host may get our headers.
        let policy = Policy::custom(|attempt| {
            let keeps_body =
                matches!(attempt.status(), StatusCode::TEMPORARY_REDIRECT | StatusCode::PERMANENT_REDIRECT);
            let first = attempt.previous().first();
            let same_origin = first.is_some_and(|first| first.origin() == attempt.url().origin());
            if keeps_body && same_origin && attempt.previous().len() <= REDIRECTS_MAX {
                attempt.follow()
            } else {
                attempt.stop()
            }
        });
        let mut client = Client::builder().redirect(policy).pool_idle_timeout(IDLE_MAX);
        if reach == AddressReach::Public {
            // A proxy would resolve names by itself.
            client = client.redirect(Policy::none()).no_proxy().dns_resolver(PublicResolver);
        }
        let client = client.build().map_err(|error| format!("cannot prepare for HTTP: {error}"))?;
        Ok(HttpClient { client, bytes_max, auth: Arc::new(auth) })
    }

    /// Reads the response to a request, or the acknowledgement of a notification.
    async fn read_response(
        &self,
        response: Response,
        message: &ClientJsonRpcMessage,
        has_session: bool,
        token: Option<&str>,
    ) -> PostResult {
        let status = response.status();
        let header = |name: &str| response.headers().get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
        match (status, header(WWW_AUTHENTICATE.as_str())) {
            (StatusCode::UNAUTHORIZED, _) => return Err(self.auth.refused(token)),
            (StatusCode::FORBIDDEN, Some(challenge)) => return Err(self.auth.lacks_scope(&challenge)),
            (StatusCode::ACCEPTED | StatusCode::NO_CONTENT, _) => return Ok(StreamableHttpPostResponse::Accepted),
            (StatusCode::NOT_FOUND, _) if has_session => return Err(StreamableHttpError::SessionExpired),
            _ => {}
        }
        let session = header(HEADER_SESSION_ID);
        let content_type = header(CONTENT_TYPE.as_str());
        let is = |kind: &str| content_type.as_deref().is_some_and(|given| given.starts_with(kind));
        if !status.is_success() {
            return failed(response, message, session, has_session).await;
        }
        let request = match message {
            ClientJsonRpcMessage::Request(request) => Some(request),
            _ => None,
        };
        let id = request.map(|request| request.id.clone());
        if is(EVENT_STREAM_MIME_TYPE) {
            return Ok(StreamableHttpPostResponse::Sse(events(response, id, self.bytes_max), session));
        }
        let Some(request) = request else { return Ok(StreamableHttpPostResponse::Accepted) };
        if !is(JSON_MIME_TYPE) {
            return Err(StreamableHttpError::UnexpectedContentType(content_type));
        }
        let message = match read(response, self.bytes_max).await? {
            Ok(body) => match serde_json::from_slice(&body) {
                Ok(message) => message,
                Err(_) if is_connecting(&request.request) => {
                    let text = format!("no valid JSON-RPC message: {}", shown(&body));
                    return Err(StreamableHttpError::UnexpectedServerResponse(Cow::Owned(text)));
                }
                Err(_) => ServerJsonRpcMessage::error(invalid(), id),
            },
            Err(bytes) => ServerJsonRpcMessage::error(too_long(bytes), id),
        };
        Ok(StreamableHttpPostResponse::Json(message, session))
    }
}

/// If a server does not understand the first request, the connection starts again with another one. An error in the server's
/// place would hide that.
fn is_connecting(request: &ClientRequest) -> bool {
    matches!(request, ClientRequest::DiscoverRequest(_) | ClientRequest::InitializeRequest(_))
}

/// Reads a response with an error status, which may contain a JSON-RPC error.
async fn failed(
    response: Response,
    message: &ClientJsonRpcMessage,
    session: Option<String>,
    has_session: bool,
) -> PostResult {
    let status = response.status();
    let body = read(response, ERROR_BYTES_MAX).await?.unwrap_or_default();
    let is_forbidden = matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN);
    let error = match serde_json::from_slice(&body) {
        Ok(ServerJsonRpcMessage::Error(error)) if !is_forbidden => Some(error),
        _ => None,
    };
    let text = format!("HTTP {status}: {}", shown(&body));
    match (message, error) {
        // Servers before 2026-07-28 refuse `server/discover` this way, with any id or none, and wait for `initialize`.
        (ClientJsonRpcMessage::Request(request), error)
            if matches!(request.request, ClientRequest::DiscoverRequest(_))
                && status.is_client_error()
                && !is_forbidden
                && !has_session =>
        {
            let error = error.map_or_else(|| ErrorData::invalid_request(text, None), |error| error.error);
            let message = ServerJsonRpcMessage::error(error, Some(request.id.clone()));
            Ok(StreamableHttpPostResponse::Json(message, None))
        }
        (_, Some(error)) => Ok(StreamableHttpPostResponse::Json(ServerJsonRpcMessage::Error(error), session)),
        _ if status == StatusCode::TOO_MANY_REQUESTS || status.is_server_error() => {
            Err(HttpStatusError::new(status.as_u16(), None).into())
        }
        _ => Err(StreamableHttpError::UnexpectedServerResponse(Cow::Owned(text))),
    }
}

fn shown(body: &[u8]) -> String {
    shorten(&String::from_utf8_lossy(body), SHOWN_CHARS_MAX)
}

/// The events of a response. One that is too long is replaced by an error, if it responds to a request.
fn events(
    response: Response,
    mut id: Option<RequestId>,
    bytes_max: usize,
) -> BoxStream<'static, Result<Sse, SseError>> {
    let is_too_large = Arc::new(AtomicBool::new(false));
    let mut event = EventBytes::default();
    let noted = Arc::clone(&is_too_large);
    let bytes = response.bytes_stream().map(move |chunk| {
        let chunk = chunk.map_err(|error| io::Error::other(error.without_url()))?;
        if event.read(&chunk) > bytes_max {
            noted.store(true, Ordering::Release);
            return Err(io::Error::other("an event is too long"));
        }
        Ok(chunk)
    });
    let events = SseStream::from_bytes_stream(bytes).map(move |event| match event {
        Err(_) if id.is_some() && is_too_large.load(Ordering::Acquire) => {
            // The stream ends with this error, so nothing else responds to the request.
            let message = ServerJsonRpcMessage::error(too_long(None), id.take());
            Ok(Sse::default().data(serde_json::to_string(&message).unwrap_or_default()))
        }
        event => event,
    });
    events.boxed()
}

impl StreamableHttpClient for HttpClient {
    type Error = reqwest::Error;

    async fn post_message(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session_id: Option<Arc<str>>,
        _auth_header: Option<String>,
        custom_headers: Headers,
    ) -> PostResult {
        let headers = HeaderMap::from_iter(custom_headers);
        let mut token = self.auth.token().await?;
        loop {
            let accept = format!("{EVENT_STREAM_MIME_TYPE}, {JSON_MIME_TYPE}");
            let mut post = self.client.post(&*uri).headers(headers.clone()).header(ACCEPT, accept);
            if let Some(session) = &session_id {
                post = post.header(HEADER_SESSION_ID, session.as_ref());
            }
            if let Some(token) = &token {
                post = post.bearer_auth(token);
            }
            let response = post.json(&message).send().await.map_err(reqwest::Error::without_url)?;
            // A request that is rejected so was not executed, and may be sent again.
            if response.status() == StatusCode::UNAUTHORIZED
                && let Some(rejected) = &token
                && let Some(other) = self.auth.token_instead_of(rejected).await?
                && other != *rejected
            {
                token = Some(other);
                continue;
            }
            return self.read_response(response, &message, session_id.is_some(), token.as_deref()).await;
        }
    }

    async fn delete_session(
        &self,
        uri: Arc<str>,
        session_id: Arc<str>,
        _auth_header: Option<String>,
        custom_headers: Headers,
    ) -> Result<(), StreamableHttpError<reqwest::Error>> {
        let token = self.auth.token().await?;
        self.client.delete_session(uri, session_id, token, custom_headers).await.map_err(without_url)
    }

    async fn get_stream(
        &self,
        uri: Arc<str>,
        session_id: Option<Arc<str>>,
        last_event_id: Option<String>,
        _auth_header: Option<String>,
        custom_headers: Headers,
    ) -> Result<BoxStream<'static, Result<Sse, SseError>>, StreamableHttpError<reqwest::Error>> {
        let token = self.auth.token().await?;
        let events = self.client.get_stream(uri, session_id, last_event_id, token, custom_headers).await;
        events.map_err(without_url)
    }
}

fn without_url(error: StreamableHttpError<reqwest::Error>) -> StreamableHttpError<reqwest::Error> {
    match error {
        StreamableHttpError::Client(error) => StreamableHttpError::Client(error.without_url()),
        other => other,
    }
}

/// The body. If it has more than `bytes_max`, its length as far as it is known.
async fn read(mut response: Response, bytes_max: usize) -> Result<Result<Vec<u8>, Option<usize>>, reqwest::Error> {
    let announced = response.content_length().map(|bytes| usize::try_from(bytes).unwrap_or(usize::MAX));
    if announced.is_some_and(|bytes| bytes > bytes_max) {
        return Ok(Err(announced));
    }
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(reqwest::Error::without_url)? {
        if body.len() + chunk.len() > bytes_max {
            return Ok(Err(None));
        }
        body.extend_from_slice(&chunk);
    }
    Ok(Ok(body))
}

/// Counts the bytes of the event that is being read. An empty line ends it; a line ends with `\r`, `\n` or both.
#[derive(Debug, Default)]
struct EventBytes {
    bytes: usize,
    line_bytes: usize,
    after_return: bool,
}

impl EventBytes {
    /// The length of the longest event seen in this chunk so far.
    fn read(&mut self, chunk: &[u8]) -> usize {
        let mut longest = self.bytes;
        for byte in chunk {
            let after_return = std::mem::replace(&mut self.after_return, *byte == b'\r');
            match byte {
                b'\n' if after_return => {}
                b'\r' | b'\n' if self.line_bytes == 0 => self.bytes = 0,
                b'\r' | b'\n' => self.line_bytes = 0,
                _ => {
                    self.line_bytes += 1;
                    self.bytes += 1;
                    longest = longest.max(self.bytes);
                }
            }
        }
        longest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_ends_with_an_empty_line_however_lines_end() {
        for end in ["\n", "\r", "\r\n"] {
            let events = format!("data: 1{end}{end}data: 22{end}id: 3{end}{end}data: 4{end}{end}");
            let mut whole = EventBytes::default();
            assert_eq!((whole.read(events.as_bytes()), whole.bytes), (13, 0), "{end:?}");
            let mut pieces = EventBytes::default();
            let longest = events.as_bytes().chunks(1).map(|byte| pieces.read(byte)).max();
            assert_eq!((longest, pieces.bytes), (Some(13), 0), "{end:?}");
        }
    }
}
