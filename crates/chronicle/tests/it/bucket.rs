//! `bucket`, `push`, `pull` and `clone` against a real S3 server: a machine that is lost comes back.
#![allow(clippy::unwrap_used, reason = "a test that cannot prepare its world fails")]

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use chronicle_testing::moto::Moto;
use chronicle_testing::tree;

use crate::mcp::Agent;
use crate::support::{Cli, Done, done};

/// A scratch machine and the server that it pushes to.
struct Place {
    endpoint: String,
    cli: Cli,
}

impl Place {
    /// A machine with a workspace whose history goes to a prefix of its own.
    fn adopted(moto: &Moto, files: &[(&str, &str)]) -> Self {
        Self { endpoint: moto.endpoint(), cli: Cli::adopted(files) }
    }

    fn fresh(moto: &Moto) -> Self {
        Self { endpoint: moto.endpoint(), cli: Cli::new() }
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = self.cli.command(arguments);
        command
            .env("AWS_ACCESS_KEY_ID", "access")
            .env("AWS_SECRET_ACCESS_KEY", "secret")
            .env("AWS_REGION", "us-east-1");
        command
    }

    #[track_caller]
    fn call(&self, arguments: &[&str]) -> Done {
        done(self.command(arguments).output().unwrap())
    }

    fn key(&self) -> String {
        self.cli.home().with_file_name("bucket.key").display().to_string()
    }

    #[track_caller]
    fn set(&self, prefix: &str, more: &[&str]) {
        let url = format!("s3://bucket/{prefix}");
        let (endpoint, key) = (&self.endpoint, self.key());
        let words = ["bucket", "set", &url, "--endpoint", endpoint, "--key", &key];
        self.call(&[&words[..], more].concat()).ok();
    }

    /// The words that clone from a prefix with somebody's key, into a directory beside the workspace.
    fn clone_words(&self, prefix: &str, key: &str) -> (Vec<String>, PathBuf) {
        let into = self.cli.home().with_file_name("cloned");
        let words = [
            "clone",
            &format!("s3://bucket/{prefix}"),
            &into.display().to_string(),
            "--endpoint",
            &self.endpoint,
            "--key",
            key,
        ]
        .map(str::to_owned);
        (words.to_vec(), into)
    }

    fn clone(&self, prefix: &str, key: &str) -> (Done, PathBuf) {
        let (words, into) = self.clone_words(prefix, key);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        (self.call(&words), into)
    }

    #[track_caller]
    fn turn(&self, name: &str, content: &str) {
        self.call(&["turn", "start", "--session", "s"]).ok();
        self.cli.write(name, content);
        self.call(&["turn", "end", "--session", "s"]).ok();
    }
}

fn text(number: usize) -> String {
    (0..number).map(|line| format!("line {line} of {number}\n")).collect()
}

