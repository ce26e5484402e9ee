//! Texts, read as rows.

use super::*;

/// Every row as text, and the lines that were refused.
fn read(text: &str) -> (FileKind, Vec<String>, Vec<u64>) {
    let opened = Rows::open(text.as_bytes(), &Wanted::default());
    let Ok(OpenedRows::Rows(mut rows)) = opened else {
        panic!("no rows in {text:?}")
    };
    let mut read = Vec::new();
    let mut each = |row: Row<'_>| {
        read.push(format!(
            "{} {} {} {} {}",
            row.at.as_micros(),
            row.resource.as_deref().unwrap_or("-"),
            row.domain.as_deref().unwrap_or("-"),
            row.copies,
            row.min.map_or(0, NonZeroU32::get),
        ));
        Ok(())
    };
    rows.for_each(&mut each, &mut |_| ControlFlow::Continue(()))
        .expect("memory");
    let refused = rows.lines().unreadable().iter().map(|bad| bad.line);
    let refused = refused.collect();
    assert_eq!(
        rows.lines().rows(),
        (read.len() + rows.lines().skipped() as usize) as u64
    );
    (rows.kind(), read, refused)
}

#[test]
fn columns_are_found_by_their_heading_wherever_they_stand() {
    let (kind, rows, refused) = read(
        "domain,note,T,copies,resource\nacme,,1.5,2,api\n\nacme,x,soon,1,api\nacme,x,2,0,api\nacme,x\n\"a,b\",x,3,,api\n",
    );
    assert_eq!(kind, FileKind::Csv);
    assert_eq!(rows, ["1500000 api acme 2 0", "3000000 api a,b 1 0"]);
    assert_eq!(refused, [4, 5, 6]);
}

#[test]
fn rows_without_a_heading_have_the_usual_columns() {
    let (kind, rows, _) = read("1,api,acme,5,2\n2,api,acme,1,2\n");
    assert_eq!(kind, FileKind::Csv);
    assert_eq!(rows, ["1000000 api acme 5 2"]);
}

#[test]
fn objects_are_json_lines_and_keep_all_digits_of_an_instant() {
    let (kind, rows, refused) = read(
        "{\"t\":1455944445.123456,\"resource\":\"api\",\"domain\":\"a\\\"b\"}\n\
             {\"t\":\"2016-02-20T05:00:45Z\",\"domain\":\"c\",\"copies\":3,\"min\":1,\"more\":[1]}\n\
             {\"t\":1,\"domain\":7}\n[]\n{\"domain\":\"d\"}\n",
    );
    assert_eq!(kind, FileKind::JsonLines);
    assert_eq!(
        rows,
        [
            "1455944445123456 api a\"b 1 0",
            "1455944445000000 - c 3 1",
            "1000000 - 7 1 0"
        ]
    );
    assert_eq!(refused, [4, 5]);
}

#[test]
fn separators_comments_and_numbers_are_read_leniently() {
    let expected = ["1000000 api acme 3 0", "2000000 api 7 1 0"];
    for text in [
        "t;resource;domain;copies\n1;api;acme;3.0\n2;api;7;\n",
        "# t\tresource\tdomain\tcopies\n1\tapi\tacme\t3\n# a remark\n2\tapi\t7\t1\n",
        "junk before it\n t , resource , domain , copies\n 1 , api , acme , 3\n2, api, 7, 1\n",
        "[{\"t\":1,\"resource\":\"api\",\"domain\":\"acme\",\"copies\":\"3\"},\n {\"t\":2.0,\"resource\":\"api\",\"domain\":7,\"copies\":1.0}]",
        "\0\0{\"time\":1,\"resource\":\"api\",\"domain\":\"acme\",\"copies\":3}\n{\"time\":2,\"resource\":\"api\",\"domain\":\"7\"}",
    ] {
        assert_eq!(read(text).1, expected, "{text}");
    }
}

#[test]
fn a_w3c_log_may_rename_its_columns() {
    let (kind, rows, refused) = read(
        "#Software: IIS\n#Fields: date time cs-method c-ip\n2016-02-20 05:00:45 GET 203.0.113.7\n#Fields: c-ip date time\n::1 2016-02-20 05:00:46\nx\n",
    );
    assert_eq!(kind, FileKind::AccessLog);
    assert_eq!(
        rows,
        [
            "1455944445000000 - 203.0.113.7 1 0",
            "1455944446000000 - ::1 1 0"
        ]
    );
    assert_eq!(refused, [6]);
    let cloudfront = "#Version: 1.0\n#Fields: date time x-edge-location c-ip\n2016-02-20\t05:00:45\tLAX 1\t203.0.113.7\n";
    assert_eq!(read(cloudfront).1, ["1455944445000000 - 203.0.113.7 1 0"]);
}

