//! Keeps the operator's key out of what an upstream sends back.

use axum::http::{HeaderMap, HeaderValue};
use bytes::Bytes;
use futures_util::{StreamExt, stream};

use crate::upstream::{ByteStream, Secret};

/// What is shown instead of a key.
const MASK: &[u8] = b"(hidden)";
/// Shorter ones are words such as `none` and `ollama`, for upstreams that ask for any key.
const KEY_BYTES_MIN: usize = 8;

/// The key that clients must not see, if there is one.
#[derive(Debug, Default)]
pub(crate) struct KeyMask(Option<Secret>);

impl KeyMask {
    pub(crate) fn new(key: Option<&Secret>) -> KeyMask {
        KeyMask(key.filter(|key| key.0.len() >= KEY_BYTES_MIN).cloned())
    }

    pub(crate) fn text(&self, text: &str) -> Bytes {
        let mut text = text.as_bytes().to_vec();
        if let Some(key) = &self.0 {
            replace(&mut text, key.0.as_bytes());
        }
        Bytes::from(text)
    }

    pub(crate) fn headers(&self, headers: &mut HeaderMap) {
        let Some(key) = &self.0 else { return };
        for value in headers.values_mut() {
            let mut text = value.as_bytes().to_vec();
            if replace(&mut text, key.0.as_bytes()) {
                *value = HeaderValue::from_bytes(&text).unwrap_or_else(|_| HeaderValue::from_static("(hidden)"));
            }
        }
    }

    /// Masks the key in a body, even where it is cut in two.
    pub(crate) fn body(&self, body: ByteStream) -> ByteStream {
        let Some(key) = self.0.clone() else { return body };
        let pieces = stream::unfold((body, Some(Vec::new()), key), |(mut body, held, key)| async move {
            let mut bytes = held?;
            match body.next().await {
                Some(Ok(piece)) => {
                    bytes.extend_from_slice(&piece);
                    replace(&mut bytes, key.0.as_bytes());
                    let held = bytes.split_off(bytes.len() - begun(&bytes, key.0.as_bytes()));
                    Some((Ok(Bytes::from(bytes)), (body, Some(held), key)))
                }
                Some(Err(error)) => Some((Err(error), (body, None, key))),
                None => Some((Ok(Bytes::from(bytes)), (body, None, key))),
            }
        });
        Box::pin(pieces.filter(|piece| {
            let is_something = !piece.as_ref().is_ok_and(Bytes::is_empty);
            async move { is_something }
        }))
    }
}

/// Replaces every key; false if there was none.
fn replace(text: &mut Vec<u8>, key: &[u8]) -> bool {
    let mut from = 0;
    let mut is_found = false;
    while let Some(at) = text[from..].windows(key.len()).position(|window| window == key) {
        text.splice(from + at..from + at + key.len(), MASK.iter().copied());
        from += at + MASK.len();
        is_found = true;
    }
    is_found
}

/// How many bytes at the end may be the beginning of a key.
fn begun(text: &[u8], key: &[u8]) -> usize {
    (1..key.len().min(text.len() + 1)).rev().find(|count| text.ends_with(&key[..*count])).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_key_is_masked_wherever_it_is_cut() {
        let key = "sk-sk-operator";
        let text = format!("a {key}{key} sk-sk- b {key}, sk");
        let mask = KeyMask::new(Some(&Secret(key.to_owned())));
        for size in 1..=text.len() {
            let pieces: Vec<_> = text.as_bytes().chunks(size).map(|piece| Ok(Bytes::copy_from_slice(piece))).collect();
            let masked: Vec<_> = mask.body(Box::pin(stream::iter(pieces))).collect().await;
            let masked: Vec<u8> = masked.into_iter().flat_map(Result::unwrap).collect();
            assert_eq!(String::from_utf8(masked).unwrap(), "a (hidden)(hidden) sk-sk- b (hidden), sk");
        }
        assert_eq!(KeyMask::new(Some(&Secret("ollama".to_owned()))).text("ollama failed"), "ollama failed");
    }
}
