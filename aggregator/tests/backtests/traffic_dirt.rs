//! Files as they occur in practice: cut, padded, concatenated, in other encodings, exported by spreadsheets.
//!
//! What stays true: dirt causes neither a second client nor a forged row, costs at most its own line, and what cannot
//! be read causes an error with advice.

use std::path::Path;

use tollgate_replay::traffic::Wanted;

use crate::rows::read;

/// 2025-11-20T10:00:00Z, in microseconds.
const START: u64 = 1_763_632_800_000_000;

fn line(second: u64) -> String {
    format!(
        "203.0.113.7 - - [20/Nov/2025:10:00:{second:02} +0000] \"GET / HTTP/1.1\" 200 5 \"-\" \"curl\"\n"
    )
}

/// Seconds of the rows, and the lines that were refused; every row is of one client.
fn seconds(bytes: &[u8], client: &str) -> (Vec<u64>, Vec<u64>) {
    let recorded = read(bytes, &Wanted::default()).expect("rows");
    let rows = recorded.rows.into_iter().map(|(at, of)| {
        assert_eq!(of, client);
        (at - START) / 1_000_000
    });
    (rows.collect(), recorded.refused)
}

#[test]
fn zeros_and_marks_between_lines_lose_none() {
    let lines: Vec<String> = (0..4).map(line).collect();
    let zeros = vec![0; 200_000];
    for (at, dirt) in [
        (0, &zeros[..]),
        (2, &zeros),
        (4, &zeros),
        (2, b"\n\n \t\r\n"),
        (2, b"\xef\xbb\xbf"),
        (0, b"\xef\xbb\xbf\0\0"),
    ] {
        let mut bytes = lines[..at].concat().into_bytes();
        bytes.extend_from_slice(dirt);
        bytes.extend_from_slice(lines[at..].concat().as_bytes());
        assert_eq!(
            seconds(&bytes, "203.0.113.7"),
            (vec![0, 1, 2, 3], vec![]),
            "{at}"
        );
    }
}

#[test]
fn a_cut_or_foreign_line_loses_no_other_line() {
    let long = line(1).replace("GET /", &("GET /".to_owned() + &"x".repeat(100_000)));
    for dirt in [
        "TP/1.1\" 200 5 \"-\" \"curl\"\n".to_owned(),
        "2025/11/20 10:00:00 [error] 7#7: *1 open() failed, client: 192.0.2.1\n".to_owned(),
        "192.0.2.1 - - [20/Nov\n".to_owned(),
        // Else Unix time, and an instant in another zone.
        "192.0.2.1 - - [25\n".to_owned(),
        "192.0.2.1 - - [20/Nov/2025:10:00:01\n".to_owned(),
        "192.0.2.1 - - [31/Feb/2025:10:00:00 +0000] \"GET /\" 200 5\n".to_owned(),
        "www.example.com:443 ".to_owned() + &line(1),
        long,
    ] {
        let text = line(0) + &dirt + &line(2) + &line(3) + &line(4);
        assert_eq!(
            seconds(text.as_bytes(), "203.0.113.7"),
            (vec![0, 2, 3, 4], vec![2]),
            "{dirt:.60}"
        );
    }
}

#[test]
fn a_line_that_is_cut_within_an_address_is_no_other_client() {
    let line = |second: u64| {
        format!(
            "http 2025-11-20T10:00:{second:02}.000000Z app/lb/1 203.0.113.7:2817 10.0.0.1:80 0.0 0.0 0.0 200 200 34 366 \
             \"GET http://a.example:80/ HTTP/1.1\" \"curl\" - -\n"
        )
    };
    let text = (0..4).map(line).collect::<String>() + &line(4)[..51];
    assert!(text.ends_with(" 203.0.113"), "{text}");
    assert_eq!(
        seconds(text.as_bytes(), "203.0.113.7"),
        (vec![0, 1, 2, 3], vec![5])
    );
}

