//! Limits how often a service is called: a layer that asks the agent before each call.

use std::borrow::Cow;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use tollgate_agent::{Allowed, Headers, Rate, Refused};
use tower_layer::Layer;
use tower_service::Service;

use crate::answer::LayerRefusal;
use crate::body::DoorBody;
use crate::door::{DecidingLayer, LayerDecision};
use crate::future::DoorFuture;
use crate::head::Head;
use crate::subject::{Subject, Undecided};

/// A layer that counts calls against a resource that is limited by rate.
///
/// ```
/// # use tollgate_agent::testing::TestAgent;
/// # let kit = TestAgent::new();
/// # let agent = kit.agent();
/// use tollgate_tower::{LimitLayer, key};
///
/// let layer = LimitLayer::new(agent.rate("api.search"), key::header("x-tenant"))
///     .skip(|head| head.path() == "/healthz")
///     .cost(|head| if head.path() == "/export" { 10 } else { 1 })
///     .or_domain("anonymous");
/// # let _ = layer;
/// ```
#[derive(Clone, Debug)]
pub struct LimitLayer {
    rate: Rate,
    subject: Subject,
    tells_always: bool,
    tells_legacy: bool,
}

impl LimitLayer {
    /// A layer for this resource; `key` finds the domain of a request.
    pub fn new(
        rate: Rate,
        key: impl for<'r> Fn(Head<'r>) -> Option<Cow<'r, str>> + Send + Sync + 'static,
    ) -> Self {
        Self {
            rate,
            subject: Subject::new(key),
            tells_always: false,
            tells_legacy: false,
        }
    }

    /// Selects requests that are not limited, and not counted.
    #[must_use]
    pub fn skip(mut self, skip: impl Fn(Head<'_>) -> bool + Send + Sync + 'static) -> Self {
        self.subject.set_skip(skip);
        self
    }

    /// How many copies a request takes; 0 means that it is not limited. Default: one.
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

    /// Adds the limit (`RateLimit-Policy`), if known, to every response, not only to those for callers near the
    /// limit; never to one that has these fields already, as of an inner layer. Costs an allocation for each call.
    #[must_use]
    pub fn tell_always(mut self) -> Self {
        self.tells_always = true;
        self
    }

    /// Adds the older fields `X-RateLimit-Limit`, `-Remaining` and `-Reset`: see [`Headers::with_legacy`].
    #[must_use]
    pub fn legacy_headers(mut self) -> Self {
        self.tells_legacy = true;
        self
    }

    /// How many requests had no domain.
    pub fn undecided(&self) -> Undecided {
        self.subject.undecided()
    }

    /// The answer to a call that is let through; `None` if it is not limited.
    fn ask(&self, head: Head<'_>) -> Result<Option<Allowed>, Refused> {
        let Some((domain, copies)) = self.subject.of(head) else {
            return Ok(None);
        };
        let allowed = match copies {
            1 => self.rate.hit(&domain)?,
            copies => self.rate.hit_n(&domain, copies)?,
        };
        Ok(Some(allowed).filter(|allowed| self.tells_always || allowed.is_near()))
    }

    fn headers(&self, allowed: &Allowed) -> Headers {
        match self.tells_legacy {
            true => allowed.headers().with_legacy(),
            false => allowed.headers(),
        }
    }
}

impl DecidingLayer for LimitLayer {
    fn decide(&self, head: Head<'_>) -> LayerDecision {
        match self.ask(head) {
            Ok(allowed) => LayerDecision::LetThrough {
                headers: allowed.map(|allowed| self.headers(&allowed)),
                held: None,
            },
            Err(error) => LayerDecision::Refused(LayerRefusal::new(&error, self.tells_legacy)),
        }
    }
}

impl<S> Layer<S> for LimitLayer {
    type Service = LimitService<S>;

    fn layer(&self, inner: S) -> LimitService<S> {
        LimitService {
            inner,
            layer: Arc::new(self.clone()),
        }
    }
}

/// A service behind a [`LimitLayer`].
#[derive(Clone, Debug)]
pub struct LimitService<S> {
    inner: S,
    layer: Arc<LimitLayer>,
}

impl<S, B, R> Service<Request<B>> for LimitService<S>
where
    S: Service<Request<B>, Response = Response<R>>,
    R: Body<Data = Bytes>,
{
    type Response = Response<DoorBody<R>>;
    type Error = S::Error;
    type Future = DoorFuture<S::Future>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        match self.layer.decide(Head::of(&request)) {
            LayerDecision::LetThrough { headers, held } => {
                DoorFuture::called(self.inner.call(request), headers, held)
            }
            LayerDecision::Refused(refusal) => {
                DoorFuture::refused(refusal, Head::of(&request).grpc_type())
            }
        }
    }
}
