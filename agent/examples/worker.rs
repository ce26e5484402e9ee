//! A worker that takes jobs of many tenants from a queue, and limits each tenant to its rate. Nobody waits for a
//! job's answer, so a refused job goes back into the queue until its tenant may have more.
//!
//! ```text
//! tollgate serve --limits limits.toml          [rate."jobs"] rate = "5/s"
//! TOLLGATE_AGGREGATORS=127.0.0.1:7401 cargo run -p tollgate-agent --example worker -- 40
//! ```
//!
//! Argument: how many jobs each of the two tenants has. Ends when all are done.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::error::Error;
use std::time::{Duration, Instant};

use tollgate_agent::Agent;

/// The pause after a refusal without an end.
const TRY_AGAIN_IN: Duration = Duration::from_millis(500);

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let each: u32 = match std::env::args().nth(1) {
        Some(word) => word
            .parse()
            .map_err(|_| format!("{word:?}: expected a number of jobs"))?,
        None => 40,
    };
    let agent = Agent::from_env()?;
    let jobs = agent.rate("jobs");
    if !agent.ready(Duration::from_secs(2)).await {
        eprintln!("no aggregator answers: every job is done at once");
    }
    let begun = Instant::now();
    // Ordered by when they may be tried; at first all at once.
    let mut queue: BinaryHeap<Reverse<(Instant, u32, &str)>> = (0..each)
        .flat_map(|number| ["acme", "globex"].map(|tenant| Reverse((begun, number, tenant))))
        .collect();
    let (mut done, mut put_back) = (0, 0);
    while let Some(Reverse((at, number, tenant))) = queue.pop() {
        tokio::time::sleep_until(at.into()).await;
        match jobs.hit(tenant) {
            Ok(_allowed) => {
                // Here the job would be done.
                done += 1;
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            Err(denied) => {
                put_back += 1;
                let wait = denied.retry_after().unwrap_or(TRY_AGAIN_IN);
                queue.push(Reverse((Instant::now() + wait, number, tenant)));
            }
        }
    }
    let seconds = begun.elapsed().as_secs_f64();
    println!("{done} jobs done in {seconds:.1} s, put back {put_back} times");
    agent.shutdown(Duration::from_secs(2)).await;
    Ok(())
}
