//! Logs in JSON as servers and clouds write them, one object per line or not: each call has its client and its
//! instant.
//!
//! What stays true: if an object has several instants and addresses, those of the request are used.

use tollgate_replay::traffic::Wanted;

use crate::rows::{CALLS, FormCase, LoggedCall, START_MS, check, read};

const OBJECTS: &[FormCase] = &[
    ("CloudFront", "jsonl", "c-ip", |c| {
        format!(
            "{{\"timestamp(ms)\":\"{}\",\"c-ip\":\"{}\",\"time-taken\":\"0.1\"}}",
            c.ms, c.ip
        )
    }),
    ("Cloudflare", "jsonl", "ClientIP", |c| {
        format!(
            "{{\"ClientIP\":\"{}\",\"EdgeEndTimestamp\":1,\"EdgeStartTimestamp\":{}000000}}",
            c.ip, c.ms
        )
    }),
    ("Google", "jsonl", "httpRequest.remoteIp", |c| {
        format!(
            "{{\"httpRequest\":{{\"remoteIp\":\"{}\",\"latency\":\"0.1s\"}},\"timestamp\":\"{}\"}}",
            c.ip,
            c.iso()
        )
    }),
    ("Azure", "jsonl", "properties.clientIP", |c| {
        format!(
            "{{\"timeStamp\":\"{}\",\"properties\":{{\"clientIP\":\"{}\",\"timeTaken\":0.1}}}}",
            c.iso(),
            c.ip
        )
    }),
    ("a firewall of AWS", "jsonl", "httpRequest.clientIp", |c| {
        format!(
            "{{\"timestamp\":{},\"httpRequest\":{{\"clientIp\":\"{}\",\"headers\":[{{\"name\":\"Host\"}}]}}}}",
            c.ms, c.ip
        )
    }),
    ("an API gateway", "jsonl", "sourceIp", |c| {
        format!(
            "{{\"sourceIp\":\"{}\",\"requestTimeEpoch\":\"{}\"}}",
            c.ip, c.ms
        )
    }),
    ("Kong", "jsonl", "client_ip", |c| {
        format!(
            "{{\"client_ip\":\"{}\",\"started_at\":{},\"latencies\":{{\"request\":1}}}}",
            c.ip, c.ms
        )
    }),
    ("pino", "jsonl", "req.remoteAddress", |c| {
        format!(
            "{{\"level\":30,\"time\":{},\"req\":{{\"remoteAddress\":\"::ffff:{}\",\"remotePort\":5}}}}",
            c.ms, c.ip
        )
    }),
    ("Elastic's schema", "jsonl", "client.ip", |c| {
        format!(
            "{{\"@timestamp\":\"{}\",\"client\":{{\"ip\":\"{}\"}},\"event\":{{\"duration\":5}}}}",
            c.iso(),
            c.ip
        )
    }),
    ("nginx, $msec beside seconds", "jsonl", "remote_addr", |c| {
        format!(
            "{{\"time_iso8601\":\"2025-11-20T10:00:00+00:00\",\"msec\":\"{}\",\"remote_addr\":\"{}\",\"request_time\":\"0.001\"}}",
            c.unix(),
            c.ip
        )
    }),
    (
        "nginx, values that are not set",
        "jsonl",
        "remote_addr",
        |c| {
            format!(
                "{{\"msec\":{},\"remote_addr\":\"{}\",\"upstream_response_time\":-,\"q\":\"\\x22\t\"}}",
                c.unix(),
                c.ip
            )
        },
    ),
    (
        "Caddy, a time as one reads it",
        "jsonl",
        "request.client_ip",
        |c| {
            let at = c.iso().replace('-', "/").replace('T', " ").replace('Z', "");
            format!(
                "{{\"ts\":\"{at}\",\"request\":{{\"client_ip\":\"{}\"}}}}",
                c.ip
            )
        },
    ),
    ("a duration that is called a time", "jsonl", "ip", |c| {
        format!(
            "{{\"requestTime\":0.003,\"eventTime\":\"{}\",\"ip\":\"{}\"}}",
            c.iso(),
            c.ip
        )
    }),
    ("MongoDB", "jsonl", "ip", |c| {
        format!(
            "{{\"t\":{{\"$date\":\"{}\"}},\"ip\":\"{}\"}}",
            c.iso(),
            c.ip
        )
    }),
    ("behind syslog", "jsonl", "remote_addr", |c| {
        format!(
            "Nov 20 10:00:00 web nginx: {{\"msec\":{},\"remote_addr\":\"{}\"}}",
            c.unix(),
            c.ip
        )
    }),
    ("behind containerd", "jsonl", "request.client_ip", |c| {
        format!(
            "{} stdout F {{\"ts\":{},\"request\":{{\"client_ip\":\"{}\"}}}}",
            c.iso(),
            c.unix(),
            c.ip
        )
    }),
    ("a sequence of JSON texts", "jsonl", "domain", |c| {
        format!("\u{1e}{{\"t\":{},\"domain\":\"{}\"}}", c.unix(), c.ip)
    }),
];

#[test]
fn json_of_servers_and_clouds() {
    check(OBJECTS, false);
}

#[test]
fn arrays_within_an_object_and_objects_over_lines() {
    let object = |c: &LoggedCall| {
        format!(
            "{{\"time\": \"{}\",\n \"properties\": {{\"clientIp\": \"{}\"}}}}",
            c.iso(),
            c.ip
        )
    };
    let objects: Vec<String> = (0..CALLS)
        .map(|call| object(&LoggedCall::new(call)))
        .collect();
    for text in [
        format!("{{\"records\": [{}]}}", objects.join(",")),
        format!(
            "{{\n  \"logs\": [\n{}\n],\n \"count\": {{\"n\": 20}}\n",
            objects.join(",\n")
        ),
        format!("[{}]", objects.join(",\r\n")),
        objects.join("\n"),
    ] {
        let recorded = read(text.as_bytes(), &Wanted::default()).expect("rows");
        let clients: Vec<&str> = recorded.rows.iter().map(|(_, client)| &**client).collect();
        assert_eq!(clients[..3], ["203.0.113.1", "203.0.113.2", "203.0.113.3"]);
        assert_eq!(recorded.rows[3].0, (START_MS + 1_200) * 1_000);
        assert!(CALLS <= clients.len() as u64, "{text}");
    }
}
