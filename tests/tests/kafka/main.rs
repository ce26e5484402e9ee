//! Promises that only a real Kafka can test, and what Tollgate relies on Kafka for.
//!
//! Ignored, with the reason, if Java or Maven is missing; with `TOLLGATE_KAFKA=required` that is a
//! failure. A trial is a function of a broker, and a line in `main`.

use std::process::ExitCode;

use tollgate_tests::{kafka, trials};

mod acls;
mod amendments;
mod anew;
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
mod rights;
mod roles;
mod state;
mod topics;

use amendments::an_operator_may_ask_any_aggregator_of_a_fleet;
use anew::{
    a_deleted_topic_is_named_and_a_recreated_one_ruled,
    a_document_longer_than_a_topic_takes_is_refused_with_both_lengths,
    recreated_members_are_read_and_limits_change_nothing,
};
use bad::foreign_records_become_dead_letters_and_stop_nothing;
use broker::{a_broker_is_gone_once_dropped, records_are_stamped_and_found_by_their_append_time};
use copies::{
    agents_that_hold_are_killed_and_no_copy_is_lost, while_kafka_stands_still_no_holder_is_gone,
};
use demo::{
    agents_attached_to_two_groups_do_not_notice_a_kill, the_demonstration_runs_on_a_real_kafka,
};
use everywhere::any_aggregator_answers_for_the_fleet_and_names_what_it_could_not_reach;
use fenced::clients_without_a_broker_find_kafka_again;
use fleet::{
    an_aggregator_whose_brokers_allow_no_short_session_takes_a_longer_one,
    partitions_move_when_an_aggregator_comes_and_when_it_goes,
};
use followed::{
    an_agent_that_knows_kafka_alone_finds_all,
    an_agent_that_knows_one_aggregator_finds_all_and_follows_them,
};
use gap::records_lost_to_retention_are_reported_and_ruling_goes_on;
use kills::kills_leave_the_state_of_an_uninterrupted_twin;
use large::{
    a_document_that_is_too_long_is_refused_by_what_to_do_instead,
    limits_of_many_domains_are_rows_beside_every_document,
};
use limits::limits_are_pushed_listed_compared_and_rolled_back;
use log::{
    a_broker_that_returns_is_reported_once, kafka_keeps_every_promise_of_a_log,
    missing_topics_are_made_and_unfit_ones_refused, two_logs_follow_the_same_records,
};
use pairs::either_of_two_groups_may_be_killed_without_extra_calls;
use public_key::no_writer_of_hits_can_stop_a_partition;
use rights::a_right_that_is_missing_is_named_with_its_topic_and_operation;
use roles::{a_wrong_password_is_reported, each_role_needs_exactly_the_documented_rights};
use state::{
    snapshots_are_read_whole_or_passed_over,
    the_first_snapshot_of_an_hour_stays_while_that_is_asked_for,
};
use topics::the_command_makes_topics_and_says_what_differs;

fn main() -> ExitCode {
    let trials = trials![
        a_broker_is_gone_once_dropped,
        records_are_stamped_and_found_by_their_append_time,
        kafka_keeps_every_promise_of_a_log,
        missing_topics_are_made_and_unfit_ones_refused,
        two_logs_follow_the_same_records,
        a_broker_that_returns_is_reported_once,
        snapshots_are_read_whole_or_passed_over,
        the_first_snapshot_of_an_hour_stays_while_that_is_asked_for,
        partitions_move_when_an_aggregator_comes_and_when_it_goes,
        an_aggregator_whose_brokers_allow_no_short_session_takes_a_longer_one,
        records_lost_to_retention_are_reported_and_ruling_goes_on,
        an_agent_that_knows_one_aggregator_finds_all_and_follows_them,
        an_agent_that_knows_kafka_alone_finds_all,
        limits_are_pushed_listed_compared_and_rolled_back,
        a_document_that_is_too_long_is_refused_by_what_to_do_instead,
        limits_of_many_domains_are_rows_beside_every_document,
        foreign_records_become_dead_letters_and_stop_nothing,
        no_writer_of_hits_can_stop_a_partition,
        a_deleted_topic_is_named_and_a_recreated_one_ruled,
        a_document_longer_than_a_topic_takes_is_refused_with_both_lengths,
        recreated_members_are_read_and_limits_change_nothing,
        a_right_that_is_missing_is_named_with_its_topic_and_operation,
        each_role_needs_exactly_the_documented_rights,
        a_wrong_password_is_reported,
        an_operator_may_ask_any_aggregator_of_a_fleet,
        any_aggregator_answers_for_the_fleet_and_names_what_it_could_not_reach,
        the_command_makes_topics_and_says_what_differs,
        the_demonstration_runs_on_a_real_kafka,
        agents_attached_to_two_groups_do_not_notice_a_kill,
        either_of_two_groups_may_be_killed_without_extra_calls,
        agents_that_hold_are_killed_and_no_copy_is_lost,
        while_kafka_stands_still_no_holder_is_gone,
        clients_without_a_broker_find_kafka_again,
        kills_leave_the_state_of_an_uninterrupted_twin,
    ];
    kafka::run(trials)
}
