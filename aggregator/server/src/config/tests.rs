//! Tests of the configuration: layers, faults, the shipped file.

use super::*;

const SHIPPED: &str = include_str!("../../../../config/tollgate.toml");

fn read(text: &str) -> Result<Config, OptionFaults> {
    Config::read("tollgate.toml", text, Vec::new(), "host-1")
}

fn faults(text: &str) -> Vec<String> {
    let faults = read(text).expect_err("the text is wrong");
    faults.0.iter().map(ToString::to_string).collect()
}

#[test]
fn the_shipped_file_says_the_defaults() {
    assert_eq!(read(SHIPPED), read(""));
    assert_eq!(read("").unwrap().name, "host-1");
}

#[test]
fn the_shipped_file_has_every_option() {
    let tree: toml::Table = SHIPPED.parse().unwrap();
    for path in OPTIONS.iter().filter(|path| path.contains('.')) {
        let (first, rest) = path.split_once('.').unwrap();
        let there = rest
            .split('.')
            .fold(tree.get(first), |within, key| within?.get(key));
        assert!(there.is_some(), "{path} is missing");
    }
}

#[test]
fn an_ipv6_address_is_advertised_in_brackets() {
    let text = "[listen]\nhttp = \"localhost:7400\"\nagents = \"[::1]:7401\"\nadvertise = \"::1\"";
    let listen = read(text).expect("addresses").listen;
    assert!(listen.http.ip().is_loopback() && listen.http.port() == 7400);
    assert_eq!(listen.advertise, "[::1]");
    let bracketed = read("listen.advertise = \"[::1]\"").expect("an address");
    assert_eq!(bracketed.listen.advertise, "[::1]");
    assert_eq!(faults("listen.http = \"no such host:7400\"").len(), 1);
    for path in ["listen.http", "listen.probe"] {
        assert_eq!(
            faults(&format!("{path} = \"nope.invalid:42100\"")),
            [format!(
                "tollgate.toml: {path} = \"nope.invalid:42100\": expected a name that resolves to an address, which this \
                 one does not; or an address such as \"127.0.0.1:7400\""
            )]
        );
    }
    assert_eq!(faults("listen.advertise = \"::1:7402:x\"").len(), 1);
}

#[test]
fn all_faults_are_reported_together_by_path() {
    let text = r#"
        nmae = "agg-1"
        name = 7
        [listen]
        http = "7400"
        agents = "0.0.0.0:7401"
        [jurnal]
        dir = "x"
        [journal]
        partitions = 1025
        ack = "maybe"
        retention = "1 day"
        retention_bytes = "8 GiB"
    "#;
    assert_eq!(
        faults(text),
        [
            "tollgate.toml: jurnal: unknown option, did you mean `journal`?",
            "tollgate.toml: nmae: unknown option, did you mean `name`?",
            "tollgate.toml: name = 7: expected 1 to 256 bytes without `*` and control characters; empty: the host's name",
            "tollgate.toml: journal.partitions = 1025: expected a whole number from 0 to 1024; 0: as an existing journal has, and 16 for a new one",
            "tollgate.toml: journal.ack = \"maybe\": expected \"written\" or \"synced\"",
            "tollgate.toml: journal.retention = \"1 day\": expected a duration from 2h to 36500d, such as \"24h\"; what no snapshot has yet must not be removed",
            "tollgate.toml: journal.retention_bytes = \"8 GiB\": expected a size without blanks, such as \"8GiB\", of at least 2MiB for each of the 2 × partitions + 1 segments that are being written (66MiB with 16 partitions)",
            "tollgate.toml: listen.http = \"7400\": expected an address such as \"127.0.0.1:7400\", or the name of one and a port, such as \"localhost:7400\"",
            "tollgate.toml: listen.agents = \"0.0.0.0:7401\": expected a loopback address; or listen.tls.cert, listen.tls.key and security.tokens_file (`tollgate keys` makes them); or \"trusted-network\" for this listener in [listen.insecure]",
        ]
    );
}

