//! What is asked and told, in which order, and what a refusal does.

use std::fs::{self, OpenOptions};
use std::io::Write;

use chronicle_mount::Errno;

use crate::world::World;

#[test]
fn every_change_is_asked_before_and_told_after() {
    let Some(world) = World::new("order::every_change") else { return };
    world.outside("echo -n old > f; mkdir d");
    fs::write(world.at("f"), "new").unwrap();
    let expected = ["before truncate f=old", "after truncate f=", "closed f"];
    assert_eq!(world.wait_for("closed f"), expected);

    let cases: [(&str, &[&str]); 9] = [
        ("printf x > n", &["before create n", "after create n=", "closed n"]),
        ("mkdir e", &["before create e", "after create e=/"]),
        ("ln -s f s", &["before create s", "after create s"]),
        ("mv n m", &["before rename n m", "after rename n m=x"]),
        ("ln m d/l", &["before link m d/l", "after link m d/l=x"]),
        ("chmod 600 m", &["before attributes d/l+m=x", "after attributes d/l+m=x"]),
        ("printf y >> m", &["before write d/l+m=x", "after write d/l+m=x", "closed d/l+m"]),
        ("rm d/l", &["before remove d/l=xy", "after remove d/l"]),
        ("rmdir e", &["before remove e=/", "after remove e"]),
    ];
    for (script, expected) in cases {
        world.sh(script);
        assert_eq!(world.wait_for(expected[expected.len() - 1]), expected, "{script}");
    }
    assert!(world.noted().is_empty());
    world.sh("cat f m; ls -l . d; find . > /dev/null");
    assert_eq!(world.noted(), Vec::<String>::new(), "reading asks nobody");
}

#[test]
fn a_sync_returns_when_the_record_is_durable() {
    let Some(world) = World::new("order::a_sync") else { return };
    let mut file = fs::File::create(world.at("f")).unwrap();
    file.write_all(b"x").unwrap();
    file.sync_all().unwrap();
    assert_eq!(world.noted(), ["before create f", "after create f=", "synced f"]);
    fs::File::open(world.at("")).unwrap().sync_all().unwrap();
    assert_eq!(world.noted(), ["synced "]);
}

#[test]
fn a_new_size_through_a_handle_is_asked_for_only_if_it_cuts() {
    let Some(world) = World::new("order::a_new_size") else { return };
    world.outside("echo -n old > f");
    let file = OpenOptions::new().write(true).open(world.at("f")).unwrap();
    assert_eq!(world.noted(), ["before write f=old", "after write f=old"]);
    file.set_len(3).unwrap();
    file.set_len(9).unwrap();
    assert_eq!(world.noted(), Vec::<String>::new());
    assert_eq!(fs::metadata(world.at("f")).unwrap().len(), 9);
    file.set_len(2).unwrap();
    assert_eq!(world.noted(), ["before truncate f=old\0\0\0\0\0\0", "after truncate f=ol"]);
    world.sh("truncate -s 5 f");
    assert!(world.noted()[0].starts_with("before "), "who has it not open is always asked");
}

#[test]
fn the_last_writer_closes_and_a_nameless_file_has_no_path() {
    let Some(world) = World::new("order::the_last_writer") else { return };
    let one = fs::File::create(world.at("f")).unwrap();
    let two = OpenOptions::new().append(true).open(world.at("f")).unwrap();
    drop(one);
    world.wait_for("after write f=");
    fs::remove_file(world.at("f")).unwrap();
    drop(two);
    assert_eq!(world.wait_for("closed "), ["before remove f=", "after remove f", "closed "]);
}

#[test]
fn a_refusal_reaches_the_caller_and_nothing_has_happened() {
    let Some(world) = World::new("order::a_refusal") else { return };
    world.outside("echo old > f; mkdir d; echo other > g; chmod 644 f");
    let before = world.outside("ls -lR --time-style=full-iso; cat f g");
    *world.notes.refusal.lock().unwrap() = Some(Errno::ENOSPC);
    for script in [
        "echo new > f",
        "echo more >> f",
        "echo x > n",
        "mkdir e",
        "ln -s f s",
        "ln f l",
        "mv f n",
        "mv f g",
        "rm f",
        "rmdir d",
        "chmod 600 f",
        "touch f",
        "truncate -s 1 f",
        "mkfifo p",
    ] {
        let refused = format!("({script}) 2>&1 | grep -q 'No space left'");
        world.sh(&refused);
    }
    *world.notes.refusal.lock().unwrap() = None;
    assert_eq!(world.outside("ls -lR --time-style=full-iso; cat f g"), before);
    assert_eq!(world.sh("ls; cat f"), "d\nf\ng\nold\n");
    assert!(world.noted().iter().all(|line| line.starts_with("before")));
}

#[test]
fn what_failed_below_is_told_as_failed() {
    let Some(world) = World::new("order::what_failed") else { return };
    world.outside("mkdir -p d/e");
    assert!(fs::remove_dir(world.at("d")).is_err());
    assert_eq!(world.noted(), ["before remove d=/", "after remove d=/ failed 39"]);
}
