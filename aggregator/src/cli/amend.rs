//! `tollgate reset`, `refund`, `ban`, `unban`, `namespaces`: operators' acts on pairs, domains and
//! namespaces.
//!
//! ```text
//! tollgate reset api.search acme --reason …            its windows are empty, its tiers inactive
//! tollgate refund api.search acme 50 --reason …        50 granted hits are removed from its windows
//! tollgate ban --everywhere mallory --for 1h --reason …
//! tollgate namespaces kill api --reason …              nobody is refused in api; hits are still counted
//! ```
//!
//! Each is an amendment in the log, with author and reason. Knows nothing of how aggregators carry it out. What
//! stays true: see [`super::operator`].

use clap::{Args, Subcommand};
use serde::Serialize;
use tollgate_limits::versions::switches::ALL;
use tollgate_limits::{Limits, RateResource, Resource, nearest};
use tollgate_shared::escape::escaped;
use tollgate_shared::names::namespace as namespace_of;
use tollgate_shared::time::{Span, Timestamp};

use super::Global;
use super::ban_remarks::{as_a_name, respelt};
use super::operator::{CONFLICTS_MAX, OperatorNote, Spoken, ask, get, limits_in_force, name};
use super::output::Format;
use crate::exit::{Exit, Failure};
use tollgate_api::amend::AmendRequest;
use tollgate_api::limits::{LimitsView, SwitchView};
use tollgate_replay::range::Utc;

/// What `reset` takes.
#[derive(Debug, Args)]
pub struct ResetArgs {
    /// The resource
    #[arg(value_parser = name)]
    resource: String,
    /// The domain
    #[arg(value_parser = super::operator::domain)]
    domain: String,
    #[command(flatten)]
    word: OperatorNote,
    #[command(flatten)]
    spoken: Spoken,
}

/// What `refund` takes.
#[derive(Debug, Args)]
pub struct RefundArgs {
    /// The resource
    #[arg(value_parser = name)]
    resource: String,
    /// The domain
    #[arg(value_parser = super::operator::domain)]
    domain: String,
    /// How many hits to remove, the newest first
    #[arg(value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    hits: u64,
    #[command(flatten)]
    word: OperatorNote,
    #[command(flatten)]
    spoken: Spoken,
}

/// What `ban` and `unban` are about: `RESOURCE DOMAIN`, or `--everywhere DOMAIN`.
#[derive(Debug, Args)]
struct Banned {
    /// The resource and the domain; with --everywhere the domain alone
    #[arg(value_name = "RESOURCE DOMAIN", num_args = 1..=2, required = true, value_parser = super::operator::domain)]
    names: Vec<String>,
    /// On every resource
    #[arg(long)]
    everywhere: bool,
}

/// What `ban` takes.
#[derive(Debug, Args)]
pub struct BanArgs {
    #[command(flatten)]
    banned: Banned,
    /// For how long [default: until it is ended by `unban`]
    #[arg(long = "for", value_name = "DURATION", value_parser = super::values::some_span, conflicts_with = "until")]
    lasts: Option<Span>,
    /// Until when, as in 2026-11-30T12:00:00Z
    #[arg(long, value_name = "TIME", value_parser = super::values::date)]
    until: Option<Timestamp>,
    #[command(flatten)]
    word: OperatorNote,
    #[command(flatten)]
    spoken: Spoken,
}

/// What `unban` takes.
#[derive(Debug, Args)]
pub struct UnbanArgs {
    #[command(flatten)]
    banned: Banned,
    #[command(flatten)]
    word: OperatorNote,
    #[command(flatten)]
    spoken: Spoken,
}

/// What `namespaces` takes.
#[derive(Debug, Args)]
pub struct NamespacesArgs {
    /// What to do; without a command: lists the switches that are set
    #[command(subcommand)]
    verb: Option<NamespaceVerb>,
    #[command(flatten)]
    spoken: Spoken,
}

