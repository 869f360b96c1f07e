//! A client's HTTP request, from its first byte to what it asks for.

use std::sync::Arc;
use std::time::Instant;

use axum::body::Body;
use axum::http::{HeaderMap, Request, StatusCode};
use bytes::Bytes;
use dacapo_wire::{BadRequest, Kept, Reader, Reading, Sealer, Wire};
use serde_json::Value;
use tokio::sync::OwnedSemaphorePermit;

use crate::error::TurnError;
use crate::headers;
use crate::recall::Recall;
use crate::server::Server;
use crate::threads;
use crate::turn::Tenant;
use crate::upstream::Asking;

/// A request of a client, read.
pub(crate) struct Asked {
    pub reading: Reading,
    /// As it came, or nearly.
    pub body: Bytes,
    pub model: String,
    pub asking: Asking,
    pub tenant: Tenant,
    pub permit: OwnedSemaphorePermit,
}

impl Server {
    pub(crate) async fn read(&self, wire: Wire, request: Request<Body>) -> Result<Asked, TurnError> {
        let gateway = &self.gateway;
        let (mut parts, body) = request.into_parts();
        let tenant = self.admit(&parts.headers)?.to_owned();
        let permit = self.permit()?;
        let mut body = self.body(body).await?;
        let header = headers::mode(&parts.headers)?;
        let mut json: Value = off_thread(body.clone(), body.len(), |body| {
            serde_json::from_slice(&body).map_err(|error| bad("body", format!("is not JSON: {error}")))
        })
        .await??;
        if wire == Wire::Messages && threads::without(&mut json, &mut parts.headers)? {
            body = Bytes::from(json.to_string());
        }
        let mut recall = None;
        if let (Wire::Responses, Some(store)) = (wire, &gateway.store) {
            let resolved = Recall::resolve(store, &tenant, &mut json).await?;
            recall = resolved.recall;
            if resolved.is_changed {
                body = Bytes::from(json.to_string());
            }
        }
        let model = json.get("model").and_then(Value::as_str).unwrap_or_default().to_owned();
        let upstream = gateway.upstreams.of(&model)?.wire_for(wire);
        let sealer = Sealer::new(gateway.config.secret.0.as_bytes(), &tenant);
        let kept = self.kept(wire, &tenant, &json).await?;
        let tenant = Tenant { name: tenant, sealer: sealer.clone(), recall };
        let defaults = gateway.defaults(&model);
        let reader = Arc::clone(gateway);
        let reading = off_thread(json, body.len(), move |json| {
            let toolboxes = &reader.toolboxes;
            Reader { upstream, header, defaults, sealer: &sealer, kept: &kept, toolboxes }.read(wire, json)
        });
        let reading = reading.await??;
        let query = parts.uri.query().map_or_else(String::new, |query| format!("?{query}"));
        Ok(Asked { reading, body, model, asking: Asking { headers: parts.headers, query, wire }, tenant, permit })
    }

    /// The tenant that asks. Where anybody on this machine may, web pages of others may not.
    pub(crate) fn admit(&self, headers: &HeaderMap) -> Result<&str, TurnError> {
        let config = &self.gateway.config;
        if config.clients.is_empty() && config.listen.ip().is_loopback() && headers::is_foreign(headers) {
            let message = "a web page of another host may not use this; configure a [[client]] for it";
            return Err(TurnError::ours(StatusCode::FORBIDDEN, "permission_error", message));
        }
        config.clients.admit(headers, Instant::now())
    }

    /// States of programs that the client's ids do not carry.
    async fn kept(&self, wire: Wire, tenant: &str, body: &Value) -> Result<Kept, TurnError> {
        let mut kept = Kept::default();
        let Some(store) = &self.gateway.store else { return Ok(kept) };
        let wanted = Kept::wanted(wire, body);
        match store.get(tenant, &wanted).await {
            Ok(found) => {
                for ((run, round), sealed) in wanted.into_iter().zip(found) {
                    if let Some(sealed) = sealed {
                        kept.insert(run, round, sealed);
                    }
                }
                Ok(kept)
            }
            // Only a program that would go on now is worth an error.
            Err(error) if Kept::is_vital(wire, body) => Err(error),
            Err(_) => Ok(kept),
        }
    }

    pub(crate) fn permit(&self) -> Result<OwnedSemaphorePermit, TurnError> {
        Arc::clone(&self.gateway.turns).try_acquire_owned().map_err(|error| TurnError::Ours {
            status: StatusCode::SERVICE_UNAVAILABLE,
            kind: "server_error",
            message: format!("{} turns run at this moment, and no more may: {error}", self.gateway.config.turns_max),
            retry_after_s: Some(1),
        })
    }

    pub(crate) async fn body(&self, body: Body) -> Result<Bytes, TurnError> {
        let bytes_max = self.gateway.config.body_bytes_max;
        axum::body::to_bytes(body, bytes_max).await.map_err(|error| {
            let message =
                format!("the body cannot be read, or has more than {bytes_max} bytes (body_bytes_max): {error}");
            TurnError::ours(StatusCode::PAYLOAD_TOO_LARGE, "invalid_request_error", message)
        })
    }
}

/// Large bodies are read where nobody waits for the thread.
async fn off_thread<I: Send + 'static, T: Send + 'static>(
    input: I,
    bytes: usize,
    work: impl FnOnce(I) -> T + Send + 'static,
) -> Result<T, TurnError> {
    const AT_ONCE_BYTES_MAX: usize = 128 << 10;
    if bytes <= AT_ONCE_BYTES_MAX {
        return Ok(work(input));
    }
    let done = tokio::task::spawn_blocking(move || work(input)).await;
    done.map_err(|error| {
        tracing::error!(%error, "a request could not be read");
        TurnError::ours(StatusCode::INTERNAL_SERVER_ERROR, "server_error", "the request could not be read")
    })
}

pub(crate) fn bad(param: &str, message: String) -> TurnError {
    TurnError::Bad(BadRequest { param: param.to_owned(), message })
}
