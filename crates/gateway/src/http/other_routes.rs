//! Routes beside the three wires: lists of models, and responses that are kept.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, Request, Response, StatusCode, header};
use dacapo_wire::{ClientSide, UnopenedStates};
use serde_json::{Value, json};

use super::exit::{self, Exit};
use super::{GatewayServer, TurnError};
use crate::observe::{Event, Observer};
use crate::store::{Store, stored_responses};

pub(super) async fn models(State(server): State<GatewayServer>, request: Request<Body>) -> Response<Body> {
    let open = server.open_request(request.headers());
    let (parts, _) = request.into_parts();
    let models = server.models(&parts).await;
    exit::respond(open, ClientSide::CHAT, models.map(|models| Exit::json(&models)))
}

pub(super) async fn model(
    State(server): State<GatewayServer>,
    Path(id): Path<String>,
    request: Request<Body>,
) -> Response<Body> {
    let open = server.open_request(request.headers());
    let model = server.model(&id, &request.into_parts().0).await;
    exit::respond(open, ClientSide::CHAT, model.map(|model| Exit::json(&model)))
}

/// `GET /v1/responses` opens the websockets mode of this wire. Clients that try it first, such as Codex, go on over HTTP
/// when they read this status.
pub(super) async fn no_websockets(State(server): State<GatewayServer>, headers: HeaderMap) -> Response<Body> {
    let is_upgrade =
        headers.get(header::UPGRADE).is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"websocket"));
    let (status, message) = if is_upgrade {
        let message = "responses are not served over websockets here; send POST /v1/responses, with \"stream\": true";
        (StatusCode::UPGRADE_REQUIRED, message)
    } else {
        (
            StatusCode::METHOD_NOT_ALLOWED,
            "/v1/responses does not take this method; send POST, or GET /v1/responses/{id}",
        )
    };
    let error = TurnError::refused(status, "invalid_request_error", message);
    exit::respond(server.open_request(&headers), ClientSide::RESPONSES, Err(error))
}

pub(super) async fn stored_response(
    State(server): State<GatewayServer>,
    Path(id): Path<String>,
    request: Request<Body>,
) -> Response<Body> {
    let open = server.open_request(request.headers());
    let response = server.stored_response(&id, &request.into_parts().0, &open.observer()).await;
    exit::respond(open, ClientSide::RESPONSES, response.map(|(response, ..)| Exit::json(&response)))
}

pub(super) async fn delete_response(
    State(server): State<GatewayServer>,
    Path(id): Path<String>,
    request: Request<Body>,
) -> Response<Body> {
    let open = server.open_request(request.headers());
    let deleted = server.delete_response(&id, &request.into_parts().0, &open.observer()).await;
    exit::respond(open, ClientSide::RESPONSES, deleted.map(|deleted| Exit::json(&deleted)))
}

/// Only responses in the background can be cancelled, and there are none here.
pub(super) async fn cancel_response(
    State(server): State<GatewayServer>,
    Path(id): Path<String>,
    request: Request<Body>,
) -> Response<Body> {
    let open = server.open_request(request.headers());
    let found = server.stored_response(&id, &request.into_parts().0, &open.observer()).await;
    let refused = found.and_then(|_| {
        let message = format!("`{id}` is complete, and only a response in the background can be cancelled");
        Err(TurnError::refused(StatusCode::BAD_REQUEST, "invalid_request_error", message))
    });
    exit::respond(open, ClientSide::RESPONSES, refused)
}

impl GatewayServer {
    /// The models that the client may ask for.
    async fn models(&self, parts: &Parts) -> Result<Value, TurnError> {
        let client = self.admit(parts).await?;
        // Every upstream is asked, so it counts as a turn.
        let _turn = self.take_turn(&client)?;
        let rules = self.gateway.config.clients.rules(&client);
        Ok(self.gateway.upstreams.models(&parts.headers, |model| rules.may_ask_for(model)).await)
    }

    async fn model(&self, id: &str, parts: &Parts) -> Result<Value, TurnError> {
        let listed = self.models(parts).await?;
        let route = self.gateway.upstreams.route(id)?;
        let client = self.gateway.config.clients.authenticate(&parts.headers)?;
        client.map_or(Ok(()), |client| client.rules.check_model(Some(id)))?;
        let listed = listed["data"].as_array().into_iter().flatten().find(|model| model["id"] == id).cloned();
        // Not every upstream lists its models, and one that is configured for a pattern may have it.
        let owner = &route.upstream().name;
        Ok(listed.unwrap_or_else(|| json!({"id": id, "object": "model", "created": 0, "owned_by": owner})))
    }

    /// A response that is kept, and where.
    async fn stored_response(
        &self,
        id: &str,
        parts: &Parts,
        observer: &Observer,
    ) -> Result<(Value, &Store, Arc<str>), TurnError> {
        let client = self.admit(parts).await?;
        let not_found = |message: String| TurnError::refused(StatusCode::NOT_FOUND, "not_found_error", message);
        let Some(store) = &self.gateway.store else {
            return Err(not_found("responses are not kept here; the operator may configure a [store]".to_owned()));
        };
        let unopened = UnopenedStates::default();
        let response = stored_responses::read(store, &client, id, &unopened).await?;
        if !unopened.is_empty() {
            observer.emit(&Event::StatesUnopened { states: &unopened });
        }
        let missing = || {
            not_found(format!(
                "no response `{id}` is kept here: it expired, was not to be stored, or is another client's"
            ))
        };
        Ok((response.ok_or_else(missing)?, store, client))
    }

    async fn delete_response(&self, id: &str, parts: &Parts, observer: &Observer) -> Result<Value, TurnError> {
        let (response, store, client) = self.stored_response(id, parts, observer).await?;
        stored_responses::delete(store, &client, &response).await?;
        Ok(json!({"id": id, "object": "response", "deleted": true}))
    }
}
