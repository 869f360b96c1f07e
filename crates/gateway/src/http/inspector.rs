//! The inspector page, and what it asks: nothing but the step function is run.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderValue, Request, Response, StatusCode, header};
use bytes::Bytes;
use dacapo_wire::{ClientSide, RunId};
use serde::Serialize;
use tokio::runtime::Handle;

use super::GatewayServer;
use super::body::check_json_values;
use super::errors::TurnError;
use super::exit::{self, Exit};
use super::request::bad_request;
use crate::config::StepEndpoint;
use crate::gateway::Gateway;
use crate::inspect::{CONTENT_SECURITY_POLICY, Inspection, SERVED_PAGE, StateLookup};

pub(super) async fn page() -> Response<Body> {
    let mut response = Response::new(Body::from(SERVED_PAGE.as_str()));
    let fixed = [
        (header::CONTENT_TYPE, "text/html; charset=utf-8"),
        (header::CACHE_CONTROL, "no-cache"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
    ];
    let headers = response.headers_mut();
    headers.extend(fixed.map(|(name, value)| (name, HeaderValue::from_static(value))));
    let policy = format!("{}; frame-ancestors 'none'", *CONTENT_SECURITY_POLICY);
    headers.extend(HeaderValue::from_str(&policy).ok().map(|policy| (header::CONTENT_SECURITY_POLICY, policy)));
    response
}

/// Explains a request body, a list of messages, or requests line by line.
pub(super) async fn explain(State(server): State<GatewayServer>, request: Request<Body>) -> Response<Body> {
    let open = server.open_request(request.headers());
    let explained = server.inspect(request, |inspection, text, _| Ok(inspection.explain(text))).await;
    exit::respond(open, ClientSide::CHAT, explained.map(|explained| Exit::json(&explained)))
}

/// Runs a changed program with recorded answers.
pub(super) async fn what_if(State(server): State<GatewayServer>, request: Request<Body>) -> Response<Body> {
    let open = server.open_request(request.headers());
    let run = server.inspect(request, |inspection, text, tenant| {
        inspection.what_if(text, tenant).map_err(|message| bad_request("what-if", message))
    });
    exit::respond(open, ClientSide::CHAT, run.await.map(|block| Exit::json(&block)))
}

impl GatewayServer {
    /// Does something with the text of a request, as a client that may use the step function.
    async fn inspect<T: Serialize + Send + 'static>(
        &self,
        request: Request<Body>,
        work: impl FnOnce(&Inspection<'_>, &str, &str) -> Result<T, TurnError> + Send + 'static,
    ) -> Result<T, TurnError> {
        let (parts, body) = request.into_parts();
        let client = self.admit(&parts).await?;
        let body = self.body(&client, &parts.headers, body).await?;
        self.inspect_text(&client, body, work).await
    }

    /// The same, with a text that is there already.
    pub(super) async fn inspect_text<T: Serialize + Send + 'static>(
        &self,
        client: &Arc<str>,
        body: Bytes,
        work: impl FnOnce(&Inspection<'_>, &str, &str) -> Result<T, TurnError> + Send + 'static,
    ) -> Result<T, TurnError> {
        if self.gateway.config.step_endpoint == StepEndpoint::Off {
            let message = "the inspector is off here, like the step function (step.enabled of the gateway); \
                           `dacapo replay FILE` does the same";
            return Err(TurnError::refused(StatusCode::NOT_FOUND, "not_found_error", message));
        }
        let _turn = self.take_turn(client)?;
        let tenant = Arc::clone(client);
        let runtime = Handle::current();
        let done = self.gateway.run_programs(client, move |gateway: &Gateway, should_continue| {
            let stored: StateLookup<'_> = &|tenant: &str, states: &[(RunId, u32)]| {
                let nothing = || vec![None; states.len()];
                let found = gateway.store.as_ref().map(|store| runtime.block_on(store.get(tenant, states)));
                found.map_or_else(nothing, |found| {
                    found.unwrap_or_else(|error| {
                        tracing::warn!(%error, "the store failed, so that the inspector shows less");
                        nothing()
                    })
                })
            };
            check_json_values(&body, gateway.config.body_values_max)?;
            let text =
                std::str::from_utf8(&body).map_err(|error| bad_request("body", format!("is not UTF-8: {error}")))?;
            let inspection = Inspection {
                stepper: &gateway.process.stepper,
                toolboxes: &gateway.toolboxes,
                secrets: &gateway.config.secrets,
                clients: &[tenant.to_string()],
                stored: gateway.store.is_some().then_some(stored),
                limits: gateway.limits(&tenant),
                error_texts: &gateway.config.error_texts,
                defaults: gateway.defaults(&tenant, ""),
                wire: None,
                stop: None,
                should_continue,
            };
            work(&inspection, text, &tenant)
        });
        self.turn_deadline().limit(async { done.await? }).await
    }
}
