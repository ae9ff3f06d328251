//! The newcomer's walk: serve in one directory, connect in two others, edit on all sides, resolve a conflict, kill
//! one side and bring it back.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

use super::scene::{Host, Replica, tree, wait_until, wait_until_equal};

#[test]
fn edits_on_all_sides_arrive_everywhere() {
    let host = Host::new(&[("a.txt", "one\n"), ("src/main.rs", "fn main() {}\n")]);
    let _serving = host.serve();
    let (first, second) = (Replica::of(&host), Replica::of(&host));
    let (_one, _two) = (first.connect(), second.connect());
    let (h, a, b) = (host.cli.root(), first.root(), second.root());
    wait_until_equal(&[&h, &a, &b]);
    host.cli.write("from-host.txt", "host\n");
    wait_until("it arrives", || {
        a.join("from-host.txt").exists() && b.join("from-host.txt").exists()
    });
    first.cli.write("deep/er/from-first.txt", "first\n");
    wait_until("the host has it", || host.cli.read("deep/er/from-first.txt").is_some());
    wait_until_equal(&[&h, &a, &b]);
    fs::remove_file(b.join("a.txt")).expect("removed");
    fs::rename(b.join("src"), b.join("source")).expect("moved");
    wait_until("the host moved it", || {
        h.join("source/main.rs").exists() && !h.join("src").exists()
    });
    wait_until_equal(&[&h, &a, &b]);
    fs::set_permissions(h.join("from-host.txt"), fs::Permissions::from_mode(0o755)).expect("set");
    symlink("from-host.txt", h.join("link")).expect("linked");
    fs::create_dir(h.join("empty")).expect("made");
    wait_until("the link arrives", || a.join("link").is_symlink() && b.join("empty").is_dir());
    wait_until_equal(&[&h, &a, &b]);
}

#[test]
fn once_fills_an_empty_directory_and_sends_back_what_is_written_there() {
    let host = Host::new(&[("a.txt", "one\n")]);
    let _serving = host.serve();
    let replica = Replica::of(&host);
    replica.once();
    assert_eq!(replica.cli.read("a.txt").as_deref(), Some("one\n"));
    replica.cli.write("b.txt", "two\n");
    replica.once();
    assert_eq!(host.cli.read("b.txt").as_deref(), Some("two\n"));
    assert_eq!(tree(&host.cli.root()), tree(&replica.root()));
    // What the replica wrote can be taken back at the host like anything else.
    let log = host.cli.call(["log", "--json"]).ok();
    assert!(log.stdout.contains("write_back"), "{}", log.stdout);
    let rows = host.cli.call(["replicas", "--json"]).ok().json();
    assert_eq!(rows["replicas"].as_array().map(Vec::len), Some(1), "{rows}");
}

/// Both sides change the same line while the link is down: the host's stands everywhere, the replica's is a conflict
/// that its owner decides about.
#[test]
fn a_conflict_is_kept_and_can_be_decided() {
    let host = Host::new(&[("a.txt", "one\ntwo\nthree\n")]);
    let serving = host.serve();
    let replica = Replica::of(&host);
    replica.once();
    serving.end();
    host.cli.write("a.txt", "one\nHOST\nthree\n");
    replica.cli.write("a.txt", "one\nMINE\nthree\n");
    let _serving = host.serve();
    replica.once();
    assert_eq!(replica.cli.read("a.txt").as_deref(), Some("one\nHOST\nthree\n"));
    let listed = replica.cli.call(["conflicts", "list", "--json"]).ok().json();
    let conflict = &listed["conflicts"][0];
    assert_eq!(conflict["path"], "a.txt", "{listed}");
    assert_eq!(conflict["code"], "changed");
    let shown = replica.cli.call(["conflicts", "show", "a.txt"]).ok();
    assert!(shown.stdout.contains("+MINE") && shown.stdout.contains("+HOST"), "{}", shown.stdout);
    replica.cli.call(["conflicts", "merge", "a.txt"]).exits(3);
    let id = conflict["short_id"].as_str().expect("an id");
    replica.cli.call(["conflicts", "keep-mine", id]).ok();
    replica.once();
    assert_eq!(host.cli.read("a.txt").as_deref(), Some("one\nMINE\nthree\n"));
    let listed = replica.cli.call(["conflicts", "list", "--json"]).ok().json();
    assert_eq!(listed["conflicts"].as_array().map(Vec::len), Some(0), "{listed}");
}