#[test]
fn a_misspelt_option_of_a_section_is_recognised() {
    assert_eq!(
        faults("[listen]\nhtpp = \"127.0.0.1:1\""),
        ["tollgate.toml: listen.htpp: unknown option, did you mean `listen.http`?"]
    );
}

#[test]
fn bounds_that_contradict_each_other_are_refused() {
    for (text, fault) in [
        (
            "[listen]\nping_after = \"5s\"\nsilence_timeout = \"5s\"",
            "listen.ping_after = \"5s\": expected less than listen.silence_timeout = \"5s\"",
        ),
        (
            "listen.ping_after = \"10s\"",
            "listen.ping_after = \"10s\": expected less than listen.silence_timeout = \"10s\", the default",
        ),
        (
            "listen.silence_timeout = \"1500ms\"",
            "listen.silence_timeout = \"1500ms\": expected more than listen.ping_after = \"2s\", the default",
        ),
        (
            "listen.pending_max = 63",
            "listen.pending_max = 63: expected at least listen.pending_per_address_max = 64, the default",
        ),
        (
            "listen.appends_per_connection_max = \"3MiB\"",
            "listen.appends_per_connection_max = \"3MiB\": expected at most listen.appends_per_address_max = \"2MiB\", the default",
        ),
        (
            "[listen]\nappends_per_address_max = \"3MiB\"\nappends_max = \"2MiB\"",
            "listen.appends_per_address_max = \"3MiB\": expected at most listen.appends_max = \"2MiB\"",
        ),
        (
            "feed.subscriptions_total_max = 20_000",
            "feed.subscriptions_total_max = 20000: expected at least feed.subscriptions_max = 20100, the default",
        ),
        (
            "feed.subscriber_queue_max = \"1GiB\"",
            "feed.subscriber_queue_max = \"1GiB\": expected at most listen.queues_max = \"256MiB\", the default",
        ),
        (
            "snapshot.every = \"13h\"",
            "snapshot.every = \"13h\": expected at most half of journal.retention = \"1d\", the default",
        ),
        (
            "[journal]\nretention = \"2h\"\n[snapshot]\nevery = \"90m\"",
            "journal.retention = \"2h\": expected at least twice snapshot.every = \"90m\"",
        ),
        // An invalid value is the only fault, whatever the other one is.
        (
            "[journal]\nretention = \"5s\"\n[snapshot]\nevery = \"13h\"",
            "journal.retention = \"5s\": expected a duration from 2h to 36500d, such as \"24h\"; what no snapshot has yet must not be removed",
        ),
        (
            "[listen]\nping_after = \"11m\"\nsilence_timeout = \"1s\"",
            "listen.ping_after = \"11m\": expected a duration from 10ms to 10m, such as \"10s\"",
        ),
    ] {
        assert_eq!(faults(text), [format!("tollgate.toml: {fault}")]);
    }
    let equal = "[listen]\npending_per_address_max = 9\npending_max = 9\n[feed]\nsubscriptions_total_max = 20_100";
    assert!(read(equal).is_ok(), "{equal}");
}

#[test]
fn values_that_would_help_nobody_are_refused() {
    for (text, fault) in [
        (
            "journal.retention = \"99999999999d\"",
            "expected a duration from 2h to 36500d",
        ),
        ("listen.hosts = [\"*\"]", "expected a list of hosts' names"),
        (
            "listen.connections_max = 3",
            "expected a whole number from 4 to 10000000: an agent has two",
        ),
        (
            "listen.tls.server_name = \"limits.example\"",
            "expected listen.tls.cert and listen.tls.key beside it",
        ),
    ] {
        let faults = faults(text);
        assert!(
            faults.len() == 1 && faults[0].contains(fault),
            "{text}: {faults:?}"
        );
    }
    // With a Kafka log nothing depends on the journal's retention.
    #[cfg(feature = "kafka")]
    assert!(read("log.kind = \"kafka\"\nsnapshot.every = \"13h\"").is_ok());
}

