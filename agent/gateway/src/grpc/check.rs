//! Envoy's external authorization over gRPC (`envoy.service.auth.v3`): may this request proceed?
//!
//! ```text
//! context_extensions of the route     like the query of /v1/authorize
//!   resource: api.search              required
//!   domain: ip | header:NAME | name:NAME
//!   cost: N | header:NAME
//!   denied: "403"
//! ```
//!
//! Decides like `/v1/authorize`. With `domain: ip` the client is the peer that is connected to Envoy, or the one for
//! which a connected trusted proxy forwards. Knows nothing of connections. What stays true: a request that cannot be
//! decided is let through; a client chooses neither resource nor domain, unless the route lets it.

use std::collections::HashMap;

use axum::http::{HeaderMap, HeaderName, HeaderValue};
use envoy_types::pb::envoy::config::core::v3::address::Address;
use envoy_types::pb::envoy::config::core::v3::{
    HeaderValue as EnvoyHeader, HeaderValueOption, header_value_option::HeaderAppendAction,
};
use envoy_types::pb::envoy::service::auth::v3::attribute_context::{HttpRequest, Peer};
use envoy_types::pb::envoy::service::auth::v3::authorization_server::Authorization;
use envoy_types::pb::envoy::service::auth::v3::check_response::HttpResponse;
use envoy_types::pb::envoy::service::auth::v3::{
    CheckRequest, CheckResponse, DeniedHttpResponse, OkHttpResponse,
};
use envoy_types::pb::envoy::r#type::v3::HttpStatus;
use envoy_types::pb::google::rpc;
use tollgate_agent::HttpAnswer;
use tonic::{Code, Request, Response};

use crate::authorize::{Asked, decide};
use crate::state::{Shared, Undecided};
use crate::subject::FORWARDED;

/// The service; cheap to clone.
#[derive(Clone)]
pub(crate) struct Check(pub Shared);

#[tonic::async_trait]
impl Authorization for Check {
    async fn check(
        &self,
        request: Request<CheckRequest>,
    ) -> Result<Response<CheckResponse>, tonic::Status> {
        let attributes = request.into_inner().attributes.unwrap_or_default();
        let http = attributes
            .request
            .unwrap_or_default()
            .http
            .unwrap_or_default();
        let route = attributes.context_extensions;
        let headers = headers_of(http, attributes.source.as_ref());
        Ok(Response::new(self.answer(&route, &headers)))
    }
}

impl Check {
    fn answer(&self, route: &HashMap<String, String>, headers: &HeaderMap) -> CheckResponse {
        let Some(resource) = route.get("resource") else {
            Shared::note_undecided(Undecided::NoRule);
            return let_through(&[]);
        };
        let of = |name: &str| route.get(name).cloned();
        let asked = Asked {
            domain: of("domain"),
            cost: of("cost"),
            denied: of("denied"),
        };
        match decide(&self.0, resource, &asked, headers) {
            Ok(Ok(allowed)) => {
                Shared::note(if allowed.blind() { "blind" } else { "allowed" });
                let headers = self.0.settings.shown(allowed.headers());
                let fields: Vec<_> = headers.iter().collect();
                let_through(&fields)
            }
            Ok(Err(error)) => {
                Shared::note("refused");
                let answer = self.0.settings.told_refused(error.http());
                refuse(&asked.denied(answer))
            }
            Err(why) => {
                Shared::note_undecided(why);
                let_through(&[])
            }
        }
    }
}

fn let_through(fields: &[(&'static str, String)]) -> CheckResponse {
    let response = OkHttpResponse {
        response_headers_to_add: fields.iter().cloned().map(field).collect(),
        ..OkHttpResponse::default()
    };
    CheckResponse {
        status: Some(rpc::Status::default()),
        http_response: Some(HttpResponse::OkResponse(response)),
        ..CheckResponse::default()
    }
}

fn refuse(answer: &HttpAnswer) -> CheckResponse {
    let response = DeniedHttpResponse {
        status: Some(HttpStatus {
            code: i32::from(answer.status()),
        }),
        headers: answer.headers().map(field).collect(),
        body: answer.body(),
    };
    CheckResponse {
        status: Some(rpc::Status {
            code: Code::ResourceExhausted as i32,
            message: answer.detail().to_owned(),
            ..rpc::Status::default()
        }),
        http_response: Some(HttpResponse::DeniedResponse(response)),
        ..CheckResponse::default()
    }
}

fn field((key, value): (&'static str, String)) -> HeaderValueOption {
    HeaderValueOption {
        header: Some(EnvoyHeader {
            key: key.to_owned(),
            value,
            ..EnvoyHeader::default()
        }),
        append_action: HeaderAppendAction::OverwriteIfExistsOrAdd as i32,
        ..HeaderValueOption::default()
    }
}

/// The headers of the client's request, with the address of Envoy's peer appended to the forwarded addresses.
///
/// Envoy itself appends it only if configured to (`use_remote_address`); otherwise the last address would be one that
/// the client wrote. Appending it twice changes nothing.
fn headers_of(request: HttpRequest, source: Option<&Peer>) -> HeaderMap {
    let mut headers = HeaderMap::new();
    // Raw if Envoy is configured to send them so (`encode_raw_headers`).
    let raw = request.header_map.into_iter().flat_map(|map| map.headers);
    let raw = raw.map(|header| match header.raw_value.is_empty() {
        true => (header.key, header.value.into_bytes()),
        false => (header.key, header.raw_value),
    });
    let texts = request.headers.into_iter();
    let texts = texts.map(|(name, value)| (name, value.into_bytes()));
    for (name, value) in texts.chain(raw) {
        // Pseudo headers are not valid names, and are left out.
        let name = HeaderName::try_from(name);
        if let (Ok(name), Ok(value)) = (name, HeaderValue::try_from(value)) {
            headers.append(name, value);
        }
    }
    let address = source.and_then(|peer| peer.address.as_ref()?.address.as_ref());
    if let Some(Address::SocketAddress(address)) = address
        && let Ok(value) = HeaderValue::try_from(&address.address)
    {
        headers.append(FORWARDED, value);
    }
    headers
}
