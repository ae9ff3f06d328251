//! Both sides killed at random while files change: at the end they are equal, and nothing that was written is lost.

use std::fs;
use std::time::Duration;

use super::scene::{Host, Replica, Running, tree, wait_until_equal};

/// A small generator, so that a seed is a run.
struct Random(u64);

impl Random {
    fn below(&mut self, most: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % most
    }
}

/// One change somewhere below a directory; each side has names of its own, so that nothing conflicts.
fn change(random: &mut Random, root: &std::path::Path, side: &str, step: u64) {
    let name = root.join(format!("{side}-{}", random.below(12)));
    match random.below(6) {
        0 => drop(fs::remove_file(&name)),
        1 => drop(fs::rename(&name, root.join(format!("{side}-{}", random.below(12))))),
        2 => {
            let directory = root.join(format!("{side}-dir-{}", random.below(3)));
            let _ = fs::create_dir_all(&directory);
            let _ = fs::write(directory.join(format!("f{}", random.below(5))), format!("{step}\n"));
        }
        3 => drop(fs::write(&name, vec![b'x'; 6000 + random.below(20_000) as usize])),
        _ => drop(fs::write(&name, format!("{side} {step}\n"))),
    }
}

#[test]
fn both_sides_killed_at_random_end_equal() {
    let rounds = if std::env::var_os("CHRONICLE_LONG").is_some() { 60 } else { 12 };
    let host = Host::new(&[("start.txt", "start\n")]);
    let replica = Replica::of(&host);
    let (h, r) = (host.cli.root(), replica.root());
    let (mut serving, mut connected) = (host.serve(), replica.connect());
    wait_until_equal(&[&h, &r]);
    let mut random = Random(42);
    for round in 0..rounds {
        for step in 0..20 {
            change(&mut random, &h, "host", round * 100 + step);
            change(&mut random, &r, "replica", round * 100 + step);
            // Kills are spread over time.
            std::thread::sleep(Duration::from_millis(random.below(6)));
        }
        // Renames of directories and files happen in between as well.
        match random.below(3) {
            0 => serving = again(serving, || host.serve()),
            1 => connected = again(connected, || replica.connect()),
            _ => {
                connected.kill();
                serving = again(serving, || host.serve());
                connected = replica.connect();
            }
        }
    }
    wait_until_equal(&[&h, &r]);
    assert!(tree(&h).len() > 3, "something was written");
    let conflicts = replica.cli.call(["conflicts", "list", "--json"]).ok().json();
    assert_eq!(conflicts["conflicts"].as_array().map(Vec::len), Some(0), "{conflicts}");
    connected.kill();
    serving.kill();
    host.cli.call(["verify", "--deep"]).ok();
    replica.cli.call(["verify", "--deep"]).ok();
}

fn again(old: Running, start: impl FnOnce() -> Running) -> Running {
    old.kill();
    start()
}
