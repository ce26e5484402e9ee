//! Named formats of access logs.
//!
//! ```text
//! www.example.com:443 203.0.113.7 - - [20/Feb/2016:05:00:45 +0000] "GET …      vhost_combined
//! 203.0.113.7, 10.1.2.3 - - [20/Feb/2016:05:00:45 +0000] "GET …                 forwarded_first
//! 10.1.2.3 - - [20/Feb/2016:05:00:45 +0000] "GET … "curl" "203.0.113.7"         combined_forwarded
//! [GIN] 2016/02/20 - 05:00:45 | 200 |  1.2ms |  203.0.113.7 | GET  "/"          gin
//! ```
//!
//! Does not choose a file's format. What stays true: formats of one name are adjacent, the usual
//! one first.

use super::instant::Instants;
use super::pattern::{Pattern, Piece};

/// A named format.
pub(super) struct Form {
    pub name: &'static str,
    pattern: &'static str,
    /// The format of its date, if it is not a usual one.
    time: Option<&'static str>,
}

impl Form {
    /// The names of its fields.
    pub fn names(&self) -> impl Iterator<Item = String> {
        let pieces = super::words::pieces(self.pattern).unwrap_or_default();
        pieces.into_iter().filter_map(|piece| match piece {
            Piece::Field(name, _) if name != "_" => Some(name),
            Piece::Field(..) | Piece::Text(_) | Piece::Gap => None,
        })
    }

    /// Its pattern with this field as the client, or the reason why it cannot be the client.
    pub fn pattern(&self, client: Option<&str>, instants: &Instants) -> Result<Pattern, String> {
        match self.time {
            Some(time) if !instants.are_stated() => {
                let own = Instants {
                    pattern: Some(time.to_owned()),
                    ..instants.clone()
                };
                Pattern::new(self.pattern, client, &own)
            }
            _ => Pattern::new(self.pattern, client, instants),
        }
    }
}

/// The known formats, common ones first.
pub(super) const FORMS: [Form; 24] = [
    form("combined", "$remote_addr $_[$time_local]"),
    form("common", "$remote_addr $_[$time_local]"),
    form("vhost_combined", "$host $remote_addr $_[$time_local]"),
    form(
        "vhost_combined",
        "$host $server_addr $remote_addr $_[$time_local]",
    ),
    form(
        "forwarded_first",
        "$http_x_forwarded_for - $_ [$time_local]",
    ),
    form(
        "forwarded_first",
        "\"$http_x_forwarded_for\" $_[$time_local]",
    ),
    form(
        "combined_forwarded",
        "$remote_addr $_[$time_local] \"$request\" $status $bytes \"$referer\" \"$agent\" \"$http_x_forwarded_for\"",
    ),
    form(
        "combined_forwarded",
        "$remote_addr $_[$time_local] \"$request\" $status $bytes \"$referer\" \"$agent\" \"$_\" \"$http_x_forwarded_for\"",
    ),
    form(
        "combined_forwarded",
        "$remote_addr $_[$time_local] \"$request\" $status $bytes \"$referer\" \"$agent\" $_ \"$http_x_forwarded_for\"",
    ),
    form("alb", "$type ${time_iso8601}Z $elb $remote_addr_port "),
    form("elb", "${time_iso8601}Z $elb $remote_addr_port "),
    form("haproxy", "$_]: $remote_addr_port [$time_local] "),
    form("haproxy", "$_ - - $remote_addr_port [$time_local] "),
    form(
        "haproxy_forwarded",
        "$_: $remote_addr_port [$time_local] $_ {$http_x_forwarded_for|",
    ),
    form(
        "haproxy_forwarded",
        "$_: $remote_addr_port [$time_local] $_ {$http_x_forwarded_for} ",
    ),
    form(
        "haproxy_forwarded",
        "$_: $remote_addr_port [$time_local] $_ {$_|$http_x_forwarded_for} ",
    ),
    form(
        "haproxy_forwarded",
        "$_: $remote_addr_port [$time_local] $_ {$_|$_|$http_x_forwarded_for} ",
    ),
    form(
        "nginx_proxy_manager",
        "[$time_local] $_[Client $remote_addr]",
    ),
    form(
        "envoy",
        "[$start_time] \"$request\" $_ $_ $_ $_ $_ $_ \"$http_x_forwarded_for\"",
    ),
    form(
        "istio",
        "[$start_time] \"$request\" $_ $_ $_ $_ \"$_\" $_ $_ $_ $_ \"$http_x_forwarded_for\" \"$_\" \"$_\" \"$_\" \"$_\" $_ $_ $_ $remote_addr_port ",
    ),
    form("s3", "$owner $bucket [$time_local] $remote_addr "),
    form("traefik", "$remote_addr $_[$time_local]"),
    form(
        "gin",
        "$_[GIN] $date - $time |$status|$latency|$remote_addr|",
    ),
    Form {
        name: "tornado",
        pattern: "[$_ $date $time $_] $status $method $uri ($remote_addr)",
        time: Some("%y%m%d %H:%M:%S"),
    },
];

/// The same with all their fields, for users that name one of them as the client.
pub(super) const WHOLE: [Form; 2] = [
    form(
        "combined",
        "$remote_addr - $remote_user [$time_local] \"$request\" $status $body_bytes_sent \"$http_referer\" \"$http_user_agent\"",
    ),
    form(
        "vhost_combined",
        "$host $remote_addr - $remote_user [$time_local] \"$request\" $status $body_bytes_sent \"$http_referer\" \"$http_user_agent\"",
    ),
];

const fn form(name: &'static str, pattern: &'static str) -> Form {
    Form {
        name,
        pattern,
        time: None,
    }
}
