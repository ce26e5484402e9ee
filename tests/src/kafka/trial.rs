//! Trials that need Kafka: run them, ignore them with the reason, or fail them for lack of Kafka.
//!
//! Knows nothing of how a broker is started. What stays true: without a broker no trial's body
//! runs, and its outcome is never "ok".

use std::process::ExitCode;

use libtest_mimic::{Arguments, Completion, Failed, Trial};

use super::{LocalKafka, StartError};

/// Trials by name, as [`trials!`](crate::trials) makes them.
pub type Trials = Vec<(&'static str, fn(&LocalKafka))>;

/// A list of trials from functions that take a [`LocalKafka`], each with its function's name.
#[macro_export]
macro_rules! trials {
    ($($body:ident),* $(,)?) => {
        vec![$((stringify!($body), $body as fn(&$crate::kafka::LocalKafka))),*]
    };
}

/// The variable that makes Kafka mandatory if its value is [`REQUIRED`].
const REQUIRE_VARIABLE: &str = "TOLLGATE_KAFKA";
const REQUIRED: &str = "required";

/// Runs the trials against the shared broker, like `cargo test`. Meant as the `main` of a target.
#[must_use]
pub fn run(trials: Trials) -> ExitCode {
    let want = Want::from_variable(std::env::var(REQUIRE_VARIABLE).ok().as_deref());
    let trials = trials
        .into_iter()
        .map(|(name, body)| {
            Trial::ignorable_test(name, move || outcome(want, LocalKafka::shared(), body))
        })
        .collect();
    let mut arguments = Arguments::from_args();
    // Trials mostly wait, for a broker or until an aggregator is missed, so two can run for each processor.
    arguments.test_threads = arguments.test_threads.or_else(two_for_each_processor);
    libtest_mimic::run(&arguments, trials).exit_code()
}

fn two_for_each_processor() -> Option<usize> {
    let processors = std::thread::available_parallelism().ok()?;
    Some(processors.get() * 2)
}

/// What to do if there is no Kafka.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Want {
    IfPossible,
    Required,
}

impl Want {
    /// Agents read an address from the same variable, so every other value is ignored here.
    fn from_variable(value: Option<&str>) -> Self {
        if value == Some(REQUIRED) {
            Self::Required
        } else {
            Self::IfPossible
        }
    }
}

fn outcome(
    want: Want,
    kafka: Result<&LocalKafka, &StartError>,
    body: fn(&LocalKafka),
) -> Result<Completion, Failed> {
    match (kafka, want) {
        (Ok(kafka), _) => {
            body(kafka);
            Ok(Completion::Completed)
        }
        (Err(StartError::Absent { reason }), Want::IfPossible) => {
            // One line, because it is printed after the name.
            Ok(Completion::ignored_with(
                reason.lines().last().unwrap_or_default(),
            ))
        }
        (Err(StartError::Absent { reason }), Want::Required) => {
            Err(format!("{REQUIRE_VARIABLE}={REQUIRED}, and {reason}").into())
        }
        (Err(error), _) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn absent() -> StartError {
        StartError::Absent {
            reason: "fetching\njava: not found".to_owned(),
        }
    }

    fn never(_: &LocalKafka) {
        panic!("no broker, and yet the body runs");
    }

    #[test]
    fn without_kafka_a_trial_is_ignored_with_the_reason() {
        match outcome(Want::IfPossible, Err(&absent()), never) {
            Ok(Completion::Ignored { reason }) => {
                assert_eq!(reason.as_deref(), Some("java: not found"));
            }
            Ok(Completion::Completed) => panic!("counted as passed"),
            Err(failed) => panic!("counted as failed: {failed:?}"),
        }
    }

    #[test]
    fn where_kafka_is_required_its_absence_is_a_failure() {
        let failed = outcome(Want::Required, Err(&absent()), never)
            .err()
            .expect("a failure");
        assert!(
            failed
                .message()
                .is_some_and(|text| text.contains("java: not found")),
            "{failed:?}"
        );
    }

    #[test]
    fn a_kafka_that_should_start_and_does_not_is_always_a_failure() {
        for want in [Want::IfPossible, Want::Required] {
            assert!(outcome(want, Err(&StartError::Late), never).is_err());
        }
    }

    #[test]
    fn only_the_word_required_requires() {
        assert_eq!(Want::from_variable(Some("required")), Want::Required);
        assert_eq!(
            Want::from_variable(Some("127.0.0.1:9092")),
            Want::IfPossible
        );
        assert_eq!(Want::from_variable(None), Want::IfPossible);
    }
}