#[test]
fn a_line_of_any_length_before_the_others_loses_none() {
    let json = |second: u64| format!("{{\"t\":{},\"domain\":\"acme\"}}\n", 1_763_632_800 + second);
    let csv = |second: u64| format!("{},acme\n", 1_763_632_800 + second);
    let rows = |row: &dyn Fn(u64) -> String| (0..10).map(row).collect::<String>();
    for bytes in [100 << 10, 300 << 10, 2 << 20] {
        let filler = "x".repeat(bytes);
        for (text, refused) in [
            (
                format!("{{\"t\":1763632800,\"domain\":\"acme\",\"body\":\"{filler}\"}}\n")
                    + &rows(&json),
                1,
            ),
            (filler.clone() + "\n" + &rows(&json), 1),
            (format!("{filler}\nt,domain\n") + &rows(&csv), 1),
            (format!("t,domain\n1763632800,{filler}\n") + &rows(&csv), 2),
            (
                format!("203.0.113.7 {filler}\n").replace("203.0.113.7", "acme")
                    + &rows(&|second| line(second).replace("203.0.113.7", "acme")),
                1,
            ),
        ] {
            assert_eq!(
                seconds(text.as_bytes(), "acme"),
                ((0..10).collect(), vec![refused]),
                "{bytes}: {text:.40}"
            );
        }
    }
}

#[test]
fn encodings_are_recognised_with_and_without_a_mark() {
    let text: String = "t;domain\r\n1763632800;acmé\r\n1763632801;acmé\r\n".to_owned();
    let utf_16 =
        |encode: fn(u16) -> [u8; 2]| -> Vec<u8> { text.encode_utf16().flat_map(encode).collect() };
    for bytes in [
        text.clone().into_bytes(),
        utf_16(u16::to_le_bytes),
        utf_16(u16::to_be_bytes),
        text.chars().map(|c| c as u8).collect(),
    ] {
        assert_eq!(
            seconds(&bytes, "acmé"),
            (vec![0, 1], vec![]),
            "{:?}",
            &bytes[..8]
        );
    }
    let latin_1 = b"{\"t\":1763632800,\"domain\":\"acm\xe9\",\"ua\":\"\xff\"}\n";
    assert_eq!(seconds(latin_1, "acmé"), (vec![0], vec![]));
}

#[test]
fn exports_of_spreadsheets_and_databases_are_read() {
    for text in [
        "sep=;\r\nt;domain\r\n1763632800,0;acme\r\n1763632801,0;acme\r\n",
        "Zeit;Zeitstempel;t;domain\r\nx;y;20.11.2025 10:00:00;acme\r\nx;y;20.11.2025 10:00:01;acme\r\n",
        "t,domain\r1763632800,acme\r1763632801,acme\r",
        "\"_time\",\"Tenant ID\"\n\"2025-11-20T10:00:00+0000\",\"acme\"\n\"2025-11-20T10:00:01+0000\",\"acme\"\n",
        "Timestamp , Client , Status\n2025-11-20 10:00:00 UTC , acme , 200\n2025-11-20 10:00:01 UTC , acme , 200\n",
        "t,domain,copies,min\n1763632800,acme\n1763632801,acme,1\n",
        "# exported\n# t,domain\n1763632800,acme\n1763632801,acme\n",
        "t, domain\n1763632800, \"acme\"\n1763632801 , \"acme\" \n",
        "20251120100000,api,acme\n20251120100001,api,acme\n",
        "date,time,tenant\n2025-11-20T10:00:00Z,0.004,acme\n2025-11-20T10:00:01Z,0.1,acme\n",
        "{\"date\":\"2025-11-20T10:00:00Z\",\"time\":0.004,\"tenant\":\"acme\"}\n{\"date\":\"2025-11-20T10:00:01Z\",\"time\":0.1,\"tenant\":\"acme\"}\n",
    ] {
        assert_eq!(
            seconds(text.as_bytes(), "acme"),
            (vec![0, 1], vec![]),
            "{text}"
        );
    }
}

