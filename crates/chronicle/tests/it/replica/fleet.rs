//! Two hosts with one log on a real PostgreSQL server and one bucket on a real S3 server, killed in turn.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use chronicle_testing::dice::Dice;
use chronicle_testing::moto::Moto;
use chronicle_testing::postgres::Cluster;
use chronicle_testing::shared::skip;
use tempfile::TempDir;

use super::scene::{Running, wait_until, wait_until_equal};
use crate::support::{Cli, Done, done};

/// The servers that hosts share.
struct Fleet {
    cluster: Cluster,
    moto: Moto,
    _scratch: TempDir,
}

impl Fleet {
    fn start(test: &str) -> Option<Self> {
        let moto = Moto::start(test)?;
        let scratch = tempfile::tempdir().expect("a directory");
        fs::set_permissions(scratch.path(), fs::Permissions::from_mode(0o755)).expect("opened");
        let mut cluster = match Cluster::new(&scratch.path().join("data")) {
            Ok(cluster) => cluster,
            Err(why) => {
                skip(test, &why);
                return None;
            }
        };
        cluster.start();
        Some(Self { cluster, moto, _scratch: scratch })
    }

    fn url(&self) -> String {
        self.cluster.url()
    }

    /// A host whose bucket is the shared one.
    fn host(&self, files: &[(&str, &str)]) -> Host {
        let host = Host { cli: Cli::adopted(files), url: self.url() };
        let endpoint = self.moto.endpoint();
        host.call(&[
            "bucket",
            "set",
            "s3://bucket/team",
            "--endpoint",
            &endpoint,
            "--plain",
            "--manual",
        ])
        .ok();
        host
    }
}

struct Host {
    cli: Cli,
    url: String,
}

impl Host {
    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = self.cli.command(arguments);
        command
            .env("AWS_ACCESS_KEY_ID", "access")
            .env("AWS_SECRET_ACCESS_KEY", "secret")
            .env("AWS_REGION", "us-east-1");
        command
    }

    fn call(&self, arguments: &[&str]) -> Done {
        done(self.command(arguments).output().expect("started"))
    }

    fn socket(&self) -> PathBuf {
        self.cli.home().join("host.sock")
    }

    fn serve(&self, more: &[&str]) -> Running {
        let socket = self.socket();
        let _ = fs::remove_file(&socket);
        let log = self.cli.home().join("serve.log");
        let log = fs::File::options().create(true).append(true).open(log).expect("a log");
        let socket_words = socket.to_str().expect("text");
        let mut words = vec!["serve", "--json", "--socket", socket_words, "--log", &self.url];
        words.extend(more);
        let out = fs::File::create(self.cli.home().join("serving.json")).expect("a file");
        let running = Running::start(self.command(&words).stderr(log).stdout(out));
        wait_until("the host listens", || std::os::unix::net::UnixStream::connect(&socket).is_ok());
        running
    }

    /// The id under which it serves.
    fn served(&self) -> String {
        let mut found = None;
        wait_until("the host says what it serves", || {
            let text = fs::read_to_string(self.cli.home().join("serving.json")).unwrap_or_default();
            let value: Option<serde_json::Value> = serde_json::from_str(&text).ok();
            found = value.and_then(|value| Some(value["workspaces"][0].as_str()?.to_owned()));
            found.is_some()
        });
        found.expect("an id")
    }
}

