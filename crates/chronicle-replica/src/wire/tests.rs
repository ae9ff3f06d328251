//! Every frame there and back, and what is not a frame.

use std::path::Path;

use chronicle_core::replica::{Item, Node, Place, Rejection, Verdict, Version, Write};
use chronicle_core::{Epoch, ObjectId, Piece, Seq, WorkspaceId, WorkspacePath, pack_object};
use chronicle_testing::dice::Dice;
use chronicle_testing::fuzz::fuzz;

use super::*;
use crate::limits::FRAME_MAX;

fn path(text: &str) -> WorkspacePath {
    WorkspacePath::new(text).expect("a path")
}

fn version(dice: &mut Dice) -> Version {
    match dice.below(4) {
        0 => Version::Absent,
        1 => Version::Directory { mode: 0o755 },
        2 => Version::Symlink { target: dice.bytes(5).iter().map(|byte| byte | 1).collect() },
        _ => file(b"content"),
    }
}

fn file(content: &[u8]) -> Version {
    let (object, size) = (ObjectId::of(content), content.len() as u64);
    Version::File { object, size, mode: 0o644, mtime_ns: -7 }
}

fn inline(version: &Version, dice: &mut Dice) -> Option<Vec<u8>> {
    (version.object().is_some() && dice.chance(50)).then(|| b"content".to_vec())
}

/// Inline, in its stored form, or neither.
fn pushed(version: &Version, dice: &mut Dice) -> (Option<Vec<u8>>, Option<Vec<u8>>) {
    let inline = inline(version, dice);
    let right = inline.as_ref().filter(|bytes| version.object() == Some(ObjectId::of(bytes)));
    let stored = right.filter(|_| dice.chance(50)).map(|bytes| pack_object(bytes));
    (inline, stored)
}

fn place(dice: &mut Dice) -> Place {
    Place { epoch: Epoch([dice.below(256) as u8; 16]), seq: Seq(dice.roll() >> dice.below(64)) }
}

fn wanted(dice: &mut Dice) -> Wanted {
    Wanted {
        object: ObjectId([dice.below(256) as u8; 32]),
        path: path(["a", "b/c"][dice.below(2)]),
    }
}

fn hello(dice: &mut Dice) -> Hello {
    Hello {
        versions: Versions::OURS,
        features: dice.roll(),
        token: dice.bytes(9),
        workspace: dice.chance(50).then_some(WorkspaceId([2; 16])),
        replica: ReplicaId([3; 16]),
        name: "sandbox \u{e4}".to_owned(),
        place: dice.chance(50).then(|| place(dice)),
        answered: dice.roll(),
        folds_names: dice.chance(50),
    }
}

fn push(dice: &mut Dice) -> Push {
    let item = |dice: &mut Dice| {
        let version = version(dice);
        let (inline, stored) = pushed(&version, dice);
        let item = Item { path: wanted(dice).path, seq: Seq(dice.roll()), version };
        PushItem { item, inline, stored }
    };
    let items = (0..dice.below(4)).map(|_| item(dice)).collect();
    let (epoch, from, to) = (Epoch([4; 16]), Seq(3), Seq(300));
    Push { epoch, from, to, part: 2, last: dice.chance(50), items }
}

fn write_back(dice: &mut Dice) -> WriteBack {
    let write = |dice: &mut Dice| {
        let (base, after) = (version(dice), version(dice));
        let inline = inline(&after, dice);
        let write = Write { path: path("x/y"), base, after, seen: Seq(dice.roll()), group: 3 };
        SentWrite { write, inline }
    };
    let writes: Vec<_> = (0..dice.below(4)).map(|_| write(dice)).collect();
    let digest = digest_of(writes.iter().map(|sent| &sent.write));
    WriteBack { batch: dice.roll(), digest, part: 0, last: true, writes }
}

fn listing(dice: &mut Dice) -> TreeListing {
    let node = |name: &str, version: Version| {
        let below = version.is_directory().then_some([9; 32]);
        Node { name: name.as_bytes().to_vec(), version, below }
    };
    let entries = vec![node("a", Version::Directory { mode: 0o700 }), node("b", file(b"b"))];
    let (path, place) =
        (if dice.chance(50) { WorkspacePath::root() } else { path("d") }, place(dice));
    TreeListing { path, place, part: 1, last: false, found: true, entries }
}