#[derive(Debug, Subcommand)]
enum NamespaceVerb {
    /// Refuses no call in a namespace until `restore`, whatever its resource; calls are still ruled and counted
    Kill {
        /// The namespace; `*`: all namespaces without switches of their own
        #[arg(value_parser = namespace)]
        namespace: String,
        #[command(flatten)]
        word: OperatorNote,
    },
    /// Removes a namespace's switches, so that the limits document decides again
    Restore {
        /// The namespace
        #[arg(value_parser = namespace)]
        namespace: String,
        #[command(flatten)]
        word: OperatorNote,
    },
    /// Sets one or both switches of a namespace, which override every limits document; `restore` removes both
    Switch {
        /// The namespace; `*`: all namespaces without switches of their own
        #[arg(value_parser = namespace)]
        namespace: String,
        /// Whether calls are ruled and counted, but never denied [default: stays as it is]
        #[arg(long, value_name = "true|false")]
        ignore_configured: Option<bool>,
        /// Whether calls on resources without limits are let through [default: stays as it is]
        #[arg(long, value_name = "true|false")]
        allow_unconfigured: Option<bool>,
        #[command(flatten)]
        word: OperatorNote,
    },
}

/// Runs `reset`.
///
/// # Errors
///
/// As [`ask`].
pub fn reset(global: &Global, args: &ResetArgs) -> Result<Exit, Failure> {
    let act = pair("reset", &args.resource, &args.domain);
    ask(global, &args.spoken.url, &args.word, act)
}

/// Runs `refund`.
///
/// # Errors
///
/// As [`ask`].
pub fn refund(global: &Global, args: &RefundArgs) -> Result<Exit, Failure> {
    let act = AmendRequest {
        hits: Some(args.hits),
        ..pair("refund", &args.resource, &args.domain)
    };
    ask(global, &args.spoken.url, &args.word, act)
}

/// Runs `ban`.
///
/// # Errors
///
/// As [`ask`].
pub fn ban(global: &Global, args: &BanArgs) -> Result<Exit, Failure> {
    let now = tollgate_log::clock::wall();
    if let Some(until) = args.until.filter(|until| *until <= now) {
        return Err(Failure::Usage(format!(
            "the end of the ban is {}, expected an instant after now, {}",
            Utc(until),
            Utc(now)
        )));
    }
    let act = AmendRequest {
        until_us: args.until.map(Timestamp::as_micros),
        for_us: args.lasts.map(Span::as_micros),
        ..args.banned.asked("ban")?
    };
    if let (None, Some(domain)) = (&act.resource, &act.domain) {
        check_everywhere(global, &args.spoken.url, domain)?;
    }
    let banned = act.domain.clone().unwrap_or_default();
    if let Some(text) = as_a_name(&banned) {
        remark!("tollgate: {text}");
    }
    let mut respelt = respelt(&banned);
    if let (Some(_), Some(resource)) = (&respelt, &act.resource) {
        let limits = limits_in_force(&args.spoken.url)?;
        // Calls of such a resource are limited under one spelling.
        let addresses = limits.rate(resource).and_then(RateResource::addresses);
        respelt = respelt.filter(|_| addresses.is_none());
    }
    let exit = ask(global, &args.spoken.url, &args.word, act)?;
    if let Some(text) = respelt {
        remark!("tollgate: {text}");
    }
    Ok(exit)
}

/// Checks that a ban of an address or a network reaches it on every resource. Without a domain key the aggregator checks
/// that; with one it gets a hash, of which it cannot know the network.
fn check_everywhere(global: &Global, url: &str, domain: &str) -> Result<(), Failure> {
    if !global.domains()?.needs_resource(domain) {
        return Ok(());
    }
    let limits = limits_in_force(url)?;
    let Some((resource, limited)) = limits.limits_otherwise(domain) else {
        return Ok(());
    };
    let fault = match limited {
        Ok(limited) => format!("limits it as \"{limited}\", expected a ban on each resource"),
        Err(fault) => fault.to_string(),
    };
    let (domain, resource) = (escaped(domain), escaped(resource));
    Err(Failure::Data(format!(
        "domain \"{domain}\": resource \"{resource}\" {fault}"
    )))
}

