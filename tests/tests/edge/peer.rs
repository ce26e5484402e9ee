//! A peer on a raw socket, which sends arbitrary bytes.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};

use socket2::{Domain, Socket, Type};
use tollgate_shared::epoch::EpochSecret;
use tollgate_shared::names::partition_of_pair;
use tollgate_shared::time::Timestamp;
use tollgate_shared::wire::Writer;
use tollgate_shared::wire::hits::{Hit, Sender, write_hits};
use tollgate_shared::wire::link::{FromAgent, FromAggregator};
use tollgate_zmtp::{Decoder, Event, PeerLimits, SocketType, message, opening};

use crate::attacked::SOON;

/// The header of a long frame.
pub fn header(flags: u8, length: u64) -> Vec<u8> {
    [&[flags][..], &length.to_be_bytes()].concat()
}

pub struct Peer {
    pub stream: TcpStream,
    decoder: Decoder,
    unread: Vec<u8>,
}

impl Peer {
    /// A peer that has only connected.
    pub fn connect(address: &str, role: SocketType) -> Self {
        Self::over(TcpStream::connect(address).unwrap(), role)
    }

    /// A peer that connects from this loopback address, with a receive buffer of `keeps` bytes.
    pub fn connect_from(from: [u8; 4], keeps: usize, address: &str, role: SocketType) -> Self {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        socket.set_recv_buffer_size(keeps).unwrap();
        socket.bind(&SocketAddr::from((from, 0)).into()).unwrap();
        let address: SocketAddr = address.parse().unwrap();
        socket.connect(&address.into()).unwrap();
        Self::over(socket.into(), role)
    }

    /// A peer from this address with a complete handshake.
    pub fn ready_from(from: [u8; 4], address: &str, role: SocketType) -> Self {
        let mut peer = Self::connect_from(from, 1 << 20, address, role);
        peer.greet(&opening(role));
        peer
    }

    fn over(stream: TcpStream, role: SocketType) -> Self {
        stream.set_read_timeout(Some(SOON)).unwrap();
        stream.set_write_timeout(Some(SOON)).unwrap();
        stream.set_nodelay(true).unwrap();
        Self {
            stream,
            decoder: Decoder::new(role, PeerLimits::default()),
            unread: Vec::new(),
        }
    }

    /// A peer with a complete handshake.
    pub fn ready(address: &str, role: SocketType) -> Self {
        let mut peer = Self::connect(address, role);
        peer.greet(&opening(role));
        peer
    }

    /// Sends greeting and READY, and waits for those of the other side.
    pub fn greet(&mut self, opening: &[u8]) {
        self.send(opening);
        assert!(matches!(self.event(), Some(Event::Ready { .. })));
    }

    /// Sends bytes. Returns whether the other side still took them.
    pub fn try_send(&mut self, bytes: &[u8]) -> bool {
        self.stream.write_all(bytes).is_ok()
    }

    pub fn send(&mut self, bytes: &[u8]) {
        assert!(self.try_send(bytes), "the other side has ended");
    }

    /// The next event from the other side; `None` once it has closed.
    pub fn event(&mut self) -> Option<Event> {
        loop {
            let mut input = &self.unread[..];
            let event = self.decoder.next(&mut input).unwrap();
            self.unread = input.to_vec();
            if event.is_some() {
                return event;
            }
            let mut bytes = vec![0; 64 << 10];
            match self.stream.read(&mut bytes) {
                Ok(0) => return None,
                Ok(read) => self.unread.extend_from_slice(&bytes[..read]),
                Err(error) if is_end(error.kind()) => return None,
                Err(error) => panic!("neither a byte nor an end: {error}"),
            }
        }
    }

    /// The last frame of the next message; `None` once the other side has closed.
    pub fn message(&mut self) -> Option<Vec<u8>> {
        loop {
            match self.event()? {
                Event::Message(mut parts) => return parts.pop().map(|part| part.to_vec()),
                _ => continue,
            }
        }
    }

