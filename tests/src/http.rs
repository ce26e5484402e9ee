//! Simple HTTP requests to an aggregator. Knows nothing of their content.

use std::io::{Read as _, Write as _};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

use serde_json::Value;

/// How long an answer may take.
const WITHIN: Duration = Duration::from_secs(60);

/// The text of the answer, if there is one.
pub fn get_text(http: impl ToSocketAddrs, path: &str) -> Option<String> {
    let mut stream = TcpStream::connect(http).ok()?;
    stream.set_read_timeout(Some(WITHIN)).ok()?;
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    )
    .ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    let (_, body) = answer.split_once("\r\n\r\n")?;
    Some(body.to_owned())
}

/// The status and text of the answer to a whole request, if there is one.
pub fn ask(http: impl ToSocketAddrs, request: &[u8]) -> Option<(u16, String)> {
    let mut stream = TcpStream::connect(http).ok()?;
    stream.set_read_timeout(Some(WITHIN)).ok()?;
    // A server that refuses the request may have answered before it is complete.
    let _ = stream.write_all(request);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    let answer = String::from_utf8_lossy(&answer);
    let (head, body) = answer.split_once("\r\n\r\n")?;
    let status = head.split(' ').nth(1)?.parse().ok()?;
    Some((status, body.to_owned()))
}

/// The answer, if it arrives completely.
pub fn get(http: impl ToSocketAddrs, path: &str) -> Option<Value> {
    serde_json::from_str(&get_text(http, path)?).ok()
}