#[test]
fn lost_machine_is_recovered_onto_a_fresh_one() {
    let Some(moto) = Moto::start("lost_machine_is_recovered_onto_a_fresh_one") else { return };
    let old = Place::adopted(&moto, &[("src/main.rs", &text(40)), ("notes", &text(9))]);
    fs::write(old.cli.root().join("large.bin"), vec![7; 6 << 20]).unwrap();
    fs::create_dir(old.cli.root().join("empty")).unwrap();
    std::os::unix::fs::symlink("src/main.rs", old.cli.root().join("link")).unwrap();
    old.call(&["settle"]).ok();
    old.set("lost", &["--manual"]);
    let pushed = old.call(&["--json", "push"]).ok().json();
    assert_eq!(pushed["missing"].as_array().unwrap().len(), 0, "{pushed}");
    old.turn("src/main.rs", &text(41));
    old.turn("notes", "what an agent did\n");
    assert_eq!(old.call(&["--json", "status"]).ok().json()["mirror"]["behind"], 6);
    old.call(&["push"]).ok();
    let status = old.call(&["--json", "status"]).ok().json();
    assert_eq!(
        (&status["mirror"]["behind"], &status["mirror"]["failures"]),
        (&0.into(), &0.into())
    );
    let (before, key) = (tree::describe(&old.cli.root()), old.key());
    let key_text = fs::read_to_string(&key).unwrap();
    drop(old);
    // Only the bucket and the copy of the key are left.
    let new = Place::fresh(&moto);
    fs::write(new.key(), key_text).unwrap();
    let (cloned, into) = new.clone("lost", &new.key());
    cloned.ok();
    tree::assert_same(&before, &tree::describe(&into), "what came back");
    let at = into.display().to_string();
    new.call(&["-C", &at, "verify", "--deep"]).ok();
    assert_eq!(
        new.call(&["-C", &at, "--json", "status"]).ok().json()["changes"].as_array().unwrap().len(),
        0
    );
    new.call(&["-C", &at, "undo", "turn:2", "--yes"]).ok();
    assert_eq!(fs::read_to_string(into.join("notes")).unwrap(), text(9));
    new.call(&["-C", &at, "undo", "turn:1", "--yes"]).ok();
    assert_eq!(fs::read_to_string(into.join("src/main.rs")).unwrap(), text(40));
    new.call(&["-C", &at, "push"]).ok();
    let logs = new.call(&["--json", "bucket", "list"]).ok().json();
    assert_eq!(logs["logs"].as_array().unwrap().len(), 2, "a life of its own: {logs}");
    new.call(&["-C", &at, "verify", "--deep"]).ok();
}

/// The key for secrets may be lost with the machine: everything else comes back, and that is said.
#[test]
fn secrets_come_along_sealed_and_are_told_of_where_their_key_is_lost() {
    let test = "secrets_come_along_sealed_and_are_told_of_where_their_key_is_lost";
    let Some(moto) = Moto::start(test) else { return };
    let old = Place::adopted(&moto, &[("a", "1"), (".env", "TOKEN=hidden-in-the-bucket-too")]);
    old.set("secrets", &["--manual"]);
    old.call(&["push"]).ok();
    let new = Place::fresh(&moto);
    let (cloned, into) = new.clone("secrets", &old.key());
    let cloned = cloned.exits(4);
    assert!(cloned.stderr.contains("Not brought back: .env"), "{}", cloned.stderr);
    assert_eq!(fs::read_to_string(into.join("a")).unwrap(), "1");
    assert!(!into.join(".env").exists());
    let at = into.display().to_string();
    let verified = new.call(&["-C", &at, "--json", "verify", "--deep"]).ok().json();
    assert_eq!(verified["objects_not_read"], 1, "{verified}");
    // With the key it is all there.
    let key = old.cli.home().with_file_name(".config/chronicle/secret.key");
    let seq = verified["records"].as_u64().unwrap() - 3;
    let mut command = new.command(&["-C", &at, "cat", ".env", "--at", &format!("seq:{seq}")]);
    let shown = done(command.env("CHRONICLE_SECRET_KEY_FILE", key).output().unwrap()).ok();
    assert_eq!(shown.stdout, "TOKEN=hidden-in-the-bucket-too");
}

/// Killed anywhere on the way, the same command brings it to its end.
#[test]
fn clone_that_dies_goes_on_when_it_is_said_again() {
    let Some(moto) = Moto::start("clone_that_dies_goes_on_when_it_is_said_again") else { return };
    let old = Place::adopted(&moto, &[("a", &text(30)), ("b/c", &text(20))]);
    old.set("dies", &["--manual"]);
    old.turn("a", &text(31));
    old.call(&["push"]).ok();
    let before = tree::describe(&old.cli.root());
    let points = [
        "store_after_object_data",
        "receive_before_commit",
        "receive_before_registration",
        "receive_after_registration",
        "rewind_after_stage",
        "rewind_after_commit_point",
        "rewind_after_step",
        "rewind_after_record",
    ];
    for point in points {
        let new = Place::fresh(&moto);
        let (words, into) = new.clone_words("dies", &old.key());
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let killed = new.command(&words).env("CHRONICLE_FAILPOINT", point).status().unwrap();
        if killed.signal() != Some(9) {
            assert_eq!(point, "store_after_object_data", "it is passed");
        }
        new.call(&words).ok();
        tree::assert_same(&before, &tree::describe(&into), point);
        new.call(&["-C", &into.display().to_string(), "verify", "--deep"]).ok();
    }
}

