//! Lists of several members, merged into one: the rows of each partition from the member that was asked for it.
//!
//! Knows nothing of members, nor of the lists' content, except that each row names its partition. What stays true: a
//! partition's rows are from one answer, and a cut list says that it is cut.

use std::collections::BTreeSet;

use serde_json::Value;

use super::cursor;

/// How the rows of a list are merged.
pub(super) struct List {
    /// The field with the rows.
    pub rows: &'static str,
    /// The most rows that are shown.
    pub limit: usize,
    /// The order of the rows.
    pub order: RowOrder,
}

/// The order of rows.
#[derive(Clone, Copy)]
pub(super) enum RowOrder {
    /// By resource; rows of one resource stay as they came.
    Resource,
    /// Holds, the oldest first. Each answer is complete up to its `next`, and the merged list up to the first `next`.
    Start,
    /// Descending by a field.
    Greatest(&'static str),
}

/// The partitions that an answer lists as missing.
pub(super) fn missing_in(view: &Value) -> BTreeSet<u32> {
    let list = view["partitions_missing"].as_array();
    let numbers = list.into_iter().flatten().filter_map(Value::as_u64);
    numbers.filter_map(|n| u32::try_from(n).ok()).collect()
}

/// Empties answers whose window ended before another's began: their counts are of another time, and rates over the
/// merged window would be wrong. Windows follow the log's time, so only a member that reads the log late has such a
/// one. Returns the partitions of what is left out.
pub(super) fn leave_out_older(answers: &mut [&mut Value], list: &List) -> BTreeSet<u32> {
    let mut left_out = BTreeSet::new();
    let starts = answers
        .iter()
        .filter_map(|answer| answer["from_us"].as_u64());
    let Some(start) = starts.max() else {
        return left_out;
    };
    for answer in answers {
        if answer["to_us"].as_u64().is_some_and(|end| end < start) {
            let rows = answer[list.rows].as_array().into_iter().flatten();
            let partitions = rows.filter_map(|row| row["partition"].as_u64());
            left_out.extend(partitions.filter_map(|n| u32::try_from(n).ok()));
            answer[list.rows] = Value::Array(Vec::new());
            answer["short_by_max"] = 0.into();
        }
    }
    left_out
}

/// Merges the rows of partitions that were asked for, and the fields that concern all rows of an answer.
pub(super) fn merge(view: &mut Value, answer: &Value, answered: &BTreeSet<u32>, list: &List) {
    if answered.is_empty() {
        return;
    }
    let is_asked = |row: &&Value| {
        let partition = row["partition"].as_u64();
        partition.is_some_and(|p| u32::try_from(p).is_ok_and(|p| answered.contains(&p)))
    };
    for field in [list.rows, "resources"] {
        if let (Some(rows), Some(theirs)) = (view[field].as_array_mut(), answer[field].as_array()) {
            rows.extend(theirs.iter().filter(is_asked).cloned());
        }
    }
    let number = |view: &Value, field: &str| view[field].as_u64();
    for (field, put) in [
        ("omitted", u64::saturating_add as fn(u64, u64) -> u64),
        ("from_us", u64::max),
        ("to_us", u64::max),
        ("counting_from_us", u64::max),
        ("short_by_max", u64::max),
    ] {
        if let (Some(own), Some(theirs)) = (number(view, field), number(answer, field)) {
            view[field] = put(own, theirs).into();
        }
    }
    if answer["more"] == true {
        view["more"] = true.into();
    }
    if let RowOrder::Start = list.order {
        let ends = [&view["next"], &answer["next"]].map(|next| cursor::read_hold(next.as_str()?));
        let first = ends.into_iter().flatten().min();
        view["next"] = first.map(|place| cursor::shown_hold(&place)).into();
    }
}

/// Puts the rows into their order, and cuts the list at its limit.
pub(super) fn finish(view: &mut Value, list: &List) {
    let resource = |row: &Value| row["resource"].as_str().unwrap_or_default().to_owned();
    if let Some(resources) = view["resources"].as_array_mut() {
        resources.sort_by_cached_key(resource);
    }
    let end = match list.order {
        RowOrder::Start => view["next"].as_str().and_then(cursor::read_hold),
        _ => None,
    };
    let (mut cut, mut last) = (0, None);
    if let Some(rows) = view[list.rows].as_array_mut() {
        match list.order {
            RowOrder::Resource => {
                rows.sort_by_cached_key(|row| (resource(row), row["partition"].as_u64()));
            }
            RowOrder::Start => {
                rows.sort_by_cached_key(cursor::of_hold);
                // Beyond the end of one answer it is unknown which rows that member has.
                if let Some(end) = &end {
                    rows.retain(|row| cursor::of_hold(row).is_some_and(|at| at <= *end));
                }
            }
            RowOrder::Greatest(field) => {
                let domain = |row: &Value| row["domain"].as_str().unwrap_or_default().to_owned();
                rows.sort_by_cached_key(|row| {
                    let count = std::cmp::Reverse(row[field].as_u64());
                    (count, resource(row), domain(row))
                });
            }
        }
        cut = rows.len().saturating_sub(list.limit);
        rows.truncate(list.limit);
        last = rows.last().and_then(cursor::of_hold);
    }
    if let (RowOrder::Start, 1.., Some(last)) = (list.order, cut, last) {
        view["next"] = cursor::shown_hold(&last).into();
    }
    if 0 < cut {
        if let Some(omitted) = view["omitted"].as_u64() {
            view["omitted"] = omitted.saturating_add(cut as u64).into();
        }
        if view["more"].is_boolean() {
            view["more"] = true.into();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const HOLDS: List = List {
        rows: "holds",
        limit: 3,
        order: RowOrder::Start,
    };

    fn row(partition: u32, start: u64) -> Value {
        json!({"partition": partition, "start_us": start, "resource": "r", "agent": "a", "epoch": "7", "number": 1,
            "transfer": null})
    }

    fn starts(view: &Value) -> Vec<u64> {
        let rows = view["holds"].as_array().expect("rows").iter();
        rows.filter_map(|row| row["start_us"].as_u64()).collect()
    }

    #[test]
    fn only_rows_of_the_requested_partitions_are_taken() {
        let mut view = json!({"holds": [row(0, 5)], "more": false, "resources": [], "partitions_missing": [1, 2]});
        let answer = json!({
            // It rules 0 as well, in a group of its own: this process has those rows already.
            "holds": [row(0, 5), row(1, 3), row(1, 9), row(1, 1)],
            "resources": [row(1, 0)], "more": false, "partitions_missing": [2],
        });
        merge(&mut view, &answer, &BTreeSet::from([1]), &HOLDS);
        finish(&mut view, &HOLDS);
        assert_eq!(starts(&view), [1, 3, 5]);
        assert_eq!(
            (&view["more"], view["resources"].as_array().unwrap().len()),
            (&json!(true), 1)
        );
        assert_eq!(view["next"], next(&row(0, 5)), "nine was cut off");
    }

    fn next(row: &Value) -> Value {
        let place = cursor::of_hold(row).expect("a place");
        cursor::shown_hold(&place).into()
    }

    #[test]
    fn a_late_members_counts_do_not_stretch_the_window() {
        let list = List {
            rows: "pairs",
            limit: 10,
            order: RowOrder::Greatest("hits"),
        };
        let member = |partition: u32, minute: u64, short: u64| {
            let pair = json!({"resource": "r", "domain": "d", "partition": partition, "hits": 600});
            json!({"from_us": minute * 60_000_000, "to_us": (minute + 1) * 60_000_000 + 5, "short_by_max": short,
                "pairs": [pair]})
        };
        // The first reads the log three hours late; the minute of the third has turned, and the second's not yet.
        let mut view = member(0, 20, 9);
        let mut others = [member(1, 199, 2), member(2, 200, 3)];
        let mut all = vec![&mut view];
        all.extend(&mut others);
        let left_out = leave_out_older(&mut all, &list);
        assert_eq!(
            left_out,
            BTreeSet::from([0]),
            "they are missing in the list"
        );
        for (partition, answer) in [1, 2].into_iter().zip(&others) {
            merge(&mut view, answer, &BTreeSet::from([partition]), &list);
        }
        finish(&mut view, &list);
        let rows = view["pairs"].as_array().expect("rows").iter();
        let partitions: Vec<_> = rows.filter_map(|row| row["partition"].as_u64()).collect();
        assert_eq!(partitions, [1, 2]);
        let window = [&view["from_us"], &view["to_us"], &view["short_by_max"]];
        let expected: [u64; 3] = [200 * 60_000_000, 201 * 60_000_000 + 5, 3];
        assert_eq!(window, expected);
    }

    #[test]
    fn a_page_of_holds_ends_where_the_first_of_its_parts_does() {
        let mut view = json!({"holds": [row(0, 5)], "more": false, "next": null, "partitions_missing": [1, 2]});
        // The first has looked at as many as it may, and does not know what comes after four.
        let stopped = json!({"holds": [row(1, 1)], "more": true, "next": next(&row(1, 4)), "partitions_missing": [2]});
        let whole = json!({"holds": [row(2, 2), row(2, 9)], "more": false, "next": null, "partitions_missing": [1]});
        merge(&mut view, &stopped, &BTreeSet::from([1]), &HOLDS);
        merge(&mut view, &whole, &BTreeSet::from([2]), &HOLDS);
        finish(&mut view, &HOLDS);
        assert_eq!(starts(&view), [1, 2]);
        assert_eq!(view["more"], true);
        assert_eq!(view["next"], next(&row(1, 4)));
    }
}
