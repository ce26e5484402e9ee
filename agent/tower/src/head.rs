//! A request without its body: what a layer may decide by.

use http::{Extensions, HeaderMap, Method, Request, Uri};

/// A request without its body.
#[derive(Clone, Copy, Debug)]
pub struct Head<'r> {
    /// Its method.
    pub method: &'r Method,
    /// What it is about.
    pub uri: &'r Uri,
    /// Its header fields: clients write them.
    pub headers: &'r HeaderMap,
    /// What layers outside of this one, and the server, know of it.
    pub extensions: &'r Extensions,
}

impl<'r> Head<'r> {
    /// That of a request.
    pub fn of<B>(request: &'r Request<B>) -> Self {
        Self {
            method: request.method(),
            uri: request.uri(),
            headers: request.headers(),
            extensions: request.extensions(),
        }
    }

    /// Whether it is a call of gRPC, by its content type.
    pub fn is_grpc(&self) -> bool {
        let kind = self.headers.get(http::header::CONTENT_TYPE);
        kind.is_some_and(|kind| kind.as_bytes().starts_with(b"application/grpc"))
    }
}
