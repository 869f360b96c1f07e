//! W3C Trace Context: which trace a request belongs to.

use axum::http::{HeaderMap, HeaderValue};

use crate::http::hex as to_hex;

pub(super) type TraceId = [u8; 16];
pub(super) type SpanId = [u8; 8];

pub(crate) const TRACEPARENT: &str = "traceparent";
pub(crate) const TRACESTATE: &str = "tracestate";

/// The trace of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TraceContext {
    pub trace: TraceId,
    /// The caller's span, if there is one.
    pub parent: Option<SpanId>,
    /// Of other systems; it is passed on as it came.
    pub state: String,
    pub is_sampled: bool,
}

impl TraceContext {
    /// From the headers of a client. One that is not valid is as good as none.
    pub(super) fn of(headers: &HeaderMap) -> Option<TraceContext> {
        let mut given = headers.get_all(TRACEPARENT).iter();
        let (Some(parent), None) = (given.next(), given.next()) else { return None };
        let state: Vec<&str> = headers.get_all(TRACESTATE).iter().filter_map(|value| value.to_str().ok()).collect();
        Some(TraceContext { state: state.join(","), ..TraceContext::parse(parent.to_str().ok()?)? })
    }

    /// `00-<trace>-<parent>-<flags>`; later versions may have more after that.
    fn parse(text: &str) -> Option<TraceContext> {
        let mut parts = text.split('-');
        let version: [u8; 1] = hex(parts.next()?)?;
        let trace = hex(parts.next()?).filter(|id| *id != [0; 16])?;
        let parent = hex(parts.next()?).filter(|id| *id != [0; 8])?;
        let flags: [u8; 1] = hex(parts.next()?)?;
        let is_known = version != [0xff] && (version != [0] || parts.next().is_none());
        let context = TraceContext { trace, parent: Some(parent), state: String::new(), is_sampled: flags[0] & 1 == 1 };
        is_known.then_some(context)
    }

    /// The headers by which a span passes the trace on.
    pub(super) fn headers(&self, span: SpanId) -> Vec<(&'static str, HeaderValue)> {
        let flags = u8::from(self.is_sampled);
        let parent = format!("00-{}-{}-{flags:02x}", to_hex(&self.trace), to_hex(&span));
        let state = (!self.state.is_empty()).then(|| HeaderValue::from_str(&self.state).ok()).flatten();
        let parent = HeaderValue::from_str(&parent).ok().map(|value| (TRACEPARENT, value));
        parent.into_iter().chain(state.map(|value| (TRACESTATE, value))).collect()
    }
}

/// Of a trace, and of its first span.
pub(super) fn new_ids() -> (TraceId, SpanId) {
    let (mut trace, mut span) = ([0; 16], [0; 8]);
    let bytes: [u8; 24] = random();
    trace.copy_from_slice(&bytes[..16]);
    span.copy_from_slice(&bytes[16..]);
    (valid(trace), valid(span))
}

pub(super) fn new_span_id() -> SpanId {
    valid(random())
}

fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).expect("the system has randomness");
    bytes
}

/// An id of zeros is not valid.
fn valid<const N: usize>(mut id: [u8; N]) -> [u8; N] {
    id[0] |= u8::from(id == [0; N]);
    id
}

/// Exactly N bytes, in lower case.
fn hex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    if pairs.len() != N || !rest.is_empty() {
        return None;
    }
    let mut bytes = [0; N];
    for (byte, [high, low]) in bytes.iter_mut().zip(pairs) {
        *byte = digit(*high)? << 4 | digit(*low)?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::{TraceContext, to_hex};

    #[test]
    fn a_traceparent_is_read_as_the_w3c_says() {
        let read = |text: &str| TraceContext::parse(text).map(|context| (to_hex(&context.trace), context.is_sampled));
        let (trace, parent) = ("4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7");
        let known = |is_sampled| Some((trace.to_owned(), is_sampled));
        assert_eq!(read(&format!("00-{trace}-{parent}-01")), known(true));
        assert_eq!(read(&format!("00-{trace}-{parent}-02")), known(false));
        assert_eq!(read(&format!("cc-{trace}-{parent}-01-what-the-future-will-be-like")), known(true));
        let wrong = [
            format!("00-{trace}-{parent}-01-more"),
            format!("ff-{trace}-{parent}-01"),
            format!("00-{}-{parent}-01", "0".repeat(32)),
            format!("00-{trace}-0000000000000000-01"),
            format!("00-{}-{parent}-01", trace.to_uppercase()),
            format!("00-{trace}-{parent}"),
            format!("00-{trace}é-{parent}-01"),
            String::new(),
        ];
        for wrong in wrong {
            assert_eq!(read(&wrong), None, "{wrong}");
        }
    }
}
