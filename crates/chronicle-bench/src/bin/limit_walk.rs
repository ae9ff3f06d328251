//! The limit of a look: two threads that list every directory and stat every name, and nothing else.
//!
//! usage: `limit_walk DIR`; prints how many names it saw.
#![expect(clippy::print_stdout, reason = "the count is the output")]

use std::ffi::CString;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex};

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, RawDir, openat, statat};

/// Directories still to be walked, and how many are being walked or wait.
struct Queue {
    waiting: Mutex<Vec<CString>>,
    woken: Condvar,
    open: AtomicUsize,
    seen: AtomicU64,
}

fn main() {
    let top = std::env::args().nth(1).expect("usage: limit_walk DIR");
    let top = CString::new(top).expect("an argument has no NUL");
    let queue = Queue {
        waiting: Mutex::new(vec![top]),
        woken: Condvar::new(),
        open: AtomicUsize::new(1),
        seen: AtomicU64::new(0),
    };
    std::thread::scope(|scope| (0..2).for_each(|_| drop(scope.spawn(|| work(&queue)))));
    println!("{}", queue.seen.into_inner());
}

fn work(queue: &Queue) {
    let mut buffer = Vec::with_capacity(64 << 10);
    while let Some(path) = next(queue) {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let directory =
            openat(CWD, &path, flags, Mode::empty()).expect("a directory can be opened");
        let below = walk(&directory, &path, &mut buffer, queue);
        queue.open.fetch_add(below.len(), Ordering::SeqCst);
        let mut waiting = queue.waiting.lock().expect("no thread panics");
        waiting.extend(below);
        queue.open.fetch_sub(1, Ordering::SeqCst);
        queue.woken.notify_all();
    }
}

fn next(queue: &Queue) -> Option<CString> {
    let mut waiting = queue.waiting.lock().expect("no thread panics");
    loop {
        if let Some(path) = waiting.pop() {
            return Some(path);
        }
        if queue.open.load(Ordering::SeqCst) == 0 {
            return None;
        }
        waiting = queue.woken.wait(waiting).expect("no thread panics");
    }
}

fn walk(directory: &OwnedFd, path: &CString, buffer: &mut Vec<u8>, queue: &Queue) -> Vec<CString> {
    let (mut below, mut seen) = (Vec::new(), 0);
    let mut list = RawDir::new(directory, buffer.spare_capacity_mut());
    while let Some(entry) = list.next() {
        let entry = entry.expect("a directory can be listed");
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        let stat = statat(directory, name, AtFlags::SYMLINK_NOFOLLOW).expect("a name can be read");
        seen += 1;
        if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
            let path = [path.to_bytes(), b"/", name.to_bytes()].concat();
            below.push(CString::new(path).expect("a path has no NUL"));
        }
    }
    queue.seen.fetch_add(seen, Ordering::Relaxed);
    below
}
