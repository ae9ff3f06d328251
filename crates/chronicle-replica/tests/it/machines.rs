//! What the two machines promise to honest peers: bounded memory, small cost, nothing forgotten.

use std::sync::Arc;
use std::time::Duration;

use chronicle_core::replica::{Item, Node, Place, Version};
use chronicle_core::{Epoch, ObjectId, Seq, WorkspaceId, WorkspacePath};
use chronicle_replica::filter::Filters;
use chronicle_replica::host::{self, LogPart, LogRead};
use chronicle_replica::wire::*;
use chronicle_replica::{HostSession, Limits, SandboxSession, sandbox};

const NOW: Duration = Duration::from_secs(1);
const EPOCH: Epoch = Epoch([7; 16]);

fn place(seq: u64) -> Place {
    Place { epoch: EPOCH, seq: Seq(seq) }
}

fn path(text: &str) -> WorkspacePath {
    WorkspacePath::new(text).unwrap()
}

fn item(name: &str, size: u64) -> PushItem {
    let version =
        Version::File { object: ObjectId::of(name.as_bytes()), size, mode: 0o644, mtime_ns: 0 };
    PushItem { item: Item { path: path(name), seq: Seq(1), version }, inline: None, stored: None }
}

fn hello(at: Option<Place>) -> Frame {
    Frame::Hello(Hello {
        versions: Versions::OURS,
        features: 0,
        token: Vec::new(),
        workspace: None,
        replica: ReplicaId([1; 16]),
        name: "box".to_owned(),
        place: at,
        answered: 0,
        folds_names: false,
    })
}

fn host(at: Option<Place>) -> (HostSession, Vec<host::Effect>) {
    let mut session = HostSession::new(Arc::new(Limits::default()));
    session.handle(host::Event::Frame(hello(at)), NOW);
    let admission = host::Admission {
        workspace: WorkspaceId([1; 16]),
        place: place(9),
        may_write: true,
        folds_names: false,
        filters: Arc::new(Filters::default()),
    };
    let effects = session.handle(host::Event::Admitted(admission), NOW);
    (session, effects)
}

fn reads(effects: &[host::Effect]) -> usize {
    effects.iter().filter(|effect| matches!(effect, host::Effect::ReadLog(_))).count()
}

fn part(to: u64, items: Vec<PushItem>, more: bool) -> host::Event {
    host::Event::LogRead(LogRead::Part(LogPart { to: place(to), items, more }))
}

/// A replica that takes nothing has four parts on their way, however much happens at the host.
#[test]
fn a_slow_replica_costs_the_host_no_memory() {
    let (mut session, effects) = host(Some(place(8)));
    let (mut asked, mut sent) = (reads(&effects), 0);
    for seq in 9..2000 {
        let mut effects = session.handle(host::Event::LogGrew(place(seq)), NOW);
        asked += reads(&effects);
        if asked > sent {
            effects = session.handle(part(seq, vec![item("f", 5000)], false), NOW);
            asked += reads(&effects);
            sent += 1;
        }
    }
    assert_eq!((asked, sent), (4, 4));
    let ack = Frame::Ack(Ack { up_to: Some(place(9)), parts: 0 });
    assert_eq!(reads(&session.handle(host::Event::Frame(ack), NOW)), 1, "room for one more");
}

#[test]
fn what_is_on_offer_is_given_until_it_is_acknowledged() {
    let (mut session, _) = host(Some(place(8)));
    session.handle(part(9, vec![item("f", 5000)], false), NOW);
    let wanted = Wanted { object: ObjectId::of(b"f"), path: path("f") };
    let run = Run { wanted, offset: 0, length: 5000 };
    let ask = |session: &mut HostSession| {
        let fetch = Frame::Fetch(Fetch { runs: vec![run.clone()] });
        let effects = session.handle(host::Event::Frame(fetch), NOW);
        let offered = |effect: &host::Effect| match effect {
            host::Effect::ReadContent { offered, .. } => Some(*offered),
            _ => None,
        };
        effects.iter().find_map(offered)
    };
    assert_eq!(ask(&mut session), Some(true));
    session.handle(host::Event::Frame(Frame::Ack(Ack { up_to: Some(place(9)), parts: 0 })), NOW);
    assert_eq!(ask(&mut session), Some(false));
}

