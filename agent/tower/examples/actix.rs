//! A service of actix-web behind both layers: how often a tenant may search, and how many exports it may run at a time.
//!
//! ```text
//! cargo run -p tollgate-tower --example actix --features actix -- 127.0.0.1:8080
//! curl -i -H 'x-tenant: acme' http://127.0.0.1:8080/search
//! ```
//!
//! `TOLLGATE_AGGREGATORS=127.0.0.1:7401` names the aggregator. Without one, or while none answers, every call is let
//! through.

use std::time::Duration;

use actix_web::{App, HttpServer, web};
use tollgate_agent::Agent;
use tollgate_tower::{HoldLayer, LimitLayer, key};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let address = std::env::args().nth(1);
    let address = address.unwrap_or_else(|| "127.0.0.1:8080".to_owned());
    let agent = Agent::from_env()?;
    let often = LimitLayer::new(agent.rate("api.search"), key::header("x-tenant"))
        .or_domain("anonymous")
        .tell_always();
    let at_a_time =
        HoldLayer::new(agent.copies("api.exports"), key::header("x-tenant")).or_domain("anonymous");
    // Behind the handles, whose limits and denials it waits for.
    agent.ready(Duration::from_millis(500)).await;
    let app = move || {
        let search = web::resource("/search").wrap(often.clone()).to(search);
        let export = web::resource("/export").wrap(at_a_time.clone()).to(export);
        App::new().service(search).service(export)
    };
    let server = HttpServer::new(app).bind(address)?;
    for address in server.addrs() {
        println!("listening on {address}");
    }
    server.run().await?;
    agent.shutdown(Duration::from_secs(2)).await;
    Ok(())
}

async fn search() -> &'static str {
    "found\n"
}

async fn export() -> &'static str {
    tokio::time::sleep(Duration::from_secs(5)).await;
    "exported\n"
}
