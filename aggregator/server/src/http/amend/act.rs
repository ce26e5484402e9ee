//! The act of an amendment's request: which of its fields the act needs, and that it has no others.
//!
//! ```text
//! {"act":"ban","domain":"mallory","until_us":…}      a ban with an end
//! {"act":"ban","domain":"mallory","hits":3}          refused: hits belongs to another act
//! ```
//!
//! Knows nothing of HTTP, nor of what acts do.

use std::ops::Deref;

use tollgate_api::amend::{AmendRequest, AmendRow};
use tollgate_log::clock::wall;
use tollgate_shared::names::admit_domain;
use tollgate_shared::time::{Span, Timestamp};
use tollgate_shared::wire::amendment::Act;
use tollgate_shared::wire::set_rows::{ROWS_MAX, SetRow};

/// Reads the act of a request, which needs some of its fields and allows no others.
pub(super) struct ActReader<'a>(pub(super) &'a AmendRequest);

impl Deref for ActReader<'_> {
    type Target = AmendRequest;

    fn deref(&self) -> &AmendRequest {
        self.0
    }
}

impl ActReader<'_> {
    pub(super) fn act(&self) -> Result<Act, String> {
        let act = self.act.as_str();
        if let Some(foreign) = self.foreign() {
            return Err(format!(
                "{act}: expected no {foreign}, which belongs to another act"
            ));
        }
        Ok(match act {
            "lift" => Act::Pardon {
                resource: self.resource()?,
                domain: self.domain()?,
            },
            "reset" => Act::Reset {
                resource: self.resource()?,
                domain: self.domain()?,
            },
            "refund" => Act::Refund {
                resource: self.resource()?,
                domain: self.domain()?,
                hits: self
                    .hits
                    .filter(|hits| 0 < *hits)
                    .ok_or_else(|| self.missing("hits, at least 1"))?,
            },
            "ban" => Act::Ban {
                resource: self.resource().ok(),
                domain: self.domain()?,
                until: self.end_of_ban()?,
            },
            "unban" => Act::Unban {
                resource: self.resource().ok(),
                domain: self.domain()?,
            },
            "release" => self.release()?,
            "switch" => self.switch()?,
            "set" => self.set()?,
            other => {
                return Err(format!(
                    "act {other:?}: expected lift, reset, refund, ban, unban, release, switch or set"
                ));
            }
        })
    }

    /// When a ban ends. A caller that states how long it lasts need not have the right time.
    fn end_of_ban(&self) -> Result<Timestamp, String> {
        match (self.until_us, self.for_us) {
            (None, None) => Ok(Timestamp::MAX),
            (Some(until_us), None) => Ok(Timestamp::from_micros(until_us)),
            (None, Some(0)) => Err("ban: for_us = 0: expected at least 1".to_owned()),
            // Not without an end, however long it lasts.
            (None, Some(for_us)) => {
                let end = wall().saturating_add(Span::from_micros(for_us));
                Ok(end.min(Timestamp::from_micros(u64::MAX - 1)))
            }
            (Some(_), Some(_)) => Err("ban: expected until_us or for_us, not both".to_owned()),
        }
    }

    /// A field that the act does not have. Ignoring it would report as done what nobody asked for.
    fn foreign(&self) -> Option<&'static str> {
        const PAIR: &[&str] = &["resource", "domain"];
        let own: &[&str] = match self.act.as_str() {
            "refund" => &["hits"],
            "ban" => &["until_us", "for_us"],
            "release" => &["agent", "epoch", "number", "transfer"],
            "switch" => &["namespace", "ignore_configured", "allow_unconfigured"],
            "set" => &["rate", "hard", "limit", "remove", "rows"],
            "lift" | "reset" | "unban" => &[],
            // It is refused by its name.
            _ => return None,
        };
        let is_of_pair = self.act != "switch";
        let stated = [
            ("resource", self.resource.is_some()),
            ("domain", self.domain.is_some()),
            ("hits", self.hits.is_some()),
            ("until_us", self.until_us.is_some()),
            ("for_us", self.for_us.is_some()),
            ("agent", self.agent.is_some()),
            ("epoch", self.epoch.is_some()),
            ("number", self.number.is_some()),
            ("transfer", self.transfer.is_some()),
            ("namespace", self.namespace.is_some()),
            ("ignore_configured", self.ignore_configured.is_some()),
            ("allow_unconfigured", self.allow_unconfigured.is_some()),
            ("rate", self.rate.is_some()),
            ("hard", self.hard.is_some()),
            ("limit", self.limit.is_some()),
            ("remove", self.remove),
            ("rows", !self.rows.is_empty()),
        ];
        let mut stated = stated.into_iter().filter(|(_, is_stated)| *is_stated);
        let is_own =
            |field: &&'static str| own.contains(field) || is_of_pair && PAIR.contains(field);
        let foreign = stated.find(|(field, _)| !is_own(field));
        foreign.map(|(field, _)| field)
    }

    /// The act that switches the rules of a namespace, or restores them.
    fn switch(&self) -> Result<Act, String> {
        let name = self.namespace.as_deref();
        let name = name.ok_or_else(|| self.missing("namespace"))?;
        let switches = self.ignore_configured.is_some() || self.allow_unconfigured.is_some();
        if switches && name.contains('.') {
            return Err(format!(
                "switch: namespace {name:?}: contains a dot, expected the part of a resource's name before its first dot"
            ));
        }
        Ok(Act::Switch {
            namespace: name.into(),
            ignore_configured: self.ignore_configured,
            allow_unconfigured: self.allow_unconfigured,
        })
    }

    /// The act that releases holds, or staged copies.
    fn release(&self) -> Result<Act, String> {
        Ok(
            match (self.number, &self.epoch, &self.agent, &self.transfer) {
                (None, None, None, Some(text)) if self.domain.is_none() => Act::ReleaseTransfer {
                    resource: self.resource()?,
                    transfer: text
                        .parse()
                        .map_err(|fault| format!("release: transfer {text:?}: {fault}"))?,
                },
                (.., Some(_)) => return Err(self.missing("a transfer alone, or none")),
                (Some(number), Some(epoch), Some(agent), None) => Act::ReleaseHold {
                    resource: self.resource()?,
                    agent: agent.as_str().into(),
                    epoch: u128::from_str_radix(epoch, 16)
                        .map_err(|_| self.missing("an epoch in hexadecimal"))?,
                    number,
                },
                (None, None, _, None) if self.domain.is_some() || self.agent.is_some() => {
                    Act::ReleaseHolds {
                        resource: self.resource()?,
                        domain: self.domain().ok(),
                        agent: self.agent.as_deref().map(Box::from),
                    }
                }
                _ => {
                    let text = "agent, epoch and number; domain or agent; or transfer";
                    return Err(self.missing(text));
                }
            },
        )
    }

    /// The act that sets a domain's own limits.
    fn set(&self) -> Result<Act, String> {
        if !self.rows.is_empty() {
            return self.set_many();
        }
        let states = self.rate.is_some() || self.hard.is_some() || self.limit.is_some();
        if states == self.remove {
            return Err(self.missing("rate, hard or limit; or remove"));
        }
        Ok(Act::Set(SetRow {
            resource: self.resource()?,
            // In the spelling of the document.
            domain: self
                .domain
                .as_deref()
                .map(Box::from)
                .ok_or_else(|| self.missing("domain"))?,
            rate: self.rate.as_deref().map(Box::from),
            hard: self.hard.as_deref().map(Box::from),
            limit: self.limit,
        }))
    }

    /// The act that sets many domains' own limits.
    fn set_many(&self) -> Result<Act, String> {
        let names_one = self.resource.is_some() || self.domain.is_some() || self.remove;
        if names_one || self.rate.is_some() || self.hard.is_some() || self.limit.is_some() {
            return Err(self.missing("rows alone, or one domain"));
        }
        if ROWS_MAX < self.rows.len() {
            return Err(self.missing("at most 8192 rows"));
        }
        let row = |row: &AmendRow| SetRow {
            resource: row.resource.as_str().into(),
            domain: row.domain.as_str().into(),
            rate: row.rate.as_deref().map(Box::from),
            hard: row.hard.as_deref().map(Box::from),
            limit: row.limit,
        };
        Ok(Act::SetMany(self.rows.iter().map(row).collect()))
    }

    fn missing(&self, field: &str) -> String {
        format!("{}: expected {field}", self.act)
    }

    fn resource(&self) -> Result<Box<str>, String> {
        let resource = self.resource.as_deref().map(Box::from);
        resource.ok_or_else(|| self.missing("resource"))
    }

    /// The name under which a caller of the domain is limited.
    fn domain(&self) -> Result<Box<str>, String> {
        let domain = self.domain.as_deref();
        let domain = domain.map(|domain| Box::from(&*admit_domain(domain)));
        domain.ok_or_else(|| self.missing("domain"))
    }
}

