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
    a_document_longer_than_a_topic_takes_is_refused_with_both_lengths,
    a_topic_that_is_deleted_is_named_and_one_that_is_made_anew_is_ruled,
    members_made_anew_are_heard_and_limits_made_anew_change_nothing,
};
use bad::what_has_no_business_in_a_topic_stops_nothing_and_is_kept_aside;
use broker::{a_broker_is_gone_once_dropped, records_are_stamped_and_found_by_their_append_time};
use copies::{
    agents_that_hold_are_killed_and_no_copy_is_lost, while_kafka_stands_still_no_holder_is_gone,
};
use demo::{
    agents_that_are_attached_to_two_groups_hear_nothing_of_a_kill,
    the_demonstration_runs_on_a_real_kafka,
};
use everywhere::any_aggregator_answers_for_the_fleet_and_names_what_it_could_not_reach;
use fenced::clients_that_were_told_of_no_broker_find_kafka_again;
use fleet::{
    an_aggregator_whose_brokers_allow_no_short_session_takes_a_longer_one,
    partitions_move_when_an_aggregator_comes_and_when_it_goes,
};
use followed::{
    an_agent_that_knows_kafka_alone_finds_all,
    an_agent_that_knows_one_aggregator_finds_all_and_follows_them,
};
use gap::what_retention_took_before_it_was_ruled_is_said_and_ruling_goes_on;
use kills::whoever_is_killed_whenever_the_state_is_that_of_an_uninterrupted_twin;
use large::{
    a_document_that_is_too_long_is_refused_by_what_to_do_instead,
    limits_of_many_domains_are_rows_beside_every_document,
};
use limits::limits_are_pushed_listed_compared_and_rolled_back;
use log::{
    a_broker_that_goes_and_comes_back_is_told_once, kafka_keeps_every_promise_of_a_log,
    missing_topics_are_made_and_unfit_ones_refused, two_logs_follow_the_same_records,
};
use pairs::of_two_groups_either_may_be_killed_and_nothing_more_is_let_through;
use public_key::whoever_may_write_to_the_topic_of_hits_stops_no_partition;
use rights::a_right_that_is_missing_is_named_with_its_topic_and_operation;
use roles::{
    each_role_works_with_the_rights_of_the_table_and_names_the_one_it_lacks,
    whoever_has_a_wrong_password_is_told_so,
};
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
        a_broker_that_goes_and_comes_back_is_told_once,
        snapshots_are_read_whole_or_passed_over,
        the_first_snapshot_of_an_hour_stays_while_that_is_asked_for,
        partitions_move_when_an_aggregator_comes_and_when_it_goes,
        an_aggregator_whose_brokers_allow_no_short_session_takes_a_longer_one,
        what_retention_took_before_it_was_ruled_is_said_and_ruling_goes_on,
        an_agent_that_knows_one_aggregator_finds_all_and_follows_them,
        an_agent_that_knows_kafka_alone_finds_all,
        limits_are_pushed_listed_compared_and_rolled_back,
        a_document_that_is_too_long_is_refused_by_what_to_do_instead,
        limits_of_many_domains_are_rows_beside_every_document,
        what_has_no_business_in_a_topic_stops_nothing_and_is_kept_aside,
        whoever_may_write_to_the_topic_of_hits_stops_no_partition,
        a_topic_that_is_deleted_is_named_and_one_that_is_made_anew_is_ruled,
        a_document_longer_than_a_topic_takes_is_refused_with_both_lengths,
        members_made_anew_are_heard_and_limits_made_anew_change_nothing,
        a_right_that_is_missing_is_named_with_its_topic_and_operation,
        each_role_works_with_the_rights_of_the_table_and_names_the_one_it_lacks,
        whoever_has_a_wrong_password_is_told_so,
        an_operator_may_ask_any_aggregator_of_a_fleet,
        any_aggregator_answers_for_the_fleet_and_names_what_it_could_not_reach,
        the_command_makes_topics_and_says_what_differs,
        the_demonstration_runs_on_a_real_kafka,
        agents_that_are_attached_to_two_groups_hear_nothing_of_a_kill,
        of_two_groups_either_may_be_killed_and_nothing_more_is_let_through,
        agents_that_hold_are_killed_and_no_copy_is_lost,
        while_kafka_stands_still_no_holder_is_gone,
        clients_that_were_told_of_no_broker_find_kafka_again,
        whoever_is_killed_whenever_the_state_is_that_of_an_uninterrupted_twin,
    ];
    kafka::run(trials)
}