#[test]
fn a_misspelt_level_is_refused_and_silences_nothing() {
    for good in [
        "off",
        "INFO",
        "info,tollgate_server::feed=debug,[recovery]=debug",
        "warn,h2=error",
        "error,[recovery{partition=3}]=trace",
    ] {
        let log = read(&format!("telemetry.log = \"{good}\"")).map(|config| config.telemetry.log);
        assert_eq!(log.as_deref(), Ok(good));
    }
    let bad = [
        "",
        "wran",
        "banana",
        "warn,",
        ",warn",
        "info,,warn",
        "warn,h2",
        "3",
        "h2=",
        "=warn",
        "h2=wran",
        "warn, info",
        "warn, h2=error",
    ];
    for bad in bad {
        let faults = faults(&format!("telemetry.log = \"{bad}\""));
        let expected = format!("tollgate.toml: telemetry.log = \"{bad}\": expected a level (off, ");
        assert!(
            faults.len() == 1 && faults[0].starts_with(&expected),
            "{faults:?}"
        );
    }
}

#[test]
fn a_section_is_a_table() {
    for (text, found) in [
        ("listen = \"127.0.0.1:7400\"", "listen = \"127.0.0.1:7400\""),
        (
            "[[journal]]\ndir = \"data\"",
            "journal = [{ dir = \"data\" }]",
        ),
        ("listen.tls = false", "listen.tls = false"),
    ] {
        let expected =
            format!("tollgate.toml: {found}: expected a table, in which its options are");
        assert_eq!(faults(text), [expected]);
    }
}

#[test]
fn a_toml_fault_is_reported_with_its_line() {
    let faults = faults("name = \"a\"\nlisten = [");
    assert_eq!(faults.len(), 1);
    assert!(faults[0].contains("line 2"), "{faults:?}");
}

#[test]
fn an_option_of_a_later_build_is_refused_and_never_ignored() {
    let faults = faults("snapshot.keep_hourly = 48");
    assert!(
        faults[0].contains("not supported by this build yet"),
        "{faults:?}"
    );
}

#[test]
fn a_later_layer_beats_an_earlier_one_and_is_named_by_its_fault() {
    let given = |path, origin: &str, text: &str| Given {
        path,
        origin: origin.to_owned(),
        text: text.to_owned(),
    };
    let env = from_environment(|variable| match variable {
        "TOLLGATE_LISTEN_HTTP" => Ok::<_, ()>(Some("127.0.0.1:2".to_owned())),
        "TOLLGATE_JOURNAL_PARTITIONS" => Ok(Some("4".to_owned())),
        "TOLLGATE_KAFKA_BOOTSTRAP" => Ok(Some("a:1, b:2".to_owned())),
        _ => Ok(None),
    });
    let mut layers = env.unwrap();
    layers.push(given("listen.http", "--http", "127.0.0.1:3"));
    let text = "listen.http = \"127.0.0.1:1\"\nlisten.feed = \"127.0.0.1:9\"";
    let config = Config::read("tollgate.toml", text, layers.clone(), "h").unwrap();
    assert_eq!(config.listen.http.port(), 3);
    assert_eq!(config.listen.feed.port(), 9);
    assert_eq!(config.journal.partitions, NonZeroU32::new(4));
    assert_eq!(config.kafka.bootstrap, ["a:1", "b:2"]);

    layers.push(given("listen.http", "--http", "nowhere"));
    let faults = Config::read("tollgate.toml", text, layers, "h").unwrap_err();
    assert_eq!(
        faults.to_string(),
        "--http: listen.http = \"nowhere\": expected an address such as \"127.0.0.1:7400\", or the name of one and a port, such as \"localhost:7400\""
    );
}