#[cfg(test)]
mod tests {
    use tollgate_shared::holdings::TransferId;

    use super::*;

    fn released(asked: AmendRequest) -> Result<Act, String> {
        let asked = AmendRequest {
            act: "release".to_owned(),
            resource: Some("sandbox".to_owned()),
            ..asked
        };
        ActReader(&asked).act()
    }

    fn transfer(id: &str) -> AmendRequest {
        AmendRequest {
            transfer: Some(id.to_owned()),
            ..AmendRequest::default()
        }
    }

    #[test]
    fn rows_stand_in_place_of_one_domain() {
        let row = AmendRow {
            resource: "search".to_owned(),
            domain: "acme".to_owned(),
            rate: Some("9/s".to_owned()),
            ..AmendRow::default()
        };
        let set = |rows: Vec<AmendRow>, domain: Option<&str>| {
            let asked = AmendRequest {
                act: "set".to_owned(),
                domain: domain.map(str::to_owned),
                rows,
                ..AmendRequest::default()
            };
            ActReader(&asked).act()
        };
        let Ok(Act::SetMany(rows)) = set(vec![row.clone(), AmendRow::default()], None) else {
            panic!("two rows");
        };
        assert_eq!((rows.len(), rows[0].rate.as_deref()), (2, Some("9/s")));
        let both = set(vec![row.clone()], Some("acme")).expect_err("both");
        assert_eq!(both, "set: expected rows alone, or one domain");
        assert!(set(vec![row; ROWS_MAX + 1], None).is_err());
    }