/// A record with more than a frame holds travels in parts and counts when the last is applied.
#[test]
fn a_long_push_travels_in_parts() {
    let (mut session, _) = host(Some(place(8)));
    let items: Vec<_> = (0..20_000).map(|number| item(&format!("f{number:05}"), 5000)).collect();
    let effects = session.handle(part(9, items.clone(), false), NOW);
    let pushes: Vec<_> = effects
        .iter()
        .filter_map(|effect| {
            if let host::Effect::Send(Frame::Push(push)) = effect { Some(push) } else { None }
        })
        .collect();
    assert!(
        pushes.len() > 2
            && pushes.iter().all(|push| encode(&Frame::Push((*push).clone())).len() < 1 << 20)
    );
    let mut replica = live(Some(place(8)));
    let mut applied = Vec::new();
    for (number, push) in pushes.iter().enumerate() {
        let effects = replica.handle(sandbox::Event::Frame(Frame::Push((*push).clone())), NOW);
        let last = number + 1 == pushes.len();
        let acks = effects.contains(&sandbox::Effect::Send(Frame::Ack(Ack {
            up_to: Some(place(8)),
            parts: number as u32 + 1,
        })));
        assert_eq!(acks, !last, "parts make room, and only the whole is applied");
        applied = effects;
    }
    let id = applied.iter().find_map(|effect| {
        if let sandbox::Effect::HasContents { id, .. } = effect { Some(*id) } else { None }
    });
    let effects =
        replica.handle(sandbox::Event::Lacking { id: id.unwrap(), objects: Vec::new() }, NOW);
    let push = effects.iter().find_map(|effect| {
        if let sandbox::Effect::ApplyPush(push) = effect { Some(push) } else { None }
    });
    assert_eq!(push.map(|push| (push.items.len(), push.advance)), Some((20_000, Some(place(9)))));
}

fn live(at: Option<Place>) -> SandboxSession {
    let begin = sandbox::Begin {
        replica: ReplicaId([1; 16]),
        name: "box".to_owned(),
        token: Vec::new(),
        workspace: None,
        place: at,
        answered: 0,
        folds_names: false,
        push_rules: Vec::new(),
        write_back_rules: Vec::new(),
    };
    let mut session = SandboxSession::new(begin, Arc::new(Limits::default()), 1);
    session.handle(sandbox::Event::Start, NOW);
    session.handle(sandbox::Event::Connected, NOW);
    let welcome = Welcome {
        version: 1,
        features: 0,
        workspace: WorkspaceId([1; 16]),
        place: place(9),
        may_write: false,
        folds_names: false,
        heartbeat_ms: 1000,
        fetches: 8,
        batch_writes: 100,
    };
    session.handle(sandbox::Event::Frame(Frame::Welcome(welcome)), NOW);
    session
}

#[test]
fn a_gap_is_noticed_by_a_heartbeat() {
    let mut session = live(Some(place(9)));
    let beat = |seq| {
        sandbox::Event::Frame(Frame::Heartbeat(Heartbeat { place: Some(place(seq)), now_ms: 0 }))
    };
    let since = Some(place(9));
    let asks = sandbox::Effect::Send(Frame::CatchupRequest(CatchupRequest { since }));
    assert!(!session.handle(beat(9), NOW).contains(&asks));
    assert!(session.handle(beat(12), NOW).contains(&asks));
}

fn asked(effects: &[sandbox::Effect]) -> Vec<WorkspacePath> {
    let paths = |effect: &sandbox::Effect| match effect {
        sandbox::Effect::Send(Frame::TreeRequest(request)) => request.paths.clone(),
        _ => Vec::new(),
    };
    effects.iter().flat_map(paths).collect()
}

