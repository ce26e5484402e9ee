//! The `zeromq` crate as the peer, in both directions: each side reads what the other sends.

use std::process::Command;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::timeout;
use tollgate_agent::Agent;
use tollgate_shared::epoch::EpochSecret;
use tollgate_shared::wire::Writer;
use tollgate_shared::wire::frame::{Frame, Topic};
use tollgate_shared::wire::link::{FromAgent, FromAggregator};
use tollgate_tests::binary;
use zeromq::{
    DealerSocket, PubSocket, ReqSocket, RouterSocket, Socket as _, SocketRecv as _,
    SocketSend as _, SubSocket, ZmqMessage,
};

use crate::attacked::{Attacked, SOON};

fn hello(secret: u8) -> Vec<u8> {
    let mut writer = Writer::new();
    FromAgent::Hello {
        nonce: 5,
        agent: "crate",
        secret: EpochSecret::new([secret; 32]),
        before: None,
    }
    .encode(&mut writer);
    writer.as_slice().to_vec()
}

/// The hello of an agent of a later release, with more fields.
fn later_hello(secret: u8) -> Vec<u8> {
    let mut hello = hello(secret);
    // A map's first byte holds the number of fields, up to 15.
    hello[2] += 1;
    hello.extend_from_slice(b"\xa6speaks\x92\x02\x03");
    hello
}

/// The hello of an agent of a release before fields had names.
fn earlier_hello(secret: u8) -> Vec<u8> {
    let fields = b"\x01\x01\x94\x05\xa5crate\xc4\x20";
    [&fields[..], &[secret; 32], &[0xc0]].concat()
}

fn is_welcome(message: &ZmqMessage) -> bool {
    let parts = message.clone().into_vec();
    let answer = FromAggregator::decode(parts.last().expect("a frame"));
    matches!(answer, Ok(FromAggregator::Welcome { nonce: 5, .. }))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_crates_sockets_talk_to_an_aggregator() {
    let attacked = tokio::task::block_in_place(|| Attacked::start(""));
    let agents = format!("tcp://{}", attacked.serving.agents);
    let mut dealer = DealerSocket::new();
    dealer.connect(&agents).await.unwrap();
    dealer.send(ZmqMessage::from(hello(1))).await.unwrap();
    let answer = timeout(SOON, dealer.recv()).await.unwrap().unwrap();
    assert!(is_welcome(&answer), "{answer:?}");
    for other_release in [later_hello(1), earlier_hello(1)] {
        dealer.send(ZmqMessage::from(other_release)).await.unwrap();
        let answer = timeout(SOON, dealer.recv()).await.unwrap().unwrap();
        assert!(is_welcome(&answer), "{answer:?}");
    }
    // A REQ sends an empty frame first, and ignores an answer without one. That what follows such a frame is read shows
    // where a DEALER sends it.
    let mut as_a_req = ZmqMessage::from(Bytes::new());
    as_a_req.push_back(hello(1).into());
    dealer.send(as_a_req).await.unwrap();
    let answer = timeout(SOON, dealer.recv()).await.unwrap().unwrap();
    assert!(is_welcome(&answer), "{answer:?}");
    let mut req = ReqSocket::new();
    req.connect(&agents).await.unwrap();
    req.send(ZmqMessage::from(hello(2))).await.unwrap();

    let mut sub = SubSocket::new();
    sub.subscribe(Topic::CONTROL.as_text()).await.unwrap();
    let feed = format!("tcp://{}", attacked.serving.feed);
    sub.connect(&feed).await.unwrap();
    let received = timeout(SOON, sub.recv()).await.unwrap().unwrap().into_vec();
    assert_eq!(received[0], Topic::CONTROL.as_bytes()[..]);
    assert!(Frame::decode(&received[1]).is_ok());
    sub.unsubscribe(Topic::CONTROL.as_text()).await.unwrap();
    tokio::task::block_in_place(|| {
        let mut attacked = attacked;
        attacked.until("the REQ is connected, and the SUB is silent", |now| {
            now.metric("tollgate_connections_open{port=\"agents\"}") == 3
                && now.metric("tollgate_feed_subscriptions") == 2 + 2
        });
        assert_eq!(attacked.metric("tollgate_link_garbage_total"), 0);
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_talks_to_the_crates_sockets() {
    let mut router = RouterSocket::new();
    let agents = router.bind("tcp://127.0.0.1:0").await.unwrap().to_string();
    let mut publisher = PubSocket::new();
    let feed = publisher
        .bind("tcp://127.0.0.1:0")
        .await
        .unwrap()
        .to_string();
    let agent = Agent::builder().name("a");
    let agent = agent.aggregator(agents.trim_start_matches("tcp://"));
    let agent = agent.build().unwrap();
    let message = timeout(SOON, router.recv()).await.unwrap().unwrap();
    let mut parts = message.into_vecdeque();
    let (peer, payload) = (parts.pop_front().unwrap(), parts.pop_back().unwrap());
    let Ok(FromAgent::Hello { nonce, .. }) = FromAgent::decode(&payload) else {
        panic!("{payload:?}");
    };
    let mut writer = Writer::new();
    FromAggregator::Welcome {
        nonce,
        instance: 7,
        partitions: 4,
        feeds: vec![feed.into()],
        clock: tollgate_shared::time::Span::ZERO,
        members: Vec::new(),
        limits: 0,
    }
    .encode(&mut writer);
    let mut answer = ZmqMessage::from(peer);
    answer.push_back(Bytes::copy_from_slice(writer.as_slice()));
    router.send(answer).await.unwrap();
    // Unreadable frames are counted.
    let received = timeout(SOON, async {
        while agent.stats().frames_refused == 0 {
            let topic = Bytes::copy_from_slice(Topic::CONTROL.as_bytes());
            let mut frame = ZmqMessage::from(topic);
            frame.push_back(Bytes::from_static(b"no frame"));
            publisher.send(frame).await.unwrap();
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    received.await.expect("a frame of the crate is heard");
    assert_eq!(agent.stats().connections_ended, 0);
}

/// The command follows the feed with the crate's own socket.
#[test]
fn feed_tail_prints_a_line_for_each_frame() {
    let attacked = Attacked::start("");
    let tail = |format: &str| {
        let mut command: Command = binary::tollgate();
        command.args(["feed", "tail", "--frames", "3", "--format", format]);
        command.args(["--feed", &attacked.serving.feed]);
        let output = command.args(["--resource", "api.search"]).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let text = tail("text");
    assert_eq!(text.lines().count(), 3, "{text}");
    assert!(
        text.contains("control  ") && text.contains("partitions 4"),
        "{text}"
    );
    for line in tail("json").lines() {
        let view: serde_json::Value = serde_json::from_str(line).unwrap();
        assert_eq!(view["schema"], "tollgate.feed/1");
        assert!(view["sequence"].is_u64() && view["unreadable"].is_null());
    }
}
