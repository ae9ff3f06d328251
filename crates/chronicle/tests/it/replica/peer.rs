//! One who speaks the protocol by hand: honest or not.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use chronicle_core::replica::{Place, Version, Write as Change};
use chronicle_core::{ObjectId, Seq, WorkspaceId, WorkspacePath};
use chronicle_replica::wire::{
    Ack, Frame, Framer, Hello, Outcome, ReplicaId, SentWrite, Versions, WriteBack, digest_of,
    encode,
};

/// A connection, and what came over it that makes no frame yet.
pub(super) struct Peer {
    pub(super) stream: UnixStream,
    framer: Framer,
}

pub(super) fn hello(name: &str, number: u16) -> Hello {
    let mut id = [7; 16];
    id[..2].copy_from_slice(&number.to_le_bytes());
    Hello {
        versions: Versions::OURS,
        features: 0,
        token: Vec::new(),
        workspace: None,
        replica: ReplicaId(id),
        name: name.to_owned(),
        place: None,
        answered: 0,
        folds_names: false,
    }
}

impl Peer {
    pub(super) fn connect(socket: &Path) -> Self {
        let stream = UnixStream::connect(socket).expect("connected");
        stream.set_read_timeout(Some(Duration::from_secs(20))).expect("set");
        Self { stream, framer: Framer::default() }
    }

    /// Says hello and acknowledges everything that is pushed, until it is where the host was.
    pub(super) fn filled(socket: &Path, hello: Hello) -> (Self, WorkspaceId, Place) {
        let mut peer = Self::connect(socket);
        peer.send(&Frame::Hello(hello));
        let Some(Frame::Welcome(welcome)) = peer.next() else { panic!("not welcome") };
        let mut place = welcome.place;
        if welcome.place.seq > Seq(0) {
            place = peer.acknowledge_until(welcome.place.seq);
        }
        (peer, welcome.workspace, place)
    }

    /// Takes pushes in, as an honest replica that keeps nothing.
    pub(super) fn acknowledge_until(&mut self, seq: Seq) -> Place {
        let mut done = None;
        loop {
            match self.next().expect("the host goes on") {
                Frame::Push(push) => {
                    let here = Place { epoch: push.epoch, seq: push.to };
                    if push.last {
                        done = Some(here);
                    }
                    let parts = if push.last { 0 } else { push.part + 1 };
                    self.send(&Frame::Ack(Ack { up_to: done, parts }));
                    if push.last && push.to >= seq {
                        return here;
                    }
                }
                _ => continue,
            }
        }
    }

    pub(super) fn send(&mut self, frame: &Frame) {
        // A host that has hung up is what many tests wait for.
        let _ = self.stream.write_all(&encode(frame));
    }

    pub(super) fn send_raw(&mut self, bytes: &[u8]) {
        let _ = self.stream.write_all(bytes);
    }

    /// The next frame; `None` when the host has hung up.
    pub(super) fn next(&mut self) -> Option<Frame> {
        loop {
            if let Some(frame) = self.framer.next_frame().expect("the host speaks the protocol") {
                return Some(frame);
            }
            let mut buffer = [0; 64 << 10];
            match self.stream.read(&mut buffer) {
                Ok(0) => return None,
                Ok(count) => self.framer.feed(&buffer[..count]),
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return None,
                Err(error) => panic!("the host said nothing: {error}"),
            }
        }
    }

    /// Reads until the host hangs up.
    #[track_caller]
    pub(super) fn is_hung_up(&mut self) {
        while self.next().is_some() {}
    }

    /// Sends a batch and gives the answer; `None` if the host hung up.
    pub(super) fn write_back(&mut self, batch: u64, writes: Vec<SentWrite>) -> Option<Outcome> {
        let digest = digest_of(writes.iter().map(|sent| &sent.write));
        self.send(&Frame::WriteBack(WriteBack { batch, digest, part: 0, last: true, writes }));
        loop {
            match self.next()? {
                Frame::WriteBackResult(result) => return Some(result.outcome),
                // An attacker has only the names of what he wants.
                Frame::Fetch(fetch) => {
                    for run in fetch.runs {
                        self.send(&Frame::Missing(run.wanted.object));
                    }
                }
                Frame::ManifestRequest(wanted) => self.send(&Frame::Missing(wanted.object)),
                _ => {}
            }
        }
    }
}

/// A write of a small new file.
pub(super) fn new_file(path: &str, content: &[u8]) -> SentWrite {
    let after = file(ObjectId::of(content), content.len() as u64);
    let write = Change {
        path: WorkspacePath::new(path).expect("a path"),
        base: Version::Absent,
        after,
        seen: Seq(0),
        group: 0,
    };
    SentWrite { write, inline: Some(content.to_vec()) }
}

pub(super) fn file(object: ObjectId, size: u64) -> Version {
    Version::File { object, size, mode: 0o644, mtime_ns: 1_700_000_000_000_000_000 }
}
