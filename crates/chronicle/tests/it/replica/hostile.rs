//! Hostile peers over a real socket: refused, nothing outside touched, others served, memory capped.

use std::fs;
use std::io::Write as _;

use chronicle_core::replica::{Rejection, Verdict, Version, Write as Change};
use chronicle_core::{Epoch, ObjectId, Seq, WorkspacePath};
use chronicle_replica::wire::{
    Ack, Fetch, Frame, Outcome, Run, SentWrite, Wanted, WriteBack, digest_of, encode,
};

use super::peer::{Peer, file, hello, new_file};
use super::scene::{Host, Replica, resident, tree, wait_until_equal};

/// Whoever attacks, an honest replica goes on being served.
fn still_serves(host: &Host) {
    let replica = Replica::of(host);
    replica.once();
    wait_until_equal(&[&host.cli.root(), &replica.root()]);
}

fn rejected(outcome: Option<Outcome>) -> Vec<Rejection> {
    let Some(Outcome::Verdicts(verdicts)) = outcome else { panic!("no verdicts: {outcome:?}") };
    let reason = |verdict: &Verdict| match verdict {
        Verdict::Rejected { reason, .. } => *reason,
        Verdict::Accepted(_) => panic!("taken"),
    };
    verdicts.iter().map(reason).collect()
}

#[test]
fn what_is_no_frame_ends_the_link_and_nothing_else() {
    let host = Host::new(&[("a.txt", "one\n")]);
    let serving = host.serve();
    let before = resident(serving.0.id());
    for bytes in [
        &b"GET / HTTP/1.1\r\n\r\n"[..],
        &[0xff; 64],
        &[0, 0, 0, 0],
        &[0xff, 0xff, 0xff, 0xff],
        &[0, 0x10, 0, 0],
        &[0, 0, 0, 9, 1, b'c', b'h', b'r', b'-', b'r', b'e', b'p', b'l'],
    ] {
        let mut peer = Peer::connect(&host.socket());
        peer.send_raw(bytes);
        let _ = peer.stream.shutdown(std::net::Shutdown::Write);
        peer.is_hung_up();
    }
    // A frame that is announced and never comes takes no room.
    let waiting: Vec<_> = (0..50)
        .map(|_| {
            let mut peer = Peer::connect(&host.socket());
            peer.send_raw(&[0, 0, 0x0f, 0xff]);
            peer
        })
        .collect();
    still_serves(&host);
    drop(waiting);
    let grown = resident(serving.0.id()).saturating_sub(before);
    assert!(grown < 64 << 20, "the server grew by {grown} bytes");
}

#[test]
fn paths_that_lead_outside_are_not_even_read() {
    let host = Host::new(&[("a.txt", "one\n")]);
    let outside = host.cli.root().parent().expect("a parent").to_owned();
    fs::write(outside.join("canary"), "safe\n").expect("written");
    let _serving = host.serve();
    let paths: [&[u8]; 8] = [
        b"../canary",
        b"/tmp/zzzz",
        b"a/../zzzz",
        b"./zzzzzzz",
        b"zz//zzzzz",
        b"zzzzzzzz/",
        b"zzzz\0zzzz",
        b".git/hook",
    ];
    for path in paths {
        let (mut peer, ..) = Peer::filled(&host.socket(), hello("evil", 1));
        let honest = new_file("zzz/zzzzz", b"evil\n");
        let digest = digest_of([&honest.write]);
        let frame = Frame::WriteBack(WriteBack {
            batch: 1,
            digest,
            part: 0,
            last: true,
            writes: vec![honest],
        });
        let mut bytes = encode(&frame);
        let at = bytes.windows(9).position(|part| part == b"zzz/zzzzz").expect("the path");
        bytes[at..at + 9].copy_from_slice(path);
        peer.send_raw(&bytes);
        peer.is_hung_up();
    }
    assert_eq!(fs::read_to_string(outside.join("canary")).expect("there"), "safe\n");
    assert_eq!(tree(&host.cli.root()).len(), 1);
    still_serves(&host);
}

#[test]
fn nothing_is_written_through_a_symlink() {
    let host = Host::new(&[("a.txt", "one\n")]);
    let outside = tempfile::tempdir().expect("a directory");
    fs::write(outside.path().join("canary"), "safe\n").expect("written");
    std::os::unix::fs::symlink(outside.path(), host.cli.root().join("link")).expect("linked");
    host.cli.call(["settle"]).ok();
    let _serving = host.serve();
    let (mut peer, ..) = Peer::filled(&host.socket(), hello("evil", 1));
    let writes = vec![new_file("link/evil", b"evil\n"), new_file("link/canary", b"evil\n")];
    rejected(peer.write_back(1, writes));
    // Not by swapping the link for a directory in the same breath, either: what stands there was not seen so.
    let swap = Change {
        path: WorkspacePath::new("link").expect("a path"),
        base: Version::Directory { mode: 0o755 },
        after: Version::Directory { mode: 0o755 },
        seen: Seq(0),
        group: 1,
    };
    let mut below = new_file("link/evil", b"evil\n");
    below.write.group = 1;
    rejected(peer.write_back(2, vec![SentWrite { write: swap, inline: None }, below]));
    assert_eq!(fs::read_dir(outside.path()).expect("listed").count(), 1);
    assert_eq!(fs::read_to_string(outside.path().join("canary")).expect("there"), "safe\n");
    still_serves(&host);
}

