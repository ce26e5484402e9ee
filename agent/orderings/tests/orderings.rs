//! Runs every model, by name.

use tollgate_agent_orderings::models;

#[test]
fn an_entry_of_the_filter_stays_found() {
    models::an_entry_of_the_filter_stays_found();
}

#[test]
fn no_call_is_guarded_in_a_gap() {
    models::no_call_is_guarded_in_a_gap();
}

#[test]
fn no_doubt_about_a_verdict_is_lost() {
    models::no_doubt_about_a_verdict_is_lost();
}

#[test]
fn records_of_ending_threads_are_drained() {
    models::records_of_ending_threads_are_drained();
}

#[test]
fn every_call_is_counted_at_the_end() {
    models::every_call_is_counted_at_the_end();
}