/// What another command of Chronicle wrote was in the log before the replica looked: it found no change, and sent
/// nothing until the next one.
#[test]
fn what_other_commands_record_is_sent_at_once() {
    let host = Host::new(&[("a.txt", "one\n")]);
    let _serving = host.serve();
    let replica = Replica::of(&host);
    let _client = replica.connect();
    let roots = [host.cli.root(), replica.root()];
    wait_until_equal(&[&roots[0], &roots[1]]);
    replica.cli.write("a.txt", "two\n");
    wait_until("the write arrives", || host.cli.read("a.txt").as_deref() == Some("two\n"));
    let newest = replica.cli.call(["--json", "log", "--path", "a.txt"]).ok().json_lines();
    let id = newest[0]["id"].as_str().expect("an id").to_owned();
    replica.cli.call(["rollback", &id, "--yes"]).ok();
    wait_until("what was taken back arrives", || {
        host.cli.read("a.txt").as_deref() == Some("one\n")
    });
}

#[test]
fn what_merges_by_lines_is_merged_by_itself() {
    let host = Host::new(&[("a.txt", "one\ntwo\nthree\nfour\nfive\n")]);
    let serving = host.serve();
    let replica = Replica::of(&host);
    replica.once();
    serving.end();
    host.cli.write("a.txt", "ONE\ntwo\nthree\nfour\nfive\n");
    replica.cli.write("a.txt", "one\ntwo\nthree\nfour\nFIVE\n");
    let _serving = host.serve();
    let _connected = replica.connect();
    let merged = "ONE\ntwo\nthree\nfour\nFIVE\n";
    wait_until("the host has both", || host.cli.read("a.txt").as_deref() == Some(merged));
    wait_until("so has the replica", || replica.cli.read("a.txt").as_deref() == Some(merged));
    let listed = replica.cli.call(["conflicts", "list", "--json"]).ok().json();
    assert_eq!(listed["conflicts"].as_array().map(Vec::len), Some(0), "{listed}");
}

#[test]
fn one_side_killed_comes_back_where_it_was() {
    let host = Host::new(&[("a.txt", "one\n")]);
    let serving = host.serve();
    let replica = Replica::of(&host);
    let connected = replica.connect();
    let (h, r) = (host.cli.root(), replica.root());
    wait_until_equal(&[&h, &r]);
    connected.kill();
    replica.cli.write("while-down.txt", "kept\n");
    host.cli.write("meanwhile.txt", "too\n");
    let connected = replica.connect();
    wait_until("both have it", || {
        h.join("while-down.txt").exists() && r.join("meanwhile.txt").exists()
    });
    serving.kill();
    replica.cli.write("host-is-down.txt", "kept\n");
    host.cli.write("nobody-serves.txt", "too\n");
    let _serving = host.serve();
    wait_until("the host has it", || h.join("host-is-down.txt").exists());
    wait_until_equal(&[&h, &r]);
    assert!(connected.end().success());
}

#[test]
fn only_what_is_empty_or_a_replica_of_the_same_is_connected() {
    let host = Host::new(&[("a.txt", "one\n")]);
    let _serving = host.serve();
    let replica = Replica::of(&host);
    replica.cli.write("mine.txt", "precious\n");
    let refused = replica.command(&["--once"]).output().expect("started");
    assert_eq!(refused.status.code(), Some(3));
    replica.cli.call(["init"]).ok();
    let refused = replica.command(&["--once"]).output().expect("started");
    assert_eq!(refused.status.code(), Some(3));
    assert_eq!(tree(&replica.root()).len(), 1);
    // The replica of another host's workspace is not taken in here.
    let (other, stranger) = (Host::new(&[("b.txt", "two\n")]), Replica::of(&host));
    stranger.once();
    let _other = other.serve();
    let moved = Replica { cli: stranger.cli, ..Replica::of(&other) };
    let refused = moved.command(&["--once"]).output().expect("started");
    assert!(!refused.status.success(), "{}", String::from_utf8_lossy(&refused.stderr));
    assert_eq!(moved.cli.read("a.txt").as_deref(), Some("one\n"));
    assert!(!moved.root().join("b.txt").exists());
}

#[test]
fn what_a_filter_names_stays_home() {
    let host = Host::new(&[("a.txt", "one\n"), ("b.log", "not for replicas\n")]);
    host.cli.call(["filter", "add", "*.log", "--direction", "push"]).ok();
    host.cli.call(["filter", "add", "*.tmp", "--direction", "write-back"]).ok();
    let _serving = host.serve();
    let replica = Replica::of(&host);
    replica.once();
    assert!(replica.root().join("a.txt").exists() && !replica.root().join("b.log").exists());
    replica.cli.write("c.tmp", "not for the host\n");
    replica.cli.write("d.txt", "for the host\n");
    replica.once();
    assert!(host.cli.root().join("d.txt").exists() && !host.cli.root().join("c.tmp").exists());
}
