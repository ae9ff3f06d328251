//! What the kernel must stop believing, told on a thread of its own.
//!
//! Telling takes locks that the kernel may hold while it waits for us, so no thread that answers requests does it.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::mpsc::{Receiver, Sender, channel};

use fuser::{INodeNo, Notifier};

/// One thing that is not so any more.
#[derive(Debug)]
pub(crate) enum Notice {
    /// Nobody knows what stands under this name.
    Entry { parent: u64, name: Vec<u8> },
    /// The attributes are old.
    Attributes(u64),
    /// So is what was read of it: content, or the names of a directory.
    Content(u64),
    /// Everything before this was told.
    Fence(Sender<()>),
}

/// Takes notices from every thread.
#[derive(Debug, Clone)]
pub(crate) struct Outbox(Sender<Notice>);

impl Outbox {
    /// The outbox, and what [`deliver`] takes from.
    pub(crate) fn new() -> (Self, Receiver<Notice>) {
        let (sender, receiver) = channel();
        (Self(sender), receiver)
    }

    pub(crate) fn send(&self, notice: Notice) {
        // Nobody listens any more: the mount is gone, and with it what the kernel believed.
        let _ = self.0.send(notice);
    }

    /// Returns when all that was sent before has been told.
    pub(crate) fn wait(&self) {
        let (sender, receiver) = channel();
        self.send(Notice::Fence(sender));
        let _ = receiver.recv();
    }
}

/// Tells the kernel until every outbox is gone.
pub(crate) fn deliver(notices: &Receiver<Notice>, kernel: &Notifier) {
    for notice in notices {
        // What the kernel does not know it cannot believe, so a failure here means nothing.
        let _ = match notice {
            Notice::Entry { parent, name } => {
                kernel.inval_entry(INodeNo(parent), OsStr::from_bytes(&name))
            }
            Notice::Attributes(node) => kernel.inval_inode(INodeNo(node), -1, 0),
            Notice::Content(node) => kernel.inval_inode(INodeNo(node), 0, 0),
            Notice::Fence(waiting) => {
                let _ = waiting.send(());
                Ok(())
            }
        };
    }
}
