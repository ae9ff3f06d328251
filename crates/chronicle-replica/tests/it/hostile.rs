//! Peers that lie, flood, repeat and skip: refused with words, the link closed, nothing done.

use std::sync::Arc;
use std::time::Duration;

use chronicle_core::replica::{Item, Node, Place, Verdict, Version, Write};
use chronicle_core::{Epoch, ObjectId, Piece, Seq, WorkspaceId, WorkspacePath};
use chronicle_replica::filter::Filters;
use chronicle_replica::wire::*;
use chronicle_replica::{HostSession, Limits, SandboxSession, host, sandbox};

const NOW: Duration = Duration::from_secs(1);
const EPOCH: Epoch = Epoch([7; 16]);

fn place(seq: u64) -> Place {
    Place { epoch: EPOCH, seq: Seq(seq) }
}

fn path(text: &str) -> WorkspacePath {
    WorkspacePath::new(text).unwrap()
}

fn file(content: &[u8]) -> Version {
    let (object, size) = (ObjectId::of(content), content.len() as u64);
    Version::File { object, size, mode: 0o644, mtime_ns: 0 }
}

fn item(name: &str, content: &[u8], inline: Option<&[u8]>) -> PushItem {
    let item = Item { path: path(name), seq: Seq(1), version: file(content) };
    PushItem { item, inline: inline.map(<[u8]>::to_vec), stored: None }
}

fn hello(place: Option<Place>) -> Hello {
    Hello {
        versions: Versions::OURS,
        features: 0,
        token: b"token".to_vec(),
        workspace: None,
        replica: ReplicaId([1; 16]),
        name: "box".to_owned(),
        place,
        answered: 0,
        folds_names: false,
    }
}

/// A host at record 9 that has let in a replica which says to be here.
fn host(at: Option<Place>, may_write: bool) -> HostSession {
    let mut session = HostSession::new(Arc::new(Limits::default()));
    session.handle(host::Event::Frame(Frame::Hello(hello(at))), NOW);
    session.handle(
        host::Event::Admitted(host::Admission {
            workspace: WorkspaceId([1; 16]),
            place: place(9),
            may_write,
            folds_names: false,
            filters: Arc::new(Filters::default()),
        }),
        NOW,
    );
    session
}

fn to_host(session: &mut HostSession, frame: Frame) -> Vec<host::Effect> {
    session.handle(host::Event::Frame(frame), NOW)
}

/// The words with which a host closes; nothing else may be done but send them.
#[track_caller]
fn closed(effects: &[host::Effect], expected: &str) {
    let words = effects.iter().find_map(|effect| {
        if let host::Effect::Close(words) = effect { Some(words) } else { None }
    });
    assert!(words.is_some_and(|words| words.contains(expected)), "{effects:?}");
    let harmless = |effect: &host::Effect| {
        matches!(
            effect,
            host::Effect::Close(_) | host::Effect::Send(Frame::Goodbye(_) | Frame::Refused(_))
        )
    };
    assert!(effects.iter().all(harmless), "{effects:?}");
}

#[test]
fn old_and_future_peers_are_refused_with_words() {
    for (oldest, newest, which) in [(7, 9, "the host"), (0, 0, "the sandbox")] {
        let mut session = HostSession::new(Arc::new(Limits::default()));
        let effects = to_host(&mut session, Frame::ForeignHello(Versions { oldest, newest }));
        closed(&effects, which);
        assert!(
            matches!(&effects[0], host::Effect::Send(Frame::Refused(it)) if it.code == RefusedCode::Version)
        );
        assert!(to_host(&mut session, Frame::Hello(hello(None))).is_empty(), "it is over");
    }
}

