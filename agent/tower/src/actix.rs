//! The layers as middleware of actix-web: of an `App`, a scope or a resource.
//!
//! ```
//! # use tollgate_agent::testing::TestAgent;
//! # let kit = TestAgent::new();
//! # let agent = kit.agent();
//! use actix_web::{App, web};
//! use tollgate_tower::{HoldLayer, LimitLayer, key};
//!
//! // Outside of the closure that makes an app for each worker, so that all of them count what is undecided together.
//! let often = LimitLayer::new(agent.rate("api.search"), key::header("x-tenant"));
//! let at_a_time = HoldLayer::new(agent.copies("api.exports"), key::header("x-tenant"));
//! let app = move || {
//!     App::new()
//!         .wrap(often.clone())
//!         .service(web::resource("/export").wrap(at_a_time.clone()).to(|| async { "exported" }))
//! };
//! # let _ = app;
//! ```
//!
//! Keys, costs and answers are those of tower's services. [`key::extension`](crate::key::extension) reads what an
//! outer middleware has put into the request's extensions. A handler that outlives its response keeps a clone of the
//! [`HeldCopies`](crate::HeldCopies) in the extensions.

use std::future::{Future, Ready, ready};
use std::pin::Pin;
use std::task::{Context, Poll};

use actix_web::body::{BodySize, MessageBody};
use actix_web::dev::{Service, ServiceRequest, ServiceResponse, Transform, forward_ready};
use actix_web::http::StatusCode;
use actix_web::http::header::{HeaderMap, HeaderName, HeaderValue};
use actix_web::{HttpMessage as _, HttpResponse};
use bytes::Bytes;
use pin_project_lite::pin_project;
use tollgate_agent::Headers;

use crate::answer::{refused, states_limit};
use crate::body::DoorBody;
use crate::door::{DecidingLayer, LayerDecision};
use crate::head::Head;
use crate::held::HeldCopies;
use crate::hold::HoldLayer;
use crate::limit::LimitLayer;

impl<S, B> Transform<S, ServiceRequest> for LimitLayer
where
    S: Service<ServiceRequest, Response = ServiceResponse<B>>,
    B: MessageBody,
{
    type Response = ServiceResponse<DoorBody<B>>;
    type Error = S::Error;
    type Transform = ActixService<S, Self>;
    type InitError = ();
    type Future = Ready<Result<ActixService<S, Self>, ()>>;

    fn new_transform(&self, inner: S) -> Self::Future {
        let layer = self.clone();
        ready(Ok(ActixService { inner, layer }))
    }
}

impl<S, B> Transform<S, ServiceRequest> for HoldLayer
where
    S: Service<ServiceRequest, Response = ServiceResponse<B>>,
    B: MessageBody,
{
    type Response = ServiceResponse<DoorBody<B>>;
    type Error = S::Error;
    type Transform = ActixService<S, Self>;
    type InitError = ();
    type Future = Ready<Result<ActixService<S, Self>, ()>>;

    fn new_transform(&self, inner: S) -> Self::Future {
        let layer = self.clone();
        ready(Ok(ActixService { inner, layer }))
    }
}

/// A service of actix-web behind a layer.
#[derive(Debug)]
pub struct ActixService<S, L> {
    inner: S,
    layer: L,
}

impl<S, B, L> Service<ServiceRequest> for ActixService<S, L>
where
    S: Service<ServiceRequest, Response = ServiceResponse<B>>,
    B: MessageBody,
    L: DecidingLayer,
{
    type Response = ServiceResponse<DoorBody<B>>;
    type Error = S::Error;
    type Future = ActixFuture<S::Future, B>;

    // Nothing is reserved here: a service that is ready may never be called.
    forward_ready!(inner);

    fn call(&self, request: ServiceRequest) -> Self::Future {
        let decision = {
            let extensions = request.extensions();
            self.layer.decide(Head::of_actix(&request, &extensions))
        };
        match decision {
            LayerDecision::LetThrough { headers, held } => {
                if let Some(held) = &held {
                    request.extensions_mut().insert(held.clone());
                }
                ActixFuture::called(self.inner.call(request), headers, held)
            }
            LayerDecision::Refused(refusal) => {
                let grpc = Head::of_actix(&request, &request.extensions()).grpc_type();
                let response = translated(refused(&refusal, grpc));
                ActixFuture::refused(request.into_response(response))
            }
        }
    }
}

/// The same response with actix-web's own types.
fn translated<B>(response: http::Response<Option<Bytes>>) -> HttpResponse<DoorBody<B>> {
    let (head, text) = response.into_parts();
    let status = StatusCode::from_u16(head.status.as_u16());
    let status = status.unwrap_or(StatusCode::TOO_MANY_REQUESTS);
    let mut translated = HttpResponse::with_body(status, DoorBody::refused(text));
    for (name, value) in &head.headers {
        put(translated.headers_mut(), name.as_str(), value.as_bytes());
    }
    translated
}

/// Puts a header field into a head, and replaces an existing one.
fn put(headers: &mut HeaderMap, name: &str, value: &[u8]) {
    let name = HeaderName::from_bytes(name.as_bytes());
    if let (Ok(name), Ok(value)) = (name, HeaderValue::from_bytes(value)) {
        headers.insert(name, value);
    }
}

pin_project! {
    /// The response of a service of actix-web behind a layer.
    pub struct ActixFuture<F, B> {
        #[pin]
        state: ActixState<F, B>,
    }
}

pin_project! {
    #[project = ActixProjected]
    enum ActixState<F, B> {
        Called { #[pin] future: F, headers: Option<Headers>, held: Option<HeldCopies> },
        Refused { response: Option<ServiceResponse<DoorBody<B>>> },
    }
}

impl<F, B> ActixFuture<F, B> {
    fn called(future: F, headers: Option<Headers>, held: Option<HeldCopies>) -> Self {
        Self {
            state: ActixState::Called {
                future,
                headers,
                held,
            },
        }
    }

    fn refused(response: ServiceResponse<DoorBody<B>>) -> Self {
        Self {
            state: ActixState::Refused {
                response: Some(response),
            },
        }
    }
}

impl<F, B, E> Future for ActixFuture<F, B>
where
    F: Future<Output = Result<ServiceResponse<B>, E>>,
    B: MessageBody,
{
    type Output = Result<ServiceResponse<DoorBody<B>>, E>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match self.project().state.project() {
            ActixProjected::Called {
                future,
                headers,
                held,
            } => {
                let Poll::Ready(response) = future.poll(context) else {
                    return Poll::Pending;
                };
                // Whatever the result of the call, it holds no more than its response does.
                let held = held.take();
                let mut response = response?.map_body(|_, body| {
                    let is_empty = matches!(body.size(), BodySize::None | BodySize::Sized(0));
                    DoorBody::of_service(body, held.filter(|_| !is_empty))
                });
                let states_limit = || states_limit(|name| response.headers().contains_key(name));
                let headers = headers.take().filter(|_| !states_limit());
                for (name, value) in headers.iter().flat_map(Headers::iter) {
                    put(response.headers_mut(), name, value.as_bytes());
                }
                Poll::Ready(Ok(response))
            }
            // Like every future, it is not polled again once it is ready.
            ActixProjected::Refused { response } => match response.take() {
                Some(response) => Poll::Ready(Ok(response)),
                None => Poll::Pending,
            },
        }
    }
}
