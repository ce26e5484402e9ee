//! `kuadrant.service.ratelimit.v1.RateLimitService`: `CheckRateLimit` and `Report`, with Envoy's messages.
//!
//! By hand, because no crate has it generated: a path, a method of [`Rls`], and what tonic does with both. Knows
//! nothing of limits. What stays true: another method is answered as one that is not implemented.

use std::convert::Infallible;
use std::task::{Context, Poll};

use envoy_types::pb::envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse};
use tonic::body::Body;
use tonic::codegen::{BoxFuture, Service, StdError, http};
use tonic::server::{Grpc, NamedService, UnaryService};
use tonic_prost::ProstCodec;

use super::MESSAGE_BYTES_MAX;
use super::asks::RlsCall;
use super::rls::Rls;

/// The service.
#[derive(Clone)]
pub(crate) struct Kuadrant(pub Rls);

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

impl<B> Service<http::Request<B>> for Kuadrant
where
    B: tonic::codegen::Body + Send + 'static,
    B::Error: Into<StdError> + Send + 'static,
{
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<Self::Response, Self::Error>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<B>) -> Self::Future {
        let name = request.uri().path().rsplit('/').next();
        let call = match name {
            Some("CheckRateLimit") => RlsCall::Check,
            Some("Report") => RlsCall::Report,
            _ => {
                let status = tonic::Status::unimplemented("expected CheckRateLimit or Report");
                return Box::pin(std::future::ready(Ok(status.into_http())));
            }
        };
        let method = Method(self.0.clone(), call);
        Box::pin(async move {
            let codec = ProstCodec::default();
            let grpc = Grpc::new(codec);
            let mut grpc = grpc.apply_max_message_size_config(Some(MESSAGE_BYTES_MAX), None);
            Ok(grpc.unary(method, request).await)
        })
    }
}