#[test]
fn nothing_counts_before_somebody_is_let_in() {
    let mut session = HostSession::new(Arc::new(Limits::default()));
    closed(
        &to_host(&mut session, Frame::CatchupRequest(CatchupRequest { since: None })),
        "no greeting",
    );
    let mut session = HostSession::new(Arc::new(Limits::default()));
    to_host(&mut session, Frame::Hello(hello(None)));
    let fetch = Fetch { runs: vec![Run { wanted: wanted(b"x"), offset: 0, length: 1 }] };
    closed(&to_host(&mut session, Frame::Fetch(fetch)), "before it is let in");
    let mut session = HostSession::new(Arc::new(Limits::default()));
    to_host(&mut session, Frame::Hello(hello(None)));
    let refused = Refused {
        code: RefusedCode::Token,
        versions: Versions::OURS,
        words: "unknown token".to_owned(),
    };
    closed(&session.handle(host::Event::Denied(refused), NOW), "unknown token");
}

#[test]
fn who_says_nothing_is_not_waited_for() {
    let mut session = HostSession::new(Arc::new(Limits::default()));
    session.handle(host::Event::Tick, NOW);
    closed(&session.handle(host::Event::Tick, NOW + Limits::default().patience), "nothing came");
    let mut session = host(Some(place(9)), true);
    closed(&session.handle(host::Event::Tick, NOW + Limits::default().silence), "nothing came");
}

#[test]
fn acknowledgements_of_the_future_and_of_other_lives_are_refused() {
    let future = Frame::Ack(Ack { up_to: Some(place(10)), parts: 0 });
    closed(&to_host(&mut host(Some(place(9)), true), future), "never sent");
    let other = Place { epoch: Epoch([8; 16]), seq: Seq(1) };
    let foreign = Frame::Ack(Ack { up_to: Some(other), parts: 0 });
    closed(&to_host(&mut host(Some(place(9)), true), foreign), "another life");
    // Nothing was pushed to this one yet, so that it can have nothing.
    let early = Frame::Ack(Ack { up_to: Some(place(9)), parts: 0 });
    closed(&to_host(&mut host(Some(place(5)), true), early), "never sent");
}

#[test]
fn repeated_acknowledgements_change_nothing() {
    let mut session = host(Some(place(9)), true);
    for _ in 0..3 {
        let effects = to_host(&mut session, Frame::Ack(Ack { up_to: Some(place(4)), parts: 0 }));
        assert!(
            effects.iter().all(|effect| matches!(effect, host::Effect::SetTimer(_))),
            "{effects:?}"
        );
        assert_eq!(session.acked(), Some(place(9)));
    }
}

#[test]
fn a_replica_ahead_of_the_log_is_filled_and_never_obeyed() {
    let mut session = HostSession::new(Arc::new(Limits::default()));
    to_host(&mut session, Frame::Hello(hello(Some(place(99)))));
    let admission = host::Admission {
        workspace: WorkspaceId([1; 16]),
        place: place(9),
        may_write: true,
        folds_names: false,
        filters: Arc::new(Filters::default()),
    };
    let effects = session.handle(host::Event::Admitted(admission), NOW);
    let required =
        |effect: &host::Effect| matches!(effect, host::Effect::Send(Frame::FullResyncRequired(_)));
    assert!(effects.iter().any(required), "{effects:?}");
    assert!(!effects.iter().any(|effect| matches!(effect, host::Effect::ReadLog(_))));
}

fn wanted(content: &[u8]) -> Wanted {
    Wanted { object: ObjectId::of(content), path: path("f") }
}

#[test]
fn contents_that_were_not_offered_are_only_read_where_they_stand() {
    let mut session = host(Some(place(9)), true);
    let run = Run { wanted: wanted(b"another tenant's"), offset: 0, length: 5 };
    let effects = to_host(&mut session, Frame::Fetch(Fetch { runs: vec![run.clone()] }));
    assert!(effects.contains(&host::Effect::ReadContent { run: run.clone(), offered: false }));
    // The driver finds that it does not stand there.
    let effects = session.handle(host::Event::ContentRead(run.clone(), None), NOW);
    assert!(effects.contains(&host::Effect::Send(Frame::Missing(run.wanted.object))));
}

