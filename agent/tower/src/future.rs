//! The response of a service behind a layer: the service's own, or that of a refusal.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::Response;
use http_body::Body;
use pin_project_lite::pin_project;
use tollgate_agent::Headers;

use crate::answer::{LayerRefusal, put, refused, states_limit};
use crate::body::DoorBody;
use crate::held::HeldCopies;

pin_project! {
    /// The response of a service behind a layer.
    #[derive(Debug)]
    pub struct DoorFuture<F> {
        #[pin]
        state: DoorState<F>,
    }
}

pin_project! {
    #[project = DoorProjected]
    #[derive(Debug)]
    enum DoorState<F> {
        Called { #[pin] future: F, headers: Option<Headers>, held: Option<HeldCopies> },
        Refused { refusal: LayerRefusal, grpc: Option<&'static str> },
    }
}

impl<F> DoorFuture<F> {
    /// For a call that was let through; the response gets these headers, and its body holds these copies.
    pub(crate) fn called(future: F, headers: Option<Headers>, held: Option<HeldCopies>) -> Self {
        Self {
            state: DoorState::Called {
                future,
                headers,
                held,
            },
        }
    }

    /// For a call that was refused; the content type of a gRPC call's response.
    pub(crate) fn refused(refusal: LayerRefusal, grpc: Option<&'static str>) -> Self {
        Self {
            state: DoorState::Refused { refusal, grpc },
        }
    }
}

impl<F, R, E> Future for DoorFuture<F>
where
    F: Future<Output = Result<Response<R>, E>>,
    R: Body<Data = Bytes>,
{
    type Output = Result<Response<DoorBody<R>>, E>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match self.project().state.project() {
            DoorProjected::Called {
                future,
                headers,
                held,
            } => {
                let Poll::Ready(response) = future.poll(context) else {
                    return Poll::Pending;
                };
                // Whatever became of the call, it holds no more than its response does.
                let held = held.take();
                let mut response = response?.map(|body| {
                    let held = held.filter(|_| !body.is_end_stream());
                    DoorBody::of_service(body, held)
                });
                let states_limit = || states_limit(|name| response.headers().contains_key(name));
                if let Some(headers) = headers.take().filter(|_| !states_limit()) {
                    put(response.headers_mut(), headers.iter());
                }
                Poll::Ready(Ok(response))
            }
            DoorProjected::Refused { refusal, grpc } => {
                Poll::Ready(Ok(refused(refusal, *grpc).map(DoorBody::refused)))
            }
        }
    }
}
