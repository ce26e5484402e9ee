//! The arguments for the format of recorded traffic: form, client, stamps.

use clap::Args as _;
use ipnet::IpNet;
use tollgate_shared::networks::AddressPrefixes;

use tollgate_replay::traffic::instant::check_pattern;
use tollgate_replay::traffic::{Clients, Columns, Instants, TimeUnit, Wanted};

/// How to treat timestamps of whole seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Stamps {
    /// In a file whose timestamps are all whole seconds (or minutes), spreads the calls of one second evenly over it
    #[default]
    Spread,
    /// Plays each call at its timestamp
    AsWritten,
}

/// What a number counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Unit {
    /// Determined by the size of the number
    #[default]
    Auto,
    /// Seconds
    #[value(name = "s")]
    Seconds,
    /// Milliseconds
    #[value(name = "ms")]
    Millis,
    /// Microseconds
    #[value(name = "us")]
    Micros,
    /// Nanoseconds
    #[value(name = "ns")]
    Nanos,
}

impl From<Unit> for TimeUnit {
    fn from(unit: Unit) -> Self {
        match unit {
            Unit::Auto => Self::Auto,
            Unit::Seconds => Self::Seconds,
            Unit::Millis => Self::Millis,
            Unit::Micros => Self::Micros,
            Unit::Nanos => Self::Nanos,
        }
    }
}

/// The options about the form of files.
#[derive(Clone, Debug, clap::Args)]
pub struct FormArgs {
    /// The format of access logs: combined, common, vhost_combined, forwarded_first, combined_forwarded, alb, elb,
    /// haproxy, haproxy_forwarded, nginx_proxy_manager, envoy, istio, s3, traefik, gin, tornado, w3c (IIS,
    /// CloudFront), or a pattern as in nginx's log_format or Apache's LogFormat, copied from their configuration
    /// [default: recognised from the first lines]
    #[arg(long, value_name = "NAME|PATTERN")]
    pub log_format: Option<String>,
    /// The field that is the client: a word of the pattern, a column, a path into JSON as request.client_ip, a key of
    /// LTSV or logfmt, or a number as "field 3"
    #[arg(long, value_name = "FIELD")]
    pub client: Option<String>,
    /// Networks (or addresses) of proxies whose lists of forwarders (X-Forwarded-For) are trusted; the client is the
    /// last address of such a list that is outside these networks; a peer outside them is itself the client [default:
    /// private networks]
    #[arg(
        long,
        value_name = "NETWORK,…",
        value_delimiter = ',',
        value_parser = super::values::network
    )]
    pub trusted_proxies: Option<Vec<IpNet>>,
    /// Counts all addresses with the same prefix as one client, as in v4=32,v6=64 [default: v4=32,v6=128]
    #[arg(long, value_name = "v4=BITS,v6=BITS", value_parser = prefixes)]
    pub addresses: Option<AddressPrefixes>,
    /// The name of a field's CSV column, or the path of its JSON member, as in t=TIMESTAMP or
    /// domain=request.client_ip
    #[arg(long = "column", value_name = "FIELD=NAME")]
    pub columns: Vec<String>,
    /// The unit of timestamps that are numbers; `auto`: determined by the size of the number
    #[arg(long, value_enum, default_value_t)]
    pub time_unit: Unit,
    /// The format of timestamps, in the notation of strftime, as in "%m/%d/%Y %H:%M:%S"; UTC if it has no zone
    /// [default: detected]
    #[arg(long, value_name = "PATTERN", conflicts_with = "time_unit", value_parser = time_format)]
    pub time_format: Option<String>,
    /// How to treat timestamps of whole seconds
    #[arg(long, value_enum, default_value_t)]
    pub stamps: Stamps,
}

fn time_format(text: &str) -> Result<String, String> {
    check_pattern(text).map(|()| text.to_owned())
}

/// Whether an argument is one of [`FormArgs`].
pub(super) fn is_of_form(arg: &clap::Arg) -> bool {
    let form = FormArgs::augment_args(clap::Command::new("form"));
    form.get_arguments()
        .any(|of_form| of_form.get_id() == arg.get_id())
}

fn prefixes(text: &str) -> Result<AddressPrefixes, String> {
    const EXPECTED: &str = "expected v4=BITS,v6=BITS, as in v4=32,v6=64";
    let mut prefixes = AddressPrefixes { v4: 32, v6: 128 };
    for part in text.split(',') {
        let (family, bits) = part.split_once('=').ok_or(EXPECTED)?;
        let bits: u8 = bits.trim().parse().map_err(|_| EXPECTED)?;
        match (family.trim(), bits) {
            ("v4", 1..=32) => prefixes.v4 = bits,
            ("v6", 1..=128) => prefixes.v6 = bits,
            _ => {
                return Err(format!(
                    "{part:?}: {EXPECTED}, with 1 to 32 and 1 to 128 bits"
                ));
            }
        }
    }
    Ok(prefixes)
}

impl FormArgs {
    /// The settings for readers.
    ///
    /// # Errors
    ///
    /// If a column has an invalid name.
    pub fn wanted(&self) -> Result<Wanted, String> {
        Ok(Wanted {
            kind: None,
            form: self.log_format.clone(),
            client: self.client.clone(),
            columns: self.named_columns()?,
            instants: Instants {
                unit: self.time_unit.into(),
                pattern: self.time_format.clone(),
                changed: None,
            },
            clients: Clients::new(self.trusted_proxies.clone(), self.addresses),
        })
    }

    fn named_columns(&self) -> Result<Columns, String> {
        let mut columns = Columns::default();
        for stated in &self.columns {
            let (field, name) = stated.split_once('=').unwrap_or((stated, ""));
            let column = match field {
                "t" => &mut columns.t,
                "resource" => &mut columns.resource,
                "domain" => &mut columns.domain,
                "copies" => &mut columns.copies,
                "min" => &mut columns.min,
                _ => {
                    return Err(format!(
                        "--column {stated:?}: expected t, resource, domain, copies or min before the `=`"
                    ));
                }
            };
            if name.is_empty() {
                return Err(format!("--column {stated:?}: expected FIELD=NAME"));
            }
            *column = Some(name.to_owned());
        }
        Ok(columns)
    }
}
