//! A client that costs next to nothing: HTTP/1.1 by hand, one connection, kept alive. On the socket it does what the
//! HTTP libraries of the SDKs do: headers and body are two writes, and `TCP_NODELAY` is set.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};

pub(crate) struct Connection {
    stream: TcpStream,
    sent: Vec<u8>,
    received: Vec<u8>,
}

/// The body of an answer, the time from the first byte sent to the last one received, and when a text came that was
/// awaited.
pub(crate) struct Reply {
    pub body: Vec<u8>,
    pub taken: Duration,
    pub awaited_at: Option<Duration>,
}

impl Connection {
    pub(crate) fn open(address: SocketAddr) -> anyhow::Result<Connection> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        Ok(Connection { stream, sent: Vec::new(), received: Vec::new() })
    }

    /// The body of the answer, and the time from the first byte sent to the last one received.
    pub(crate) fn post(&mut self, headers: &str, body: &str) -> anyhow::Result<(Vec<u8>, Duration)> {
        self.post_to("/chat/completions", headers, body)
    }

    pub(crate) fn post_to(&mut self, path: &str, headers: &str, body: &str) -> anyhow::Result<(Vec<u8>, Duration)> {
        let reply = self.exchange(path, headers, body, None)?;
        Ok((reply.body, reply.taken))
    }

    /// Sends a request, and notes when `awaited` arrives in the answer.
    pub(crate) fn exchange(
        &mut self,
        path: &str,
        headers: &str,
        body: &str,
        awaited: Option<&str>,
    ) -> anyhow::Result<Reply> {
        self.sent.clear();
        write!(
            self.sent,
            "POST /v1{path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n{headers}content-length: {}\r\n\r\n",
            body.len()
        )?;
        self.received.clear();
        let mut awaited_at = None;
        let start = Instant::now();
        self.stream.write_all(&self.sent)?;
        self.stream.write_all(body.as_bytes())?;
        let mut piece = [0; 16 << 10];
        loop {
            let length = self.stream.read(&mut piece)?;
            ensure!(length > 0, "the connection was closed");
            self.received.extend_from_slice(&piece[..length]);
            if let Some(text) = awaited.filter(|_| awaited_at.is_none())
                && self.received.windows(text.len()).any(|window| window == text.as_bytes())
            {
                awaited_at = Some(start.elapsed());
            }
            if let Some(body) = whole_body(&self.received)? {
                return Ok(Reply { body, taken: start.elapsed(), awaited_at });
            }
        }
    }
}

/// `None` while there is more to come.
fn whole_body(received: &[u8]) -> anyhow::Result<Option<Vec<u8>>> {
    let Some(end) = received.windows(4).position(|window| window == b"\r\n\r\n") else { return Ok(None) };
    let head = std::str::from_utf8(&received[..end])?.to_ascii_lowercase();
    let body = &received[end + 4..];
    ensure!(head.starts_with("http/1.1 200"), "{head}\n\n{}", String::from_utf8_lossy(body));
    match head.lines().find_map(|line| line.strip_prefix("content-length:")) {
        Some(length) => Ok((body.len() == length.trim().parse::<usize>()?).then(|| body.to_vec())),
        None if body.ends_with(b"0\r\n\r\n") => unchunked(body).map(Some),
        None => Ok(None),
    }
}

fn unchunked(mut chunks: &[u8]) -> anyhow::Result<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let end = chunks.windows(2).position(|window| window == b"\r\n").context("a chunk without its size")?;
        let size = usize::from_str_radix(std::str::from_utf8(&chunks[..end])?, 16)?;
        if size == 0 {
            return Ok(body);
        }
        body.extend_from_slice(chunks.get(end + 2..end + 2 + size).context("a chunk that is cut")?);
        chunks = &chunks[end + 2 + size + 2..];
    }
}
