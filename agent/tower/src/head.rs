//! A request without its body: what a layer may decide by, for any library that has received it.

use std::borrow::Cow;
use std::net::{IpAddr, SocketAddr};

use http::{Extensions, HeaderMap, Method, Request, Uri};

/// A request without its body.
#[derive(Clone, Copy, Debug)]
pub struct Head<'r>(HeadParts<'r>);

#[derive(Clone, Copy, Debug)]
enum HeadParts<'r> {
    Http {
        method: &'r Method,
        uri: &'r Uri,
        headers: &'r HeaderMap,
        extensions: &'r Extensions,
    },
    #[cfg(feature = "actix")]
    Actix {
        head: &'r actix_web::dev::RequestHead,
        path: &'r str,
        extensions: &'r actix_web::dev::Extensions,
    },
}

impl<'r> Head<'r> {
    /// The head of a request.
    pub fn of<B>(request: &'r Request<B>) -> Self {
        Self(HeadParts::Http {
            method: request.method(),
            uri: request.uri(),
            headers: request.headers(),
            extensions: request.extensions(),
        })
    }

    /// The head of a request to actix-web, with the request's extensions, which it only lends.
    #[cfg(feature = "actix")]
    pub(crate) fn of_actix(
        request: &'r actix_web::dev::ServiceRequest,
        extensions: &'r actix_web::dev::Extensions,
    ) -> Self {
        Self(HeadParts::Actix {
            head: request.head(),
            path: request.match_info().as_str(),
            extensions,
        })
    }

    /// The request's method, as `GET`.
    pub fn method(&self) -> &'r str {
        match self.0 {
            HeadParts::Http { method, .. } => method.as_str(),
            #[cfg(feature = "actix")]
            HeadParts::Actix { head, .. } => head.method.as_str(),
        }
    }

    /// The request's path, as the router of the library compares it with its routes: of an `http::Request` as the
    /// client sent it, of actix-web percent-decoded, except `%`, `/` and `+`. A service that decodes paths of
    /// `http::Request` itself decodes this one as well before it compares it: `/%65xport` may be its `/export`.
    pub fn path(&self) -> &'r str {
        match self.0 {
            HeadParts::Http { uri, .. } => uri.path(),
            #[cfg(feature = "actix")]
            HeadParts::Actix { path, .. } => path,
        }
    }

    /// The part after the path's question mark.
    pub fn query(&self) -> Option<&'r str> {
        match self.0 {
            HeadParts::Http { uri, .. } => uri.query(),
            #[cfg(feature = "actix")]
            HeadParts::Actix { head, .. } => head.uri.query(),
        }
    }

    /// The value of a header field, the first if there are several, read as UTF-8 (with U+FFFD in place of other
    /// bytes), so that no bytes of a client make a field absent. Header fields come from clients.
    pub fn header(&self, name: &str) -> Option<Cow<'r, str>> {
        self.header_bytes(name).map(String::from_utf8_lossy)
    }

    /// The bytes of a header field's value, the first if there are several.
    pub(crate) fn header_bytes(&self, name: &str) -> Option<&'r [u8]> {
        match self.0 {
            HeadParts::Http { headers, .. } => headers.get(name).map(http::HeaderValue::as_bytes),
            #[cfg(feature = "actix")]
            HeadParts::Actix { head, .. } => of_name(head, name).next(),
        }
    }

    /// All values of a header field, in their order.
    pub fn header_values(&self, name: &str) -> Vec<&'r [u8]> {
        match self.0 {
            HeadParts::Http { headers, .. } => {
                let values = headers.get_all(name).into_iter();
                values.map(http::HeaderValue::as_bytes).collect()
            }
            #[cfg(feature = "actix")]
            HeadParts::Actix { head, .. } => of_name(head, name).collect(),
        }
    }

    /// A value that an outer layer, or the server, has put into the request's extensions.
    pub fn extension<T: Send + Sync + 'static>(&self) -> Option<&'r T> {
        match self.0 {
            HeadParts::Http { extensions, .. } => extensions.get(),
            #[cfg(feature = "actix")]
            HeadParts::Actix { extensions, .. } => extensions.get(),
        }
    }

    /// The address of the connected peer. actix-web knows it by itself, and so does tonic, with the feature `tonic` of
    /// this crate. axum has to serve `router.into_make_service_with_connect_info::<SocketAddr>()`, with the feature
    /// `axum`. With any other server put a `SocketAddr` into the request's extensions.
    pub fn peer(&self) -> Option<IpAddr> {
        let peer = self.extension::<SocketAddr>().copied();
        #[cfg(feature = "axum")]
        let peer = peer.or_else(|| {
            let info = self.extension::<axum::extract::ConnectInfo<SocketAddr>>();
            info.map(|info| info.0)
        });
        #[cfg(feature = "tonic")]
        let peer = peer.or_else(|| {
            let info = self.extension::<tonic::transport::server::TcpConnectInfo>();
            info.and_then(|info| info.remote_addr)
        });
        #[cfg(feature = "actix")]
        let peer = peer.or(match self.0 {
            HeadParts::Actix { head, .. } => head.peer_addr,
            HeadParts::Http { .. } => None,
        });
        peer.map(|peer| peer.ip().to_canonical())
    }

    /// Whether it is a gRPC or gRPC-Web call, by its content type.
    pub fn is_grpc(&self) -> bool {
        self.grpc_type().is_some()
    }

    /// The content type of a response, without the format of messages; `None` if it is not a gRPC call.
    pub(crate) fn grpc_type(&self) -> Option<&'static str> {
        let content_type = self.header("content-type")?;
        let kind = content_type.split(['+', ';']).next()?.trim();
        let kinds = [
            "application/grpc",
            "application/grpc-web",
            "application/grpc-web-text",
        ];
        kinds
            .into_iter()
            .find(|known| kind.eq_ignore_ascii_case(known))
    }
}

/// The values of a header field. Compares names one by one, because looking up a name that actix-web does not know
/// allocates.
#[cfg(feature = "actix")]
fn of_name<'r>(
    head: &'r actix_web::dev::RequestHead,
    name: &str,
) -> impl Iterator<Item = &'r [u8]> {
    let fields = head.headers.iter();
    fields
        .filter(move |(known, _)| known.as_str().eq_ignore_ascii_case(name))
        .map(|(_, value)| value.as_bytes())
}
