//! Messages to and from a server over HTTP, with a bound on each answer.

use std::borrow::Cow;
use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderMap, HeaderName, HeaderValue};
use reqwest::redirect::Policy;
use reqwest::{Client, Response, StatusCode};
use rmcp::model::{ClientJsonRpcMessage, ClientRequest, RequestId, ServerJsonRpcMessage};
use rmcp::transport::common::http_header::{EVENT_STREAM_MIME_TYPE, HEADER_SESSION_ID, JSON_MIME_TYPE};
use rmcp::transport::streamable_http_client::{
    HttpStatusError, SseError, StreamableHttpClient, StreamableHttpError, StreamableHttpPostResponse,
};
use sse_stream::{Sse, SseStream};

use super::not_taken::{invalid, too_long};

const REDIRECTS_MAX: usize = 10;
/// Shorter than servers keep an idle connection: a request on one that is being closed is lost, and nobody knows
/// whether it arrived.
const IDLE_MAX: Duration = Duration::from_secs(2);
const ERROR_BYTES_MAX: usize = 64 * 1024;

type Headers = HashMap<HeaderName, HeaderValue>;
type Posted = Result<StreamableHttpPostResponse, StreamableHttpError<reqwest::Error>>;

/// rmcp reads an answer to its end, however long it is. This client does so only while connecting; requests after
/// that get an answer of bounded length, or one in the server's place.
#[derive(Debug, Clone)]
pub(super) struct HttpClient {
    client: Client,
    bytes_max: usize,
}

impl HttpClient {
    pub(super) fn new(bytes_max: usize) -> Result<HttpClient, String> {
        // Only these redirects keep the body, and another host must not get our headers.
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
        let client = Client::builder().redirect(policy).pool_idle_timeout(IDLE_MAX).build();
        Ok(HttpClient { client: client.map_err(|error| format!("cannot prepare for HTTP: {error}"))?, bytes_max })
    }

    async fn request(
        &self,
        uri: &str,
        body: &ClientJsonRpcMessage,
        id: RequestId,
        session: Option<Arc<str>>,
        headers: Headers,
    ) -> Posted {
        let accept = format!("{EVENT_STREAM_MIME_TYPE}, {JSON_MIME_TYPE}");
        let mut post = self.client.post(uri).headers(HeaderMap::from_iter(headers)).header(ACCEPT, accept).json(body);
        if let Some(session) = &session {
            post = post.header(HEADER_SESSION_ID, session.as_ref());
        }
        let response = post.send().await?;
        let status = response.status();
        if status == StatusCode::NOT_FOUND && session.is_some() {
            return Err(StreamableHttpError::SessionExpired);
        }
        let header = |name: &str| response.headers().get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
        let session = header(HEADER_SESSION_ID);
        let content_type = header(CONTENT_TYPE.as_str());
        let is = |kind: &str| content_type.as_deref().is_some_and(|given| given.starts_with(kind));
        if !status.is_success() {
            return self.failed(response, session).await;
        }
        if is(EVENT_STREAM_MIME_TYPE) {
            return Ok(StreamableHttpPostResponse::Sse(self.events(response, id), session));
        }
        if !is(JSON_MIME_TYPE) {
            return Err(StreamableHttpError::UnexpectedContentType(content_type));
        }
        let message = match read(response, self.bytes_max).await? {
            Ok(body) => serde_json::from_slice(&body).unwrap_or_else(|_invalid| invalid(id)),
            Err(bytes) => too_long(id, bytes),
        };
        Ok(StreamableHttpPostResponse::Json(message, session))
    }

    /// A status that is none of success, which may come with an error of the protocol.
    async fn failed(&self, response: Response, session: Option<String>) -> Posted {
        let status = response.status();
        let body = read(response, ERROR_BYTES_MAX).await?.unwrap_or_default();
        match serde_json::from_slice(&body) {
            Ok(message @ ServerJsonRpcMessage::Error(_)) => Ok(StreamableHttpPostResponse::Json(message, session)),
            _ if status == StatusCode::TOO_MANY_REQUESTS || status.is_server_error() => {
                Err(HttpStatusError::new(status.as_u16(), None).into())
            }
            _ => {
                let body = String::from_utf8_lossy(&body);
                let shown = &body[..body.floor_char_boundary(200)];
                Err(StreamableHttpError::UnexpectedServerResponse(Cow::Owned(format!("HTTP {status}: {shown}"))))
            }
        }
    }