#[test]
fn turn_end_pushes_by_itself_and_an_unreachable_bucket_keeps_nobody_waiting() {
    let test = "turn_end_pushes_by_itself_and_an_unreachable_bucket_keeps_nobody_waiting";
    let Some(moto) = Moto::start(test) else { return };
    let place = Place::adopted(&moto, &[("a", "1")]);
    place.set("auto", &[]);
    place.turn("a", "2");
    let begun = Instant::now();
    let behind = || place.call(&["--json", "status"]).ok().json()["mirror"]["behind"].clone();
    while behind() != 0 {
        assert!(begun.elapsed() < Duration::from_secs(60), "nothing was pushed");
        std::thread::sleep(Duration::from_millis(100));
    }
    drop(moto);
    let begun = Instant::now();
    place.turn("a", "3");
    assert!(begun.elapsed() < Duration::from_secs(20), "nobody waits for the bucket");
}

#[test]
fn push_that_fails_says_why_and_the_queue_stays() {
    let Some(moto) = Moto::start("push_that_fails_says_why_and_the_queue_stays") else { return };
    let place = Place::adopted(&moto, &[("a", "1")]);
    place.set("fails", &["--manual"]);
    place.call(&["push"]).ok();
    place.cli.write("a", "2");
    let denied = {
        let mut command = place.command(&["--json", "push"]);
        command.env_remove("AWS_ACCESS_KEY_ID").env_remove("AWS_SECRET_ACCESS_KEY");
        done(command.output().unwrap())
    };
    assert_eq!(denied.status, 1, "{denied:?}");
    assert!(denied.stderr.contains("\"code\":\"remote_credentials\""), "{}", denied.stderr);
    let status = place.call(&["--json", "status"]).ok().json();
    assert_eq!(status["mirror"]["failures"], 1);
    assert!(status["mirror"]["behind"].as_u64().unwrap() > 0);
    assert!(status["mirror"]["next_try"].is_string());
    place.call(&["push"]).ok();
    let status = place.call(&["--json", "status"]).ok().json();
    assert_eq!(
        (&status["mirror"]["failures"], &status["mirror"]["behind"]),
        (&0.into(), &0.into())
    );
}

#[test]
fn upgrade_check_asks_the_bucket_which_version_it_is() {
    let test = "upgrade_check_asks_the_bucket_which_version_it_is";
    let Some(moto) = Moto::start(test) else { return };
    let place = Place::adopted(&moto, &[("a", "1")]);
    place.call(&["upgrade-check", "--bucket"]).exits(2);
    place.set("check", &["--manual"]);
    place.call(&["push"]).ok();
    let report = place.call(&["--json", "upgrade-check", "--bucket"]).ok().json();
    assert_eq!(report["bucket"]["found"], serde_json::json!([1]), "{report}");
    assert_eq!(report["verdict"], "current");
    assert!(place.call(&["--json", "upgrade-check"]).ok().json().get("bucket").is_none());
}

#[test]
fn what_is_set_wrong_is_refused_with_words() {
    let Some(moto) = Moto::start("what_is_set_wrong_is_refused_with_words") else { return };
    let place = Place::adopted(&moto, &[("a", "1")]);
    assert_eq!(place.call(&["push"]).status, 2, "no bucket is set");
    assert_eq!(place.call(&["bucket", "set", "s3://bucket/x"]).status, 2, "neither key nor plain");
    place.set("right", &["--manual"]);
    place.call(&["push"]).ok();
    let other = Place::fresh(&moto);
    let wrong = other.clone("right", &{
        fs::write(other.key(), format!("{}\n", "ab".repeat(32))).unwrap();
        other.key()
    });
    assert!(wrong.0.stderr.contains("key"), "{:?}", wrong.0);
    assert_eq!(wrong.0.status, 1);
    let (words, into) = other.clone_words("right", &place.key());
    fs::create_dir_all(&into).unwrap();
    fs::write(into.join("mine"), "a person's").unwrap();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let refused = other.call(&words);
    assert_eq!(refused.status, 1, "{refused:?}");
    assert_eq!(fs::read_to_string(into.join("mine")).unwrap(), "a person's");
    assert_eq!(fs::read_dir(&into).unwrap().count(), 1);
}

