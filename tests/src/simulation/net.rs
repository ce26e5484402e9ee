//! The network between agents and aggregators: links in both directions, and the feed.
//!
//! A connection keeps its messages in order, as TCP does, unless a fault reorders them. Knows nothing of the
//! content of messages. What stays true: a message on a connection that is gone never arrives.

use super::plan::{Edge, WAYS};
use super::random::Random;

/// The current state of one direction between an agent and an aggregator.
#[derive(Clone, Copy, Debug, Default)]
pub struct Weather {
    /// Lost of a million messages.
    pub loss_ppm: u32,
    /// Duplicated of a million messages.
    pub duplication_ppm: u32,
    /// Messages overtake each other by up to this many microseconds.
    pub reordering_us: u64,
    /// Messages are late by up to this many microseconds.
    pub delay_us: u64,
    /// The number of cuts; a number, since cuts may overlap.
    pub cuts: u32,
    /// The number of those cuts that lose messages.
    pub losing_cuts: u32,
}

/// The outcome of sending a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    /// It arrives, perhaps twice.
    Arrives {
        /// When it arrives.
        at_us: u64,
        /// When its duplicate arrives.
        again_us: Option<u64>,
        /// Whether it overtook another or was late because of a fault.
        late: bool,
        /// Whether it may overtake others.
        reordered: bool,
    },
    /// It is held until the end of the cut.
    Held,
    /// It is lost.
    Lost,
}

/// All directions.
#[derive(Debug)]
pub struct Net {
    owners: usize,
    weather: Vec<Weather>,
    /// When the last message of each direction arrives.
    last_us: Vec<u64>,
    delay_us: (u64, u64),
    random: Random,
}

impl Net {
    /// A network with bounds for the time of a message.
    pub fn new(agents: usize, owners: usize, delay_us: (u64, u64), random: Random) -> Self {
        let ways = agents * owners * WAYS.len();
        Self {
            owners,
            weather: vec![Weather::default(); ways],
            last_us: vec![0; ways],
            delay_us,
            random,
        }
    }

    fn index(&self, edge: Edge) -> usize {
        (edge.agent * self.owners + edge.owner) * WAYS.len() + edge.way as usize
    }

    /// The state of a direction.
    pub fn weather(&mut self, edge: Edge) -> &mut Weather {
        let index = self.index(edge);
        &mut self.weather[index]
    }

    /// Whether a direction is cut.
    pub fn is_cut(&self, edge: Edge) -> bool {
        0 < self.weather[self.index(edge)].cuts
    }

    /// Notes a new connection: its messages do not wait for earlier ones.
    pub fn connected(&mut self, edge: Edge, now_us: u64) {
        let index = self.index(edge);
        self.last_us[index] = now_us;
    }

    /// Sends a message.
    pub fn send(&mut self, edge: Edge, now_us: u64) -> Sent {
        let index = self.index(edge);
        let weather = self.weather[index];
        if 0 < weather.cuts {
            return match 0 < weather.losing_cuts {
                true => Sent::Lost,
                false => Sent::Held,
            };
        }
        if self.random.chance(weather.loss_ppm) {
            return Sent::Lost;
        }
        let mut at_us = now_us + self.random.between(self.delay_us.0, self.delay_us.1);
        let late = 0 < weather.delay_us;
        if late {
            at_us += self.random.below(weather.delay_us);
        }
        let reordered = 0 < weather.reordering_us && self.random.one_in(3);
        if reordered {
            at_us += self.random.below(weather.reordering_us);
        } else {
            at_us = at_us.max(self.last_us[index] + 1);
            self.last_us[index] = at_us;
        }
        let again_us = self
            .random
            .chance(weather.duplication_ppm)
            .then(|| at_us + 1 + self.random.spread(10, 100_000));
        Sent::Arrives {
            at_us,
            again_us,
            late,
            reordered,
        }
    }
}