    #[test]
    fn a_field_of_another_act_is_refused() {
        let asked = |act: &str, more: AmendRequest| {
            let asked = AmendRequest {
                act: act.to_owned(),
                domain: Some("mallory".to_owned()),
                ..more
            };
            ActReader(&asked).act()
        };
        let hits = |hits| AmendRequest {
            hits,
            ..AmendRequest::default()
        };
        assert!(asked("ban", hits(None)).is_ok());
        let fault = asked("ban", hits(Some(3))).expect_err("hits");
        assert_eq!(fault, "ban: expected no hits, which belongs to another act");
        let rate = AmendRequest {
            rate: Some("9/s".to_owned()),
            ..AmendRequest::default()
        };
        assert!(asked("ban", rate.clone()).is_err());
        assert!(asked("unban", rate).is_err());
        let fault = asked("refnd", hits(Some(3))).expect_err("misspelt");
        let known = "expected lift, reset, refund, ban, unban, release, switch or set";
        assert_eq!(fault, format!("act \"refnd\": {known}"));
        let lasts = |until_us| AmendRequest {
            for_us: Some(60_000_000),
            until_us,
            ..AmendRequest::default()
        };
        let Ok(Act::Ban { until, .. }) = asked("ban", lasts(None)) else {
            panic!("a ban of a minute");
        };
        let left = until.since(wall());
        assert!(left <= Span::from_secs(60) && Span::from_secs(50) < left);
        assert!(asked("ban", lasts(Some(9))).is_err());
        assert!(asked("lift", lasts(None)).is_err());
        let switch = AmendRequest {
            namespace: Some("api".to_owned()),
            ..AmendRequest::default()
        };
        let fault = asked("switch", switch).expect_err("a domain");
        assert!(fault.contains("no domain"), "{fault}");
    }

    #[test]
    fn staged_copies_are_named_by_their_id_alone() {
        let id = TransferId(0xab);
        let act = Act::ReleaseTransfer {
            resource: "sandbox".into(),
            transfer: id,
        };
        assert_eq!(released(transfer(&id.to_string())), Ok(act));
        for wrong in ["", "ab", "g00000000000000000000000000000ab"] {
            let fault = released(transfer(wrong)).expect_err("no id");
            let expected = format!(
                "release: transfer {wrong:?}: not the id of a transfer, expected 32 hexadecimal digits"
            );
            assert_eq!(fault, expected);
        }
        let named = || Some("a".to_owned());
        let beside = [
            AmendRequest {
                domain: named(),
                ..AmendRequest::default()
            },
            AmendRequest {
                agent: named(),
                ..AmendRequest::default()
            },
            AmendRequest {
                number: Some(1),
                ..AmendRequest::default()
            },
        ];
        for other in beside {
            let both = AmendRequest {
                transfer: Some(id.to_string()),
                ..other
            };
            let fault = released(both).expect_err("both");
            assert_eq!(fault, "release: expected a transfer alone, or none");
        }
        let fault = released(AmendRequest::default()).expect_err("nothing");
        assert!(fault.ends_with("domain or agent; or transfer"), "{fault}");
    }
}
