//! A testing kit with one resource of ten copies, and futures polled by hand.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use tollgate_agent::Copies;
use tollgate_agent::testing::TestAgent;

/// An agent whose `sandbox` has ten copies.
pub fn kit() -> (TestAgent, Copies) {
    let kit = TestAgent::new();
    let sandbox = kit.agent().copies("sandbox");
    kit.copies_limit("sandbox", 10);
    (kit, sandbox)
}

/// Polls once.
pub fn poll<T>(future: Pin<&mut impl Future<Output = T>>) -> Poll<T> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}
