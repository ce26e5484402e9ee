//! Promises that only a real Kafka can test, and what Tollgate relies on Kafka for.
//!
//! Ignored, with the reason, if Java or Maven is missing; with `TOLLGATE_KAFKA=required` that is a
//! failure. A trial is a function of a broker, and a line in `main`.

use std::process::ExitCode;

use tollgate_tests::{kafka, trials};

mod acls;
mod amendments;
mod bad;
mod broker;
mod copies;
mod demo;
mod everywhere;
mod fenced;
mod fleet;
mod followed;
mod gap;
mod kills;
mod large;
mod limits;
mod log;
mod pairs;
mod public_key;
mod recreated;
mod rights;
mod roles;
mod state;
mod topics;

use amendments::an_operator_may_ask_any_aggregator_of_a_fleet;
use bad::foreign_records_become_dead_letters_and_stop_nothing;
use broker::{a_broker_is_gone_once_dropped, records_are_stamped_and_found_by_their_append_time};
use copies::{
    agents_that_hold_are_killed_and_no_copy_is_lost, while_kafka_stands_still_no_holder_is_gone,
};
use demo::{agents_of_two_groups_are_unaffected_by_a_kill, the_demonstration_runs_on_a_real_kafka};
use everywhere::any_aggregator_answers_for_the_fleet_and_names_silent_ones;
use fenced::clients_without_a_broker_find_kafka_again;
use fleet::{
    an_aggregator_falls_back_to_a_longer_session,
    partitions_move_when_an_aggregator_comes_and_when_it_goes,
};
use followed::{an_agent_finds_all_aggregators_by_kafka, an_agent_finds_all_aggregators_by_one};
use gap::records_lost_to_retention_are_reported_and_ruling_goes_on;
use kills::kills_leave_the_state_of_an_uninterrupted_twin;
use large::{
    a_document_that_is_too_long_is_refused_with_advice,
    limits_of_many_domains_are_rows_beside_every_document,
};
use limits::limits_are_pushed_listed_compared_and_rolled_back;
use log::{
    a_broker_that_returns_is_reported_once,
    a_log_without_its_beginning_is_read_and_followed_from_what_is_left,
    kafka_keeps_every_promise_of_a_log, missing_topics_are_made_and_unfit_ones_refused,
    the_first_record_since_an_instant_is_found, two_logs_follow_the_same_records,
};
use pairs::either_of_two_groups_may_be_killed_without_extra_calls;
use public_key::no_writer_of_hits_can_stop_a_partition;
use recreated::{
    a_deleted_topic_is_named_and_a_recreated_one_ruled,
    a_document_above_a_topics_bound_is_refused_with_both_lengths,
    recreated_members_are_read_and_limits_change_nothing,
};
use rights::a_missing_right_is_named_with_its_topic_and_operation;
use roles::{a_wrong_password_is_reported, each_role_needs_exactly_the_documented_rights};
use state::{hourly_snapshots_stay_where_configured, snapshots_are_read_whole_or_skipped};
use topics::{
    commands_on_logs_name_a_topic_of_hits_with_further_partitions,
    the_command_creates_topics_and_reports_differences,
};

fn main() -> ExitCode {
    let trials = trials![
        // The longest first, or all others would wait for them at the end.
        kills_leave_the_state_of_an_uninterrupted_twin,
        while_kafka_stands_still_no_holder_is_gone,
        a_broker_is_gone_once_dropped,
        records_are_stamped_and_found_by_their_append_time,
        kafka_keeps_every_promise_of_a_log,
        missing_topics_are_made_and_unfit_ones_refused,
        two_logs_follow_the_same_records,
        the_first_record_since_an_instant_is_found,
        a_log_without_its_beginning_is_read_and_followed_from_what_is_left,
        a_broker_that_returns_is_reported_once,
        snapshots_are_read_whole_or_skipped,
        hourly_snapshots_stay_where_configured,
        partitions_move_when_an_aggregator_comes_and_when_it_goes,
        an_aggregator_falls_back_to_a_longer_session,
        records_lost_to_retention_are_reported_and_ruling_goes_on,
        an_agent_finds_all_aggregators_by_one,
        an_agent_finds_all_aggregators_by_kafka,
        limits_are_pushed_listed_compared_and_rolled_back,
        a_document_that_is_too_long_is_refused_with_advice,
        limits_of_many_domains_are_rows_beside_every_document,
        foreign_records_become_dead_letters_and_stop_nothing,
        no_writer_of_hits_can_stop_a_partition,
        a_deleted_topic_is_named_and_a_recreated_one_ruled,
        a_document_above_a_topics_bound_is_refused_with_both_lengths,
        recreated_members_are_read_and_limits_change_nothing,
        a_missing_right_is_named_with_its_topic_and_operation,
        each_role_needs_exactly_the_documented_rights,
        a_wrong_password_is_reported,
        an_operator_may_ask_any_aggregator_of_a_fleet,
        any_aggregator_answers_for_the_fleet_and_names_silent_ones,
        the_command_creates_topics_and_reports_differences,
        commands_on_logs_name_a_topic_of_hits_with_further_partitions,
        the_demonstration_runs_on_a_real_kafka,
        agents_of_two_groups_are_unaffected_by_a_kill,
        either_of_two_groups_may_be_killed_without_extra_calls,
        agents_that_hold_are_killed_and_no_copy_is_lost,
        clients_without_a_broker_find_kafka_again,
    ];
    kafka::run(trials)
}
