//! The body of a response behind a layer: the service's own, with the copies that the call holds until the body has
//! been sent; or the body of a refusal.
//!
//! What stays true: copies are given back at the body's end, at its error, or when it is dropped, whichever comes
//! first.

use std::pin::Pin;
use std::task::{Context, Poll};

#[cfg(feature = "actix")]
use actix_web::body::{BodySize, MessageBody};
use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

use crate::held::HeldCopies;

pin_project! {
    /// The body of a response behind a layer.
    #[derive(Debug)]
    pub struct DoorBody<B> {
        #[pin]
        of: Of<B>,
    }
}

pin_project! {
    #[project = OfProjected]
    #[derive(Debug)]
    enum Of<B> {
        Service { #[pin] body: B, held: Option<HeldCopies> },
        Refused { text: Option<Bytes> },
    }
}

impl<B> DoorBody<B> {
    /// The service's body, which holds copies until it ends; none if it is already at its end.
    pub(crate) fn of_service(body: B, held: Option<HeldCopies>) -> Self {
        Self {
            of: Of::Service { body, held },
        }
    }

    pub(crate) fn refused(text: Option<Bytes>) -> Self {
        Self {
            of: Of::Refused { text },
        }
    }
}

impl<B: Body<Data = Bytes>> Body for DoorBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        match self.project().of.project() {
            OfProjected::Service { mut body, held } => {
                let polled = body.as_mut().poll_frame(context);
                let is_over = match &polled {
                    Poll::Ready(None | Some(Err(_))) => true,
                    Poll::Ready(Some(Ok(_))) => body.is_end_stream(),
                    Poll::Pending => false,
                };
                if is_over {
                    *held = None;
                }
                polled
            }
            OfProjected::Refused { text } => {
                Poll::Ready(text.take().map(|text| Ok(Frame::data(text))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.of {
            Of::Service { body, .. } => body.is_end_stream(),
            Of::Refused { text } => text.is_none(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.of {
            Of::Service { body, .. } => body.size_hint(),
            Of::Refused { text } => {
                let left = text.as_ref().map_or(0, Bytes::len);
                SizeHint::with_exact(u64::try_from(left).unwrap_or(u64::MAX))
            }
        }
    }
}

#[cfg(feature = "actix")]
impl<B: MessageBody> MessageBody for DoorBody<B> {
    type Error = B::Error;

    fn size(&self) -> BodySize {
        match &self.of {
            Of::Service { body, .. } => body.size(),
            Of::Refused { text } => {
                let left = text.as_ref().map_or(0, Bytes::len);
                BodySize::Sized(u64::try_from(left).unwrap_or(u64::MAX))
            }
        }
    }

    fn poll_next(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, B::Error>>> {
        match self.project().of.project() {
            OfProjected::Service { body, held } => {
                let polled = body.poll_next(context);
                if let Poll::Ready(None | Some(Err(_))) = &polled {
                    *held = None;
                }
                polled
            }
            OfProjected::Refused { text } => Poll::Ready(text.take().map(Ok)),
        }
    }

    /// A body in one piece would be dropped before it is sent, so a body that holds copies stays as it is.
    fn try_into_bytes(self) -> Result<Bytes, Self> {
        match self.of {
            Of::Service { body, held: None } => body
                .try_into_bytes()
                .map_err(|body| Self::of_service(body, None)),
            Of::Refused { text: Some(text) } => Ok(text),
            of => Err(Self { of }),
        }
    }
}
