//! Files for operators in `deploy/` name metrics that exist, every alert has its page, and the shipped
//! configurations of aggregators work: they are valid, and ports, names and labels agree.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::support::{LIMITS, directory, serve};

#[derive(Deserialize)]
struct Rules {
    groups: Vec<Group>,
}

#[derive(Deserialize)]
struct Group {
    rules: Vec<Rule>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Rule {
    alert: String,
    expr: String,
    #[serde(rename = "for")]
    lasting: String,
    labels: Labels,
    annotations: Annotations,
}

#[derive(Deserialize)]
struct Labels {
    severity: String,
}

#[derive(Deserialize)]
struct Annotations {
    summary: String,
    runbook: String,
}

fn deploy() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy")
}

fn read(path: &str) -> String {
    std::fs::read_to_string(deploy().join(path)).unwrap()
}

fn rules() -> Vec<Rule> {
    let rules: Rules = serde_yaml_ng::from_str(&read("prometheus/tollgate.rules.yml")).unwrap();
    rules
        .groups
        .into_iter()
        .flat_map(|group| group.rules)
        .collect()
}

/// Expressions of every panel of the dashboard.
fn panels() -> Vec<String> {
    let board: serde_json::Value = serde_json::from_str(&read("grafana/tollgate.json")).unwrap();
    let panels = board["panels"].as_array().unwrap();
    let targets = panels
        .iter()
        .flat_map(|panel| panel["targets"].as_array().unwrap());
    targets
        .map(|target| target["expr"].as_str().unwrap().to_owned())
        .collect()
}

/// The metrics that a text mentions.
fn metrics(text: &str) -> BTreeSet<String> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words
        .filter(|word| word.starts_with("tollgate_"))
        .map(str::to_owned)
        .collect()
}

#[test]
fn alerts_and_panels_speak_of_metrics_that_an_aggregator_shows() {
    let dir = directory(LIMITS);
    let served = serve(dir.path(), &[]);
    served.await_ready();
    let (status, text) = served.get("/metrics");
    assert_eq!(status, 200);
    let mut shown = metrics(&text);
    // Shown from the first wrong clock on.
    shown.insert("tollgate_agent_clock_moved_seconds".to_owned());
    // Published by services: the tests of gateways look for it.
    shown.insert("tollgate_agent_threads_panicked_total".to_owned());
    shown.insert("tollgate_agent_blind_seconds".to_owned());
    // Shown where TLS is used.
    shown.insert("tollgate_tls_certificate_expires_seconds".to_owned());
    let spoken_of: Vec<String> = rules()
        .into_iter()
        .map(|rule| rule.expr)
        .chain(panels())
        .collect();
    assert!(30 < spoken_of.len());
    for expression in spoken_of {
        let wanted = metrics(&expression);
        assert!(!wanted.is_empty(), "{expression}");
        let missing: Vec<_> = wanted.difference(&shown).collect();
        assert!(missing.is_empty(), "{expression}: {missing:?}");
    }
}

#[test]
fn panels_that_add_up_do_not_mix_groups() {
    let sums: Vec<String> = { panels().into_iter() }
        .filter(|expression| expression.contains("sum"))
        .collect();
    assert!(!sums.is_empty());
    // Each group rules every partition, so that a sum over all of them counts each hit as often as there are groups.
    // Two fleets may use the same names of groups; each has a scrape job of its own.
    for expression in sums {
        assert!(
            expression.starts_with("sum by (job, group) ("),
            "{expression}"
        );
    }
}

#[test]
fn panels_show_rates_at_any_scrape_interval() {
    let rates = { panels().into_iter() }.filter(|expression| expression.contains("rate("));
    // A window of a fixed length has one sample in it if the scrape interval is as long, and a rate needs two.
    for expression in rates {
        assert!(expression.contains("[$__rate_interval]"), "{expression}");
    }
}

#[test]
fn every_alert_has_a_runbook_section_and_the_reverse() {
    let runbook = read("RUNBOOK.md");
    let pages = runbook.lines().filter_map(|line| line.strip_prefix("### "));
    let mut alerts = BTreeSet::new();
    for rule in rules() {
        assert!(!rule.annotations.summary.is_empty() && !rule.lasting.is_empty());
        assert!(["info", "warning", "critical"].contains(&&*rule.labels.severity));
        let page = format!("deploy/RUNBOOK.md#{}", rule.alert.to_lowercase());
        assert_eq!(rule.annotations.runbook, page);
        assert!(alerts.insert(rule.alert.clone()), "{} twice", rule.alert);
    }
    assert_eq!(pages.map(str::to_owned).collect::<BTreeSet<_>>(), alerts);
}

type Yaml = serde_yaml_ng::Value;

/// The objects of the Kubernetes manifest, by their kind.
fn objects() -> Vec<Yaml> {
    serde_yaml_ng::Deserializer::from_str(&read("kubernetes/tollgate.yaml"))
        .map(|one| Yaml::deserialize(one).expect("YAML"))
        .collect()
}

