//! What must hold of the store that the crowd left behind.

use std::collections::{HashMap, HashSet};
use std::fs::{self, File};
use std::path::PathBuf;

use chronicle_core::{ObjectId, WorkspacePath};
use chronicle_testing::dice::Dice;
use chronicle_testing::tree::{assert_same, describe};
use rusqlite::Connection;
use rustix::fs::{FlockOperation, flock};

use super::roles::{Acknowledged, Place, Role};
use super::{SECRET, WORKERS};
use crate::support::{Cli, Done, done, listing};

const DAY_NS: i64 = 86_400_000_000_000;

/// A store that many worked on, with nobody at work any more.
pub(super) struct Left {
    pub(super) cli: Cli,
    pub(super) place: Place,
}

impl Left {
    /// A workspace on which nobody has worked yet.
    pub(super) fn new(seed: u64) -> Self {
        let cli = Cli::new();
        (0..4).for_each(|number| cli.write(&format!("shared/{number}"), "first\n"));
        let place = Place::of(&cli, seed);
        let left = Self { cli, place };
        left.call(&["init"]).ok();
        left
    }

    fn call(&self, words: &[&str]) -> Done {
        done(self.cli.command(words).env("CHRONICLE_KEY", SECRET).output().unwrap())
    }

    /// Nothing that was acknowledged is lost, history verifies, and nothing is left lying about.
    pub(super) fn is_sound(&self) {
        self.call(&["settle"]).ok();
        self.call(&["gc"]).ok();
        self.call(&["verify", "--deep"]).ok();
        let kept = self.kept();
        assert!(!kept.is_empty() && kept.len() < self.all().len(), "nothing was pruned");
        self.is_listed(&kept);
        self.is_readable(&kept);
        self.is_tidy();
    }

    fn all(&self) -> Vec<Acknowledged> {
        let roles = (0..WORKERS).map(Role::Worker);
        roles.flat_map(|role| self.place.acknowledged(role)).collect()
    }

    /// What was acknowledged and not pruned. Each record is whole, or nothing but its hash is left:
    /// then `verify` has shown that a prune names it, and it must have been old enough for that.
    fn kept(&self) -> Vec<Acknowledged> {
        let leaves = self.leaves();
        let all = self.all();
        let newest = all.iter().map(|one| one.time).max().unwrap();
        let mut kept = Vec::new();
        for one in all {
            let leaf = leaves.get(&one.seq).unwrap_or_else(|| panic!("lost: {one:?}"));
            if leaf.is_empty() {
                assert!(one.time < newest - DAY_NS, "pruned too early: {one:?}");
                continue;
            }
            let id = one.id.replace('-', "");
            let says = chronicle_core::to_hex(leaf);
            assert!(says.contains(&id), "another record took the place of {one:?}");
            kept.push(one);
        }
        kept
    }

    fn leaves(&self) -> HashMap<u64, Vec<u8>> {
        let workspaces = self.cli.home().join("workspaces");
        let directory = fs::read_dir(workspaces).unwrap().next().unwrap().unwrap().path();
        let catalog = Connection::open(directory.join("catalog.db")).unwrap();
        let mut statement = catalog.prepare("SELECT seq, leaf FROM record").unwrap();
        let rows = statement.query_map([], |row| {
            Ok((row.get::<_, i64>(0)?.cast_unsigned(), row.get::<_, Vec<u8>>(1)?))
        });
        rows.unwrap().map(|row| row.unwrap()).collect()
    }

    fn is_listed(&self, kept: &[Acknowledged]) {
        let log = self.call(&["log", "--json"]).ok().json_lines();
        let listed: HashSet<_> = log.iter().map(|one| one["id"].as_str().unwrap()).collect();
        for one in kept {
            assert!(listed.contains(&*one.id), "not in the log: {one:?}");
        }
    }

    /// Each path can be had as it was before its action.
    fn is_readable(&self, kept: &[Acknowledged]) {
        let mut workspace = self.place.open().unwrap();
        for one in kept {
            let path = WorkspacePath::new(&*one.path).unwrap();
            let mut bytes = Vec::new();
            // By its place: who looks for an id reads all of them.
            let read = workspace.cat(&path, Some(&format!("before:seq:{}", one.seq)), &mut bytes);
            match &one.before {
                Some(before) => {
                    read.unwrap_or_else(|error| panic!("{error}: {one:?}"));
                    assert_eq!(ObjectId::of(&bytes).hex(), *before, "{one:?}");
                }
                None => assert_eq!(read.unwrap_err().code(), "no_content", "{one:?}"),
            }
        }
    }

