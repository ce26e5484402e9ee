//! Promises that only a real Kafka can hold us to, and what we rely on Kafka for.
//!
//! Ignored, with the reason, where there is no Java or Maven; with `TOLLGATE_KAFKA=required` that
//! is a failure. A trial is a function of a broker, and a line in `main`.

use std::process::ExitCode;

use tollgate_tests::{kafka, trials};

mod broker;

use broker::{a_broker_is_gone_once_dropped, records_are_stamped_and_found_by_their_append_time};

fn main() -> ExitCode {
    kafka::run(trials![
        a_broker_is_gone_once_dropped,
        records_are_stamped_and_found_by_their_append_time,
    ])
}