fn of_kind(kind: &str) -> Yaml {
    let mut found: Vec<Yaml> = objects();
    found.retain(|object| object["kind"] == kind);
    assert_eq!(found.len(), 1, "{kind}");
    found.remove(0)
}

/// Checks a configuration as `tollgate serve` does, and returns it.
fn checked(name: &str, text: &str) -> tollgate_server::config::Config {
    match tollgate_server::config::Config::read(name, text, Vec::new(), "host") {
        Ok(config) => config,
        Err(faults) => panic!("{faults}"),
    }
}

/// Checks that files with keys are in mounted secrets that only their owner, and the pod's group, may read.
fn check_secrets(pod: &Yaml, files: &[PathBuf]) {
    let list = |value: &Yaml| value.as_sequence().expect("a list").clone();
    let mounts = list(&pod["containers"][0]["volumeMounts"]);
    for file in files {
        let dir = file.parent().and_then(Path::to_str).expect("a directory");
        assert!(
            mounts.iter().any(|mount| mount["mountPath"] == dir),
            "{dir}"
        );
    }
    let volumes = list(&pod["volumes"]);
    let secrets = volumes.iter().map(|volume| &volume["secret"]);
    let modes = secrets
        .filter(|secret| secret.is_mapping())
        .map(|secret| &secret["defaultMode"]);
    // YAML 1.2 reads a text, and Kubernetes an octal number.
    let modes: Vec<&str> = modes.map(|mode| mode.as_str().expect("a mode")).collect();
    assert_eq!(modes, ["0400", "0400"]);
}

/// Checks that names stay the same when a pod is recreated: agents and members rely on them.
fn check_names(container: &Yaml) {
    let variables = container["env"].as_sequence().expect("a list");
    let value = |name: &str| {
        let found = variables.iter().find(|variable| variable["name"] == name);
        found
            .and_then(|variable| variable["value"].as_str())
            .unwrap_or_default()
            .to_owned()
    };
    let options = [
        ("name", "TOLLGATE_NAME"),
        ("listen.advertise", "TOLLGATE_LISTEN_ADVERTISE"),
    ];
    for (option, variable) in options {
        assert_eq!(tollgate_server::config::variable(option), variable);
        assert!(value(variable).starts_with("$(POD_NAME)"), "{variable}");
    }
}

#[test]
fn the_kubernetes_manifest_is_one_consistent_stateful_set() {
    let set = of_kind("StatefulSet");
    let pod = &set["spec"]["template"];
    let labels = &pod["metadata"]["labels"];
    let service = of_kind("Service");
    assert_eq!(service["spec"]["clusterIP"], "None");
    assert_eq!(set["spec"]["serviceName"], service["metadata"]["name"]);
    let selectors = [
        &set["spec"]["selector"]["matchLabels"],
        &service["spec"]["selector"],
        &of_kind("PodDisruptionBudget")["spec"]["selector"]["matchLabels"].clone(),
        &of_kind("NetworkPolicy")["spec"]["podSelector"]["matchLabels"].clone(),
    ];
    assert!(selectors.iter().all(|selector| *selector == labels));
    assert_eq!(of_kind("PodDisruptionBudget")["spec"]["maxUnavailable"], 1);

    // No container runs as root, and only the intended directories are writable.
    assert_eq!(pod["spec"]["securityContext"]["runAsNonRoot"], true);
    let container = &pod["spec"]["containers"][0];
    assert_eq!(container["securityContext"]["readOnlyRootFilesystem"], true);
    let context = &container["securityContext"];
    assert_eq!(context["allowPrivilegeEscalation"], false);
    for (probe, path) in [("livenessProbe", "/healthz"), ("readinessProbe", "/readyz")] {
        let probed = &container[probe]["httpGet"];
        assert!(
            probed["path"] == path && probed["port"] == "probe",
            "{probe}"
        );
    }

    // Its configuration is valid, on the ports that all other files name.
    let map = of_kind("ConfigMap");
    let config = checked(
        "ConfigMap",
        map["data"]["tollgate.toml"].as_str().expect("a text"),
    );
    let ours = [config.listen.http, config.listen.agents, config.listen.feed];
    assert!(ours.iter().all(|address| address.ip().is_unspecified()));
    let ports = ours.map(|address| u64::from(address.port()));
    let named = |list: &Yaml, field: &str| -> Vec<u64> {
        let list = list.as_sequence().expect("a list");
        list.iter()
            .map(|port| port[field].as_u64().expect("a port"))
            .collect()
    };
    assert_eq!(named(&service["spec"]["ports"], "port"), ports);
    let with_probe = [&ports[..], &[7409]].concat();
    assert_eq!(config.listen.probe.map(|at| at.port()), Some(7409));
    assert_eq!(named(&container["ports"], "containerPort"), with_probe);
    let files = config.security.tls.expect("TLS");
    let tokens = config.security.tokens_file.expect("tokens");
    let files = [
        files.cert,
        files.key,
        files.client_ca.expect("a CA"),
        tokens,
        config.security.key_file.expect("a key"),
    ];
    check_secrets(&pod["spec"], &files);
    check_names(container);
    let grace = pod["spec"]["terminationGracePeriodSeconds"].as_u64();
    assert!(Some(5) < grace, "it ends within 5 s");
}

