//! The format of an access log's lines.
//!
//! Chosen by the first lines: the format in which most of them have an address as their client; if all those
//! addresses belong to a load balancer, the format whose client varies. Knows nothing of files. What stays
//! true: the same lines give the same format.

use std::collections::BTreeSet;

use tollgate_shared::time::Timestamp;

use super::clients::{Clients, is_address};
use super::dates::LastDate;
use super::discover::{Lacking, discover, lacking, shown};
use super::instant::Instants;
use super::known::{FORMS, Form, WHOLE};
use super::pattern::Pattern;

/// What the user stated about the lines.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hints<'w> {
    /// The field that is the client.
    pub client: Option<&'w str>,
    /// How clients are identified.
    pub clients: &'w Clients,
    /// How instants are written.
    pub instants: &'w Instants,
}

impl<'w> Hints<'w> {
    pub fn of(wanted: &'w super::Wanted) -> Self {
        Self {
            client: wanted.client.as_deref(),
            clients: &wanted.clients,
            instants: &wanted.instants,
        }
    }
}

/// How the lines of a text are read.
#[derive(Clone, Debug)]
pub(super) struct LineReading {
    /// The format's name.
    pub name: String,
    pub pattern: Pattern,
    /// The user did not state the format.
    pub guessed: bool,
}

/// The format of a name, or of a pattern. Of several formats with the name, the one that most lines have.
pub(super) fn stated<'a>(
    text: &str,
    lines: impl Iterator<Item = &'a [u8]> + Clone,
    hints: Hints<'_>,
) -> Result<LineReading, String> {
    let is_known = FORMS.iter().any(|form| form.name == text);
    if !is_known && !text.contains(['$', '%']) {
        let mut names: Vec<&str> = FORMS.iter().map(|form| form.name).collect();
        names.dedup();
        return Err(format!(
            "{text:?}: expected {}, w3c, or a pattern in the words of nginx's log_format or Apache's LogFormat",
            names.join(", ")
        ));
    }
    let read = |name: &str, pattern| LineReading {
        name: name.to_owned(),
        pattern,
        guessed: false,
    };
    if !is_known {
        let pattern = Pattern::new(text, hints.client, hints.instants);
        return pattern
            .map(|pattern| read("pattern", pattern))
            .map_err(|fault| format!("{text:?}: {fault}"));
    }
    // A combined log may have a list of forwarders at the end of its lines.
    let is_more = |form: &Form| {
        let is_combined = text == "combined" && form.name == "combined_forwarded";
        is_combined && hints.client.is_some()
    };
    let of_name = FORMS.iter().chain(&WHOLE);
    let of_name = of_name.filter(|form| form.name == text || is_more(form));
    let fits = of_name.filter_map(|form| form.fit(lines.clone(), hints, true));
    // Of equals the first.
    let best = fits.rev().max_by_key(|fit| fit.lines);
    best.map(|fit| read(text, fit.read.pattern)).ok_or_else(|| {
        let client = hints.client.unwrap_or_default();
        let names = names_of(|form| form.name == text || is_more(form));
        format!(
            "{text:?}: no field {client}: expected one of {}",
            names.join(", ")
        )
    })
}

/// The names of formats that `is` accepts.
fn names_of(is: impl Fn(&Form) -> bool) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for form in FORMS.iter().chain(&WHOLE).filter(|form| is(form)) {
        for name in form.names() {
            if !names.contains(&name) {
                names.push(name);
            }
        }
    }
    names
}

/// How well one format fits the first lines.
pub(super) struct Fit {
    pub read: LineReading,
    /// Lines with an instant, and an address as the client.
    pub lines: usize,
    /// How many of them have a client that is not a trusted proxy.
    pub foreign: usize,
    pub clients: BTreeSet<String>,
    /// The field has a name that clients have.
    pub is_named: bool,
}

/// Whether a request may have been logged then: from 1990 to 2100.
pub(super) fn is_plausible(at: Timestamp) -> bool {
    const FROM: Timestamp = Timestamp::from_micros(631_152_000_000_000);
    const TO: Timestamp = Timestamp::from_micros(4_102_444_800_000_000);
    FROM <= at && at < TO
}

/// The format of the first lines; combined if no line has an instant and an address.
///
/// # Errors
///
/// What all lines lack, or that they lack the field that the user named.
pub(super) fn guess<'a>(
    lines: impl Iterator<Item = &'a [u8]> + Clone,
    hints: Hints<'_>,
) -> Result<LineReading, String> {
    let fit = |form: &Form, by_name: bool| form.fit(lines.clone(), hints, by_name);
    let known = || {
        FORMS
            .iter()
            .chain(WHOLE.iter().filter(|_| hints.client.is_some()))
    };
    let all = |by_name| -> Vec<Fit> { known().filter_map(|form| fit(form, by_name)).collect() };
    let mut fits = all(false);
    if hints.client.is_some() && fits.iter().all(|fit| fit.lines == 0) {
        fits = all(true);
    }
    // Where the user names the header of forwarders, the field at the end of the lines is the header, and the one at
    // their beginning the peer.
    let is_at_end = |fit: &Fit| fit.read.name == "combined_forwarded" && 0 < fit.lines;
    if hints.client.is_some() && fits.iter().any(is_at_end) {
        fits.retain(|fit| fit.read.name != "forwarded_first");
    }
    let most = fits.iter().map(|fit| fit.lines).max().unwrap_or(0);
    let count = lines.clone().count();
    if 2 * most <= count {
        let found = discover(lines.clone(), hints).filter(|fit| most < fit.lines);
        // Clients may be names, not addresses: of machines, or to hide an address.
        let of_names = |form: &&Form| matches!(form.name, "combined" | "vhost_combined");
        let by_name = FORMS.iter().filter(of_names);
        let by_name = by_name.filter_map(|form| fit(form, true)).filter(|fit| {
            let is_least = hints.client.is_none() && most < fit.lines && count <= 2 * fit.lines;
            let varies =
                |found: &Fit| found.foreign == 0 && found.clients.len() < fit.clients.len();
            is_least && found.as_ref().is_none_or(varies)
        });
        // Virtual hosts are few, and have many clients.
        let varied = by_name.rev().max_by_key(|fit| fit.clients.len());
        if let Some(fit) = varied.or(found) {
            return Ok(fit.read);
        }
    }
    match fits.iter().find(|fit| fit.lines == most && 0 < most) {
        Some(first) => Ok(better_than(first, &fits).read.clone()),
        None => of_none(lines, hints),
    }
}

