//! Limits: reads the stream, pushes the limits file, and knows which version to activate.
//!
//! A limits file does not rule by itself: the file is pushed, a push that wins becomes a version in the log, and
//! a version rules a partition from its activation on.

use std::collections::BTreeSet;
use std::sync::Arc;

use tollgate_limits::Limits;
use tollgate_shared::time::Span;

use super::environment::{Environment, Purpose};
use super::event::{Effect, LimitsFile, Now};
use super::limits_push::Pushed;
use super::limits_warnings as warnings;
use super::partition::Partition;
use super::record_keys;
use tollgate_limits::versions::{Bans, Entered, LimitsBook, Version, Void, digest};
use tollgate_log::{AppendError, Delivered, Stream};
use tollgate_shared::keyring::Keyring;
use tollgate_shared::wire::DecodeError;
use tollgate_shared::wire::amendment::Act;

/// How long after a failed push the file is pushed again.
const PUSH_AGAIN_AFTER: Span = Span::from_secs(1);

/// What this process knows of limits.
#[derive(Debug, Default)]
pub(super) struct LimitsState {
    /// The versions.
    pub book: LimitsBook,
    /// The version by which agents last had something new to learn; 0: no version was read. See [`Limits::public`].
    pub news_for_agents: u64,
    /// The offset of the next record of the stream.
    pub next: u64,
    /// Whether what existed at the start has been read.
    pub caught_up: bool,
    /// Why the stream cannot be read, if it cannot.
    pub broken: Option<String>,
    /// The limits file that is to rule, if the last one read was good.
    file: Option<GoodFile>,
    /// The faults of the limits file, if it has any, and whether it could not even be read.
    file_bad: Option<(String, bool)>,
    /// Whether the file was read and has not been pushed since, nor found to be in force.
    file_due: bool,
    /// Whether the file differs from the version in force, and will not be pushed before it is read again.
    pub file_differs: bool,
    /// The push that is on its way, and the digest of its document.
    push: Option<(u128, [u8; 32])>,
    /// The last push that failed: the log may have it all the same.
    push_in_doubt: Option<(u128, [u8; 32])>,
    push_not_before: Span,
    /// The tracing span of the lines about the last push.
    push_span: Option<tracing::Span>,
}

#[derive(Debug)]
struct GoodFile {
    name: String,
    text: String,
    digest: [u8; 32],
}

impl LimitsState {
    /// The version that partitions should activate; `None` before the stream has been read, and where a key that the
    /// version names is missing.
    pub fn to_point_at(&self, keys: &Keyring) -> Option<&Version> {
        let latest = self.book.latest()?;
        let in_force = latest.number == self.book.latest_number();
        let has_keys = keys.missing(latest.limits.record_keys()).is_none();
        (self.caught_up && in_force && has_keys).then_some(latest)
    }

    /// Why this process cannot rule by the newest version, if a key that it names is missing.
    pub fn why_no_key(&self, keys: &Keyring) -> Option<String> {
        let latest = self.book.latest()?;
        let why = record_keys::why_missing(keys, &latest.limits)?;
        Some(format!("limits version {}: {why}", latest.number))
    }

    /// Why this process does not know the newest version, if so.
    pub fn why_unread(&self) -> Option<String> {
        match &self.broken {
            Some(why) => Some(format!("limits cannot be read: {why}")),
            None => (!self.caught_up).then(|| "limits are not read yet".to_owned()),
        }
    }

    /// Whether the limits file has faults.
    pub fn is_file_bad(&self) -> bool {
        self.file_bad.is_some()
    }

    /// Logs a missing key, if the stream has been read: older versions may name keys that do not exist any more.
    fn log_missing_key(&self, keys: &Keyring) {
        if let Some(why) = self.why_no_key(keys).filter(|_| self.caught_up) {
            tracing::error!("{why}");
        }
    }

    /// Removes an own push that is on its way no more; returns the digest of its document.
    fn take_own(&mut self, push: u128) -> Option<[u8; 32]> {
        let mut own = [&mut self.push, &mut self.push_in_doubt].into_iter();
        let (_, digest) = own.find_map(|own| own.take_if(|(id, _)| *id == push))?;
        Some(digest)
    }