    fn is_tidy(&self) {
        let store = self.cli.home().join("store");
        assert_eq!(listing(&store.join("tmp")), Vec::<PathBuf>::new());
        let named = |path: &PathBuf| path.to_string_lossy().contains("chronicle-staging");
        let mut left = listing(&self.cli.root());
        left.retain(named);
        assert_eq!(left, Vec::<PathBuf>::new());
        for path in listing(&self.cli.home()) {
            let name = path.file_name().unwrap().to_str().unwrap();
            assert!(name != "staging" && !name.ends_with(".tmp"), "left: {}", path.display());
            if name == "lock" {
                let file = File::open(&path).unwrap();
                flock(&file, FlockOperation::NonBlockingLockExclusive).unwrap();
            }
        }
    }

    /// Moments that were kept are reached exactly, and so is the present again.
    pub(super) fn goes_back(&self) {
        self.call(&["settle"]).ok();
        let present = describe(&self.cli.root());
        let kept = self.kept();
        let mut dice = Dice::new(1);
        for _ in 0..4 {
            let one = dice.pick(&kept);
            let target = format!("before:{}", one.id);
            self.call(&["rewind", &target, "--exact", "--yes"]).ok();
            let found = fs::read(self.cli.root().join(&one.path)).ok();
            assert_eq!(found.map(|bytes| ObjectId::of(&bytes).hex()), one.before, "{one:?}");
            self.call(&["redo", "--yes"]).ok();
            assert_same(&present, &describe(&self.cli.root()), "redone");
        }
        let here = self.call(&["status", "--json"]).ok().json()["head_seq"].to_string();
        fs::remove_dir_all(self.cli.root().join("work")).unwrap();
        self.call(&["rewind", &format!("seq:{here}"), "--exact", "--yes"]).ok();
        assert_same(&present, &describe(&self.cli.root()), "destroyed and taken back");
        self.call(&["verify", "--deep"]).ok();
    }

    /// Retention by the rules: what a dry run says is what happens, and the rest stays readable.
    pub(super) fn is_pruned(&self) {
        let dry = self.call(&["--json", "prune", "--dry-run"]).ok().json();
        assert!(dry["dropped_records"].as_u64().unwrap() > 0, "{dry}");
        let real = self.call(&["--json", "prune"]).ok().json();
        for field in ["dropped_records", "merged_records", "merged_changes", "oldest_kept_seq"] {
            assert_eq!(dry[field], real[field], "{field}");
        }
        self.call(&["gc"]).ok();
        self.call(&["verify", "--deep"]).ok();
        let kept = self.kept();
        assert!(!kept.is_empty());
        self.is_listed(&kept);
        self.is_readable(&kept);
        self.is_tidy();
    }

    /// The doctor finds nothing; then somebody damages indexes, and it puts them right.
    pub(super) fn is_healed(&self) {
        let said = self.call(&["doctor"]).ok();
        assert!(said.stdout.starts_with("Everything is in order: "), "{said:?}");
        let home = self.cli.home();
        let workspace = &listing(&home.join("workspaces"))[0];
        let catalog = Connection::open(workspace.join("catalog.db")).unwrap();
        catalog.execute_batch("DELETE FROM touched; DELETE FROM merged;").unwrap();
        drop(catalog);
        let packs = listing(&home.join("store/packs"));
        let index = packs.iter().find(|path| path.extension().is_some_and(|end| end == "idx"));
        index.into_iter().for_each(|index| fs::remove_file(index).unwrap());
        let report = self.call(&["--json", "doctor"]).ok().json();
        let found = report["findings"].as_array().unwrap().len();
        assert_eq!(found, 1 + usize::from(index.is_some()), "{report}");
        self.call(&["verify", "--deep"]).ok();
        let kept = self.kept();
        self.is_listed(&kept);
        self.is_readable(&kept);
    }
}