#[test]
fn an_empty_variable_leaves_an_option_as_it_is() {
    let text = "[security]\ntokens_file = \"t\"\nkey_file = \"k\"\ndomain_key_file = \"d\"\n";
    let env = from_environment(|_| Ok::<_, ()>(Some(String::new())));
    let env = env.unwrap();
    let config = Config::read("tollgate.toml", text, env.clone(), "host-1");
    assert_eq!(config, read(text));

    // But it withdraws trust.
    let text = "[listen.insecure]\nhttp = \"trusted-network\"\n";
    assert!(read(text).unwrap().listen.insecure.http);
    let config = Config::read("tollgate.toml", text, env, "host-1");
    assert!(!config.unwrap().listen.insecure.http);
}

#[test]
fn the_limits_file_is_followed_where_the_log_is_a_journal() {
    let follow = |text: &str| read(text).unwrap().limits.follow;
    assert!(follow(""));
    assert!(!follow("limits.follow_file = false"));
    let stated = "limits = { file = \"l.toml\", follow_file = true }\n";
    assert!(follow(&format!("{stated}log.kind = \"journal\"")));
    #[cfg(feature = "kafka")]
    assert!(!follow("log.kind = \"kafka\""));
    // The shipped file says so, too: `--kafka` beside it must not push a file over newer versions at each start.
    #[cfg(feature = "kafka")]
    assert!(!follow(
        &SHIPPED.replace("kind = \"journal\"", "kind = \"kafka\"")
    ));
    assert_eq!(
        faults("limits.follow_file = \"yes\""),
        ["tollgate.toml: limits.follow_file = \"yes\": expected true or false, or an empty text"]
    );
}

#[test]
fn options_without_the_one_that_they_are_about_are_refused() {
    assert_eq!(
        faults("listen.probe_metrics = true\nlimits.follow_file = true"),
        [
            "tollgate.toml: limits.follow_file = true: expected limits.file beside it",
            "tollgate.toml: listen.probe_metrics = true: expected listen.probe beside it",
        ]
    );
    assert!(read("listen.probe_metrics = false\nlimits.follow_file = false").is_ok());
    assert!(read("listen = { probe = \"127.0.0.1:7409\", probe_metrics = true }").is_ok());
    // The file may be named beside the configuration.
    let given = |path, text: &str| Given {
        path,
        origin: "--limits".to_owned(),
        text: text.to_owned(),
    };
    let flag = vec![given("limits.file", "l.toml")];
    let config = Config::read("t", "limits.follow_file = true", flag, "h");
    assert!(config.expect("a file").limits.follow);
}

#[test]
fn beyond_loopback_tls_and_tokens_or_an_opt_out_are_needed() {
    let text = "[listen]\nhttp = \"0.0.0.0:7400\"\n";
    let fault = faults(text).remove(0);
    assert!(fault.contains("security.tokens_file"), "{fault}");
    let trusting = read(&format!(
        "{text}[listen.insecure]\nhttp = \"trusted-network\"\n"
    ));
    let listen = trusting.expect("trusted").listen;
    assert!(listen.insecure.http && !listen.insecure.agents);
    let tls = "[listen.tls]\ncert = \"a.pem\"\nkey = \"a.key\"\n";
    assert_eq!(faults(&format!("{text}{tls}")).len(), 1, "no tokens");
    let whole = format!("{text}{tls}[security]\ntokens_file = \"t\"\n");
    let security = read(&whole).expect("both").security;
    for one in ["agents", "feed"] {
        let half = format!("{whole}[listen.insecure]\n{one} = \"trusted-network\"\n");
        let fault = faults(&half).remove(0);
        assert!(
            fault.contains("TLS at both addresses, or at neither"),
            "{fault}"
        );
    }
    let both = "[listen.insecure]\nagents = \"trusted-network\"\nfeed = \"trusted-network\"\n";
    assert!(read(&format!("{whole}{both}")).is_ok());
    let tls = security.tls.expect("files");
    assert_eq!((tls.cert.to_str(), tls.client_ca), (Some("a.pem"), None));
    for (text, expected) in [
        (
            "[listen.tls]\ncert = \"a\"",
            "expected listen.tls.key beside it",
        ),
        (
            "[listen.tls]\nclient_ca = \"a\"",
            "listen.tls.cert and listen.tls.key beside it",
        ),
        (
            "[listen.insecure]\nfeed = \"yes\"",
            "listen.insecure.feed = \"yes\": expected \"trusted-network\", or empty",
        ),
        (
            "[listen.tls]\ncret = \"a\"",
            "listen.tls.cret: unknown option, did you mean `listen.tls.cert`?",
        ),
        (
            "[security]\ninsecure_listen = true",
            "no longer an option, expected `listen.insecure.http`",
        ),
    ] {
        let fault = faults(text).remove(0);
        assert!(fault.contains(expected), "{fault}");
    }
}

