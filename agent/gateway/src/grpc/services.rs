//! The two services of rate limit requests: Envoy's (`ShouldRateLimit`), and Kuadrant's (`CheckRateLimit` and `Report`)
//! with Envoy's messages.
//!
//! Written by hand: no crate has Kuadrant's generated, and the generated one of Envoy only reads UTF-8 texts. Each is
//! a path, a method of [`Rls`], and tonic's handling of both. Knows nothing of limits. What stays true: any other
//! method is answered as not implemented.

use std::convert::Infallible;
use std::task::{Context, Poll};

use envoy_types::pb::envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse};
use tonic::body::Body;
use tonic::codegen::{BoxFuture, Service, StdError, http};
use tonic::server::{Grpc, NamedService, UnaryService};

use super::MESSAGE_BYTES_MAX;
use super::asks::RlsCall;
use super::rls::Rls;
use super::texts::RlsCodec;

/// Envoy's service.
#[derive(Clone)]
pub(crate) struct EnvoyRls(pub Rls);

/// Kuadrant's service.
#[derive(Clone)]
pub(crate) struct Kuadrant(pub Rls);

impl NamedService for EnvoyRls {
    const NAME: &'static str = "envoy.service.ratelimit.v3.RateLimitService";
}

impl NamedService for Kuadrant {
    const NAME: &'static str = "kuadrant.service.ratelimit.v1.RateLimitService";
}

/// One method.
struct Method(Rls, RlsCall);

impl UnaryService<RateLimitRequest> for Method {
    type Response = RateLimitResponse;
    type Future = std::future::Ready<Result<tonic::Response<RateLimitResponse>, tonic::Status>>;

    fn call(&mut self, request: tonic::Request<RateLimitRequest>) -> Self::Future {
        std::future::ready(self.0.answer(request, self.1))
    }
}

type AnswerFuture = BoxFuture<http::Response<Body>, Infallible>;

/// Answers a request by the method in its path, if the service has it.
fn answer<B>(rls: &Rls, methods: &[(&str, RlsCall)], request: http::Request<B>) -> AnswerFuture
where
    B: tonic::codegen::Body + Send + 'static,
    B::Error: Into<StdError> + Send + 'static,
{
    let name = request.uri().path().rsplit('/').next();
    let Some((_, call)) = methods.iter().find(|(known, _)| Some(*known) == name) else {
        let names: Vec<&str> = methods.iter().map(|(name, _)| *name).collect();
        let text = format!("expected {}", names.join(" or "));
        let status = tonic::Status::unimplemented(text);
        return Box::pin(std::future::ready(Ok(status.into_http())));
    };
    let method = Method(rls.clone(), *call);
    Box::pin(async move {
        let grpc = Grpc::new(RlsCodec);
        let mut grpc = grpc.apply_max_message_size_config(Some(MESSAGE_BYTES_MAX), None);
        Ok(grpc.unary(method, request).await)
    })
}

impl<B> Service<http::Request<B>> for EnvoyRls
where
    B: tonic::codegen::Body + Send + 'static,
    B::Error: Into<StdError> + Send + 'static,
{
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = AnswerFuture;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<B>) -> Self::Future {
        answer(&self.0, &[("ShouldRateLimit", RlsCall::Should)], request)
    }
}

impl<B> Service<http::Request<B>> for Kuadrant
where
    B: tonic::codegen::Body + Send + 'static,
    B::Error: Into<StdError> + Send + 'static,
{
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = AnswerFuture;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<B>) -> Self::Future {
        let methods = [
            ("CheckRateLimit", RlsCall::Check),
            ("Report", RlsCall::Report),
        ];
        answer(&self.0, &methods, request)
    }
}