#[test]
fn nothing_is_lost_behind_blank_lines_however_many_there_are() {
    let line = "10.0.0.1 - - [20/Feb/2016:00:00:45 -0500] \"GET /\"\n";
    let text = "\n".repeat(300_000) + line + line;
    let (_, rows, refused) = read(&text);
    assert_eq!((rows.len(), refused), (2, vec![]));
}

#[test]
fn a_stated_client_also_holds_for_our_own_fields() {
    let prefixes = tollgate_shared::networks::AddressPrefixes { v4: 24, v6: 64 };
    let stated = Wanted {
        clients: Clients::new(None, Some(prefixes)),
        ..Wanted::default()
    };
    for text in [
        "t,domain\n1,10.0.0.7\n",
        "1,api,10.0.0.7\n",
        "{\"t\":1,\"domain\":\"10.0.0.7\"}\n",
    ] {
        for (wanted, expected) in [(&stated, "10.0.0.0/24"), (&Wanted::default(), "10.0.0.7")] {
            let Ok(OpenedRows::Rows(mut rows)) = Rows::open(text.as_bytes(), wanted) else {
                panic!("no rows in {text:?}")
            };
            let mut domain = None;
            let mut each = |row: Row<'_>| {
                domain = row.domain.map(|domain| domain.into_owned());
                Ok(())
            };
            rows.for_each(&mut each, &mut |_| ControlFlow::Continue(()))
                .expect("memory");
            assert_eq!(domain.as_deref(), Some(expected), "{text}");
        }
    }
}

#[test]
fn a_row_that_does_not_fit_is_reported() {
    let misfit = |text: &str, wanted: &Wanted| match Rows::open(text.as_bytes(), wanted) {
        Ok(OpenedRows::Misfit(what)) => what,
        _ => panic!("it fits: {text}"),
    };
    let columns = Columns {
        domain: Some("tenant".to_owned()),
        ..Columns::default()
    };
    let wanted = Wanted {
        columns,
        ..Wanted::default()
    };
    let what = misfit("t,domain\n1,acme\n", &wanted);
    assert_eq!(
        what,
        "--column domain=tenant: no such column, expected one of t, domain"
    );
    assert!(misfit("1,api,acme\n", &wanted).contains("columns of a heading"));
    let log = "10.0.0.1 - - [20/Feb/2016:00:00:45 -0500] \"GET /\"\n";
    assert!(misfit(log, &wanted).starts_with("--column: an access log has none"));
    let wanted = Wanted {
        form: Some("nonsense".to_owned()),
        ..Wanted::default()
    };
    assert!(misfit("x\n", &wanted).starts_with("--log-format \"nonsense\": expected combined"));
}

#[test]
fn everything_else_is_an_access_log() {
    let (kind, rows, refused) =
        read("junk, indeed\n10.0.0.1 - - [20/Feb/2016:00:00:45 -0500] \"GET / HTTP/1.1\"\n");
    assert_eq!(kind, FileKind::AccessLog);
    assert_eq!(rows, ["1455944445000000 - 10.0.0.1 1 0"]);
    assert_eq!(refused, [1]);
}

/// Each row's client and second, and how many lines were refused.
fn clients_of(text: &str, wanted: &Wanted) -> (Vec<String>, u64) {
    let Ok(OpenedRows::Rows(mut rows)) = Rows::open(text.as_bytes(), wanted) else {
        panic!("no rows in {text:?}")
    };
    let mut read = Vec::new();
    let mut each = |row: Row<'_>| {
        let second = row.at.as_micros() / 1_000_000;
        read.push(format!("{second} {}", row.domain.unwrap_or_default()));
        Ok(())
    };
    rows.for_each(&mut each, &mut |_| ControlFlow::Continue(()))
        .expect("memory");
    (read, rows.lines().skipped())
}