/// For lines that no format fits: an error with the reason, or combined if the reason is not known.
fn of_none<'a>(
    lines: impl Iterator<Item = &'a [u8]> + Clone,
    hints: Hints<'_>,
) -> Result<LineReading, String> {
    let first = || lines.clone().next().unwrap_or_default();
    if let Some(client) = hints.client {
        let nobody = Hints {
            client: None,
            ..hints
        };
        let count = lines.clone().count();
        let fits = |form: &Form, by_name: bool| {
            let fit = form.fit(lines.clone(), nobody, by_name);
            fit.is_some_and(|fit| count < 2 * fit.lines)
        };
        let by_address = FORMS.iter().any(|form| fits(form, false));
        let fits = |form: &Form| fits(form, !by_address);
        let names = [names_of(fits), shown(first())].concat();
        return Err(format!(
            "--client {client}: no such field with an instant beside it, expected one of {} (or --log-format)",
            names.join(", ")
        ));
    }
    match lacking(lines.clone(), hints) {
        Some(Lacking::Instant) => Err(
            "the first lines have addresses and no instant with its day: a backtest needs when each call was made (have the server log it, or state --time-format or --log-format)"
                .to_owned(),
        ),
        Some(Lacking::Year) => Err(
            "stamps have no year, and stdin has no date of its last change: expected a file, or stamps with a year"
                .to_owned(),
        ),
        Some(Lacking::Address) => Err(format!(
            "the first lines have instants and no address: no field is known as the client: --client FIELD, expected one of {}",
            shown(first()).join(", ")
        )),
        None => stated(FORMS[0].name, lines, hints).map(|read| LineReading {
            guessed: true,
            ..read
        }),
    }
}

/// Of the formats that fit nearly as many lines, the one whose client field is more likely right; or the first.
fn better_than<'f>(first: &'f Fit, fits: &'f [Fit]) -> &'f Fit {
    let few = first.clients.len() <= 2 && 10 <= first.lines;
    let nearly = |fit: &&Fit| first.lines <= fit.lines.saturating_mul(10) / 9;
    let better = fits.iter().filter(nearly).filter(|fit| {
        let varies = few && 2 * first.clients.len() < fit.clients.len();
        // Another field names the client of the proxy, or will, if only the proxy's own health checks are
        // logged so far.
        let of_proxies = first.foreign == 0 && fit.read.pattern.has_forwarded_and_peer();
        varies || of_proxies || first.foreign < fit.foreign.saturating_mul(9) / 10
    });
    let rank = |fit: &&Fit| {
        (
            fit.foreign,
            fit.clients.len(),
            fit.read.pattern.has_forwarded_and_peer(),
        )
    };
    better.max_by_key(rank).unwrap_or(first)
}

impl Form {
    /// How well it fits the first lines; `None` if it has no such field.
    fn fit<'a>(
        &self,
        lines: impl Iterator<Item = &'a [u8]>,
        hints: Hints<'_>,
        by_name: bool,
    ) -> Option<Fit> {
        let mut fit = Fit::new(LineReading {
            name: self.name.to_owned(),
            pattern: self.pattern(hints.client, hints.instants).ok()?,
            guessed: true,
        });
        for line in lines {
            fit.take(line, by_name, hints);
        }
        Some(fit)
    }
}

impl Fit {
    pub const fn new(read: LineReading) -> Self {
        Self {
            read,
            lines: 0,
            foreign: 0,
            clients: BTreeSet::new(),
            is_named: false,
        }
    }

    /// Counts a line if it has an instant, and as the client an address, or `by_name` any text.
    pub fn take(&mut self, line: &[u8], by_name: bool, hints: Hints<'_>) {
        let pattern = &self.read.pattern;
        let Ok(found) = pattern.find(line) else {
            return;
        };
        match pattern.at(&found, &mut LastDate::default()) {
            Ok(at) if is_plausible(at) || hints.instants.are_stated() => {}
            Ok(_) | Err(_) => return,
        }
        // A list in place of the peer shows that the lines have another form.
        if pattern
            .clients(&found)
            .1
            .is_some_and(|peer| peer.contains(','))
            && !by_name
        {
            return;
        }
        let Some(client) = pattern.client_of(&found, hints.clients) else {
            return;
        };
        if by_name || is_address(&client) {
            self.lines += 1;
            self.foreign += usize::from(!hints.clients.is_proxy(&client));
            self.clients.insert(client.into_owned());
        }
    }
}

#[cfg(test)]
mod tests;
