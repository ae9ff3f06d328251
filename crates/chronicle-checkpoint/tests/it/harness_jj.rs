//! A real jj repository goes back to a checkpoint: by the log where it lies in the workspace, and by jj's
//! own operations where it does not, also if jj has thrown away what it needs.

use std::path::{Path, PathBuf};
use std::process::Command;

use chronicle_checkpoint::{
    CreateRequest, Part, PartKind, RestoreRequest, create, restore, verify,
};
use chronicle_core::{Home, InitOptions, Workspace};
use chronicle_testing::shared::skip;

use crate::harness_drivers::World;

/// jj on the path, or as `./test long` builds it.
fn program() -> Option<PathBuf> {
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/tools/jj/bin");
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain([top])
        .map(|place| place.join("jj"))
        .find(|file| file.is_file())
}

struct Repository {
    program: PathBuf,
    at: PathBuf,
}

impl Repository {
    fn jj(&self, words: &[&str]) -> String {
        let mut command = Command::new(&self.program);
        let output = output_of(command.arg("--no-pager").args(words).current_dir(&self.at));
        String::from_utf8_lossy(&output).trim().to_owned()
    }

    fn commit(&self) -> String {
        self.jj(&["log", "--no-graph", "-r", "@", "-T", "commit_id"])
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.at.join(name), text).unwrap();
    }
}

fn output_of(command: &mut Command) -> Vec<u8> {
    command.env("JJ_USER", "A").env("JJ_EMAIL", "a@b.c");
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    output.stdout
}

/// A repository below a directory with one file in its working copy.
fn repository(test: &str, at: &Path) -> Option<Repository> {
    let Some(program) = program() else {
        skip(&format!("harness_jj::{test}"), "jj is neither on the path nor built");
        return None;
    };
    std::fs::create_dir_all(at).unwrap();
    let repository = Repository { program, at: at.to_owned() };
    repository.jj(&["git", "init", "--no-colocate"]);
    repository.write("a", "one");
    Some(repository)
}

/// What an agent may do meanwhile.
fn go_on(repository: &Repository, commit: &str) {
    repository.write("a", "two");
    repository.jj(&["new", "-m", "more"]);
    repository.write("b", "three");
    assert_ne!(repository.commit(), commit);
}

#[track_caller]
fn is_back(repository: &Repository, commit: &str) {
    assert_eq!(repository.commit(), commit);
    assert_eq!(std::fs::read_to_string(repository.at.join("a")).unwrap(), "one");
    assert!(!repository.at.join("b").exists());
    repository.jj(&["debug", "reindex"]);
}

#[test]
fn a_repository_in_the_workspace_goes_back_with_it() {
    let scratch = tempfile::tempdir().unwrap();
    let code = scratch.path().join("code");
    let test = "a_repository_in_the_workspace_goes_back_with_it";
    let Some(repository) = repository(test, &code.join("repository")) else { return };
    let declared = format!(
        "[[checkpoint.part]]\nname = \"repository\"\njj = \"repository\"\nprograms = \"{}\"\n",
        repository.program.parent().unwrap().display()
    );
    std::fs::write(code.join("chronicle.toml"), declared).unwrap();
    let home = Home::at(&scratch.path().join("home"));
    let mut workspace = Workspace::init(&home, &code, &InitOptions::default()).unwrap().0;
    workspace.accept_config().unwrap();
    let created = create(&mut workspace, &CreateRequest::default()).unwrap();
    let commit = repository.commit();
    let locked = &created.lock.parts[0].captured;
    assert_eq!((locked.revision.as_ref(), &locked.driver[..]), (Some(&commit), "jj"));
    go_on(&repository, &commit);
    assert_eq!(verify(&workspace, &created.record).unwrap().problems, []);
    restore(&mut workspace, &created.record, &RestoreRequest::default()).unwrap();
    is_back(&repository, &commit);
}

#[test]
fn jj_goes_back_by_its_own_operations_also_to_what_it_threw_away() {
    let scratch = tempfile::tempdir().unwrap();
    let test = "jj_goes_back_by_its_own_operations_also_to_what_it_threw_away";
    let Some(repository) = repository(test, &scratch.path().join("repository")) else { return };
    let mut part = Part::new("repository", PartKind::Jj, &repository.at);
    let programs = repository.program.parent().unwrap().display().to_string();
    part.parameters.insert("programs".to_owned(), programs);
    let world = World::new(&scratch.path().join("home"), vec![part]);
    let made = world.create(None, "c1").unwrap();
    let commit = repository.commit();
    go_on(&repository, &commit);
    let newest = repository.commit();
    world.restore_and_take_back(&made, "b1").unwrap();
    assert_eq!(repository.commit(), newest);
    repository.jj(&["op", "abandon", "..@-"]);
    repository.jj(&["util", "gc", "--expire", "now"]);
    world.restore(&made, "r1").unwrap();
    is_back(&repository, &commit);
}