#[test]
fn a_quoted_field_holds_line_breaks() {
    let head = "t,note,domain\n";
    for (rows, refused) in [
        (
            "1763632800,\"one\ntwo, \"\"three\"\"\n\",acme\n1763632801,x,acme\n",
            vec![],
        ),
        (
            "1763632800,\"one\r\n1763632800,x,acme\",acme\r\n1763632801,\"\",acme\r\n",
            vec![],
        ),
        // A quote that is not closed, one that text follows, and one that the end of the file closes.
        (
            "1763632800,x,acme\n1763632809,\"open,acme\n1763632801,x,acme\n",
            vec![3],
        ),
        (
            "1763632800,x,acme\n1763632809,\"open,acme\n1763632801,\"x\",acme\n",
            vec![3],
        ),
        (
            "1763632800,x,acme\n1763632809,\"a\"b,acme\n1763632801,\"x\ny\",acme\n",
            vec![3],
        ),
        (
            "1763632800,x,acme\n1763632801,\"y\",acme\n1763632809,\"open",
            vec![4],
        ),
        // Within a field a quote is literal.
        (
            "1763632800,5\" pipe,acme\n1763632801,6\" pipe,acme\n",
            vec![],
        ),
    ] {
        let text = head.to_owned() + rows;
        assert_eq!(
            seconds(text.as_bytes(), "acme"),
            (vec![0, 1], refused),
            "{rows}"
        );
    }
    let text = "t,\"a\nnote\",domain\n1763632800,x,acme\nx\n1763632801,\"\n\n\",acme\ny\n";
    assert_eq!(seconds(text.as_bytes(), "acme"), (vec![0, 1], vec![4, 8]));
}

#[test]
fn a_quote_that_is_never_closed_loses_no_row_however_much_follows() {
    let rows: String = (1..60)
        .map(|second| {
            format!(
                "{},{},acme\n",
                START / 1_000_000 + second,
                "x".repeat(2_000)
            )
        })
        .collect();
    let text = format!("t,note,domain\n1763632800,\"open,acme\n{rows}");
    let (read, refused) = seconds(text.as_bytes(), "acme");
    assert_eq!(read, (1..60).collect::<Vec<_>>());
    assert_eq!(refused, [2]);
}

#[test]
fn a_file_that_cannot_be_read_gets_advice() {
    let mut tar = vec![b'a'; 600];
    tar[257..262].copy_from_slice(b"ustar");
    for (bytes, advice) in [
        (&b"PK\x03\x04\x14\0"[..], "unzip -p"),
        (&tar, "tar -xOf"),
        (b"PAR1\x15\x04", "Parquet"),
        (b"\xff\xfe\0\0t\0\0\0", "UTF-32"),
    ] {
        let fault = read(bytes, &Wanted::default()).expect_err(advice);
        assert!(fault.contains(advice), "{fault}");
    }
    for (text, lacks) in [
        ("Time,Line\n1763632800,\"GET /\"\n", "one of Time, Line"),
        (
            "{\"t\":1763632800,\"who\":{\"name\":\"a\"}}\n",
            "one of t, who.name",
        ),
    ] {
        let reading = read(text.as_bytes(), &Wanted::default())
            .expect("rows")
            .reading;
        let advice = reading.lacks_client.expect("no client");
        assert!(
            advice.contains("--client FIELD") && advice.contains(lacks),
            "{advice}"
        );
    }
}

/// Reads all files below a directory.
fn read_all(dir: &Path, into: &mut String) {
    for entry in std::fs::read_dir(dir).expect("tests") {
        let path = entry.expect("a file").path();
        if path.is_dir() {
            read_all(&path, into);
        } else {
            into.push_str(&std::fs::read_to_string(path).expect("a source"));
        }
    }
}

#[test]
fn every_test_in_the_table_exists() {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
    let table = std::fs::read_to_string(format!("{root}/tests/TRAFFIC.md")).expect("the table");
    let mut sources = String::new();
    read_all(Path::new(&format!("{root}/aggregator/tests")), &mut sources);
    let last = |row: &str| {
        row.trim_end_matches(['|', ' '])
            .rsplit('|')
            .next()
            .map(str::to_owned)
    };
    let rows = table
        .lines()
        .filter(|line| line.starts_with("| "))
        .filter_map(last);
    let mut named = 0;
    for cell in rows {
        for name in cell.split('`').skip(1).step_by(2) {
            if name.contains('_') && !name.contains([':', '.']) && !name.starts_with("backtest_") {
                assert!(sources.contains(&format!("fn {name}(")), "{name}");
                named += 1;
            }
        }
    }
    assert!(20 <= named, "{named}");
}