#[test]
fn the_compose_file_runs_two_aggregators_and_a_private_service() {
    let mut compose: Yaml = serde_yaml_ng::from_str(&read("compose.yaml")).expect("YAML");
    compose.apply_merge().expect("merged");
    let services = &compose["services"];
    for name in ["agg-1", "agg-2"] {
        let service = &services[name];
        assert_eq!(service["user"], "10001:10001");
        assert_eq!(service["environment"]["TOLLGATE_NAME"], name);
        assert_eq!(service["environment"]["TOLLGATE_LISTEN_ADVERTISE"], name);
        assert_eq!(service["read_only"], true);
    }
    let published = services.as_mapping().expect("services").values();
    let published =
        published.flat_map(|service| service["ports"].as_sequence().into_iter().flatten());
    let published: Vec<&str> = published
        .map(|port| port.as_str().expect("a text"))
        .collect();
    assert_eq!(published.len(), 3);
    assert!(
        published.iter().all(|port| port.starts_with("127.0.0.1:")),
        "{published:?}"
    );

    let config = compose["configs"]["tollgate"]["content"]
        .as_str()
        .expect("a text");
    let config = checked("compose", config);
    let insecure = config.listen.insecure;
    assert!(insecure.http && insecure.agents && insecure.feed);
    let limits = compose["configs"]["limits"]["content"]
        .as_str()
        .expect("a text");
    let limits = tollgate_limits::Limits::parse(limits).expect("good limits");
    let demo = services["demo"]["command"].as_sequence().expect("a list");
    let demo: Vec<&str> = demo
        .iter()
        .map(|word| word.as_str().expect("a text"))
        .collect();
    assert!(limits.rate(demo[1]).is_some(), "{demo:?}");
    let line = std::iter::once("tollgate").chain(demo.iter().copied());
    assert!(
        tollgate::cli::parse(line.map(Into::into)).is_ok(),
        "{demo:?}"
    );
}

#[test]
fn the_compose_file_with_tls_names_existing_options_and_keys() {
    let tls: Yaml = serde_yaml_ng::from_str(&read("compose.tls.yaml")).expect("YAML");
    let variables = tls["services"]["agg-1"]["environment"]
        .as_mapping()
        .expect("variables");
    let text = |value: &Yaml| value.as_str().expect("a text").to_owned();
    let lookup = |wanted: &str| Ok::<_, ()>(variables.get(wanted).map(text));
    let settings = tollgate_server::config::from_environment(lookup).expect("texts");
    let of_commands = [
        "TOLLGATE_TLS_CA_FILE",
        "TOLLGATE_TLS_SERVER_NAME",
        "TOLLGATE_TOKEN_FILE",
    ];
    assert_eq!(settings.len() + of_commands.len(), variables.len());
    let compose: Yaml = serde_yaml_ng::from_str(&read("compose.yaml")).expect("YAML");
    let config = compose["configs"]["tollgate"]["content"]
        .as_str()
        .expect("a text");
    let config = tollgate_server::config::Config::read("compose", config, settings, "host");
    let config = config.unwrap_or_else(|faults| panic!("{faults}"));
    let insecure = config.listen.insecure;
    assert!(!insecure.http && !insecure.agents && !insecure.feed);
    let script = text(&tls["services"]["keys"]["command"][0]);
    for line in script
        .lines()
        .filter_map(|line| line.split_once("tollgate keys "))
    {
        let line = format!(
            "tollgate keys {}",
            line.1.split(" |").next().unwrap_or_default()
        );
        let words = line.split_ascii_whitespace().map(Into::into);
        assert!(tollgate::cli::parse(words).is_ok(), "{line}");
    }
}

#[test]
fn the_image_has_the_workspaces_compiler_and_no_root_user() {
    let file = read("Dockerfile");
    let root = std::fs::read_to_string(deploy().join("../Cargo.toml")).expect("there");
    let root: toml::Table = root.parse().expect("TOML");
    let required = root["workspace"]["package"]["rust-version"]
        .as_str()
        .expect("a text");
    assert!(
        file.contains(&format!("FROM rust:{required}-")),
        "{required}"
    );
    let user = file.lines().position(|line| line == "USER 10001:10001");
    let start = file.lines().position(|line| line.starts_with("ENTRYPOINT"));
    assert!(user.is_some() && user < start);
}
