//! Tests of answers to Envoy and others over gRPC, over real sockets.

mod bounds;
mod doors;
mod early;
mod rls;
mod support;
mod units;