/// Runs `unban`.
///
/// # Errors
///
/// As [`ask`].
pub fn unban(global: &Global, args: &UnbanArgs) -> Result<Exit, Failure> {
    let act = args.banned.asked("unban")?;
    ask(global, &args.spoken.url, &args.word, act)
}

/// Runs `namespaces`.
///
/// # Errors
///
/// As [`ask`].
pub fn namespaces(global: &Global, args: &NamespacesArgs) -> Result<Exit, Failure> {
    let url = &args.spoken.url;
    let switch = |namespace: &str| AmendRequest {
        act: "switch".to_owned(),
        namespace: Some(namespace.to_owned()),
        ..AmendRequest::default()
    };
    match &args.verb {
        None => list(global, url),
        Some(NamespaceVerb::Kill { namespace, word }) => {
            // The second as well: else calls without limits could be refused, or be again, since an act replaces both.
            let act = AmendRequest {
                ignore_configured: Some(true),
                allow_unconfigured: Some(true),
                ..switch(namespace)
            };
            switch_on(global, url, word, act)
        }
        Some(NamespaceVerb::Restore { namespace, word }) => {
            ask(global, url, word, switch(namespace))
        }
        Some(NamespaceVerb::Switch {
            namespace,
            ignore_configured,
            allow_unconfigured,
            word,
        }) => {
            if ignore_configured.is_none() && allow_unconfigured.is_none() {
                return Err(Failure::Usage(
                    "expected --ignore-configured or --allow-unconfigured; `restore` removes both"
                        .to_owned(),
                ));
            }
            let act = AmendRequest {
                ignore_configured: *ignore_configured,
                allow_unconfigured: *allow_unconfigured,
                ..switch(namespace)
            };
            switch_named(global, url, word, &act)
        }
    }
}

/// Sets the switches that the act names. The namespace's other one stays as it is: the act, which replaces both, has it
/// from the version that it expects, and is made again if another version came first.
fn switch_named(
    global: &Global,
    url: &str,
    word: &OperatorNote,
    act: &AmendRequest,
) -> Result<Exit, Failure> {
    let mut conflicts = 0;
    loop {
        let view = get::<LimitsView>(url, "/v1/limits", &[])?;
        let mut set = view.switches.into_iter();
        let set = set.find(|one| Some(&one.namespace) == act.namespace.as_ref());
        let (ignore, allow) = set.map_or((None, None), |set| {
            (set.ignore_configured, set.allow_unconfigured)
        });
        let both = AmendRequest {
            ignore_configured: act.ignore_configured.or(ignore),
            allow_unconfigured: act.allow_unconfigured.or(allow),
            ..act.clone()
        };
        let mut expecting = word.clone();
        expecting.expect_version = word.expect_version.or(Some(view.version));
        match switch_on(global, url, &expecting, both) {
            Err(Failure::Log {
                exit: Exit::Conflict,
                ..
            }) if word.expect_version.is_none() && conflicts < CONFLICTS_MAX => conflicts += 1,
            done => return done,
        }
    }
}

/// Sets switches, and says so if the limits in force have nothing in the namespace: its name may be mistyped, or the
/// act is about resources without limits.
fn switch_on(
    global: &Global,
    url: &str,
    word: &OperatorNote,
    act: AmendRequest,
) -> Result<Exit, Failure> {
    let namespace = act.namespace.clone().unwrap_or_default();
    let exit = ask(global, url, word, act)?;
    match limits_in_force(url) {
        Ok(limits) => {
            if let Some(text) = unknown_in(&limits, &namespace) {
                remark!("tollgate: {text}");
            }
        }
        Err(failure) => {
            let namespace = escaped(&namespace);
            remark!(
                "tollgate: whether the limits name a resource in {namespace} is not known: {failure}"
            );
        }
    }
    Ok(exit)
}

