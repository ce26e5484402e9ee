//! Runs every model, by name.

use tollgate_agent_orderings::models;

#[test]
fn what_is_in_the_filter_stays_in() {
    models::what_is_in_the_filter_stays_in();
}

#[test]
fn no_call_is_guarded_in_a_gap() {
    models::no_call_is_guarded_in_a_gap();
}

#[test]
fn no_doubt_is_lost() {
    models::no_doubt_is_lost();
}

#[test]
fn what_ending_threads_recorded_is_drained() {
    models::what_ending_threads_recorded_is_drained();
}

#[test]
fn nothing_is_uncounted_at_the_end() {
    models::nothing_is_uncounted_at_the_end();
}
