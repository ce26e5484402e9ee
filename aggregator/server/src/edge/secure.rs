//! The TLS handshake of a connection, before anything else is sent over it.

use std::sync::Arc;

use tokio::time::{Instant, timeout_at};

use super::Edge;
use super::connection::Connection;
use super::ended::Ended;
use crate::security::Access;

/// Makes the TLS handshake of a connection, if its listener uses TLS.
///
/// It runs on separate threads: see [`crate::security::Handshakes`]. Its time is part of the whole handshake, READY
/// included, which counts from the moment at which the connection was accepted.
pub(super) async fn secure(
    edge: &Edge,
    access: &Access,
    connection: &Arc<Connection>,
    accepted: Instant,
) -> Result<(), Ended> {
    let Some((tls, handshakes)) = &access.tls else {
        return Ok(());
    };
    let (allowed, stall) = (edge.bounds.handshake, edge.bounds.stall);
    let (tls, connection) = (Arc::clone(tls), Arc::clone(connection));
    let handshake = async move {
        let session = tls.session().map_err(|_| Ended::Tls)?;
        let begun = timeout_at(accepted + allowed, connection.wire.begin(session));
        tokio::select! {
            biased;
            ended = connection.until_ordered() => Err(ended),
            begun = begun => match begun {
                Ok(begun) => begun.map_err(|fault| connection.ended_by(&fault, stall)),
                Err(_) => Err(Ended::Handshake { allowed }),
            },
        }
    };
    handshakes
        .run(handshake)
        .await
        .unwrap_or(Err(Ended::Stopped))
}