fn listing(directory: WorkspacePath, seq: u64, names: &[&str]) -> sandbox::Event {
    let node = |name: &&str| Node {
        name: name.as_bytes().to_vec(),
        version: Version::Directory { mode: 0o755 },
        below: Some([1; 32]),
    };
    let entries = names.iter().map(node).collect();
    let listing = TreeListing {
        path: directory,
        place: place(seq),
        part: 0,
        last: true,
        found: true,
        entries,
    };
    sandbox::Event::Frame(Frame::TreeListing(listing))
}

/// Only directories that differ are asked for, and the replica is then where the first listing was.
#[test]
fn a_resync_descends_only_where_something_differs() {
    let mut session = live(Some(place(2)));
    let required = FullResyncRequired { why: ResyncReason::TooOld, place: place(9) };
    let effects = session.handle(sandbox::Event::Frame(Frame::FullResyncRequired(required)), NOW);
    assert_eq!(asked(&effects), [WorkspacePath::root()]);
    let compare = |effects: &[sandbox::Effect]| {
        effects.iter().find_map(|effect| {
            if let sandbox::Effect::CompareTree { id, .. } = effect { Some(*id) } else { None }
        })
    };
    let effects = session.handle(listing(WorkspacePath::root(), 9, &["a", "b"]), NOW);
    let id = compare(&effects).unwrap();
    let compared = sandbox::Event::Compared { id, items: Vec::new(), descend: vec![path("b")] };
    let effects = session.handle(compared, NOW);
    assert_eq!(asked(&effects), [path("b")]);
    // The host went on meanwhile.
    let effects = session.handle(listing(path("b"), 11, &[]), NOW);
    let id = compare(&effects).unwrap();
    let gone = Item { path: path("b/x"), seq: Seq(11), version: Version::Absent };
    let effects = session
        .handle(sandbox::Event::Compared { id, items: vec![gone], descend: Vec::new() }, NOW);
    let push = effects.iter().find_map(|effect| {
        if let sandbox::Effect::ApplyPush(push) = effect { Some(push) } else { None }
    });
    let push = push.unwrap();
    assert_eq!((push.items.len(), push.advance, push.resync), (1, Some(place(9)), true));
    let effects = session.handle(sandbox::Event::Applied { id: push.id }, NOW);
    let ack = Frame::Ack(Ack { up_to: Some(place(9)), parts: 0 });
    assert!(effects.contains(&sandbox::Effect::Send(ack)));
    assert!(!session.is_resyncing());
}

#[test]
fn changed_filters_are_told_and_trees_compared() {
    let mut session = live(Some(place(9)));
    let changed = sandbox::Event::FiltersChanged {
        push_rules: b"*.o\n".to_vec(),
        write_back_rules: Vec::new(),
    };
    let effects = session.handle(changed, NOW);
    let told = FilterSet { direction: Direction::Push, rules: b"*.o\n".to_vec() };
    assert!(effects.contains(&sandbox::Effect::Send(Frame::FilterSet(told))));
    assert_eq!(asked(&effects), [WorkspacePath::root()]);
    let (mut session, _) = host(Some(place(9)));
    let effects = session.handle(host::Event::FiltersChanged { wider: true }, NOW);
    let required = FullResyncRequired { why: ResyncReason::Filters, place: place(9) };
    assert!(effects.contains(&host::Effect::Send(Frame::FullResyncRequired(required))));
}

/// An idle link says from time to time that it is there, and nothing else.
#[test]
fn an_idle_link_beats() {
    let (mut session, _) = host(Some(place(9)));
    let later = NOW + Limits::default().heartbeat;
    let effects = session.handle(host::Event::Tick, later);
    let beats = |effect: &host::Effect| matches!(effect, host::Effect::Send(Frame::Heartbeat(_)));
    assert_eq!(effects.iter().filter(|effect| beats(effect)).count(), 1, "{effects:?}");
    assert_eq!(effects.len(), 2, "and the next time: {effects:?}");
}