#[test]
fn floods_of_requests_end_the_link() {
    let mut session = host(Some(place(9)), true);
    let runs = vec![Run { wanted: wanted(b"x"), offset: 0, length: 5 }; 256];
    closed(&to_host(&mut session, Frame::Fetch(Fetch { runs })), "too much content");
    let mut session = host(Some(place(9)), true);
    let paths = vec![WorkspacePath::root(); 256];
    for _ in 0..4 {
        to_host(&mut session, Frame::TreeRequest(TreeRequest { paths: paths.clone() }));
    }
    closed(
        &to_host(&mut session, Frame::TreeRequest(TreeRequest { paths })),
        "too many directories",
    );
}

#[test]
fn frames_that_only_a_host_sends_end_the_link() {
    let push =
        Push { epoch: EPOCH, from: Seq(0), to: Seq(1), part: 0, last: true, items: Vec::new() };
    let goodbye = Frame::Goodbye(Goodbye { words: "bye".to_owned() });
    for frame in [Frame::Push(push), Frame::Hello(hello(None)), goodbye] {
        let effects = to_host(&mut host(Some(place(9)), true), frame);
        assert!(
            effects.iter().any(|effect| matches!(effect, host::Effect::Close(_))),
            "{effects:?}"
        );
    }
}

fn write(after: Version) -> Write {
    Write { path: path("f"), base: Version::Absent, after, seen: Seq(1), group: 0 }
}

fn batch(number: u64, writes: Vec<SentWrite>) -> WriteBack {
    let digest = digest_of(writes.iter().map(|sent| &sent.write));
    WriteBack { batch: number, digest, part: 0, last: true, writes }
}

#[test]
fn who_may_not_write_back_writes_nothing() {
    let writes = vec![SentWrite { write: write(file(b"x")), inline: Some(b"x".to_vec()) }];
    closed(
        &to_host(&mut host(Some(place(9)), false), Frame::WriteBack(batch(1, writes))),
        "may not write",
    );
}

#[test]
fn lies_in_a_batch_end_the_link() {
    let lying = vec![SentWrite { write: write(file(b"x")), inline: Some(b"y".to_vec()) }];
    closed(
        &to_host(&mut host(Some(place(9)), true), Frame::WriteBack(batch(1, lying))),
        "not what its name says",
    );
    let honest = vec![SentWrite { write: write(file(b"x")), inline: Some(b"x".to_vec()) }];
    let wrong = WriteBack { digest: ObjectId([0; 32]), ..batch(1, honest) };
    closed(&to_host(&mut host(Some(place(9)), true), Frame::WriteBack(wrong)), "digest");
    let sizes = [10_000, 20_000].map(|size| {
        let version = Version::File { object: ObjectId([1; 32]), size, mode: 0o644, mtime_ns: 0 };
        SentWrite { write: write(version), inline: None }
    });
    closed(
        &to_host(&mut host(Some(place(9)), true), Frame::WriteBack(batch(1, sizes.to_vec()))),
        "two lengths",
    );
}

#[test]
fn batches_without_end_are_cut_off() {
    let mut session = host(Some(place(9)), true);
    let writes: Vec<_> =
        (0..2_000).map(|_| SentWrite { write: write(Version::Absent), inline: None }).collect();
    let mut part = WriteBack { last: false, ..batch(1, writes) };
    let mut effects = Vec::new();
    for number in 0..10 {
        part.part = number;
        effects = to_host(&mut session, Frame::WriteBack(part.clone()));
        if !effects.is_empty() && number > 3 {
            break;
        }
    }
    closed(&effects, "larger than any");
}

