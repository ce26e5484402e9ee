//! Tests of what keys find in a request.

use std::net::SocketAddr;

use axum::extract::ConnectInfo;
use http::Request;
use tollgate_tower::{Head, key};
use tonic::transport::server::TcpConnectInfo;

use super::empty;

#[test]
fn a_segment_of_a_path_is_decoded_once_and_not_split_again() {
    let of = key::path_segment(1);
    for (uri, domain) in [
        ("/t/acme/search", Some("acme")),
        ("/t/%61cm%65/search", Some("acme")),
        ("/t/a%2fb/search", Some("a/b")),
        ("/t/%2561cme", Some("%61cme")),
        ("/t/Z%C3%BCrich", Some("Z\u{fc}rich")),
        ("/t/%FFx", Some("\u{fffd}x")),
        ("/t/10%", Some("10%")),
        ("/t/%+1%4", Some("%+1%4")),
        ("/t/a+b", Some("a+b")),
        ("/t//search", None),
        ("/t", None),
    ] {
        let request = empty(Request::builder().uri(uri));
        assert_eq!(of(Head::of(&request)).as_deref(), domain, "{uri}");
    }
}

#[test]
fn the_client_is_found_behind_stated_proxies_alone() {
    let of = key::client_address(vec!["10.0.0.0/8".parse().expect("a network")]);
    for (peer, forwarded, client) in [
        (Some("203.0.113.7:1"), None, Some("203.0.113.7")),
        // The header was not written by a trusted peer.
        (Some("203.0.113.7:1"), Some("8.8.8.8"), Some("203.0.113.7")),
        (
            Some("10.0.0.1:1"),
            Some("8.8.8.8, 203.0.113.7"),
            Some("203.0.113.7"),
        ),
        (
            Some("10.0.0.1:1"),
            Some("203.0.113.7, 10.0.0.2"),
            Some("203.0.113.7"),
        ),
        (Some("10.0.0.1:1"), None, Some("10.0.0.1")),
        (
            Some("[::ffff:10.0.0.1]:1"),
            Some("2001:DB8::1"),
            Some("2001:db8::1"),
        ),
        (Some("10.0.0.1:1"), Some("nobody"), Some("10.0.0.1")),
        // The client may have written the whole header.
        (None, Some("203.0.113.7"), None),
        (None, Some("10.0.0.1"), None),
        (None, None, None),
    ] {
        let mut request = Request::builder().uri("/");
        if let Some(forwarded) = forwarded {
            request = request.header("x-forwarded-for", forwarded);
        }
        let mut request = empty(request);
        if let Some(peer) = peer {
            let peer: SocketAddr = peer.parse().expect("an address");
            request.extensions_mut().insert(ConnectInfo(peer));
        }
        let found = of(Head::of(&request));
        assert_eq!(found.as_deref(), client, "{peer:?} {forwarded:?}");
    }
}

#[test]
fn a_server_that_only_proxies_reach_takes_their_word() {
    let of = key::forwarded_address(vec!["10.0.0.0/8".parse().expect("a network")]);
    for (forwarded, client) in [
        (Some("8.8.8.8, 203.0.113.7, 10.0.0.2"), Some("203.0.113.7")),
        (Some("nobody"), None),
        (None, None),
    ] {
        let mut request = Request::builder().uri("/");
        if let Some(forwarded) = forwarded {
            request = request.header("x-forwarded-for", forwarded);
        }
        let request = empty(request);
        assert_eq!(of(Head::of(&request)).as_deref(), client, "{forwarded:?}");
    }
}

#[test]
fn the_peer_of_a_tonic_server_is_the_client() {
    let of = key::client_address(Vec::new());
    let mut request = empty(Request::builder().header("x-forwarded-for", "8.8.8.8"));
    request.extensions_mut().insert(TcpConnectInfo {
        local_addr: None,
        remote_addr: Some("203.0.113.7:1".parse().expect("an address")),
    });
    assert_eq!(of(Head::of(&request)).as_deref(), Some("203.0.113.7"));
}

#[test]
fn a_header_with_any_bytes_is_there() {
    let request = Request::builder().header("x-plan", &b"fr\xfchst\x80"[..]);
    let request = empty(request.header("x-tenant", "Z\u{fc}rich"));
    let head = Head::of(&request);
    assert_eq!(head.header("x-tenant").as_deref(), Some("Z\u{fc}rich"));
    let plan = head.header("x-plan");
    assert_eq!(plan.as_deref(), Some("fr\u{fffd}hst\u{fffd}"));
    assert_eq!(head.header("x-none"), None);
}