#[test]
fn a_named_header_of_forwarders_is_read_as_a_list() {
    let lines = |n: u32| {
        format!(
            "10.0.0.1 - - [20/Feb/2016:05:00:4{n} +0000] \"GET / HTTP/1.1\" 200 5 \"-\" \"curl\" \"6.6.6.6, 203.0.113.{n}, 10.1.2.3\"\n"
        )
    };
    let log: String = (1..=4).map(lines).collect();
    let public = log.replace("10.0.0.1 -", "198.51.100.1 -");
    let of_json = "{\"t\":1455944441,\"remote_addr\":\"10.0.0.1\",\"xff\":\"6.6.6.6, 203.0.113.1, 10.1.2.3\"}\n";
    let of_csv = "t,remote_addr,xff\n1455944441,10.0.0.1,\"6.6.6.6, 203.0.113.1, 10.1.2.3\"\n";
    let of_keys =
        "time=2016-02-20T05:00:41Z remote_addr=10.0.0.1 xff=\"6.6.6.6, 203.0.113.1, 10.1.2.3\"\n";
    let stated = "$remote_addr - - [$time_local] \"$request\" $status $_ \"$_\" \"$_\" \"$http_x_forwarded_for\"";
    for (text, form, client) in [
        (&*log, None, "http_x_forwarded_for"),
        (&*public, None, "http_x_forwarded_for"),
        (&*log, Some("combined"), "http_x_forwarded_for"),
        (&*log, Some(stated), "http_x_forwarded_for"),
        (of_json, None, "xff"),
        (of_csv, None, "xff"),
        (of_keys, None, "xff"),
    ] {
        let wanted = Wanted {
            form: form.map(str::to_owned),
            client: Some(client.to_owned()),
            ..Wanted::default()
        };
        let (read, skipped) = clients_of(text, &wanted);
        assert_eq!(read[0], "1455944441 203.0.113.1", "{form:?} {text}");
        assert_eq!(skipped, 0);
    }
}

#[test]
fn a_list_of_forwarders_without_quotes_is_one_field() {
    let text = "6.6.6.6, 203.0.113.7,  10.1.2.3 - - [20/Feb/2016:05:00:41 +0000] \"GET /\" 200 5\n\
                203.0.113.8 - - [20/Feb/2016:05:00:42 +0000] \"GET /\" 200 5\n";
    let wanted = Wanted {
        form: Some("%{X-Forwarded-For}i %l %u %t \"%r\" %>s %b".to_owned()),
        ..Wanted::default()
    };
    let expected = ["1455944441 203.0.113.7", "1455944442 203.0.113.8"];
    assert_eq!(
        clients_of(text, &wanted),
        (expected.map(str::to_owned).into(), 0)
    );
}

#[test]
fn a_list_among_single_addresses_is_read_as_a_list() {
    let log = " - - [20/Feb/2016:05:00:41 +0000] \"GET /\"";
    for (rest, form) in [
        (log, Some("combined")),
        (log, None),
        (" GET / 2016-02-20T05:00:41Z", None),
    ] {
        let wanted = Wanted {
            form: form.map(str::to_owned),
            ..Wanted::default()
        };
        let lines = (1..=20).map(|n| match n {
            10 => format!("6.6.6.6, 203.0.113.10, 10.1.2.3{rest}\n"),
            n => format!("203.0.113.{n}{rest}\n"),
        });
        let (read, skipped) = clients_of(&lines.collect::<String>(), &wanted);
        assert_eq!((read.len(), skipped), (20, 0), "{rest}");
        assert_eq!(read[9], "1455944441 203.0.113.10", "{rest}");
    }
}

#[test]
fn an_instant_with_a_zone_that_is_not_known_is_refused() {
    for (line, hour) in [
        ("2016-02-20 10:00:00 +02 203.0.113.7 GET /", Some(8)),
        ("2016-02-20 10:00:00 INFO 203.0.113.7 GET /", Some(10)),
        ("2016-02-20 10:00:00 UTC 203.0.113.7 GET /", Some(10)),
        ("2016-02-20T10:00:00 lb 203.0.113.7:80 GET /", Some(10)),
        ("2016-02-20 10:00:00 CET 203.0.113.7 GET /", None),
        ("[20/Feb/2016:10:00:00 CET] 203.0.113.7 GET /", None),
        ("203.0.113.7 - - [20/Feb/2016:10:00:00 EST] GET /", None),
        ("2016-02-20T10:00:00 CET 203.0.113.7:80 GET /", None),
    ] {
        let text = format!("{line}\n{line}\n");
        let read = match Rows::open(text.as_bytes(), &Wanted::default()) {
            Ok(OpenedRows::Rows(_)) => clients_of(&text, &Wanted::default()).0,
            _ => Vec::new(),
        };
        let expected = hour.map(|hour| format!("{} 203.0.113.7", 1_455_926_400 + 3_600 * hour));
        assert_eq!(read.first(), expected.as_ref(), "{line}");
    }
}

