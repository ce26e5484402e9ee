//! Functions that find the domain of a request, for [`LimitLayer`](crate::LimitLayer) and
//! [`HoldLayer`](crate::HoldLayer), beside any of your own.
//!
//! ```
//! use std::borrow::Cow;
//! use tollgate_tower::{Head, key};
//!
//! struct Tenant(String);
//!
//! // What an authentication layer has put there; the best of all.
//! let of_session = key::extension(|tenant: &Tenant| &tenant.0);
//! // A header that clients cannot forge, because a proxy sets it.
//! let of_header = key::header("x-tenant");
//! // /t/acme/search: the second segment.
//! let of_path = key::path_segment(1);
//! // The client's address, behind these proxies.
//! let of_address = key::client_address(vec!["10.0.0.0/8".parse()?]);
//! // Any other.
//! let of_tenant_and_plan = |head: Head<'_>| -> Option<Cow<'_, str>> {
//!     let (tenant, plan) = (head.header("x-tenant")?, head.header("x-plan")?);
//!     Some(Cow::Owned(format!("{tenant}/{plan}")))
//! };
//! # let request = http::Request::builder().uri("/t/acme/search").body(()).unwrap();
//! # assert_eq!(of_path(Head::of(&request)).as_deref(), Some("acme"));
//! # let _ = (of_session, of_header, of_address, of_tenant_and_plan);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::borrow::Cow;
use std::net::IpAddr;

use ipnet::IpNet;
use tollgate_shared::networks::forwarded_client;

use crate::head::Head;

/// The header that lists the addresses for which a request was forwarded.
const FORWARDED: &str = "x-forwarded-for";

/// The value of a header field, read as UTF-8 (with U+FFFD in place of other bytes), as gateways and the Python package
/// read it; no domain if it is absent or empty. A client that may write this header can call in any domain's name.
pub fn header(
    name: &'static str,
) -> impl for<'r> Fn(Head<'r>) -> Option<Cow<'r, str>> + Send + Sync + 'static {
    move |head: Head<'_>| {
        let value = String::from_utf8_lossy(head.header_bytes(name)?.trim_ascii());
        (!value.is_empty()).then_some(value)
    }
}

/// A value that an outer layer has put into the request's extensions.
pub fn extension<T: Send + Sync + 'static>(
    name: impl Fn(&T) -> &str + Send + Sync + 'static,
) -> impl for<'r> Fn(Head<'r>) -> Option<Cow<'r, str>> + Send + Sync + 'static {
    move |head: Head<'_>| {
        let known = head.extension::<T>();
        known.map(|known| Cow::Borrowed(name(known)))
    }
}

/// A segment of the path, counted from 0, percent-decoded as routers decode it: `%61cme` is `acme`, and a decoded `/`
/// does not split it. No domain if it does not exist or is empty. Allocates for an encoded segment alone.
pub fn path_segment(
    index: usize,
) -> impl for<'r> Fn(Head<'r>) -> Option<Cow<'r, str>> + Send + Sync + 'static {
    move |head: Head<'_>| {
        let mut segments = head.path().trim_start_matches('/').split('/');
        let segment = segments.nth(index)?;
        (!segment.is_empty()).then(|| percent_decoded(segment))
    }
}

/// Decodes what is encoded as `%` and two hexadecimal digits, as UTF-8 (with U+FFFD in place of other bytes).
fn percent_decoded(segment: &str) -> Cow<'_, str> {
    if !segment.contains('%') {
        return Cow::Borrowed(segment);
    }
    let mut bytes = Vec::with_capacity(segment.len());
    let mut rest = segment.as_bytes();
    while let [first, after @ ..] = rest {
        let encoded = match rest {
            [b'%', high, low, after @ ..] => hex(*high, *low).map(|byte| (byte, after)),
            _ => None,
        };
        let (byte, after) = encoded.unwrap_or((*first, after));
        bytes.push(byte);
        rest = after;
    }
    Cow::Owned(String::from_utf8_lossy(&bytes).into_owned())
}

fn hex(high: u8, low: u8) -> Option<u8> {
    let digit = |byte: u8| u8::try_from(char::from(byte).to_digit(16)?).ok();
    Some(digit(high)? << 4 | digit(low)?)
}

/// The client's address: the connected peer, unless it is one of these proxies; otherwise the last address in
/// `X-Forwarded-For` that is not one of them. Addresses that a client wrote in front of it are never taken. The
/// resource needs `addresses = { v4 = 32, v6 = 64 }` in the limits: a client with IPv6 has a network of addresses.
///
/// No domain if the peer's address is unknown, because then the client may have written the whole header. The servers
/// that know it are those named at [`Head::peer`]. For a server at a Unix socket there is [`forwarded_address`].
pub fn client_address(
    trusted: Vec<IpNet>,
) -> impl for<'r> Fn(Head<'r>) -> Option<Cow<'r, str>> + Send + Sync + 'static {
    move |head: Head<'_>| {
        let peer = head.peer()?;
        let client = match is_of(&trusted, peer) {
            true => forwarded(head, &trusted).unwrap_or(peer),
            false => peer,
        };
        Some(Cow::Owned(client.to_string()))
    }
}

/// The last address in `X-Forwarded-For` that is not one of these proxies, without a look at the connected peer: for a
/// server that only proxies can reach, as at a Unix socket. Clients of any other server can choose their address.
pub fn forwarded_address(
    trusted: Vec<IpNet>,
) -> impl for<'r> Fn(Head<'r>) -> Option<Cow<'r, str>> + Send + Sync + 'static {
    move |head: Head<'_>| {
        let client = forwarded(head, &trusted)?;
        Some(Cow::Owned(client.to_string()))
    }
}

fn is_of(networks: &[IpNet], address: IpAddr) -> bool {
    networks.iter().any(|network| network.contains(&address))
}

fn forwarded(head: Head<'_>, trusted: &[IpNet]) -> Option<IpAddr> {
    // What a client wrote in front may be any bytes; the rest comes from a proxy.
    let lists: Vec<Cow<'_, str>> = head
        .header_values(FORWARDED)
        .into_iter()
        .map(String::from_utf8_lossy)
        .collect();
    let lists = lists.iter().map(|list| &**list);
    forwarded_client(lists, |address| is_of(trusted, address))
}
