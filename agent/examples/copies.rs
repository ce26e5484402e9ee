//! A service that limits how many reports of each tenant are made at a time, across the whole fleet.
//!
//! ```text
//! tollgate serve --limits limits.toml          [copies."reports"] limit = 2
//! TOLLGATE_AGGREGATORS=127.0.0.1:7401 cargo run -p tollgate-agent --example copies -- acme 5
//! ```
//!
//! Arguments: the tenant, and how many reports it asks for at the same time. Reports beyond the limit are refused, or
//! wait for another one to end. Start it twice: both together make no more than the limit at a time, apart from reports
//! that both begin within the same milliseconds, before either knows of the other's. With `reserve = "strict"` and
//! `reserve_confirmed` no report begins above the limit.

use std::error::Error;
use std::time::Duration;

use tollgate_agent::{Agent, Confirmation, Copies, Refused};

/// How long a report takes, and how long one may wait for another to end.
const REPORT_TAKES: Duration = Duration::from_millis(500);
const WAIT_MAX: Duration = Duration::from_secs(5);

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut words = std::env::args().skip(1);
    let tenant = words.next().unwrap_or_else(|| "acme".to_owned());
    let count: u32 = match words.next() {
        Some(word) => word
            .parse()
            .map_err(|_| format!("{word:?}: expected a number of reports"))?,
        None => 5,
    };
    let agent = Agent::from_env()?;
    let reports = agent.copies("reports");
    if !agent.ready(Duration::from_secs(2)).await {
        eprintln!("no aggregator answers: every report is made at once");
    }
    let making: Vec<_> = (1..=count)
        .map(|number| tokio::spawn(make(reports.clone(), tenant.clone(), number)))
        .collect();
    for one in making {
        println!("{}", one.await?);
    }
    agent.shutdown(Duration::from_secs(2)).await;
    Ok(())
}

/// Makes one report, at once or when another has ended, and returns the result.
async fn make(reports: Copies, tenant: String, number: u32) -> String {
    let (taken, waited) = match reports.reserve(&tenant, 1) {
        Err(Refused::Denied(_)) => {
            let taken = reports.until_ready(&tenant, 1, WAIT_MAX).await;
            (taken, " after waiting")
        }
        taken => (taken, ""),
    };
    let hold = match taken {
        Ok(hold) => hold,
        Err(refused) => return format!("report {number}: {refused}"),
    };
    tokio::time::sleep(REPORT_TAKES).await;
    // What was taken at once may turn out to have been too much: others took copies at the same instant. Without an
    // aggregator there is no verdict.
    let word = tokio::time::timeout(REPORT_TAKES, hold.confirmed()).await;
    match word {
        Ok(Confirmation::Excess { .. }) => {
            format!("report {number}: made{waited}, beyond the limit")
        }
        _ => format!("report {number}: made{waited}"),
    }
    // Dropping the hold gives the copy back, here.
}