#[test]
fn a_number_is_no_instant_where_a_date_follows() {
    for number in ["8005551234", "2125551234"] {
        let line = format!("{number} 2016-02-20T05:00:41Z 203.0.113.7 GET /\n");
        let read = clients_of(&line.repeat(2), &Wanted::default()).0;
        assert_eq!(
            read.first().map(String::as_str),
            Some("1455944441 203.0.113.7")
        );
    }
    let line = "200 1455944441250 203.0.113.7 GET /\n";
    let wanted = Wanted {
        instants: Instants {
            unit: super::super::TimeUnit::Millis,
            ..Instants::default()
        },
        ..Wanted::default()
    };
    let read = clients_of(&line.repeat(2), &wanted).0;
    assert_eq!(read[0], "1455944441 203.0.113.7");
}

#[test]
fn a_port_behind_a_colon_belongs_to_its_address() {
    let rest = "[20/Feb/2016:05:00:41 +0000] \"GET /\"";
    let text = format!("2001:db8::7:51034 {rest}\n203.0.113.7:51034 {rest}\n");
    for (form, client) in [
        ("$remote_addr:$remote_port [$time_local]", None),
        (
            "$remote_addr:$remote_port [$time_local]",
            Some("remote_addr"),
        ),
        ("%h:%{remote}p %t", None),
        ("%h:%{remote}p %t", Some("%h")),
    ] {
        let wanted = Wanted {
            form: Some(form.to_owned()),
            client: client.map(str::to_owned),
            ..Wanted::default()
        };
        let expected = ["1455944441 2001:db8::7", "1455944441 203.0.113.7"];
        assert_eq!(
            clients_of(&text, &wanted),
            (expected.map(str::to_owned).into(), 0)
        );
    }
}

#[test]
fn a_day_alone_is_not_the_instant_of_a_row() {
    for text in [
        "t,domain\n2016-02-20T05:00:41Z,a\n2016-02-20,a\n",
        "{\"t\":\"2016-02-20T05:00:41Z\",\"domain\":\"a\"}\n{\"t\":\"2016-02-20\",\"domain\":\"a\"}\n",
    ] {
        let expected = (vec!["1455944441 a".to_owned()], 1);
        assert_eq!(clients_of(text, &Wanted::default()), expected, "{text}");
    }
    let wanted = Wanted {
        instants: Instants {
            pattern: Some("%Y-%m-%d".to_owned()),
            ..Instants::default()
        },
        ..Wanted::default()
    };
    for text in [
        "t,domain\n2016-02-20,a\n",
        "{\"t\":\"2016-02-20\",\"domain\":\"a\"}\n",
    ] {
        let expected = (vec!["1455926400 a".to_owned()], 0);
        assert_eq!(clients_of(text, &wanted), expected, "{text}");
    }
}

#[test]
fn a_row_that_begins_with_a_number_sign_is_a_row() {
    let text = "domain,t,resource\n#1,1,api\n# a remark\n#2,2,api,4,5\nacme,3,api\n";
    let (kind, rows, refused) = read(text);
    assert_eq!(kind, FileKind::Csv);
    assert_eq!(rows, ["1000000 api #1 1 0", "3000000 api acme 1 0"]);
    assert_eq!(refused, Vec::<u64>::new());
    let (_, rows, _) = read("# domain,t,resource\n#acme,1,api\nacme,3,api\n");
    assert_eq!(rows, ["3000000 api acme 1 0"]);
}

#[test]
fn a_first_row_with_a_field_like_a_name_of_instants_is_a_row() {
    let (_, rows, _) = read("1763632800.25,orders.created,acme,1\n1763632801,api,acme,1\n");
    assert_eq!(rows[0], "1763632800250000 orders.created acme 1 0");
}

#[test]
fn copies_that_are_not_a_number_are_refused() {
    let line = |copies: &str| format!("{{\"t\":1,\"domain\":\"a\",\"copies\":{copies}}}\n");
    let text: String = ["2", "null", "[3]", "{\"a\":3}", "[]"].map(line).concat();
    let (_, rows, refused) = read(&text);
    assert_eq!(rows, ["1000000 - a 2 0", "1000000 - a 1 0"]);
    assert_eq!(refused, [3, 4, 5]);
}