/// One frame of each type, more or less random.
fn frames(dice: &mut Dice) -> Vec<Frame> {
    let rejected =
        Verdict::Rejected { reason: Rejection::NotEmpty, theirs: Some(version(dice)), seq: Seq(8) };
    let verdicts = Outcome::Verdicts(vec![Verdict::Accepted(Seq(dice.roll())), rejected]);
    let result = |outcome| {
        Frame::WriteBackResult(WriteBackResult { batch: 5, part: 0, last: true, outcome })
    };
    let piece = Piece { id: ObjectId([7; 32]), length: 1 << 20 };
    vec![
        Frame::Hello(hello(dice)),
        Frame::ForeignHello(Versions { oldest: 7, newest: 9 }),
        Frame::Welcome(Welcome {
            version: 1,
            features: dice.roll(),
            workspace: WorkspaceId([1; 16]),
            place: place(dice),
            may_write: true,
            folds_names: false,
            heartbeat_ms: 10_000,
            fetches: 32,
            batch_writes: 10_000,
        }),
        Frame::Refused(Refused {
            code: RefusedCode::Token,
            versions: Versions::OURS,
            words: "no".into(),
        }),
        Frame::Push(push(dice)),
        Frame::Ack(Ack { up_to: Some(place(dice)), parts: 3 }),
        Frame::WriteBack(write_back(dice)),
        result(verdicts),
        result(Outcome::Renumber(dice.roll())),
        Frame::Heartbeat(Heartbeat { place: None, now_ms: dice.roll() }),
        Frame::CatchupRequest(CatchupRequest { since: Some(place(dice)) }),
        Frame::FullResyncRequired(FullResyncRequired {
            why: ResyncReason::TooOld,
            place: place(dice),
        }),
        Frame::TreeRequest(TreeRequest { paths: vec![WorkspacePath::root(), path("a/b")] }),
        Frame::TreeListing(listing(dice)),
        Frame::ManifestRequest(wanted(dice)),
        Frame::Manifest(Manifest {
            object: ObjectId([6; 32]),
            size: 1 << 20,
            first: 0,
            last: true,
            pieces: vec![piece],
        }),
        Frame::Fetch(Fetch {
            runs: vec![Run { wanted: wanted(dice), offset: 1 << 40, length: 4096 }],
        }),
        Frame::Content(Content { object: ObjectId([5; 32]), offset: 9, bytes: dice.bytes(20) }),
        Frame::Missing(ObjectId([4; 32])),
        Frame::FilterSet(FilterSet { direction: Direction::WriteBack, rules: b"*.o\n".to_vec() }),
        Frame::Goodbye(Goodbye { words: "enough".into() }),
    ]
}

#[test]
fn every_frame_comes_back_as_it_was() {
    let mut dice = Dice::new(1);
    for _ in 0..300 {
        for frame in frames(&mut dice) {
            let bytes = encode(&frame);
            assert_eq!(decode(&bytes[4..]).as_ref(), Ok(&frame));
            assert_eq!(frame_length(*bytes.first_chunk().expect("four")), Ok(bytes.len() - 4));
        }
    }
}

#[test]
fn frames_are_found_in_a_stream_cut_anywhere() {
    let mut dice = Dice::new(2);
    let sent = frames(&mut dice);
    let stream: Vec<u8> = sent.iter().flat_map(encode).collect();
    let (mut framer, mut found, mut rest) = (Framer::default(), Vec::new(), &stream[..]);
    while !rest.is_empty() {
        let (now, later) = rest.split_at(dice.between(1, 70).min(rest.len()));
        framer.feed(now);
        rest = later;
        while let Some(frame) = framer.next_frame().expect("frames") {
            found.push(frame);
        }
    }
    assert_eq!(found, sent);
}

/// Mutations of real frames: none panics, and what decodes is the one encoding of its value.
#[test]
fn mutated_frames() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus/frame");
    if std::env::var_os("UPDATE_CORPUS").is_some() {
        std::fs::create_dir_all(&corpus).expect("a directory");
        for (number, frame) in frames(&mut Dice::new(3)).iter().enumerate() {
            let name = corpus.join(format!("sample-{number:02}"));
            std::fs::write(name, &encode(frame)[4..]).expect("a file");
        }
    }
    fuzz(&corpus, 100_000, |input| {
        let Ok(frame) = decode(input) else { return false };
        // Of a Hello in another version only the beginning is read.
        if !matches!(frame, Frame::ForeignHello(_)) {
            assert_eq!(&encode(&frame)[4..], input, "not canonical");
        }
        true
    });
}

