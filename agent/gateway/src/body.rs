//! Reads the body of a request, within bounds on its length and its time.
//!
//! ```text
//! longer than the bound    413
//! it does not come         408
//! cut short, bad chunks    400
//! ```
//!
//! Knows nothing of questions.

use std::error::Error as _;
use std::time::Duration;

use axum::body::{Bytes, to_bytes};
use axum::extract::Request;
use axum::http::StatusCode;
use hyper::body::Body as _;
use tokio::time::timeout;

use crate::connections::{Connection, EndReason};

/// The most bytes of a question: the most hits, with names of some 200 bytes.
const BODY_BYTES_MAX: usize = 256 << 10;

/// How long a question may take after its head.
const BODY_WITHIN: Duration = Duration::from_secs(5);

/// The body of a request, if it arrives in time.
pub(crate) async fn body_of(
    request: Request,
    connection: &Connection,
) -> Result<Bytes, (StatusCode, String)> {
    let too_long = || {
        let error = format!("expected a body of at most {BODY_BYTES_MAX} bytes");
        Err((StatusCode::PAYLOAD_TOO_LARGE, error))
    };
    let body = request.into_body();
    // The length in the head.
    if (BODY_BYTES_MAX as u64) < body.size_hint().lower() {
        return too_long();
    }
    match timeout(BODY_WITHIN, to_bytes(body, BODY_BYTES_MAX)).await {
        Ok(Ok(body)) => Ok(body),
        Ok(Err(error)) if is_broken(&error) => {
            let error =
                "expected a whole body: it is cut short, or its chunks are not as they should be";
            Err((StatusCode::BAD_REQUEST, error.to_owned()))
        }
        Ok(Err(_)) => too_long(),
        Err(_) => {
            connection.note(EndReason::SlowBody);
            let error = format!("expected the body within {} s", BODY_WITHIN.as_secs());
            Err((StatusCode::REQUEST_TIMEOUT, error))
        }
    }
}

/// Whether a body could not be read because of how it came, and not because it is too long.
fn is_broken(error: &axum::Error) -> bool {
    std::iter::successors(error.source(), |&error| error.source())
        .any(|error| error.is::<hyper::Error>())
}
