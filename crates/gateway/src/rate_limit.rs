//! Requests per minute of each client, counted by this process, or in a Redis for all replicas.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::http::StatusCode;
use dacapo_runner::StoreKey;

use crate::http::TurnError;
use crate::redis_connection::RedisConnection;

/// A rate of requests, and how many of them are left to one client.
#[derive(Debug)]
pub(crate) struct RateLimit {
    pub requests_per_minute: u32,
    bucket: Mutex<RateBucket>,
}

/// Requests that may be made at once; it fills up again over a minute.
#[derive(Debug)]
struct RateBucket {
    left: f64,
    at: Option<Instant>,
}

/// Where requests are counted.
#[derive(Debug, Default)]
pub(crate) struct RateCounters {
    /// For all replicas. `None`: each counts for itself.
    shared: Option<RedisConnection>,
}

/// The longest `retry-after`, whatever the rate.
const WAIT_SECONDS_MAX: u64 = 3_600;

/// Takes one request out of the bucket of a client. Returns 0, or the milliseconds to wait. The key holds the time at which
/// the bucket is full again, by the clock of the server, which all replicas share.
const TAKE: &str = "
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local full = math.max(tonumber(redis.call('GET', KEYS[1]) or now), now) + 60000 / ARGV[1]
local wait = full - 60000 - now
if wait > 0 then return math.ceil(wait) end
redis.call('SET', KEYS[1], string.format('%.3f', full), 'PX', math.ceil(full - now))
return 0";

impl RateLimit {
    pub(crate) fn new(requests_per_minute: u32) -> RateLimit {
        let bucket = Mutex::new(RateBucket { left: f64::from(requests_per_minute), at: None });
        RateLimit { requests_per_minute, bucket }
    }

    /// How long to wait, if this is one request too many.
    fn take(&self, now: Instant) -> Result<(), Duration> {
        let rate = f64::from(self.requests_per_minute);
        let mut bucket = self.bucket.lock().unwrap_or_else(PoisonError::into_inner);
        let passed = bucket.at.map_or(0.0, |at| now.duration_since(at).as_secs_f64());
        bucket.left = (bucket.left + passed * rate / 60.0).min(rate);
        bucket.at = Some(now);
        if bucket.left >= 1.0 {
            bucket.left -= 1.0;
            return Ok(());
        }
        let seconds = (1.0 - bucket.left) * 60.0 / rate.max(f64::MIN_POSITIVE);
        Err(Duration::try_from_secs_f64(seconds).unwrap_or(Duration::from_secs(WAIT_SECONDS_MAX)))
    }
}

impl RateCounters {
    pub(crate) fn shared(connection: Option<RedisConnection>) -> RateCounters {
        RateCounters { shared: connection }
    }

    /// Counts a request of a client. If the shared count cannot be had, this process counts for itself: a store that is
    /// down should not keep clients out.
    pub(crate) async fn take(&self, client: &str, limit: &RateLimit) -> Result<(), TurnError> {
        let taken = match &self.shared {
            Some(connection) if limit.requests_per_minute > 0 => {
                take_shared(connection, client, limit.requests_per_minute).await.unwrap_or_else(|error| {
                    tracing::warn!(client, %error, "requests per minute are counted by this replica alone");
                    limit.take(Instant::now())
                })
            }
            _ => limit.take(Instant::now()),
        };
        taken.map_err(|wait| {
            let seconds = wait.as_millis().div_ceil(1000).clamp(1, u128::from(WAIT_SECONDS_MAX)) as u64;
            TurnError::Refused {
                status: StatusCode::TOO_MANY_REQUESTS,
                kind: "rate_limit_error",
                message: format!("more than {} requests a minute; wait {seconds} s", limit.requests_per_minute),
                retry_after_s: Some(seconds),
            }
        })
    }
}

async fn take_shared(
    connection: &RedisConnection,
    client: &str,
    requests_per_minute: u32,
) -> Result<Result<(), Duration>, redis::RedisError> {
    let mut connection = connection.get().await?;
    let key = StoreKey::new(client, "requests_per_minute");
    let mut take = redis::cmd("EVAL");
    take.arg(TAKE).arg(1).arg(key.as_str()).arg(requests_per_minute);
    let wait_ms: u64 = take.query_async(&mut connection).await?;
    Ok(if wait_ms == 0 { Ok(()) } else { Err(Duration::from_millis(wait_ms)) })
}
