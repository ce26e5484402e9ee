//! An aggregator that sends arbitrary bytes.

use super::*;

/// A listener that serves each connection by `serve`, until it is dropped.
pub struct Hostile {
    /// Its address.
    pub address: String,
    over: Arc<AtomicBool>,
    /// How many connections there were.
    pub met: Arc<AtomicU64>,
}

impl Drop for Hostile {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
    }
}

impl Hostile {
    /// Starts it.
    pub fn start(serve: impl Fn(u64, TcpStream) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let over = Arc::new(AtomicBool::new(false));
        let met = Arc::<AtomicU64>::default();
        let serve = Arc::new(serve);
        std::thread::spawn({
            let (over, met) = (Arc::clone(&over), Arc::clone(&met));
            move || {
                for stream in listener.incoming().map_while(Result::ok) {
                    if over.load(Ordering::Relaxed) {
                        return;
                    }
                    let number = met.fetch_add(1, Ordering::Relaxed);
                    stream
                        .set_read_timeout(Some(Duration::from_secs(5)))
                        .unwrap();
                    stream
                        .set_write_timeout(Some(Duration::from_secs(5)))
                        .unwrap();
                    let serve = Arc::clone(&serve);
                    std::thread::spawn(move || serve(number, stream));
                }
            }
        });
        Self { address, over, met }
    }

    /// An agent that uses it.
    pub fn agent(&self) -> Agent {
        let agent = Agent::builder().name("a").aggregator(self.address.clone());
        agent.build().unwrap()
    }

    /// Waits until this many connections were served; no call may be refused meanwhile.
    pub fn meets(&self, agent: &Agent, connections: u64) {
        let search = agent.rate("api.search");
        let begun = Instant::now();
        let mut calls = 0;
        while self.met.load(Ordering::Relaxed) < connections {
            assert!(begun.elapsed() < SOON, "it connects no more");
            assert!(search.hit("acme").is_ok(), "no statement refuses");
            calls += 1;
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(0 < calls);
    }
}

/// Opens as a ROUTER and waits for the first hello. Returns its nonce.
pub fn hello(stream: &mut TcpStream) -> Option<u64> {
    stream.write_all(&opening(SocketType::Router)).ok()?;
    let mut decoder = Decoder::new(SocketType::Router, PeerLimits::default());
    let mut bytes = [0; 4_096];
    loop {
        let read = stream.read(&mut bytes).ok().filter(|read| 0 < *read)?;
        let mut input = &bytes[..read];
        while let Ok(Some(event)) = decoder.next(&mut input) {
            if let Event::Message(parts) = event
                && let Ok(FromAgent::Hello { nonce, .. }) = FromAgent::decode(parts.last()?)
            {
                return Some(nonce);
            }
        }
    }
}

/// A welcome that answers a hello, for a log with `partitions` partitions and a fleet with
/// `members` members.
pub fn welcome(nonce: u64, partitions: u32, members: u32) -> Vec<u8> {
    let members = (0..members).map(|n| Member {
        instance: u128::from(n) + 100,
        address: format!("127.0.{}.{}:1", n / 250 + 1, n % 250 + 1).into(),
    });
    let mut writer = Writer::new();
    FromAggregator::Welcome {
        nonce,
        instance: 7,
        partitions,
        feeds: vec!["tcp://127.0.0.1:1".into()],
        clock: Span::ZERO,
        members: members.collect(),
        limits: 0,
    }
    .encode(&mut writer);
    writer.as_slice().to_vec()
}
