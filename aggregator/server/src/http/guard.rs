//! Which requests a caller may make by HTTP.
//!
//! ```text
//! GET, HEAD /healthz /readyz                             any caller
//! GET /v1/denials … /v1/explain, /v1/limits, …           viewer (operator, admin), member
//! GET everything else                                    viewer (operator, admin)
//! POST /v1/amendments                                    operator or admin, by the act
//! ```
//!
//! A grant for some namespaces can only change things there, and a viewer with one sees one resource of them at a
//! time; operators and members see everything. Knows nothing of answers. What stays true: where tokens are
//! required, a request without a grant gets only health and readiness.

use std::sync::Arc;

use axum::extract::Query;
use axum::http::{Method, Request, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use tollgate_shared::wire::amendment::Act;
use tollgate_tls::Certificate;

use super::fault;
use crate::security::{Access, AccessRefused, Role, TokenGrant};

/// Requests that members of a fleet make to each other.
const OF_MEMBERS: [&str; 8] = [
    "/v1/denials",
    "/v1/pairs",
    "/v1/holds",
    "/v1/top",
    "/v1/candidates",
    "/v1/explain",
    "/v1/limits",
    "/v1/digests",
];

/// Requests that concern one resource if they name one.
const OF_RESOURCE: [&str; 6] = [
    "/v1/denials",
    "/v1/bans",
    "/v1/pairs",
    "/v1/holds",
    "/v1/top",
    "/v1/explain",
];

/// A request that is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Unauthorised(pub(super) AccessRefused);

impl IntoResponse for Unauthorised {
    fn into_response(self) -> Response {
        let text = self.0.to_string();
        match self.0 {
            AccessRefused::Role
            | AccessRefused::Agent
            | AccessRefused::Namespace
            | AccessRefused::OtherNamespace
            | AccessRefused::Code
            | AccessRefused::AllNamespaces => fault(StatusCode::FORBIDDEN, text),
            AccessRefused::NoToken
            | AccessRefused::Unknown
            | AccessRefused::UnknownCertificate
            | AccessRefused::Expired => {
                let answer = fault(StatusCode::UNAUTHORIZED, text);
                ([(header::WWW_AUTHENTICATE, "Bearer")], answer).into_response()
            }
        }
    }
}

/// The grant under which a request is answered; `Ok(None)` where none is required.
pub(super) fn admit<B>(
    access: &Access,
    request: &Request<B>,
    certificate: Option<&Certificate>,
) -> Result<Option<Arc<TokenGrant>>, Unauthorised> {
    let path = request.uri().path();
    let looks = matches!(*request.method(), Method::GET | Method::HEAD);
    if looks && matches!(path, "/healthz" | "/readyz") {
        return Ok(None);
    }
    let certificate = certificate.filter(|one| access.verifies(one));
    let admitted = access.grant(bearer(request), certificate);
    let Some(grant) = admitted.map_err(Unauthorised)? else {
        return Ok(None);
    };
    let is_of_members = OF_MEMBERS.iter().any(|one| {
        let rest = path.strip_prefix(one);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    });
    let allowed: &[Role] = match (request.method(), is_of_members) {
        (&Method::GET | &Method::HEAD, true) => &[Role::Viewer, Role::Member],
        (&Method::GET | &Method::HEAD, false) => &[Role::Viewer],
        // The act is known once the body has been read.
        _ => &[Role::Operator],
    };
    if !grant.roles.has_any(allowed) {
        return Err(Unauthorised(AccessRefused::Role));
    }
    looks_within(&grant, request.uri()).map_err(Unauthorised)?;
    Ok(Some(grant))
}

/// Checks that a grant covers what a request asks to see. Lists of all resources are not filtered: callers have to ask
/// resource by resource.
fn looks_within(grant: &TokenGrant, uri: &Uri) -> Result<(), AccessRefused> {
    if grant.namespaces.is_none() || grant.roles.has_any(&[Role::Operator, Role::Member]) {
        return Ok(());
    }
    if !OF_RESOURCE.contains(&uri.path()) {
        return Err(AccessRefused::AllNamespaces);
    }
    let Ok(Query(parameters)) = Query::<Vec<(String, String)>>::try_from_uri(uri) else {
        return Err(AccessRefused::Namespace);
    };
    let has_code = || parameters.iter().any(|(name, _)| name == "code");
    let mut named = parameters.iter().filter(|(name, _)| name == "resource");
    match (named.next(), named.next()) {
        (Some((_, resource)), None) if grant.allows_resource(resource) => Ok(()),
        (Some(_), None) => Err(AccessRefused::OtherNamespace),
        (None, _) if has_code() => Err(AccessRefused::Code),
        (None, _) | (Some(_), Some(_)) => Err(AccessRefused::Namespace),
    }
}

/// The token of a request.
fn bearer<B>(request: &Request<B>) -> Option<&[u8]> {
    let value = request.headers().get(header::AUTHORIZATION)?.as_bytes();
    let (scheme, token) = value.split_at_checked(7)?;
    scheme
        .eq_ignore_ascii_case(b"bearer ")
        .then(|| token.trim_ascii())
}

/// Whether a grant allows an act; if not, what would allow it.
pub(super) fn allows(grant: &TokenGrant, act: &Act) -> Result<(), &'static str> {
    let (role, resource) = match act {
        Act::Pardon { resource, .. }
        | Act::Reset { resource, .. }
        | Act::Refund { resource, .. }
        | Act::ReleaseHold { resource, .. }
        | Act::ReleaseHolds { resource, .. }
        | Act::ReleaseTransfer { resource, .. } => (Role::Operator, Some(resource)),
        Act::Ban { resource, .. } | Act::Unban { resource, .. } => {
            (Role::Operator, resource.as_ref())
        }
        Act::Set(row) => (Role::Admin, Some(&row.resource)),
        Act::Switch { .. } | Act::SetMany(_) => (Role::Admin, None),
    };
    if !grant.roles.has_any(&[role]) {
        return Err("this act needs a token with the role admin");
    }
    let is_within = match resource {
        Some(resource) => grant.allows_resource(resource),
        None => grant.namespaces.is_none(),
    };
    match is_within {
        true => Ok(()),
        false => Err("the token is for other namespaces than this act's"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::security::{Proof, Roles, TokenBook};

    #[test]
    fn only_health_is_open_to_everybody() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("tokens.toml");
        std::fs::write(&path, "[tokens]\n").expect("written");
        let access = Access {
            tls: None,
            tokens: Some(Arc::new(TokenBook::load(&path).expect("a file"))),
        };
        let may = |method: Method, path: &str| {
            let request = Request::builder().method(method).uri(path);
            admit(&access, &request.body(()).expect("a request"), None).is_ok()
        };
        for path in ["/healthz", "/readyz"] {
            assert!(may(Method::GET, path) && may(Method::HEAD, path) && !may(Method::POST, path));
        }
        assert!(!may(Method::GET, "/v1/denials") && !may(Method::HEAD, "/metrics"));
    }

    #[test]
    fn a_viewer_names_one_resource_of_its_namespaces() {
        let grant = |role| TokenGrant {
            name: "lookout".into(),
            proof: Proof::Token([0; 32]),
            roles: Roles::new([role]),
            agents: None,
            namespaces: Some(["api".into()].into()),
            expires: None,
        };
        let sees = |role, uri: &str| looks_within(&grant(role), &uri.parse().expect("an address"));
        let refused = Err::<(), AccessRefused>;
        for (uri, expected) in [
            ("/v1/denials?resource=api.search", Ok(())),
            ("/v1/denials?limit=9&resource=api%2Esearch", Ok(())),
            ("/v1/explain?resource=api&domain=acme", Ok(())),
            ("/v1/denials", refused(AccessRefused::Namespace)),
            (
                "/v1/denials?resource=web.page",
                refused(AccessRefused::OtherNamespace),
            ),
            (
                "/v1/denials?resource=api.search&resource=web.page",
                refused(AccessRefused::Namespace),
            ),
            (
                "/v1/explain?resource=web.page&domain=acme",
                refused(AccessRefused::OtherNamespace),
            ),
            ("/v1/explain?code=3-51-0-1", refused(AccessRefused::Code)),
            (
                "/v1/pairs/web.page/acme?resource=api.search",
                refused(AccessRefused::AllNamespaces),
            ),
            (
                "/v1/limits?resource=api.search",
                refused(AccessRefused::AllNamespaces),
            ),
            ("/metrics", refused(AccessRefused::AllNamespaces)),
        ] {
            assert_eq!(sees(Role::Viewer, uri), expected, "{uri}");
            assert!(sees(Role::Operator, uri).is_ok() && sees(Role::Member, uri).is_ok());
        }
    }

    #[test]
    fn a_bearer_is_read_whatever_its_case_and_nothing_else_is() {
        let of = |value: &str| {
            let request = Request::builder().header(header::AUTHORIZATION, value);
            let request = request.body(()).expect("a request");
            bearer(&request).map(<[u8]>::to_vec)
        };
        assert_eq!(of("Bearer tg1_a").as_deref(), Some(&b"tg1_a"[..]));
        assert_eq!(of("bearer  tg1_a ").as_deref(), Some(&b"tg1_a"[..]));
        assert_eq!(of("Basic tg1_a"), None);
        assert_eq!(of("Bear"), None);
    }
}