#[test]
fn content_leaves_and_comes_back_and_the_key_is_exchanged() {
    let test = "content_leaves_and_comes_back_and_the_key_is_exchanged";
    let Some(moto) = Moto::start(test) else { return };
    let place = Place::adopted(&moto, &[("a", &text(50))]);
    for number in 0..100 {
        place.cli.write(&format!("many/{number}"), &text(10 + number));
    }
    place.call(&["settle"]).ok();
    fs::remove_dir_all(place.cli.root().join("many")).unwrap();
    place.turn("a", "short");
    place.set("evict", &["--manual"]);
    place.call(&["push"]).ok();
    let mut dies = place.command(&["bucket", "evict"]);
    let killed = dies.env("CHRONICLE_FAILPOINT", "evict_before_sweep").status().unwrap();
    assert_eq!(killed.signal(), Some(9));
    assert_eq!(place.call(&["--json", "verify", "--deep"]).ok().json()["objects_away"], 0);
    let report = place.call(&["--json", "bucket", "evict"]).ok().json();
    assert!(report["objects_gone"].as_u64().unwrap() > 90, "{report}");
    let verified = place.call(&["--json", "verify"]).ok().json();
    assert!(verified["objects_away"].as_u64().unwrap() > 90, "{verified}");
    // A model gets what is away too.
    let mut agent = Agent::of(place.command(&["mcp"]));
    let asked = serde_json::json!({ "from": "seq:3", "paths": ["many/9"], "patch": true });
    let diff = agent.call("diff", asked);
    assert!(diff.to_string().contains("-line 18 of 19"), "{diff:#}");
    drop(agent);
    let new_key = place.cli.home().with_file_name("new.key").display().to_string();
    place.call(&["bucket", "rekey", &new_key]).ok();
    place.call(&["push"]).ok();
    assert_eq!(place.call(&["cat", "many/7", "--at", "seq:3"]).ok().stdout, text(17));
    place.call(&["pull"]).ok();
    assert_eq!(place.call(&["--json", "verify", "--deep"]).ok().json()["objects_away"], 0);
    let gc = place.call(&["--json", "bucket", "gc"]).ok().json();
    assert!(gc["objects_needed"].as_u64().unwrap() > 90, "{gc}");
    place.call(&["bucket", "forget"]).ok();
    assert_eq!(place.call(&["bucket", "show"]).status, 2);
}

/// A home that is nearly full keeps what stands there and lets go what the bucket has.
#[test]
fn push_makes_room_where_the_budget_is_nearly_used_up() {
    let Some(moto) = Moto::start("push_makes_room_where_the_budget_is_nearly_used_up") else {
        return;
    };
    let place = Place::adopted(&moto, &[("stays", &text(20))]);
    for number in 0..30 {
        let noise = noise(number);
        fs::write(place.cli.root().join(format!("noise-{number}")), noise).unwrap();
    }
    place.call(&["settle"]).ok();
    (0..30).for_each(|n| fs::remove_file(place.cli.root().join(format!("noise-{n}"))).unwrap());
    place.turn("stays", "as it is now");
    let taken = || chronicle_core::Home::at(&place.cli.home()).disk_usage();
    let before = taken();
    fs::write(
        place.cli.home().join("config.toml"),
        format!("budget = \"{}\"\n", before * 100 / 94),
    )
    .unwrap();
    place.set("room", &["--manual"]);
    place.call(&["push"]).ok();
    assert!(taken() < before * 95 / 100, "{before} bytes before, {} after", taken());
    let verified = place.call(&["--json", "verify", "--deep"]).ok().json();
    assert!(verified["objects_away"].as_u64().unwrap() > 0, "{verified}");
    place.call(&["undo", "turn:1", "--yes"]).ok();
    assert_eq!(place.cli.read("stays"), Some(text(20)));
}

