//! Memory stays bounded, and descriptors do.

use std::path::Path;

use crate::refused::serve_in_child;
use crate::world::{has_fuse, run};

/// What a process has resident, in KiB.
fn resident(process: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[test]
fn two_hundred_thousand_files_take_little_memory() {
    if !has_fuse("many_files::two_hundred_thousand") {
        return;
    }
    let memory = Path::new("/dev/shm");
    let place = if memory.exists() { memory } else { Path::new("/tmp") };
    let (backing, at) = (tempfile::tempdir_in(place).unwrap(), tempfile::tempdir().unwrap());
    let make = "import os\nfor d in range(2000):\n os.mkdir(f\"d{d}\")\n for f in range(100): \
        os.mknod(f\"d{d}/a-name-of-usual-length-{f}\")";
    run(&format!("python3 -c '{make}'"), backing.path());
    let mut child = serve_in_child(backing.path(), at.path());
    let before = resident(child.id());
    // The root, the directories, the files, and what the child made to say that it is there.
    assert_eq!(run("find . -newermt 1970-01-02 | wc -l", at.path()).trim(), "202002");
    let taken = resident(child.id()).saturating_sub(before) * 1024;
    assert!(taken / 202_000 < 300, "{} bytes a file", taken / 202_000);
    let open = std::fs::read_dir(format!("/proc/{}/fd", child.id())).unwrap().count();
    assert!(open < 5000, "{open} descriptors");
    run(&format!("umount {}", at.path().display()), Path::new("/"));
    child.wait().unwrap();
}