#[test]
fn a_second_batch_before_the_first_is_answered_ends_the_link() {
    let mut session = host(Some(place(9)), true);
    let first = batch(1, vec![SentWrite { write: write(file(b"x")), inline: Some(b"x".to_vec()) }]);
    let effects = to_host(&mut session, Frame::WriteBack(first.clone()));
    assert!(effects.iter().any(|effect| matches!(effect, host::Effect::TakeWrites(_))));
    // The same again is nothing new.
    let again = to_host(&mut session, Frame::WriteBack(first.clone()));
    assert!(
        !again
            .iter()
            .any(|effect| matches!(effect, host::Effect::TakeWrites(_) | host::Effect::Close(_)))
    );
    closed(
        &to_host(&mut session, Frame::WriteBack(WriteBack { batch: 2, ..first })),
        "before batch 1 was answered",
    );
}

// --- the sandbox and a hostile host -----------------------------------------------------------

/// A sandbox at record 3 of a host at record 9.
fn sandbox() -> SandboxSession {
    let begin = sandbox::Begin {
        replica: ReplicaId([1; 16]),
        name: "box".to_owned(),
        token: Vec::new(),
        workspace: Some(WorkspaceId([1; 16])),
        place: Some(place(3)),
        answered: 0,
        folds_names: false,
        push_rules: Vec::new(),
        write_back_rules: Vec::new(),
    };
    let mut session = SandboxSession::new(begin, Arc::new(Limits::default()), 1);
    session.handle(sandbox::Event::Start, NOW);
    session.handle(sandbox::Event::Connected, NOW);
    session
}

fn welcome() -> Welcome {
    Welcome {
        version: 1,
        features: 0,
        workspace: WorkspaceId([1; 16]),
        place: place(9),
        may_write: true,
        folds_names: false,
        heartbeat_ms: 1000,
        fetches: 8,
        batch_writes: 100,
    }
}

fn live() -> SandboxSession {
    let mut session = sandbox();
    to_sandbox(&mut session, Frame::Welcome(welcome()));
    session
}

fn to_sandbox(session: &mut SandboxSession, frame: Frame) -> Vec<sandbox::Effect> {
    session.handle(sandbox::Event::Frame(frame), NOW)
}

/// A sandbox hangs up with these words, does nothing else, and is where it was.
#[track_caller]
fn hung_up(session: &SandboxSession, effects: &[sandbox::Effect], expected: &str) {
    let words = effects.iter().find_map(|effect| {
        if let sandbox::Effect::Disconnect(words) = effect { Some(words) } else { None }
    });
    assert!(words.is_some_and(|words| words.contains(expected)), "{effects:?}");
    let harmful = |effect: &sandbox::Effect| {
        matches!(
            effect,
            sandbox::Effect::ApplyPush(_)
                | sandbox::Effect::PutContent { .. }
                | sandbox::Effect::PutPieces { .. }
        )
    };
    assert!(!effects.iter().any(harmful), "{effects:?}");
    assert_eq!(session.place(), Some(place(3)));
}

fn push(items: Vec<PushItem>) -> Push {
    Push { epoch: EPOCH, from: Seq(3), to: Seq(9), part: 0, last: true, items }
}

#[test]
fn a_host_of_another_workspace_fills_nothing() {
    let mut session = sandbox();
    let other = Welcome { workspace: WorkspaceId([2; 16]), ..welcome() };
    let effects = to_sandbox(&mut session, Frame::Welcome(other));
    hung_up(&session, &effects, "another workspace");
}

#[test]
fn pushes_before_the_welcome_and_of_other_lives_are_refused() {
    let mut session = sandbox();
    let effects = to_sandbox(&mut session, Frame::Push(push(Vec::new())));
    hung_up(&session, &effects, "lets us in");
    let mut session = live();
    let effects =
        to_sandbox(&mut session, Frame::Push(Push { epoch: Epoch([9; 16]), ..push(Vec::new()) }));
    hung_up(&session, &effects, "another life");
}