/// 100 KiB that do not compress.
fn noise(seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state ^ (state >> 29)).to_le_bytes()
    };
    (0..100 << 7).flat_map(|_| next()).collect()
}

/// Two homes of a machine share copies; an unsafe directory is refused, and forgetting reaches the pool.
#[test]
fn homes_share_a_pool_and_what_is_forgotten_leaves_it() {
    let test = "homes_share_a_pool_and_what_is_forgotten_leaves_it";
    let Some(moto) = Moto::start(test) else { return };
    let place = Place::adopted(&moto, &[("kept", &text(60))]);
    // So many that they are kept in a pack, which can be taken away.
    for number in 0..100 {
        place.cli.write(&format!("many/{number}"), &text(100 + number));
    }
    place.call(&["settle"]).ok();
    fs::remove_dir_all(place.cli.root().join("many")).unwrap();
    place.turn("notes", "short");
    let shared = tempfile::tempdir().unwrap();
    let pool = shared.path().join("pool");
    let at = pool.display().to_string();
    place.set("pool", &["--manual", "--pool", &at]);
    assert_eq!(place.call(&["--json", "bucket", "show"]).ok().json()["pool"], at);
    place.call(&["push"]).ok();
    place.call(&["bucket", "evict"]).ok();
    assert_eq!(place.call(&["cat", "many/7", "--at", "seq:3"]).ok().stdout, text(107));
    let copy = pool.join(chronicle_core::ObjectId::of(text(107).as_bytes()).hex());
    assert_eq!(fs::read_to_string(&copy).unwrap(), text(107));

    let other = Place::fresh(&moto);
    let (mut words, into) = other.clone_words("pool", &place.key());
    words.extend(["--pool".to_owned(), at.clone()]);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    fs::write(&copy, "what another made of it").unwrap();
    other.call(&words).ok();
    assert_eq!(fs::read_to_string(into.join("kept")).unwrap(), text(60));
    other.call(&["-C", &into.display().to_string(), "verify", "--deep"]).ok();
    assert_eq!(fs::read_to_string(&copy).unwrap(), text(107), "the damaged copy is replaced");
    assert!(pool.join(chronicle_core::ObjectId::of(text(60).as_bytes()).hex()).exists());

    place.call(&["forget", "many/7", "--yes"]).ok();
    assert!(!copy.exists());

    // A copy that cannot be taken away is told of, and goes as soon as it can.
    assert_eq!(place.call(&["cat", "many/8", "--at", "seq:3"]).ok().stdout, text(108));
    let copy = pool.join(chronicle_core::ObjectId::of(text(108).as_bytes()).hex());
    let open_to = |mode| {
        fs::set_permissions(&pool, std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
    };
    open_to(0o777);
    let left = place.call(&["--json", "forget", "many/8", "--yes"]);
    assert!(left.status == 1 && left.stderr.contains("unsafe_pool"), "{left:?}");
    place.call(&["gc"]).ok();
    assert!(copy.exists());
    open_to(0o700);
    place.call(&["gc"]).ok();
    assert!(!copy.exists());
    place.call(&["verify", "--deep"]).ok();
    open_to(0o777);
    let url = ["bucket", "set", "s3://bucket/pool", "--plain", "--endpoint", &place.endpoint];
    let refused = place.call(&[&["--json"], &url[..], &["--pool", &at]].concat());
    assert!(refused.stderr.contains("unsafe_pool"), "{refused:?}");
    let refused = place.call(&[&url[..], &["--pool", "inside"]].concat());
    assert_eq!(refused.status, 2, "in a workspace it would become history: {refused:?}");
    assert_eq!(place.call(&["cat", "kept"]).ok().stdout, text(60), "reads go on without it");
}