    /// Reads until the other side closes the connection.
    pub fn is_ended(&mut self) {
        let mut bytes = vec![0; 64 << 10];
        loop {
            match self.stream.read(&mut bytes) {
                Ok(0) => return,
                Ok(_) => {}
                Err(error) if is_end(error.kind()) => return,
                Err(error) => panic!("the connection goes on: {error}"),
            }
        }
    }

    pub fn send_message(&mut self, content: &FromAgent<'_>) {
        let mut writer = Writer::new();
        content.encode(&mut writer);
        self.send(&message(&[writer.as_slice()]));
    }

    pub fn answer(&mut self) -> FromAggregator {
        FromAggregator::decode(&self.message().expect("an answer")).unwrap()
    }
}

fn is_end(kind: ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::ConnectionReset | ErrorKind::BrokenPipe | ErrorKind::ConnectionAborted
    )
}

/// A simulated agent, which has sent its hello.
pub struct Hitter {
    pub peer: Peer,
    secret: EpochSecret,
    sequence: u64,
}

impl Hitter {
    pub fn new(agents: &str) -> Self {
        Self::of_secret(agents, [7; 32])
    }

    /// Another process of the same name.
    pub fn of_secret(agents: &str, secret: [u8; 32]) -> Self {
        Self::over(Peer::ready(agents, SocketType::Dealer), secret)
    }

    /// An agent from this address.
    pub fn from(from: [u8; 4], agents: &str) -> Self {
        Self::over(Peer::ready_from(from, agents, SocketType::Dealer), [8; 32])
    }

    fn over(mut peer: Peer, secret: [u8; 32]) -> Self {
        let secret = EpochSecret::new(secret);
        peer.send_message(&FromAgent::Hello {
            nonce: 1,
            agent: "hitter",
            secret,
            before: None,
        });
        assert!(matches!(peer.answer(), FromAggregator::Welcome { .. }));
        Self {
            peer,
            secret,
            sequence: 0,
        }
    }

    /// The sender of the next record.
    pub fn sender(&mut self) -> Sender<'static> {
        let wall = std::time::UNIX_EPOCH.elapsed().unwrap();
        self.sequence += 1;
        Sender {
            agent: "hitter",
            epoch: self.secret.epoch(),
            sequence: self.sequence,
            sent: Timestamp::from_micros(wall.as_micros() as u64),
        }
    }

    /// Sends a record for a partition, and returns the answer.
    pub fn append(&mut self, partition: u32, record: &[u8]) -> FromAggregator {
        self.peer.send_message(&FromAgent::Append {
            id: 1,
            partition,
            record,
        });
        self.peer.answer()
    }

    /// A record with two hits of each of these domains that belong to one partition.
    pub fn record(&mut self, resource: &str, domains: &[String]) -> Vec<u8> {
        let sender = self.sender();
        let hits = domains
            .iter()
            .map(|domain| Hit::one(0, domain, sender.sent, 2));
        let hits: Vec<_> = hits.collect();
        let mut writer = Writer::new();
        write_hits(
            &mut writer,
            &sender,
            &[resource],
            hits.into_iter(),
            [].into_iter(),
        );
        writer.as_slice().to_vec()
    }

    /// Has `count` domains of a resource denied.
    pub fn deny(&mut self, resource: &str, count: usize, partitions: u32) {
        let all: Vec<String> = (0..count).map(|n| format!("tenant-{n:06}")).collect();
        for partition in 0..partitions {
            let of = |one: &&String| partition_of_pair(resource, one, partitions) == partition;
            let domains: Vec<String> = all.iter().filter(of).cloned().collect();
            for some in domains.chunks(500) {
                let record = self.record(resource, some);
                let answer = self.append(partition, &record);
                assert!(matches!(answer, FromAggregator::Appended { .. }));
            }
        }
    }
}