#[test]
fn content_that_is_not_what_its_name_says_is_never_applied() {
    let mut session = live();
    let effects =
        to_sandbox(&mut session, Frame::Push(push(vec![item("f", b"true", Some(b"lies"))])));
    hung_up(&session, &effects, "not what its name says");
    let mut session = live();
    let content = vec![1; 5000];
    let effects = to_sandbox(&mut session, Frame::Push(push(vec![item("f", &content, None)])));
    let id = effects.iter().find_map(|effect| {
        if let sandbox::Effect::HasContents { id, .. } = effect { Some(*id) } else { None }
    });
    let object = ObjectId::of(&content);
    session.handle(sandbox::Event::Lacking { id: id.unwrap(), objects: vec![object] }, NOW);
    let effects = to_sandbox(
        &mut session,
        Frame::Content(Content { object, offset: 0, bytes: vec![2; 5000] }),
    );
    hung_up(&session, &effects, "not what its name says");
}

/// A lazy sandbox in which somebody reads a file with this content.
fn reading(content: &[u8], size: u64) -> (SandboxSession, ObjectId) {
    let mut session = sandbox().lazily(true);
    to_sandbox(&mut session, Frame::Welcome(welcome()));
    let object = ObjectId::of(content);
    let want = sandbox::Want { object, size, path: path("f"), base: None };
    let effects = session.handle(sandbox::Event::Demand(vec![want.clone(), want]), NOW);
    let asked = |effect: &&sandbox::Effect| {
        use sandbox::Effect::Send;
        matches!(effect, Send(Frame::Fetch(_)) | Send(Frame::ManifestRequest(_)))
    };
    assert_eq!(effects.iter().filter(asked).count(), 1, "it is asked for once: {effects:?}");
    (session, object)
}

#[test]
fn what_comes_for_a_reader_is_compared_with_its_name() {
    let content = vec![1; 5000];
    let bytes = |byte| vec![byte; 5000];
    let (mut session, object) = reading(&content, 5000);
    let lies = Frame::Content(Content { object, offset: 0, bytes: bytes(2) });
    let effects = to_sandbox(&mut session, lies);
    hung_up(&session, &effects, "not what its name says");
    let (mut session, object) = reading(&content, 5000);
    // What nobody asked for is nothing.
    let other = Content { object: ObjectId([9; 32]), offset: 0, bytes: bytes(2) };
    let effects = to_sandbox(&mut session, Frame::Content(other));
    assert!(!effects.iter().any(|it| matches!(it, sandbox::Effect::PutContent { .. })));
    let effects =
        to_sandbox(&mut session, Frame::Content(Content { object, offset: 0, bytes: bytes(1) }));
    let put = sandbox::Effect::PutContent { object, bytes: bytes(1) };
    assert!(effects.contains(&put), "{effects:?}");
}

#[test]
fn what_a_host_does_not_give_a_reader_is_said() {
    let (mut session, object) = reading(&[1; 5000], 5000);
    let effects = to_sandbox(&mut session, Frame::Missing(object));
    assert!(effects.contains(&sandbox::Effect::NotToBeHad(object)), "{effects:?}");
    assert_eq!(session.place(), Some(place(3)), "the link stays");
    // A list of pieces that does not add up.
    let (mut session, object) = reading(b"large", 1 << 30);
    let pieces = vec![Piece { id: ObjectId([6; 32]), length: 1 << 20 }; 1025];
    let bomb = Manifest { object, size: 1 << 30, first: 0, last: false, pieces };
    let effects = to_sandbox(&mut session, Frame::Manifest(bomb));
    hung_up(&session, &effects, "do not make it");
}

