//! Bodies that clients compress.

use std::io::Read;

use axum::http::{HeaderMap, StatusCode, header};
use bytes::Bytes;
use ruzstd::decoding::StreamingDecoder;

use super::body::too_many_bodies;
use super::errors::TurnError;
use crate::quota::QuotaShare;

/// How a body is compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ContentCoding {
    Gzip,
    Deflate,
    Brotli,
    Zstd,
}

/// Nobody compresses a body more often.
const CODINGS_MAX: usize = 2;
const PIECE_BYTES: usize = 64 << 10;
/// What the coding `zstd` of HTTP has at most (RFC 9659).
const ZSTD_WINDOW_BYTES_MAX: u64 = 8 << 20;

/// The value of `accept-encoding` for clients that sent something else.
pub(super) const ACCEPTED: &str = "gzip, deflate, br, zstd";

impl ContentCoding {
    /// What `content-encoding` names, in the order in which it was applied.
    pub(super) fn of(headers: &HeaderMap) -> Result<Vec<ContentCoding>, TurnError> {
        let mut codings = Vec::new();
        for value in headers.get_all(header::CONTENT_ENCODING) {
            let names = value.to_str().unwrap_or("?").split(',').map(|name| name.trim().to_ascii_lowercase());
            for name in names.filter(|name| !name.is_empty() && name != "identity") {
                codings.push(match name.as_str() {
                    "gzip" | "x-gzip" => ContentCoding::Gzip,
                    "deflate" => ContentCoding::Deflate,
                    "br" => ContentCoding::Brotli,
                    "zstd" => ContentCoding::Zstd,
                    _ => return Err(unsupported(&format!("`{name}` is not known"))),
                });
            }
        }
        if codings.len() > CODINGS_MAX {
            return Err(unsupported(&format!("{} encodings are too many", codings.len())));
        }
        Ok(codings)
    }

    /// Decodes a body of at most `bytes_max`, all of which counts as bytes of bodies that are being read.
    pub(super) fn decode(self, body: &[u8], bytes_max: usize, share: &mut QuotaShare) -> Result<Bytes, TurnError> {
        let mut decoded = DecodedBody { bytes: Vec::new(), bytes_max, share };
        match self {
            ContentCoding::Gzip => decoded.read(flate2::bufread::MultiGzDecoder::new(body))?,
            // Some clients leave out the header of zlib.
            ContentCoding::Deflate if has_zlib_header(body) => {
                decoded.read(flate2::bufread::ZlibDecoder::new(body))?;
            }
            ContentCoding::Deflate => decoded.read(flate2::bufread::DeflateDecoder::new(body))?,
            ContentCoding::Brotli => decoded.read(brotli_decompressor::Decompressor::new(body, PIECE_BYTES))?,
            ContentCoding::Zstd => {
                let mut frames = body;
                while !frames.is_empty() {
                    let frame = StreamingDecoder::new_with_max_window_size(&mut frames, ZSTD_WINDOW_BYTES_MAX);
                    decoded.read(frame.map_err(|error| broken(&error))?)?;
                }
            }
        }
        Ok(Bytes::from(decoded.bytes))
    }
}

struct DecodedBody<'a> {
    bytes: Vec<u8>,
    bytes_max: usize,
    share: &'a mut QuotaShare,
}

impl DecodedBody<'_> {
    fn read(&mut self, mut decoder: impl Read) -> Result<(), TurnError> {
        let mut piece = vec![0; PIECE_BYTES];
        loop {
            let count = decoder.read(&mut piece).map_err(|error| broken(&error))?;
            if count == 0 {
                return Ok(());
            }
            if self.bytes.len() + count > self.bytes_max {
                let message = format!(
                    "the body has more than {} bytes when decoded (body_bytes_max of the gateway)",
                    self.bytes_max
                );
                return Err(TurnError::refused(StatusCode::PAYLOAD_TOO_LARGE, "invalid_request_error", message));
            }
            self.share.grow(count).map_err(too_many_bodies)?;
            self.bytes.extend_from_slice(&piece[..count]);
        }
    }
}

/// The first two bytes of zlib are a multiple of 31, and name the method 8.
fn has_zlib_header(body: &[u8]) -> bool {
    matches!(body, [first, second, ..] if first & 15 == 8 && u16::from_be_bytes([*first, *second]) % 31 == 0)
}

fn broken(error: &dyn std::fmt::Display) -> TurnError {
    let message = format!("content-encoding: the body cannot be decoded: {error}");
    TurnError::refused(StatusCode::BAD_REQUEST, "invalid_request_error", message)
}

fn unsupported(problem: &str) -> TurnError {
    let message = format!("content-encoding: {problem}; use {ACCEPTED}, or send the body as it is");
    TurnError::refused(StatusCode::UNSUPPORTED_MEDIA_TYPE, "invalid_request_error", message)
}
