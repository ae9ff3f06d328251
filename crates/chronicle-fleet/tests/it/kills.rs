//! Processes that commit at the same time, killed in the middle, on a server whose backends are killed too: no number
//! is missing, nothing that was acknowledged is lost, nothing is there twice.

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use chronicle_core::{Error, Log};
use chronicle_testing::dice::Dice;
use chronicle_testing::log_contract::{WORKSPACE, names, record};

use crate::server::{Server, open};

/// Committers at a time.
const COMMITTERS: usize = 4;
/// The variable that makes this test binary a committer: where its server is, who it is, where it notes.
const ROLE: &str = "CHRONICLE_FLEET_COMMITTER";

/// Not a test of its own: what the processes of the test below do.
#[test]
fn committer() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let mut role = role.split(' ');
    let (url, name, notes) = (role.next().unwrap(), role.next().unwrap(), role.next().unwrap());
    let mut notes = fs::File::options().create(true).append(true).open(notes).unwrap();
    let mut log = open(url, WORKSPACE);
    for number in 0.. {
        let said = format!("{name}-{number}");
        loop {
            let head = log.head().unwrap();
            // Some commits without a key of their own: a lost link must not make two of one.
            let key = (number % 3 > 0).then_some(said.as_bytes());
            match log.commit(vec![record(&said)], head, key) {
                Ok(_) => break,
                Err(Error::Moved { .. }) => {}
                // The server stayed away for too long; whether it has this one stays open.
                Err(_) => return,
            }
        }
        notes.write_all(format!("{said}\n").as_bytes()).unwrap();
    }
}

fn start(url: &str, name: &str, notes: &Path) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "kills::committer", "--nocapture"])
        .env(ROLE, format!("{url} {name} {}", notes.display()))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

#[test]
fn committers_and_backends_killed_at_random_lose_nothing() {
    let test = "committers_and_backends_killed_at_random_lose_nothing";
    let Some(server) = Server::start(test) else { return };
    let (url, scratch) = (server.url(), tempfile::tempdir().unwrap());
    let notes = scratch.path().join("acknowledged");
    drop(open(&url, WORKSPACE));
    let mut dice = Dice::new(10);
    let mut next = 0..;
    let mut fresh = || start(&url, &format!("c{}", next.next().unwrap()), &notes);
    let mut running: Vec<Child> = (0..COMMITTERS).map(|_| fresh()).collect();
    let end = Instant::now() + Duration::from_secs(6);
    while Instant::now() < end {
        std::thread::sleep(Duration::from_millis(dice.below(120) as u64));
        match dice.below(8) {
            // A backend dies as it would of a fault: the server throws everybody out and recovers.
            0 => kill_backend(&server, &mut dice),
            1..=3 => drop(server.cluster.ask(
                "select pg_terminate_backend(pid) from pg_stat_activity \
                 where application_name = 'chronicle' and random() < 0.5",
            )),
            _ => {
                let old = dice.below(COMMITTERS);
                running[old].kill().unwrap();
                running[old].wait().unwrap();
                running[old] = fresh();
            }
        }
    }
    for mut committer in running {
        committer.kill().unwrap();
        committer.wait().unwrap();
    }
    server.cluster.wait_until_up();
    let said = names(&server.log(WORKSPACE));
    let mut counted: HashMap<&str, usize> = HashMap::new();
    said.iter().for_each(|name| *counted.entry(name).or_default() += 1);
    let twice: Vec<_> = counted.iter().filter(|(_, count)| **count > 1).collect();
    assert!(twice.is_empty(), "there twice: {twice:?}");
    let noted = fs::read_to_string(&notes).unwrap();
    let acknowledged: BTreeSet<&str> = noted.lines().collect();
    let lost: Vec<_> = acknowledged.iter().filter(|name| !counted.contains_key(**name)).collect();
    assert!(lost.is_empty(), "acknowledged and lost: {lost:?}");
    assert!(acknowledged.len() > 50, "only {} commits in all", acknowledged.len());
}

fn kill_backend(server: &Server, dice: &mut Dice) {
    let sql = "select pid from pg_stat_activity where application_name = 'chronicle'";
    let pids = server.cluster.ask(sql).unwrap_or_default();
    let pids: Vec<i32> = pids.lines().filter_map(|pid| pid.parse().ok()).collect();
    if let Some(pid) = pids.get(dice.below(pids.len().max(1)))
        && let Some(pid) = rustix::process::Pid::from_raw(*pid)
    {
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
    }
}