/// That no resource of the limits is in a namespace, with the name that may have been meant; `None` if one is, or if
/// the limits state the namespace itself.
fn unknown_in(limits: &Limits, namespace: &str) -> Option<String> {
    let names = || limits.resources().iter().map(Resource::name);
    // A pattern without a dot, as in `ap*`, limits resources of every namespace that begins so.
    fn undotted(name: &str) -> bool {
        name.ends_with('*') && !name.contains('.')
    }
    let mut patterns = names().filter(|name| undotted(name));
    if namespace == ALL || patterns.any(|name| namespace.starts_with(name.trim_end_matches('*'))) {
        return None;
    }
    let stated = limits.namespaces().named.keys().map(|name| &**name);
    let of_resources = names().filter(|name| !undotted(name)).map(namespace_of);
    let mut known = stated.chain(of_resources);
    if known.clone().any(|known| known == namespace) {
        return None;
    }
    let near = nearest(namespace, &mut known);
    let meant = near.map(|near| format!(", did you mean {}?", escaped(near)));
    let namespace = escaped(namespace);
    let text = format!("no resource of the limits in force is in the namespace {namespace}");
    Some(text + &meant.unwrap_or_default())
}

fn list(global: &Global, url: &str) -> Result<Exit, Failure> {
    let LimitsView { switches, .. } = get::<LimitsView>(url, "/v1/limits", &[])?;
    let mut output = global.open_output()?;
    for switch in &switches {
        match global.format {
            Format::Json => output.json(&NamespaceRow {
                schema: "tollgate.namespaces/1",
                switch,
            })?,
            Format::Text => {
                let stated = |switch: Option<bool>| match switch {
                    Some(on) => on.to_string(),
                    None => "as the document says".to_owned(),
                };
                output.line(format_args!(
                    "{}  ignore_configured {}  allow_unconfigured {}",
                    escaped(&switch.namespace),
                    stated(switch.ignore_configured),
                    stated(switch.allow_unconfigured)
                ))?;
            }
        }
    }
    if switches.is_empty() && global.format == Format::Text {
        output.line("no switch is set: the limits document applies")?;
    }
    output.finish()?;
    Ok(Exit::Done)
}

/// A line of the list as JSON.
#[derive(Serialize)]
struct NamespaceRow<'a> {
    schema: &'static str,
    #[serde(flatten)]
    switch: &'a SwitchView,
}

impl Banned {
    fn asked(&self, act: &str) -> Result<AmendRequest, Failure> {
        match (self.everywhere, self.names.as_slice()) {
            (true, [domain]) => Ok(AmendRequest {
                act: act.to_owned(),
                domain: Some(domain.clone()),
                ..AmendRequest::default()
            }),
            (false, [resource, domain]) => Ok(pair(act, resource, domain)),
            _ => Err(Failure::Usage(format!(
                "expected `{act} RESOURCE DOMAIN`, or `{act} --everywhere DOMAIN`"
            ))),
        }
    }
}

/// An act on a pair.
pub(super) fn pair(act: &str, resource: &str, domain: &str) -> AmendRequest {
    AmendRequest {
        act: act.to_owned(),
        resource: Some(resource.to_owned()),
        domain: Some(domain.to_owned()),
        ..AmendRequest::default()
    }
}

fn namespace(text: &str) -> Result<String, String> {
    match text {
        "*" => Ok(text.to_owned()),
        text => name(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_that_no_limits_are_about_is_named_with_its_neighbour() {
        const DOCUMENT: &str = "version = 1\nrules = 2\n[namespace.closed]\nallow_unconfigured = false\n\
                                [rate.\"api.search\"]\nrate = \"1/s\"\n[rate.\"web*\"]\nrate = \"1/s\"\n\
                                [copies.\"jobs.run\"]\nlimit = 1\n";
        let limits = Limits::parse(DOCUMENT).expect("it is good");
        for known in ["api", "jobs", "closed", "web", "website", "*"] {
            assert_eq!(unknown_in(&limits, known), None, "{known}");
        }
        let unknown = |namespace| unknown_in(&limits, namespace).expect("unknown");
        assert!(unknown("apj").ends_with("namespace apj, did you mean api?"));
        assert!(unknown("nosuch").ends_with("namespace nosuch"));
    }
}