#[test]
fn a_lazy_replica_applies_a_push_without_its_contents() {
    let mut session = sandbox().lazily(true);
    to_sandbox(&mut session, Frame::Welcome(welcome()));
    let effects = to_sandbox(&mut session, Frame::Push(push(vec![item("f", &[1; 5000], None)])));
    let id = effects.iter().find_map(|effect| match effect {
        sandbox::Effect::WhichContents { id, wants } => Some((*id, wants[0].path.clone())),
        _ => None,
    });
    let (id, asked) = id.expect("it is asked what is needed");
    assert_eq!(asked, path("f"));
    let effects = session.handle(sandbox::Event::Lacking { id, objects: vec![] }, NOW);
    let applies = |effect: &sandbox::Effect| matches!(effect, sandbox::Effect::ApplyPush(_));
    assert!(effects.iter().any(applies), "{effects:?}");
}

#[test]
fn a_list_of_pieces_that_is_a_bomb_is_refused() {
    let mut session = live();
    let size = 1 << 30;
    let version = Version::File { object: ObjectId([5; 32]), size, mode: 0o644, mtime_ns: 0 };
    let large = PushItem {
        item: Item { path: path("f"), seq: Seq(1), version },
        inline: None,
        stored: None,
    };
    let effects = to_sandbox(&mut session, Frame::Push(push(vec![large])));
    let id = effects.iter().find_map(|effect| {
        if let sandbox::Effect::HasContents { id, .. } = effect { Some(*id) } else { None }
    });
    session
        .handle(sandbox::Event::Lacking { id: id.unwrap(), objects: vec![ObjectId([5; 32])] }, NOW);
    let pieces = vec![Piece { id: ObjectId([6; 32]), length: 1 << 20 }; 1025];
    let bomb = Manifest { object: ObjectId([5; 32]), size, first: 0, last: false, pieces };
    let effects = to_sandbox(&mut session, Frame::Manifest(bomb));
    hung_up(&session, &effects, "do not make it");
}

#[test]
fn a_gap_is_asked_for_and_not_applied() {
    let mut session = live();
    let effects = to_sandbox(&mut session, Frame::Push(Push { from: Seq(5), ..push(Vec::new()) }));
    let since = Some(place(3));
    assert!(
        effects.contains(&sandbox::Effect::Send(Frame::CatchupRequest(CatchupRequest { since }))),
        "{effects:?}"
    );
    assert!(!effects.iter().any(|effect| matches!(effect, sandbox::Effect::ApplyPush(_))));
}

#[test]
fn nothing_is_acknowledged_before_it_is_durable() {
    let mut session = live();
    let effects = to_sandbox(&mut session, Frame::Push(push(vec![item("f", b"x", Some(b"x"))])));
    let acks = |effects: &[sandbox::Effect]| {
        effects.iter().any(|effect| matches!(effect, sandbox::Effect::Send(Frame::Ack(_))))
    };
    let id = effects.iter().find_map(|effect| {
        if let sandbox::Effect::ApplyPush(push) = effect { Some(push.id) } else { None }
    });
    assert!(!acks(&effects) && session.place() == Some(place(3)));
    // A wrong answer is none.
    assert!(!acks(&session.handle(sandbox::Event::Applied { id: 999 }, NOW)));
    assert!(acks(&session.handle(sandbox::Event::Applied { id: id.unwrap() }, NOW)));
    assert_eq!(session.place(), Some(place(9)));
}

#[test]
fn a_host_gets_no_content_but_that_of_the_batch() {
    let mut session = live();
    let run = Run { wanted: wanted(b"a secret of the sandbox"), offset: 0, length: 5 };
    let effects = to_sandbox(&mut session, Frame::Fetch(Fetch { runs: vec![run.clone()] }));
    assert!(
        effects.contains(&sandbox::Effect::Send(Frame::Missing(run.wanted.object))),
        "{effects:?}"
    );
    assert!(!effects.iter().any(|effect| matches!(effect, sandbox::Effect::ReadContent(_))));
}

