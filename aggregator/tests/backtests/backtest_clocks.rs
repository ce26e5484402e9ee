//! A backtest of Tollgate's own logs plays calls at the instants by which aggregators rule them, also if an agent's
//! clock is wrong.

use serde_json::Value;
use tollgate_shared::names::partition_of_pair;
use tollgate_shared::time::Span;
use tollgate_shared::wire::Writer;
use tollgate_shared::wire::hits::{Hit, Refused, Sender, write_hits};
use tollgate_shared::wire::statement::Cause;

use crate::support::{Dealer, directory, run, serve, wall};

const PARTITIONS: u32 = 4;

/// Fifteen calls each, at once, of an agent with the right clock and of one that is two hours behind; the latter refused
/// ten of its calls. In a journal, and in an export of it.
async fn with_a_slow_clock() -> tempfile::TempDir {
    let dir = directory("version = 1\nrules = 2\n[rate.\"api.search\"]\nrate = \"10/m\"\n");
    let mut served = serve(dir.path(), &[]);
    served.await_ready();
    let mut right = Dealer::named(served.agents, "right", 7).await;
    let mut slow = Dealer::named(served.agents, "slow", 8).await;
    let one = partition_of_pair("api.search", "acme", PARTITIONS);
    for (agent, behind, hits) in [
        (&mut right, Span::ZERO, 15),
        (&mut slow, Span::from_secs(7_200), 5),
    ] {
        let at = wall().saturating_sub(behind);
        let sender = Sender {
            sent: at,
            ..agent.sender(1)
        };
        let refused = (hits < 15).then_some(Refused {
            resource: 0,
            domain: "acme",
            calls: 10,
            copies: 10,
            first: at,
            last: at,
            cause: Cause::Window(0),
            position: None,
        });
        let hits = (0..hits).map(|_| Hit::one(0, "acme", at, 1));
        let mut writer = Writer::new();
        write_hits(
            &mut writer,
            &sender,
            &["api.search"],
            hits,
            refused.into_iter(),
        );
        agent.append(one, writer.as_slice()).await;
    }
    served.signal("TERM");
    served.await_end();
    let args = ["audit", "export", "--journal", "tollgate-data", "-o", "all"];
    let (code, out, err) = run(dir.path(), &args);
    assert_eq!(code, 0, "{out}{err}");
    dir
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stamps_of_an_agent_with_a_slow_clock_are_corrected() {
    let dir = with_a_slow_clock().await;
    let backtest = ["backtest", "--limits", "limits.toml"];
    for log in [["--export", "all"], ["--journal", "tollgate-data"]] {
        let args = [&backtest[..], &log, &["--format", "json", "-q"]].concat();
        let (code, out, err) = run(dir.path(), &args);
        assert_eq!(code, 0, "{args:?}: {out}{err}");
        let found: Value = serde_json::from_str(&out).expect("an object");
        let result = &found["results"][0];
        assert_eq!(result["calls"], 30, "{found:#}");
        assert_eq!(result["granted"], 10, "{log:?}: {found:#}");
        assert_eq!(result["refused"], 20, "{log:?}: {found:#}");
    }
}
