//! `GET /v1/openapi.json`: the gateway's HTTP interface in OpenAPI, for generators of clients.
//!
//! The document is written by hand; tests compare all of it with the routes, and with questions and answers. Knows
//! nothing of what answers mean.

use axum::http::header;
use axum::response::{IntoResponse, Response};

pub(crate) const DOCUMENT: &str = include_str!("openapi.json");

/// Answers with the document.
pub(crate) async fn answer() -> Response {
    ([(header::CONTENT_TYPE, "application/json")], DOCUMENT).into_response()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::Value;

    use super::*;

    #[test]
    fn every_route_is_described_and_no_other() {
        let source = include_str!("server.rs");
        let routed = source.split(".route(\"").skip(1).flat_map(|rest| {
            let (path, behind) = rest.split_once("\", ").expect("a path, and what answers");
            let (method, _) = behind.split_once('(').expect("a method");
            let methods: &[&str] = match method {
                "any" => &[
                    "get", "put", "post", "delete", "options", "head", "patch", "trace",
                ],
                "get" => &["get"],
                "post" => &["post"],
                other => panic!("{path}: {other}"),
            };
            // A path with a rest has the same name there.
            let path = path.replace("{*", "{");
            // An empty rest is a path below, too.
            let path = match path.strip_suffix("}/") {
                Some(above) => format!("{above}}}/{{below}}"),
                None => path,
            };
            methods.iter().map(move |method| format!("{method} {path}"))
        });
        let routed: BTreeSet<String> = routed.collect();
        assert!(20 <= routed.len(), "{routed:?}");
        let document: Value = serde_json::from_str(DOCUMENT).expect("JSON");
        let paths = document["paths"].as_object().expect("paths").iter();
        let described = paths.flat_map(|(path, methods)| {
            let methods = methods.as_object().expect("methods").keys();
            methods.map(move |method| format!("{method} {path}"))
        });
        assert_eq!(described.collect::<BTreeSet<_>>(), routed);
    }
}