    /// Forgets versions that every partition has left behind. Not called in a fleet: a partition that is assigned
    /// later may have to be ruled from a position at which it used them.
    pub fn forget_unused(&mut self, partitions: &[Partition]) {
        let left_behind = |partition: &Partition| match partition.position.unverified {
            // If its snapshot turns out to be of another log, it is ruled from the beginning.
            true => 0,
            false => partition.ruler.version(),
        };
        let oldest = partitions.iter().map(left_behind).min();
        self.book.forget_below(oldest.unwrap_or(0));
    }

    /// Reads a record of the stream; `pairs` returns how many pairs all partitions know.
    ///
    /// # Errors
    ///
    /// The record cannot be decoded.
    pub fn read(
        &mut self,
        record: &Delivered,
        pairs: impl Fn() -> u64,
    ) -> Result<Option<Entered>, DecodeError> {
        self.next = record.offset + 1;
        let before = self.book.latest().map(|latest| latest.limits.clone());
        let entered = self
            .book
            .read(record.offset, record.appended, &record.bytes)?;
        if let Some(entered) = &entered {
            // What existed at the start was logged when it was entered.
            if self.caught_up {
                let entered = (entered, record.appended);
                warnings::of_entered(&self.book, before.as_ref(), entered, pairs);
            }
            self.note_news(before.as_ref());
        }
        Ok(entered)
    }

    /// Notes whether agents learn anything else from the newest version than from the one before. What existed at the start
    /// is not compared: agents learn from each new process anyway.
    fn note_news(&mut self, before: Option<&Arc<Limits>>) {
        let Some(latest) = self.book.latest() else {
            return;
        };
        let act = latest.made.as_ref().map(|made| &*made.act);
        let rows = act.map_or(&[][..], Act::rows);
        let is_equal = |before: &Arc<Limits>| match rows {
            _ if Arc::ptr_eq(before, &latest.limits) => true,
            [] => before.is_public_equal(&latest.limits),
            rows => {
                let changed: BTreeSet<&str> = rows.iter().map(|row| &*row.resource).collect();
                before.is_public_equal_of(&latest.limits, changed.into_iter())
            }
        };
        let is_of_network = act.is_some_and(Bans::of_networks_are_changed_by);
        if is_of_network || !(self.caught_up && before.is_some_and(is_equal)) {
            self.news_for_agents = latest.number;
        }
    }

    /// Everything that existed at the start has been read.
    pub fn caught_up(&mut self, env: &mut Environment) {
        self.caught_up = true;
        record_keys::log_missing(&self.book, env);
        self.log_missing_key(&env.settings.keys);
        let empty = self.book.latest().is_none();
        self.log_at_start();
        if let Some((why, unreadable)) = &self.file_bad
            && empty
        {
            env.effects.push(Effect::GiveUp {
                why: why.clone(),
                unreadable: *unreadable,
            });
        }
    }

    /// Logs what is in force at the start. The versions before that were logged when they entered the log.
    fn log_at_start(&self) {
        let resources = self
            .book
            .latest()
            .map_or(0, |latest| latest.limits.resources().len());
        let version = self.book.latest_number();
        if 0 < resources || self.file.is_some() {
            tracing::info!(version, resources, "limits in the log at the start");
            if let Some(latest) = self.book.latest() {
                warnings::beyond_bound(None, &latest.limits);
            }
        } else {
            tracing::warn!(
                version,
                "there are no limits, so agents let every call through: name a file (serve --limits FILE), or, with Kafka, \
                 run: tollgate limits push FILE --reason TEXT"
            );
        }
    }

    /// The stream was recreated. Versions are numbered by their positions in it, and records of the log name
    /// versions of the old stream: an aggregator that reads the new stream would rule otherwise than one that has
    /// read the old.
    pub fn on_recreated_limits(&mut self, env: &mut Environment) {
        let version = self.book.latest_number();
        let why = format!(
            "they were recreated, and version {version}, which is in force, is not in them; it stays in force, and nothing that \
             is pushed takes effect. Save the document (GET /v1/limits), stop the aggregators, delete the topics of limits, \
             hits, state and denials, run: tollgate topics create, push the document, and start the aggregators"
        );
        tracing::error!(why, "limits cannot be read any further");
        self.broken = Some(why);
        env.unfollow(Stream::Limits, 0);
    }

