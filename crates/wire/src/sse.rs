//! Server-sent events, with the deviations from the standard that providers' streams show.

use dacapo_replay::json_text;
use memchr::memchr2;
use serde_json::Value;

/// One event. Several `data` lines are joined by line breaks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SseEvent {
    /// The field `event`.
    pub name: Option<String>,
    /// The fields `data`.
    pub data: String,
}

impl SseEvent {
    /// An event without a name.
    pub(crate) fn data(data: &Value) -> SseEvent {
        SseEvent { name: None, data: json_text(data) }
    }

    /// An event whose name is the `type` of its data.
    pub(crate) fn typed(data: &Value) -> SseEvent {
        SseEvent { name: data.get("type").and_then(Value::as_str).map(str::to_owned), data: json_text(data) }
    }

    /// The bytes of the event in a stream. The data must be one line, as serialised JSON is.
    pub fn encoded(&self) -> String {
        match &self.name {
            Some(name) => format!("event: {name}\ndata: {}\n\n", self.data),
            None => format!("data: {}\n\n", self.data),
        }
    }
}

/// A stream that cannot be read any further.
#[derive(Debug, thiserror::Error)]
#[error("an event is larger than {EVENT_BYTES_MAX} bytes")]
pub struct SseError;

/// Far above the size of any event that providers send.
const EVENT_BYTES_MAX: usize = 32 << 20;

/// Splits a stream of bytes into events. Comments and unknown fields are skipped. Lines may end in `\n`, `\r\n` or
/// `\r`, and chunks may begin and end anywhere.
///
/// ```
/// use dacapo_wire::{SseEvent, SseReader};
/// let mut reader = SseReader::default();
/// assert_eq!(reader.read(b": a comment\nevent: ping\nda").expect("it is short"), []);
/// let events = reader.read(b"ta: {}\n\n").expect("it is short");
/// assert_eq!(events, [SseEvent { name: Some("ping".to_owned()), data: "{}".to_owned() }]);
/// assert_eq!(events[0].encoded(), "event: ping\ndata: {}\n\n");
/// ```
#[derive(Debug, Default)]
pub struct SseReader {
    line: Vec<u8>,
    /// The last byte was `\r`, so a `\n` that follows is part of the same line break.
    after_cr: bool,
    name: Option<String>,
    data: Option<String>,
}

impl SseReader {
    /// The events that these bytes complete.
    pub fn read(&mut self, bytes: &[u8]) -> Result<Vec<SseEvent>, SseError> {
        let mut events = Vec::new();
        let mut rest = bytes;
        while let Some(&first) = rest.first() {
            if std::mem::take(&mut self.after_cr) && first == b'\n' {
                rest = &rest[1..];
                continue;
            }
            let Some(end) = memchr2(b'\n', b'\r', rest) else {
                self.line.extend_from_slice(rest);
                break;
            };
            self.line.extend_from_slice(&rest[..end]);
            self.after_cr = rest[end] == b'\r';
            rest = &rest[end + 1..];
            events.extend(self.end_line());
        }
        let bytes = self.line.len() + self.data.as_ref().map_or(0, String::len);
        if bytes > EVENT_BYTES_MAX { Err(SseError) } else { Ok(events) }
    }

    /// Called at the end of the stream. An event counts even if the empty line after it is missing.
    pub fn finish(&mut self) -> Option<SseEvent> {
        self.end_line().or_else(|| self.end_event())
    }

    fn end_line(&mut self) -> Option<SseEvent> {
        let line = std::mem::take(&mut self.line);
        if line.is_empty() {
            return self.end_event();
        }
        let line = String::from_utf8_lossy(&line);
        let line = line.strip_prefix('\u{feff}').unwrap_or(&line);
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "event" => self.name = Some(value.to_owned()),
            // Some servers write an error as a field of its own.
            "error" => {
                self.name = Some("error".to_owned());
                self.add_data(value);
            }
            "data" => self.add_data(value),
            _ => {}
        }
        None
    }

    fn add_data(&mut self, value: &str) {
        match &mut self.data {
            None => self.data = Some(value.to_owned()),
            Some(data) => {
                data.push('\n');
                data.push_str(value);
            }
        }
    }

    fn end_event(&mut self) -> Option<SseEvent> {
        let name = self.name.take();
        self.data.take().map(|data| SseEvent { name, data })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WIRE: &str = "\u{feff}: hello\r\ndata: {\"a\":1}\r\n\r\n\n: keepalive\nevent: error\ndata: one\ndata:two\nretry: 3\n\nid: 7\n\rdata:\u{e9}\r\rdata: [DONE]";

    #[test]
    fn events_are_the_same_wherever_the_stream_is_cut() {
        let event = |name: Option<&str>, data: &str| SseEvent { name: name.map(str::to_owned), data: data.to_owned() };
        let expected =
            [event(None, "{\"a\":1}"), event(Some("error"), "one\ntwo"), event(None, "\u{e9}"), event(None, "[DONE]")];
        for size in 1..WIRE.len() {
            let mut reader = SseReader::default();
            let mut events: Vec<SseEvent> =
                WIRE.as_bytes().chunks(size).flat_map(|piece| reader.read(piece).unwrap()).collect();
            events.extend(reader.finish());
            assert_eq!(events, expected, "in pieces of {size}");
        }
    }
}
