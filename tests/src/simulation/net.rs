//! The network between agents and owners: links both ways, and the feed.
//!
//! A connection keeps its messages' order, as TCP does, unless a fault says otherwise. Knows nothing of
//! what messages say. What stays true: what is said over a connection that is gone never arrives.

use super::plan::{Edge, WAYS, Way};
use super::random::Random;

/// What a way between an agent and an owner is like at the moment.
#[derive(Clone, Copy, Debug, Default)]
pub struct Weather {
    /// Of a million messages, lost.
    pub loss_ppm: u32,
    /// Of a million messages, sent twice.
    pub duplication_ppm: u32,
    /// Messages overtake each other by up to so much.
    pub reordering_us: u64,
    /// Messages are late by up to so much.
    pub delay_us: u64,
    /// Nothing comes through; counted, since cuts may overlap.
    pub cuts: u32,
    /// Of those, cuts that lose what is sent.
    pub losing_cuts: u32,
}

/// What became of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    /// It arrives then, and perhaps again.
    Arrives {
        /// When.
        at_us: u64,
        /// And a second time.
        again_us: Option<u64>,
        /// It overtook another or was late because of a fault.
        late: bool,
        /// It may overtake others.
        reordered: bool,
    },
    /// It is held until the way is free.
    Held,
    /// It is lost.
    Lost,
}

/// All ways.
#[derive(Debug)]
pub struct Net {
    owners: usize,
    weather: Vec<Weather>,
    /// When the last message of each way arrives.
    last_us: Vec<u64>,
    delay_us: (u64, u64),
    random: Random,
}

impl Net {
    /// Between so many agents and owners; a message takes from so much to so much.
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
        let way = match edge.way {
            Way::Up => 0,
            Way::Down => 1,
            Way::Feed => 2,
        };
        (edge.agent * self.owners + edge.owner) * WAYS.len() + way
    }

    /// What a way is like.
    pub fn weather(&mut self, edge: Edge) -> &mut Weather {
        let index = self.index(edge);
        &mut self.weather[index]
    }

    /// Whether a way is cut.
    pub fn is_cut(&self, edge: Edge) -> bool {
        0 < self.weather[self.index(edge)].cuts
    }

    /// A new connection: its messages wait for no others.
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