#[test]
fn lies_about_contents_are_noticed_before_anything_is_visible() {
    let host = Host::new(&[("a.txt", "one\n")]);
    let _serving = host.serve();
    let lying_hash = {
        let mut lie = new_file("lie", b"promised\n");
        lie.inline = Some(b"delivered".to_vec());
        lie
    };
    let lying_size = {
        let mut lie = new_file("lie", b"promised\n");
        lie.write.after = file(ObjectId::of(b"promised\n"), 1 << 62);
        lie
    };
    let never_sent = {
        let mut lie = new_file("lie", b"promised\n");
        lie.inline = None;
        lie
    };
    for (number, lie) in [lying_hash, lying_size, never_sent].into_iter().enumerate() {
        let (mut peer, ..) = Peer::filled(&host.socket(), hello("liar", number as u16));
        if let Some(outcome) = peer.write_back(1, vec![lie]) {
            rejected(Some(outcome));
        }
        assert!(!host.cli.root().join("lie").exists());
    }
    still_serves(&host);
}

#[test]
fn acknowledgements_of_the_future_and_of_another_life_are_not_believed() {
    let host = Host::new(&[("a.txt", "one\n")]);
    let _serving = host.serve();
    let (mut peer, _, mut place) = Peer::filled(&host.socket(), hello("eager", 1));
    place.seq = Seq(place.seq.0 + 1_000_000);
    peer.send(&Frame::Ack(Ack { up_to: Some(place), parts: 0 }));
    peer.is_hung_up();
    let (mut peer, _, mut place) = Peer::filled(&host.socket(), hello("eager", 2));
    place.epoch = Epoch([9; 16]);
    peer.send(&Frame::Ack(Ack { up_to: Some(place), parts: 0 }));
    peer.is_hung_up();
    let rows = host.cli.call(["replicas", "--json"]).ok().json();
    for row in rows["replicas"].as_array().expect("rows") {
        assert!(row["acknowledged"].as_u64() <= rows["head"].as_u64(), "{rows}");
    }
    still_serves(&host);
}

/// One home keeps contents of all its workspaces in one store; a name alone opens nothing.
#[test]
fn another_tenants_contents_cannot_be_had_by_their_names() {
    let host = Host::new(&[("a.txt", "one\n")]);
    let secret = b"the other tenant's secret, longer than what is ever guessed\n";
    let other = host.cli.root().with_file_name("other");
    fs::create_dir(&other).expect("made");
    fs::write(other.join("theirs.txt"), secret).expect("written");
    host.cli.call(["init", other.to_str().expect("text")]).ok();
    let _serving = host.serve();
    let object = ObjectId::of(secret);
    let (mut peer, ..) = Peer::filled(&host.socket(), hello("thief", 1));
    for path in ["a.txt", "theirs.txt", "none"] {
        let wanted = Wanted { object, path: WorkspacePath::new(path).expect("a path") };
        let run = Run { wanted, offset: 0, length: secret.len() as u32 };
        peer.send(&Frame::Fetch(Fetch { runs: vec![run] }));
        loop {
            match peer.next() {
                Some(Frame::Missing(missing)) => {
                    assert_eq!(missing, object);
                    break;
                }
                Some(Frame::Content(_)) => panic!("the host gave it"),
                Some(_) => {}
                None => {
                    (peer, ..) = Peer::filled(&host.socket(), hello("thief", 1));
                    break;
                }
            }
        }
    }
    // Nor by writing a file that is said to have it, and reading that.
    let mut theft = new_file("stolen.txt", secret);
    theft.inline = None;
    if let Some(outcome) = peer.write_back(1, vec![theft]) {
        rejected(Some(outcome));
    }
    assert!(!host.cli.root().join("stolen.txt").exists());
}

#[test]
fn floods_and_slow_readers_cost_others_nothing() {
    let host = Host::new(&[("a.txt", "one\n")]);
    let serving = host.serve();
    let before = resident(serving.0.id());
    // One that asks for everything again and again, and reads nothing.
    let (mut slow, ..) = Peer::filled(&host.socket(), hello("slow", 1));
    slow.stream.set_write_timeout(Some(std::time::Duration::from_millis(200))).expect("set");
    let request =
        encode(&Frame::CatchupRequest(chronicle_replica::wire::CatchupRequest { since: None }));
    for _ in 0..20_000 {
        if slow.stream.write_all(&request).is_err() {
            break;
        }
    }
    let strangers: Vec<_> = (0..200).map(|_| Peer::connect(&host.socket())).collect();
    still_serves(&host);
    let grown = resident(serving.0.id()).saturating_sub(before);
    assert!(grown < 128 << 20, "the server grew by {grown} bytes");
    drop((slow, strangers));
}
