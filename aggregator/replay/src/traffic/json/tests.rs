//! Objects as servers write them.

use super::*;

/// Client and instant of an object, with members chosen by the first object.
fn read(line: &str, columns: &Columns, client: Option<&str>) -> Result<(String, u64), String> {
    let first = [object(line.as_bytes()).expect("an object")];
    let json = Json::of_first(
        &first,
        columns,
        client,
        &Instants::default(),
        &Clients::default(),
    )?;
    let row = json.parse(line.as_bytes())?;
    Ok((
        row.domain.unwrap_or_default().into_owned(),
        row.at.as_micros(),
    ))
}

#[test]
fn json_lines_of_servers_are_read() {
    let at = 1_763_632_800_250_000;
    for line in [
        r#"{"level":"info","ts":1763632800.25,"logger":"http.log.access","request":{"remote_ip":"10.0.0.5","client_ip":"203.0.113.7","headers":{"User-Agent":["curl"]}}}"#,
        r#"{"ClientAddr":"203.0.113.7:58420","ClientHost":"203.0.113.7","StartUTC":"2025-11-20T10:00:00.25Z","time":"2025-11-20T10:00:01Z"}"#,
        r#"{"time_local":"20/Nov/2025:10:00:00.25 +0000","remote_addr":"10.0.0.5","http_x_forwarded_for":"203.0.113.7, 10.0.0.4","request":"GET / HTTP/1.1"}"#,
        r#"{"time_iso8601":"2025-11-20T10:00:00.25+00:00","remote_addr":"203.0.113.7","http_x_forwarded_for":"-","agent":"\x22curl\x22"}"#,
        r#"{"start_time":"2025-11-20T10:00:00.250Z","x_forwarded_for":"203.0.113.7","downstream_remote_address":"10.0.0.5:44"}"#,
        r#"{"start_time":"2025-11-20T10:00:00.250Z","x_forwarded_for":null,"downstream_remote_address":"203.0.113.7:44"}"#,
    ] {
        let read = read(line, &Columns::default(), None);
        let read = read.as_ref().map(|(client, _)| client.as_str());
        assert_eq!(read, Ok("203.0.113.7"), "{line}");
    }
    let traefik =
        r#"{"ClientHost":"a","StartUTC":"2025-11-20T10:00:00.25Z","time":"2025-11-20T10:00:01Z"}"#;
    assert_eq!(
        read(traefik, &Columns::default(), None),
        Ok(("a".to_owned(), at))
    );
}

#[test]
fn an_instant_before_an_object_is_its_own_where_it_has_none() {
    for line in [
        "2025/11/20 10:00:00.250\tINFO\thttp.log.access\t{\"ip\":\"203.0.113.7\"}",
        "2025-11-20T10:00:00.25Z web app: {\"ip\":\"203.0.113.7\"}",
        "[2025-11-20 10:00:00.25] INFO {\"ip\":\"203.0.113.7\"}",
        "Nov 20 10:00:00 web: {\"ip\":\"203.0.113.7\",\"ts\":1763632800.25}",
    ] {
        let first = [object(behind(line.as_bytes())).expect("an object")];
        let (columns, instants) = (Columns::default(), Instants::default());
        let json = Json::of_first(&first, &columns, None, &instants, &Clients::default());
        let json = json.expect(line).behind();
        let row = json.parse(line.as_bytes()).expect(line);
        assert_eq!(row.at.as_micros(), 1_763_632_800_250_000, "{line}");
    }
}

#[test]
fn one_number_is_one_name_however_it_is_written() {
    for number in ["3", "3.0", "0.3e1", "\"3\""] {
        let line = format!("{{\"t\":1,\"domain\":{number}}}");
        let read = read(&line, &Columns::default(), None);
        assert_eq!(read, Ok(("3".to_owned(), 1_000_000)), "{number}");
    }
}

#[test]
fn a_column_is_a_path_and_one_that_names_nothing_is_a_fault() {
    let line = r#"{"when":{"at":1},"who":{"user.name":7},"list":["a"],"n":"3"}"#;
    let columns = |t: &str, domain: &str| Columns {
        t: Some(t.to_owned()),
        domain: Some(domain.to_owned()),
        ..Columns::default()
    };
    let of = |t, domain| read(line, &columns(t, domain), None);
    assert_eq!(
        of("when.at", "who.user.name"),
        Ok(("7".to_owned(), 1_000_000))
    );
    assert_eq!(of("when.at", "list.0"), Ok(("a".to_owned(), 1_000_000)));
    assert_eq!(of(".when.at", "$.list.0"), Ok(("a".to_owned(), 1_000_000)));
    let fault = of("when.on", "n").expect_err("no such path");
    assert!(
        fault.contains("--column t=when.on") && fault.contains("when.at"),
        "{fault}"
    );
    let fault = read(line, &columns("when.at", "n"), Some("ip")).expect_err("no such path");
    assert!(fault.contains("--client ip"), "{fault}");
}