#[test]
fn lengths_beyond_all_measure_are_refused_before_anything_is_read() {
    assert_eq!(frame_length([0xff; 4]), Err(WireError::TooLong(0xffff_ffff)));
    assert_eq!(frame_length([0; 4]), Err(WireError::Empty));
    let most = u32::try_from(FRAME_MAX).expect("small").to_be_bytes();
    assert_eq!(frame_length(most), Ok(FRAME_MAX));
    let mut framer = Framer::default();
    framer.feed(&[0x7f, 0xff, 0xff, 0xff, 4]);
    assert!(framer.next_frame().is_err());
}

/// What a hostile peer would name instead of a path of the workspace.
#[test]
fn paths_that_leave_the_workspace_do_not_decode() {
    let hostile: [&[u8]; 14] = [
        b"../x",
        b"/etc/passwd",
        b"a/../b",
        b"a//b",
        b"./a",
        b"a/",
        b"",
        b"a\0b",
        b".git/hooks/x",
        b"a/.GIT/config",
        b".jj/x",
        b"git~1/x",
        b"..",
        "a/.g\u{200c}it/x".as_bytes(),
    ];
    let long = [b'x'; 256];
    for name in hostile.into_iter().chain([&long[..]]) {
        let mut out = chronicle_core::mirror::Encoder(vec![4]);
        out.fixed(&[1; 16]);
        [0, 1, 0].into_iter().for_each(|value| out.int(value));
        out.byte(1);
        out.int(1);
        out.bytes(name);
        out.int(1);
        out.byte(0);
        out.byte(0);
        assert!(decode(&out.0).is_err(), "{name:?} in a push");
        let mut out = chronicle_core::mirror::Encoder(vec![13]);
        out.fixed(&[1; 32]);
        out.bytes(name);
        assert!(decode(&out.0).is_err(), "{name:?} in a request");
    }
}

/// Old and future peers can be told apart whatever else they say.
#[test]
fn a_hello_of_another_version_is_still_a_hello() {
    let mut bytes = vec![1];
    bytes.extend_from_slice(MAGIC);
    bytes.extend_from_slice(&[0, 2, 0, 9]);
    bytes.extend_from_slice(b"whatever version 2 says here");
    assert_eq!(decode(&bytes), Ok(Frame::ForeignHello(Versions { oldest: 2, newest: 9 })));
    assert_eq!(Versions::OURS.common(Versions { oldest: 0, newest: 5 }), Some(1));
}

/// A content in its stored form is opened while its frame is read: one that lies makes no frame, and one that says it is
/// longer than may travel inside is not even opened.
#[test]
fn a_stored_content_that_lies_is_no_frame() {
    let content = b"the same again and again ".repeat(40);
    let frame = |content: &[u8], stored: Vec<u8>| {
        let item = Item { path: path("f"), seq: Seq(1), version: file(content) };
        let items = vec![PushItem { item, inline: Some(content.to_vec()), stored: Some(stored) }];
        let (epoch, from, to) = (Epoch([4; 16]), Seq(3), Seq(300));
        Frame::Push(Push { epoch, from, to, part: 0, last: true, items })
    };
    let read = |frame: &Frame| decode(&encode(frame)[4..]);
    let honest = frame(&content, pack_object(&content));
    assert!(encode(&honest).len() < content.len());
    assert_eq!(read(&honest).expect("a frame"), honest);
    let other = b"something else of that length".repeat(40)[..content.len()].to_vec();
    assert!(read(&frame(&content, pack_object(&other))).is_err());
    let mut longer = pack_object(&content);
    longer[1..9].copy_from_slice(&(1_u64 << 40).to_le_bytes());
    assert!(read(&frame(&content, longer)).is_err());
    let bomb = vec![0; 1 << 20];
    assert!(read(&frame(&bomb, pack_object(&bomb))).is_err());
}