/// Syncs a sandbox with a host until both are equal: what it wrote is acknowledged then.
#[track_caller]
fn sync(sandbox: &Cli, host: &Host) {
    let (root, socket) = (sandbox.root(), host.socket());
    let words = ["connect", "--once", "--socket", socket.to_str().expect("text")];
    let mut command = sandbox.command(words);
    let output = command.arg(&root).output().expect("started");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

fn connect(sandbox: &Cli, host: &Host) -> Running {
    let socket = host.socket();
    let words = ["connect", "--socket", socket.to_str().expect("text")];
    let mut command = sandbox.command(words);
    Running::start(command.arg(sandbox.root()).stderr(Stdio::null()).stdout(Stdio::null()))
}

#[test]
fn a_host_that_is_lost_takes_nothing_acknowledged_with_it() {
    let test = "a_host_that_is_lost_takes_nothing_acknowledged_with_it";
    let Some(fleet) = Fleet::start(test) else { return };
    let large = "a line that repeats\n".repeat(20_000);
    let a = fleet.host(&[("start.txt", "start\n"), ("sub/deep.txt", "deep\n"), ("large", &large)]);
    let serving_a = a.serve(&[]);
    let id = a.served();
    let b = fleet.host(&[]);
    let serving_b = b.serve(&["--join", &id]);
    assert_eq!(b.served(), id);
    wait_until_equal(&[&a.cli.root(), &b.cli.root()]);
    let sandbox = Cli::new();
    sync(&sandbox, &a);
    wait_until_equal(&[&a.cli.root(), &sandbox.root()]);
    sandbox.write("from-sandbox.txt", "acknowledged\n");
    sandbox.write("sub/deep.txt", "deeper\n");
    fs::remove_file(sandbox.root().join("start.txt")).expect("removed");
    sync(&sandbox, &a);
    // The machine is gone, with its disk, the moment that the sandbox has its answer.
    serving_a.kill();
    fs::remove_dir_all(a.cli.home()).expect("the home is gone");
    fs::remove_dir_all(a.cli.root()).expect("the workspace is gone");
    sandbox.write("second.txt", "to the other\n");
    sync(&sandbox, &b);
    wait_until_equal(&[&b.cli.root(), &sandbox.root()]);
    assert_eq!(b.cli.read("from-sandbox.txt").as_deref(), Some("acknowledged\n"));
    assert_eq!(b.cli.read("sub/deep.txt").as_deref(), Some("deeper\n"));
    assert_eq!((b.cli.read("start.txt"), b.cli.read("large")), (None, Some(large)));
    // What is done at the host itself goes the same way.
    b.cli.write("by-hand.txt", "at the host\n");
    wait_until("the host has committed it", || {
        sync(&sandbox, &b);
        sandbox.read("by-hand.txt").is_some()
    });
    serving_b.kill();
    // A third one, from nothing but the log and the bucket.
    let c = fleet.host(&[]);
    let serving_c = c.serve(&["--join", &id]);
    wait_until_equal(&[&c.cli.root(), &sandbox.root()]);
    assert_eq!(c.cli.read("by-hand.txt").as_deref(), Some("at the host\n"));
    assert!(serving_c.end().success());
    let conflicts = sandbox.call(["conflicts", "list", "--json"]).ok().json();
    assert_eq!(conflicts["conflicts"].as_array().map(Vec::len), Some(0), "{conflicts}");
    b.call(&["verify", "--deep"]).ok();
}

#[test]
fn sandboxes_of_two_hosts_that_are_killed_in_turn_end_equal() {
    let test = "sandboxes_of_two_hosts_that_are_killed_in_turn_end_equal";
    let Some(fleet) = Fleet::start(test) else { return };
    let hosts = [fleet.host(&[("start.txt", "start\n")]), fleet.host(&[])];
    let first = hosts[0].serve(&[]);
    let id = hosts[0].served();
    let join: [&[&str]; 2] = [&[], &["--join", &id]];
    let mut serving = [first, hosts[1].serve(join[1])];
    let sandboxes = [Cli::new(), Cli::new()];
    let mut connected = [connect(&sandboxes[0], &hosts[0]), connect(&sandboxes[1], &hosts[1])];
    let roots = [&hosts[0].cli, &hosts[1].cli, &sandboxes[0], &sandboxes[1]].map(Cli::root);
    let equal = || wait_until_equal(&roots.each_ref().map(PathBuf::as_path));
    equal();
    let (mut dice, mut last) = (Dice::new(25), [0; 4]);
    for round in 0..4 {
        for step in 0..30 {
            let side = dice.below(4);
            last[side] = round * 100 + step + 1;
            let name = format!("side-{side}-{}", dice.below(3));
            let content = format!("{side} {}\n", last[side]);
            fs::write(roots[side].join(name), &content).expect("written");
            fs::write(roots[side].join(format!("last-{side}")), &content).expect("written");
            std::thread::sleep(Duration::from_millis(dice.below(8) as u64));
        }
        let which = dice.below(2);
        let socket_of = dice.below(2);
        serving[which].0.kill().expect("killed");
        serving[which].0.wait().expect("reaped");
        serving[which] = hosts[which].serve(join[which]);
        // One sandbox goes to whichever host, in the middle of its work.
        let moving = dice.below(2);
        connected[moving].0.kill().expect("killed");
        connected[moving].0.wait().expect("reaped");
        connected[moving] = connect(&sandboxes[moving], &hosts[socket_of]);
    }
    equal();
    for (side, last) in last.into_iter().enumerate().filter(|(_, last)| *last > 0) {
        let found = fs::read_to_string(roots[0].join(format!("last-{side}"))).unwrap_or_default();
        assert_eq!(found, format!("{side} {last}\n"), "what side {side} wrote last");
    }
    let rows = fleet.cluster.sql("select count(*) = max(seq) from chronicle.records");
    assert_eq!(rows, "t", "no number is missing");
}

#[test]
fn what_cannot_be_shared_is_refused_with_the_next_step() {
    let test = "what_cannot_be_shared_is_refused_with_the_next_step";
    let Some(fleet) = Fleet::start(test) else { return };
    let socket = "/nowhere/host.sock";
    let alone = Host { cli: Cli::adopted(&[]), url: fleet.url() };
    let said = alone.call(&["serve", "--socket", socket, "--log", &alone.url]).exits(2);
    assert!(said.stderr.contains("chronicle bucket set"), "{}", said.stderr);
    let host = fleet.host(&[("f", "1\n")]);
    let said = host.call(&["serve", "--socket", socket, "--log", "mysql://x"]).exits(2);
    assert!(said.stderr.contains("postgres://"), "{}", said.stderr);
    let nobody = "00".repeat(16);
    let said =
        host.call(&["serve", "--socket", socket, "--log", &host.url, "--join", &nobody]).exits(2);
    assert!(said.stderr.contains("has no workspace"), "{}", said.stderr);
    let serving = host.serve(&[]);
    assert!(serving.end().success());
    let said = host.call(&["serve", "--socket", socket]).exits(2);
    assert!(said.stderr.contains("--log"), "{}", said.stderr);
}
