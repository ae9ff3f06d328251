//! Who is let in, to what, and with which right.

use std::sync::Arc;

use chronicle_core::ReplicaId;
use serde_json::json;

use super::super::clock;
use super::super::metrics::Metrics;
use super::super::tokens::Right;
use super::super::unix::Visitor;
use super::actor::Actor;
use super::peers::Came;
use crate::host::{Admission, Event};
use crate::wire::{BARE_PUSHES, Hello, Refused, RefusedCode, Versions};

/// Replicas of one workspace that are connected at once.
const PEERS_MOST: usize = 10_000;

impl Actor {
    /// Answers who asks to come in.
    pub(super) fn admit(&mut self, number: u64, hello: &Hello) -> Event {
        match self.check(number, hello).and_then(|let_in| self.catch_up().map(|()| let_in)) {
            Ok((right, token)) => {
                let filters = Arc::clone(&self.filters);
                self.replace_older(number, hello);
                let Some(peer) = self.peers.get_mut(number) else {
                    return denied(RefusedCode::Failed, "The connection is gone");
                };
                (peer.right, peer.token) = (Some(right), token);
                (peer.replica, peer.name) = (Some(ReplicaId(hello.replica.0)), hello.name.clone());
                peer.bare = hello.features & BARE_PUSHES != 0;
                peer.folds = hello.folds_names || self.work.folds_names();
                Metrics::add(&self.options.metrics.accepted, 1);
                let fields = json!({ "peer": number, "name": hello.name, "right": right.word() });
                self.options.trace.event("admitted", clock::wall_ns(), fields);
                Event::Admitted(Admission {
                    workspace: self.work.id(),
                    place: self.place,
                    may_write: right == Right::WriteBack,
                    folds_names: self.work.folds_names(),
                    filters,
                })
            }
            Err(refusal) => {
                Metrics::add(&self.options.metrics.refused, 1);
                self.options.trace.event("refused", clock::wall_ns(), json!({ "peer": number }));
                *refusal
            }
        }
    }

    /// Who comes from another host may have seen more of the shared log than was read here.
    fn catch_up(&mut self) -> Result<(), Box<Event>> {
        let words = "The host cannot read the log that it shares; try again later";
        let caught_up = self.work.catch_up().and_then(|()| self.work.place());
        self.place = caught_up.map_err(|_| Box::new(denied(RefusedCode::Busy, words)))?;
        Ok(())
    }

    fn check(&self, number: u64, hello: &Hello) -> Result<(Right, Option<String>), Box<Event>> {
        let peer = self.peers.get(number);
        let came = peer.map_or(Came::WebSocket, |peer| peer.came);
        let (right, token) = match (came, &hello.token[..]) {
            (Came::Socket(Visitor::Owner), []) => (Right::WriteBack, None),
            (_, []) => {
                let words = "A token is needed: chronicle token create makes one at the host";
                return Err(Box::new(denied(RefusedCode::Token, words)));
            }
            (_, shown) => match self.tokens.find(self.work.own_id(), shown) {
                Ok(Some(row)) => (row.right, Some(row.name)),
                Ok(None) => {
                    let words = "The host does not know this token, or not for this workspace";
                    return Err(Box::new(denied(RefusedCode::Token, words)));
                }
                Err(_) => {
                    let words = "The host cannot read its tokens";
                    return Err(Box::new(denied(RefusedCode::Failed, words)));
                }
            },
        };
        // Only who may come in learns which workspace is served here.
        if hello.workspace.is_some_and(|workspace| workspace != self.work.id()) {
            let words = "The host does not serve the workspace that this is a replica of";
            return Err(Box::new(denied(RefusedCode::Workspace, words)));
        }
        if self.peers.len() > PEERS_MOST {
            let words = "The host has as many replicas as it takes; try again later";
            return Err(Box::new(denied(RefusedCode::Busy, words)));
        }
        Ok((right, token))
    }

    /// A replica that comes again has lost its old link, also if this side has not noticed yet.
    fn replace_older(&mut self, number: u64, hello: &Hello) {
        for other in self.peers.numbers() {
            let same = self.peers.get(other).and_then(|peer| peer.replica)
                == Some(ReplicaId(hello.replica.0));
            if other != number && same {
                self.close(other, "the replica has connected again");
            }
        }
    }
}

fn denied(code: RefusedCode, words: &str) -> Event {
    let words = words.to_owned();
    Event::Denied(Refused { code, versions: Versions::OURS, words })
}