    /// Handles a version that was entered or found void.
    pub fn entered(&mut self, now: Now, entered: Entered, env: &mut Environment) {
        let _inside = match &entered {
            Entered::Version { push, .. } | Entered::Void { push, .. } => self.enter_push(*push),
            Entered::Newer { .. } => None,
        };
        match entered {
            Entered::Version { push, version } => {
                match &version.made {
                    _ if !self.caught_up => {}
                    Some(made) => tracing::info!(
                        version = version.number,
                        who = &*made.who,
                        why = &*made.why,
                        "amendment in the log: {}",
                        tollgate_limits::versions::in_one_line(&made.act)
                    ),
                    None => tracing::info!(
                        version = version.number,
                        resources = version.limits.resources().len(),
                        "limits version in the log"
                    ),
                }
                self.log_missing_key(&env.settings.keys);
                if let Some(pushed) = self.take_own(push) {
                    // The file may have been read again meanwhile, and may then equal the version that was in force
                    // until now.
                    let file = self.file.as_ref().map(|file| file.digest);
                    self.file_due = file.is_some_and(|file| file != pushed);
                }
                self.consider_file(now, env);
            }
            Entered::Newer { number, why } => {
                tracing::error!(
                    version = number,
                    why,
                    "limits of a later build; partitions under it stop"
                );
            }
            Entered::Void { push, why } => {
                let pushed = self.push.take_if(|(id, _)| *id == push);
                let pushed = pushed.map(|(_, digest)| digest);
                let own = pushed.is_some();
                if own {
                    env.out.tally.counters.pushes_void += 1;
                    self.push_not_before = now.clock.saturating_add(PUSH_AGAIN_AFTER);
                }
                // It was checked before it was pushed, so pushing it again would end the same. A file that was read
                // since is another one.
                let is_final = !matches!(why, Void::Conflict { .. } | Void::Zero);
                let is_pushed = |file: &mut GoodFile| is_final && pushed == Some(file.digest);
                match self.file.take_if(is_pushed) {
                    Some(file) => {
                        let why = format!("{}: {why}", file.name);
                        tracing::error!(
                            version = self.book.latest_number(),
                            "{why}; the limits file is not used; the limits in force stay"
                        );
                        self.file_bad = Some((why, false));
                    }
                    None if !self.caught_up => {}
                    None => tracing::warn!(
                        own,
                        "a limits document or an amendment in the log is void: {why}"
                    ),
                }
            }
        }
    }

    /// Takes the limits file that was just read. A bad one is logged with all its faults, and changes nothing.
    pub fn file_read(&mut self, now: Now, file: LimitsFile, env: &mut Environment) {
        let LimitsFile { name, text } = file;
        let _inside = tracing::info_span!("limits_file", file = name).entered();
        let bad = match text {
            Err(why) => Some((format!("{name}: {why}"), true)),
            Ok(text) => match Limits::parse_to_push(&text) {
                Err(faults) => Some((faults.in_file(&name).to_string(), false)),
                Ok(limits) => match record_keys::why_missing(&env.settings.keys, &limits) {
                    Some(why) => Some((format!("{name}: {why}"), false)),
                    None => {
                        self.file = Some(GoodFile {
                            name,
                            digest: digest(text.as_bytes()),
                            text,
                        });
                        self.file_due = true;
                        None
                    }
                },
            },
        };
        if let Some((why, _)) = &bad {
            for line in why.lines() {
                tracing::error!("{line}");
            }
            match self.caught_up {
                true => tracing::error!(
                    version = self.book.latest_number(),
                    "the limits file is not used; the limits in force stay"
                ),
                // At a start it is not known yet which version is in force.
                false => tracing::error!(
                    "the limits file is not used; the limits in the log apply, if it has any"
                ),
            }
        }
        self.file_bad = bad;
        self.consider_file(now, env);
    }

