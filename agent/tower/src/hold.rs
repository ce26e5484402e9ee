//! Limits how many calls run at a time: a layer that takes copies with each call, and gives them back when its
//! response has been sent.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use tollgate_agent::{Copies, Refused};
use tower_layer::Layer;
use tower_service::Service;

use crate::answer::LayerRefusal;
use crate::body::DoorBody;
use crate::door::{DecidingLayer, LayerDecision};
use crate::future::DoorFuture;
use crate::head::Head;
use crate::held::HeldCopies;
use crate::subject::{Subject, Undecided};

/// A layer that holds copies of a resource from the call to the end of the response's body.
///
/// If the client of a request goes away, its copies are given back as soon as the server drops the request. An
/// upgraded connection outlives its response: the service keeps a clone of [`HeldCopies`] as long as the connection
/// lasts, which has the copies of every [`HoldLayer`] that the request passed.
///
/// The layer waits for nothing, so it is not for strict resources (`reserve = "strict"` in the limits), whose copies
/// are used once the aggregators have granted them: [`Copies::reserve_confirmed`] in the handler. As soon as the agent
/// knows that the resource is strict, the layer answers every call with 500, without `Retry-After`, as a
/// [`LimitLayer`](crate::LimitLayer) does for a resource that is limited by copies. So take the layer out before the
/// limits make a resource strict.
///
/// ```
/// # use tollgate_agent::testing::TestAgent;
/// # let kit = TestAgent::new();
/// # let agent = kit.agent();
/// use tollgate_tower::{HoldLayer, key};
///
/// let layer = HoldLayer::new(agent.copies("api.exports"), key::header("x-tenant"));
/// # let _ = layer;
/// ```
#[derive(Clone)]
pub struct HoldLayer {
    copies: Copies,
    subject: Subject,
    tells_legacy: bool,
}

impl HoldLayer {
    /// A layer for this resource; `key` finds the domain of a request.
    pub fn new(
        copies: Copies,
        key: impl for<'r> Fn(Head<'r>) -> Option<Cow<'r, str>> + Send + Sync + 'static,
    ) -> Self {
        Self {
            copies,
            subject: Subject::new(key),
            tells_legacy: false,
        }
    }

    /// Selects requests that are not limited.
    #[must_use]
    pub fn skip(mut self, skip: impl Fn(Head<'_>) -> bool + Send + Sync + 'static) -> Self {
        self.subject.set_skip(skip);
        self
    }

    /// How many copies a request holds; 0 means that it is not limited. Default: one.
    #[must_use]
    pub fn cost(mut self, cost: impl Fn(Head<'_>) -> u32 + Send + Sync + 'static) -> Self {
        self.subject.set_cost(cost);
        self
    }

    /// The domain of requests for which the key finds none. Without this they are let through, and counted.
    #[must_use]
    pub fn or_domain(mut self, domain: &str) -> Self {
        self.subject.set_otherwise(domain);
        self
    }

    /// Adds the older fields `X-RateLimit-Limit` and `-Remaining` to refusals: see
    /// [`Headers::with_legacy`](tollgate_agent::Headers::with_legacy).
    #[must_use]
    pub fn legacy_headers(mut self) -> Self {
        self.tells_legacy = true;
        self
    }

    /// How many requests had no domain.
    pub fn undecided(&self) -> Undecided {
        self.subject.undecided()
    }

    fn reserve(&self, head: Head<'_>) -> Result<Option<HeldCopies>, Refused> {
        let Some((domain, copies)) = self.subject.of(head) else {
            return Ok(None);
        };
        let hold = self.copies.reserve(&domain, copies)?;
        let outer = head.extension::<HeldCopies>().cloned();
        Ok(Some(HeldCopies::new(hold, outer)))
    }
}

impl DecidingLayer for HoldLayer {
    fn decide(&self, head: Head<'_>) -> LayerDecision {
        match self.reserve(head) {
            Ok(held) => LayerDecision::LetThrough {
                headers: None,
                held,
            },
            Err(error) => LayerDecision::Refused(LayerRefusal::new(&error, self.tells_legacy)),
        }
    }
}

impl fmt::Debug for HoldLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HoldLayer")
            .field("resource", &self.copies.resource())
            .field("subject", &self.subject)
            .finish()
    }
}

impl<S> Layer<S> for HoldLayer {
    type Service = HoldService<S>;

    fn layer(&self, inner: S) -> HoldService<S> {
        HoldService {
            inner,
            layer: Arc::new(self.clone()),
        }
    }
}

/// A service behind a [`HoldLayer`].
#[derive(Clone, Debug)]
pub struct HoldService<S> {
    inner: S,
    layer: Arc<HoldLayer>,
}

impl<S, B, R> Service<Request<B>> for HoldService<S>
where
    S: Service<Request<B>, Response = Response<R>>,
    R: Body<Data = Bytes>,
{
    type Response = Response<DoorBody<R>>;
    type Error = S::Error;
    type Future = DoorFuture<S::Future>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        // Nothing is reserved here: a service that is ready may never be called.
        self.inner.poll_ready(context)
    }

    fn call(&mut self, mut request: Request<B>) -> Self::Future {
        match self.layer.decide(Head::of(&request)) {
            LayerDecision::LetThrough { headers, held } => {
                if let Some(held) = &held {
                    request.extensions_mut().insert(held.clone());
                }
                DoorFuture::called(self.inner.call(request), headers, held)
            }
            LayerDecision::Refused(refusal) => {
                DoorFuture::refused(refusal, Head::of(&request).grpc_type())
            }
        }
    }
}