    /// The events of an answer, of which one that is too long becomes an error in the answer's place.
    fn events(&self, response: Response, id: RequestId) -> BoxStream<'static, Result<Sse, SseError>> {
        let bytes_max = self.bytes_max;
        let is_too_large = Arc::new(AtomicBool::new(false));
        let mut event = EventBytes::default();
        let noted = is_too_large.clone();
        let bytes = response.bytes_stream().map(move |chunk| {
            let chunk = chunk.map_err(io::Error::other)?;
            if event.read(&chunk) > bytes_max {
                noted.store(true, Ordering::Release);
                return Err(io::Error::other("an event is too long"));
            }
            Ok(chunk)
        });
        let events = SseStream::from_bytes_stream(bytes).map(move |event| match event {
            Err(_) if is_too_large.load(Ordering::Acquire) => {
                let message = too_long(id.clone(), None);
                Ok(Sse::default().data(serde_json::to_string(&message).unwrap_or_default()))
            }
            event => event,
        });
        events.boxed()
    }
}

impl StreamableHttpClient for HttpClient {
    type Error = reqwest::Error;

    async fn post_message(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session_id: Option<Arc<str>>,
        auth_header: Option<String>,
        custom_headers: Headers,
    ) -> Posted {
        match &message {
            ClientJsonRpcMessage::Request(request)
                if matches!(
                    request.request,
                    ClientRequest::CallToolRequest(_) | ClientRequest::ListToolsRequest(_)
                ) =>
            {
                let id = request.id.clone();
                self.request(&uri, &message, id, session_id, custom_headers).await
            }
            _ => self.client.post_message(uri, message, session_id, auth_header, custom_headers).await,
        }
    }

    async fn delete_session(
        &self,
        uri: Arc<str>,
        session_id: Arc<str>,
        auth_header: Option<String>,
        custom_headers: Headers,
    ) -> Result<(), StreamableHttpError<reqwest::Error>> {
        self.client.delete_session(uri, session_id, auth_header, custom_headers).await
    }

    async fn get_stream(
        &self,
        uri: Arc<str>,
        session_id: Option<Arc<str>>,
        last_event_id: Option<String>,
        auth_header: Option<String>,
        custom_headers: Headers,
    ) -> Result<BoxStream<'static, Result<Sse, SseError>>, StreamableHttpError<reqwest::Error>> {
        self.client.get_stream(uri, session_id, last_event_id, auth_header, custom_headers).await
    }
}

/// The body, or how long it is if that is more than `bytes_max` and known.
async fn read(mut response: Response, bytes_max: usize) -> Result<Result<Vec<u8>, Option<usize>>, reqwest::Error> {
    let announced = response.content_length().map(|bytes| usize::try_from(bytes).unwrap_or(usize::MAX));
    if announced.is_some_and(|bytes| bytes > bytes_max) {
        return Ok(Err(announced));
    }
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await? {
        if body.len() + chunk.len() > bytes_max {
            return Ok(Err(None));
        }
        body.extend_from_slice(&chunk);
    }
    Ok(Ok(body))
}

/// Counts the bytes of the event that is being read. An empty line ends it.
#[derive(Debug, Default)]
struct EventBytes {
    bytes: usize,
    line_bytes: usize,
}

impl EventBytes {
    /// The length of the longest event seen in this chunk so far.
    fn read(&mut self, chunk: &[u8]) -> usize {
        let mut longest = self.bytes;
        for byte in chunk {
            match byte {
                b'\r' => {}
                b'\n' if self.line_bytes == 0 => self.bytes = 0,
                b'\n' => self.line_bytes = 0,
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