#[test]
fn answers_that_do_not_fit_the_batch_are_refused() {
    let mut session = sandbox();
    let effects = to_sandbox(&mut session, Frame::Welcome(welcome()));
    let id = effects.iter().find_map(|effect| {
        if let sandbox::Effect::NextBatch { id, .. } = effect { Some(*id) } else { None }
    });
    let writes = vec![SentWrite { write: write(file(b"x")), inline: Some(b"x".to_vec()) }];
    let batch = Some(sandbox::Batch { number: 4, writes });
    session.handle(sandbox::Event::Batch { id: id.unwrap(), batch }, NOW);
    let result = |batch, count| {
        let outcome = Outcome::Verdicts(vec![Verdict::Accepted(Seq(1)); count]);
        Frame::WriteBackResult(WriteBackResult { batch, part: 0, last: true, outcome })
    };
    let effects = to_sandbox(&mut session, result(3, 1));
    assert!(
        effects.iter().all(|effect| matches!(effect, sandbox::Effect::SetTimer(_))),
        "another batch: {effects:?}"
    );
    let effects = to_sandbox(&mut session, result(4, 2));
    hung_up(&session, &effects, "more writes than were sent");
}

#[test]
fn listings_that_were_not_asked_for_are_nothing() {
    let mut session = live();
    let node = Node { name: b"a".to_vec(), version: file(b"x"), below: None };
    let listing = TreeListing {
        path: path("d"),
        place: place(9),
        part: 0,
        last: true,
        found: true,
        entries: vec![node],
    };
    let effects = to_sandbox(&mut session, Frame::TreeListing(listing));
    assert!(
        effects.iter().all(|effect| matches!(effect, sandbox::Effect::SetTimer(_))),
        "{effects:?}"
    );
}

/// A laptop wakes up: the clock has jumped, nobody is there any more, and it comes back at once.
#[test]
fn after_a_long_sleep_it_connects_again() {
    let mut session = live();
    let effects = session.handle(sandbox::Event::Tick, NOW + Duration::from_secs(3600));
    hung_up(&session, &effects, "too long");
    let effects = session.handle(sandbox::Event::Tick, NOW + Duration::from_secs(3601));
    assert!(effects.contains(&sandbox::Effect::Connect), "{effects:?}");
}

/// A host that lets everybody in and throws them out again is not asked ten times a second.
#[test]
fn links_that_end_at_once_are_come_back_to_later_each_time() {
    let (mut session, mut now, mut waits) = (sandbox(), NOW, Vec::new());
    for _ in 0..6 {
        session.handle(sandbox::Event::Frame(Frame::Welcome(welcome())), now);
        let effects = session.handle(sandbox::Event::LinkLost("cut".to_owned()), now);
        let timer = |effect: &sandbox::Effect| {
            if let sandbox::Effect::SetTimer(at) = effect { Some(*at) } else { None }
        };
        let until = effects.iter().find_map(timer).unwrap();
        waits.push(until - now);
        now = until;
        assert!(session.handle(sandbox::Event::Tick, now).contains(&sandbox::Effect::Connect));
        session.handle(sandbox::Event::Connected, now);
    }
    assert!(waits[5] > 8 * waits[0], "{waits:?}");
}

/// A push that never ends is not held for ever.
#[test]
fn a_push_without_end_is_cut_off() {
    let mut session = live();
    let content = vec![7; 4096];
    let items = vec![item("f", &content, Some(&content)); 128];
    for part in 0..200 {
        let endless = Push { part, last: false, ..push(items.clone()) };
        let effects = to_sandbox(&mut session, Frame::Push(endless));
        if effects.iter().any(|effect| matches!(effect, sandbox::Effect::Disconnect(_))) {
            return hung_up(&session, &effects, "larger than any");
        }
    }
    panic!("a hundred megabytes were held");
}

#[test]
fn an_idle_session_is_small() {
    assert!(std::mem::size_of::<HostSession>() <= 256, "{}", std::mem::size_of::<HostSession>());
}
