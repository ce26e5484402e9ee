//! What Envoy and others are answered over gRPC, over real sockets.

mod bounds;
mod doors;
mod rls;
mod support;
