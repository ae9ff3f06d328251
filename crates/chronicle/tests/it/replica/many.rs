//! A thousand replicas of one host: what an idle one costs, and how long one change takes to reach them all.

use std::time::Instant;

use chronicle_core::Seq;
use chronicle_replica::wire::Frame;
use rustix::process::{Resource, getrlimit, setrlimit};

use super::peer::{Peer, hello};
use super::scene::{Host, resident};

/// Bytes that an idle replica may take of the host's memory.
const IDLE_MOST: u64 = 100_000;

#[test]
fn a_thousand_idle_replicas_are_cheap_and_hear_of_one_change_at_once() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    let _ = setrlimit(Resource::Nofile, limit);
    let most = limit.maximum.unwrap_or(u64::MAX);
    if most < 2200 {
        eprintln!("skipped: this process may open only {most} files");
        return;
    }
    let host = Host::new(&[("a.txt", "one\n")]);
    let serving = host.serve();
    // The first ones make the server take what it takes once.
    let warm: Vec<_> =
        (0..20).map(|number| Peer::filled(&host.socket(), hello("warm", number))).collect();
    let before = resident(serving.0.id());
    let mut peers: Vec<_> =
        (100..1100).map(|number| Peer::filled(&host.socket(), hello("many", number)).0).collect();
    let each = resident(serving.0.id()).saturating_sub(before) / 1000;
    assert!(each < IDLE_MOST, "an idle replica takes {each} bytes");
    let begun = Instant::now();
    host.cli.write("b.txt", "two\n");
    for peer in &mut peers {
        let found = loop {
            match peer.next().expect("the host goes on") {
                Frame::Push(push) => break push.items.iter().any(|it| it.item.seq > Seq(0)),
                _ => continue,
            }
        };
        assert!(found);
    }
    let took = begun.elapsed();
    eprintln!("an idle replica takes {each} bytes; one change reached 1,000 in {took:?}");
    assert!(took.as_secs() < 20, "it took {took:?}");
    drop(warm);
}