    /// Pushes the limits file, once each time that it was read: if it differs from the version in force and is
    /// followed, or if there is no version yet, since a new fleet begins with the limits that it was started with.
    ///
    /// A version that was pushed later by another process stays: two aggregators that follow different files would
    /// otherwise push against each other without end, and an operator's version would be undone as soon as it rules.
    fn consider_file(&mut self, now: Now, env: &mut Environment) {
        if self.why_unread().is_some() || self.is_file_bad() {
            return;
        }
        let Some(file) = &self.file else {
            return;
        };
        let in_force = self.book.latest();
        let differs = in_force.is_none_or(|version| {
            let text = &version.text;
            text.digest() != file.digest && !text.differs_in_zones_alone(&file.text)
        });
        self.file_due &= differs;
        let is_followed = env.settings.follow_file || in_force.is_none();
        let is_left = differs && !(is_followed && self.file_due);
        if is_left && !self.file_differs {
            let (version, file) = (self.book.latest_number(), &file.name);
            let then = match env.settings.follow_file {
                true => "it is pushed at the next start, or when it is read again (SIGHUP)",
                false => "it is not followed (limits.follow_file = false)",
            };
            tracing::warn!(
                version,
                "{file} differs from the limits version in force, and {then}; to see how: \
                 tollgate limits show {version} | diff - {file} (of a journal: GET /v1/limits)"
            );
        }
        self.file_differs = is_left;
        let may_push = self.push.is_none() && self.push_not_before <= now.clock;
        if differs && !is_left && may_push {
            self.push_file(now, env);
        }
    }

    fn push_file(&mut self, now: Now, env: &mut Environment) {
        let Some(file) = &self.file else {
            return;
        };
        let id = env.draw_u128();
        let pushed = Pushed {
            push: id,
            text: &file.text,
            expected: self.book.latest_number(),
            who: &env.settings.aggregator,
            why: &format!("limits.file {}", file.name),
            at: now.wall,
        };
        let record = pushed.record();
        let span = tracing::info_span!("limits_push", file = file.name, expected = pushed.expected);
        span.in_scope(|| tracing::info!(bytes = file.text.len(), "pushing limits"));
        self.push_span = Some(span);
        env.out.tally.counters.pushes += 1;
        self.push = Some((id, file.digest));
        env.append(Stream::Limits, 0, record, Purpose::Document(id));
    }

    fn is_own(&self, push: u128) -> bool {
        self.push.is_some_and(|(own, _)| own == push)
    }

    /// While the guard lives, log lines belong to the span of this push, if it is an own one.
    fn enter_push(&self, push: u128) -> Option<tracing::span::EnteredSpan> {
        let own = self.push_span.clone().filter(|_| self.is_own(push))?;
        Some(own.entered())
    }

    /// The log did not take a push.
    pub fn push_failed(&mut self, now: Now, push: u128, error: &AppendError) {
        if self.is_own(push) {
            let _inside = self.enter_push(push);
            // That the log takes no records at all is logged elsewhere, and passes.
            if let AppendError::Never(why) = error {
                tracing::error!(
                    why,
                    "the limits file cannot be pushed; the limits in force stay"
                );
            }
            self.push_in_doubt = self.push.take();
            self.push_not_before = now.clock.saturating_add(PUSH_AGAIN_AFTER);
        }
    }

    /// Pushes the limits file again after a push failed.
    pub fn turn(&mut self, now: Now, env: &mut Environment) {
        if self.file.is_some() {
            self.consider_file(now, env);
        }
    }

    /// Why the newest limits do not rule every partition yet, if they do not.
    pub fn why_not_in_force(&self, partitions: &[Partition]) -> Option<String> {
        if !self.caught_up {
            return Some("limits are not read yet".to_owned());
        }
        if self.push.is_some() {
            return Some("the limits file is being pushed".to_owned());
        }
        let latest = self.book.latest_number();
        let behind = |partition: &&Partition| partition.is_ours() && !partition.is_under(latest);
        let behind = partitions.iter().find(behind)?;
        Some(format!(
            "partition {}: limits version {latest} is not in force yet",
            behind.index
        ))
    }
}