#[test]
fn an_option_within_a_section_has_its_variable() {
    let env = from_environment(|variable| {
        let is_it = variable == "TOLLGATE_LISTEN_INSECURE_FEED";
        Ok::<_, ()>(is_it.then(|| "trusted-network".to_owned()))
    });
    let text = "listen.feed = \"[::]:7402\"\nlisten.probe = \"0.0.0.0:7409\"";
    let config = Config::read("t", text, env.unwrap(), "host").expect("a configuration");
    assert!(config.listen.insecure.feed && config.listen.probe.is_some());
}

/// The faults that the schema for editors finds in a file.
fn schema_faults(schema: &serde_json::Value, text: &str) -> Vec<String> {
    let file: serde_json::Value = toml::from_str(text).unwrap();
    let checked = crate::json_schema::JsonSchema {
        document: schema,
        matches: |pattern, text| regex::Regex::new(pattern).unwrap().is_match(text),
    };
    checked.faults(schema, &file)
}

/// The options that a schema describes, by path.
fn described<'s>(
    table: &'s serde_json::Value,
    above: &str,
    into: &mut BTreeMap<String, &'s serde_json::Value>,
) {
    for (name, field) in table["properties"].as_object().into_iter().flatten() {
        let path = format!("{above}{name}");
        assert!(field["description"].is_string(), "{path}");
        match field["properties"].is_object() {
            true => {
                assert_eq!(field["additionalProperties"], false, "{path}");
                described(field, &format!("{path}."), into);
            }
            false => {
                into.insert(path, field);
            }
        }
    }
}

#[test]
fn the_schema_has_every_option_and_its_default() {
    let schema = include_str!("../../../../config/tollgate.schema.json");
    let schema: serde_json::Value = serde_json::from_str(schema).unwrap();
    let mut options = BTreeMap::new();
    described(&schema, "", &mut options);
    let known: Vec<&str> = options.keys().map(String::as_str).collect();
    let mut expected = OPTIONS.to_vec();
    expected.sort_unstable();
    assert_eq!(known, expected);
    let shipped: serde_json::Value = toml::from_str(SHIPPED).unwrap();
    for (path, option) in &options {
        let at = shipped.pointer(&format!("/{}", path.replace('.', "/")));
        if let Some(default) = option.get("default") {
            assert_eq!(at, Some(default), "{path}");
        }
    }
    assert_eq!(schema_faults(&schema, SHIPPED), Vec::<String>::new());
    for (text, fault) in [
        ("nmae = \"a\"", ".nmae: "),
        ("listen.htpp = \"127.0.0.1:1\"", ".listen.htpp: "),
        ("journal.ack = \"maybe\"", ".journal.ack: "),
        ("journal.retention = \"1 day\"", ".journal.retention: "),
        (
            "journal.retention_bytes = \"8\"",
            ".journal.retention_bytes: ",
        ),
        ("listen.http = \"7400\"", ".listen.http: "),
        ("threads = 1025", ".threads: "),
        ("listen.insecure.http = \"yes\"", ".listen.insecure.http: "),
    ] {
        assert!(read(text).is_err(), "{text}");
        let faults = schema_faults(&schema, text);
        assert_eq!(faults.len(), 1, "{text}: {faults:?}");
        assert!(faults[0].starts_with(fault), "{text}: {faults:?}");
    }
}
