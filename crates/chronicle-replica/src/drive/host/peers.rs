//! Who is connected, as the thread of a workspace knows it.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use chronicle_core::ReplicaId;
use chronicle_core::replica::Place;
use tokio::task::AbortHandle;

use super::super::clock;
use super::super::connection::Outbox;
use super::super::tokens::Right;
use super::super::unix::Visitor;
use super::pushes::Class;
use crate::filter::Filters;
use crate::host::HostSession;
use crate::wire::{Direction, Frame};

/// Somebody who has just said his first word.
pub struct Arrival {
    /// His number in this process.
    pub peer: u64,
    /// His first frame.
    pub first: Frame,
    /// Where frames for him go.
    pub outbox: Outbox,
    /// How he came.
    pub came: Came,
}

/// How somebody came, and so what he must show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Came {
    /// Through the Unix socket.
    Socket(Visitor),
    /// Over WebSocket.
    WebSocket,
}

/// One who is connected.
pub(super) struct Peer {
    pub(super) session: HostSession,
    pub(super) outbox: Outbox,
    pub(super) reader: Option<AbortHandle>,
    pub(super) came: Came,
    /// When his session wants to be woken.
    pub(super) timer: Option<Duration>,
    /// Who he is, once he is let in.
    pub(super) replica: Option<ReplicaId>,
    pub(super) name: String,
    pub(super) right: Option<Right>,
    /// The token that let him in.
    pub(super) token: Option<String>,
    /// His own rules, in addition to the host's.
    pub(super) filters: Filters,
    pub(super) place: Option<Place>,
    pub(super) since: Duration,
    pub(super) received: u64,
    /// What had been offered to anybody when he came.
    pub(super) offers: u64,
    /// Whether his file system or ours does not tell names apart.
    pub(super) folds: bool,
    /// Whether he gets contents only when he asks for them.
    pub(super) bare: bool,
    class: Class,
}

impl Peer {
    /// One who has just come.
    pub(super) fn new(session: HostSession, outbox: Outbox, came: Came, offers: u64) -> Self {
        Self {
            session,
            outbox,
            reader: None,
            came,
            timer: None,
            replica: None,
            name: String::new(),
            right: None,
            token: None,
            filters: Filters::default(),
            place: None,
            since: clock::now(),
            received: 0,
            offers,
            folds: false,
            bare: false,
            class: 0,
        }
    }

    /// Which filters he has, as a number.
    pub(super) fn class(&self) -> Class {
        self.class
    }

    /// Heeds his own rules for a direction from now on.
    pub(super) fn set_rules(&mut self, direction: Direction, rules: &[u8]) {
        self.filters.of(direction).replace(rules);
        let rules = self.filters.push.rules();
        let hash = blake3::hash(&rules);
        let [first, ..] = hash.as_bytes().as_chunks::<8>().0 else { return };
        self.class = if rules.is_empty() { 0 } else { u64::from_le_bytes(*first) | 1 };
    }
}

/// All who are connected, and when each wants to be woken.
#[derive(Default)]
pub(super) struct Peers {
    peers: HashMap<u64, Peer>,
    timers: BTreeSet<(Duration, u64)>,
}

impl Peers {
    pub(super) fn insert(&mut self, number: u64, peer: Peer) {
        self.peers.insert(number, peer);
    }

    pub(super) fn get(&self, number: u64) -> Option<&Peer> {
        self.peers.get(&number)
    }

    pub(super) fn get_mut(&mut self, number: u64) -> Option<&mut Peer> {
        self.peers.get_mut(&number)
    }

    pub(super) fn remove(&mut self, number: u64) -> Option<Peer> {
        let peer = self.peers.remove(&number)?;
        if let Some(at) = peer.timer {
            self.timers.remove(&(at, number));
        }
        if let Some(reader) = &peer.reader {
            reader.abort();
        }
        Some(peer)
    }

    pub(super) fn numbers(&self) -> Vec<u64> {
        self.peers.keys().copied().collect()
    }

    pub(super) fn len(&self) -> usize {
        self.peers.len()
    }

    pub(super) fn set_timer(&mut self, number: u64, at: Duration) {
        let Some(peer) = self.peers.get_mut(&number) else { return };
        if let Some(before) = peer.timer.replace(at) {
            self.timers.remove(&(before, number));
        }
        self.timers.insert((at, number));
    }

    /// When the next one wants to be woken.
    pub(super) fn next_timer(&self) -> Option<Duration> {
        self.timers.first().map(|(at, _)| *at)
    }

    /// Those whose time has come; each only once.
    pub(super) fn due(&mut self, now: Duration) -> Vec<u64> {
        let mut due = Vec::new();
        while let Some((at, number)) = self.timers.first().copied().filter(|(at, _)| *at <= now) {
            self.timers.remove(&(at, number));
            if let Some(peer) = self.peers.get_mut(&number) {
                peer.timer = None;
            }
            due.push(number);
        }
        due
    }
}
