//! The protocol and the gate, as people meet them.

use std::fs;
use std::time::Duration;

use chronicle_checkpoint::{CreateRequest, Error, RestoreRequest, Which};
use chronicle_core::ContentStorage;
use rusqlite::Connection;

use crate::scene::{DECLARED, Scene, git};

#[test]
fn code_and_data_come_back_together_and_the_restore_can_be_taken_back() {
    let scene = Scene::new(DECLARED);
    let new = scene.state();
    let made = scene.create().unwrap();
    let schema = made.lock.part("app.db").unwrap().schema.clone();
    assert_eq!(schema.as_deref(), Some("alembic one"));
    scene.wreck();
    let old = scene.state();
    let restored = scene.restore(&made.record.id.hex()).unwrap();
    assert_eq!(scene.state(), new);
    assert!(restored.asides.is_empty(), "{:?}", restored.asides);
    scene.restore(&restored.present.id.hex()).unwrap();
    assert_eq!(scene.state(), old);
}

#[test]
fn what_is_gone_altogether_comes_back() {
    let scene = Scene::new(DECLARED);
    let new = scene.state();
    scene.create().unwrap();
    let root = scene.root();
    fs::remove_dir_all(root.join("uploads")).unwrap();
    fs::write(root.join("app.db"), "no database at all").unwrap();
    scene.restore("latest").unwrap();
    assert_eq!(scene.state(), new);
}

#[test]
fn commits_that_git_removed_come_back_from_the_bundle() {
    let scene = Scene::new(DECLARED);
    let new = scene.state();
    scene.create().unwrap();
    let root = scene.root();
    git(&root, &["checkout", "-q", "--orphan", "other"]);
    git(&root, &["commit", "-q", "-m", "nothing before"]);
    git(&root, &["branch", "-q", "-D", "main"]);
    git(&root, &["reflog", "expire", "--expire=now", "--all"]);
    git(&root, &["gc", "-q", "--prune=now"]);
    scene.restore("latest").unwrap();
    assert_eq!(scene.state(), new);
}

#[test]
fn two_at_once_are_refused() {
    let scene = Scene::new(DECLARED);
    let workspace = scene.open();
    let guard = workspace.checkpoint_guard().unwrap();
    assert!(guard.is_some());
    assert!(matches!(scene.create(), Err(Error::Busy)));
}

#[test]
fn a_freeze_that_fails_or_takes_too_long_thaws_and_leaves_no_checkpoint() {
    let slow = "
[[checkpoint.command]]
freeze = ['touch', 'frozen.mark']
thaw = ['rm', 'frozen.mark']
[[checkpoint.command]]
freeze = ['sleep', '20']
";
    let scene = Scene::new(&[DECLARED, slow].concat());
    let request =
        CreateRequest { limit: Some(Duration::from_millis(300)), ..CreateRequest::default() };
    let begun = std::time::Instant::now();
    chronicle_checkpoint::create(&mut scene.open(), &request).unwrap_err();
    assert!(begun.elapsed() < Duration::from_secs(10));
    assert!(!scene.root().join("frozen.mark").exists());
    assert!(scene.open().checkpoints().unwrap().is_empty());
}

#[test]
fn a_writer_who_does_not_stop_is_waited_for_and_no_longer_than_the_limit() {
    let scene = Scene::new(DECLARED);
    let writer = Connection::open(scene.root().join("app.db")).unwrap();
    writer.execute_batch("BEGIN IMMEDIATE; INSERT INTO rows VALUES (4);").unwrap();
    let request =
        CreateRequest { limit: Some(Duration::from_millis(400)), ..CreateRequest::default() };
    chronicle_checkpoint::create(&mut scene.open(), &request).unwrap_err();
    assert!(scene.open().checkpoints().unwrap().is_empty());
    writer.execute_batch("COMMIT").unwrap();
    scene.create().unwrap();
    scene.wreck();
    drop(writer);
    scene.restore("latest").unwrap();
    assert!(scene.rows().contains("1,2,3,4"), "{}", scene.rows());
}

#[test]
fn a_database_that_somebody_has_open_is_not_replaced_under_him() {
    let scene = Scene::new(DECLARED);
    scene.create().unwrap();
    scene.wreck();
    let old = scene.state();
    let script = "import sqlite3,sys; c=sqlite3.connect(sys.argv[1]); c.execute('select * from rows'); \
                  print('open', flush=True); sys.stdin.read()";
    let mut user = std::process::Command::new("python3")
        .args(["-c", script])
        .arg(scene.root().join("app.db"))
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = [0; 5];
    std::io::Read::read_exact(user.stdout.as_mut().unwrap(), &mut said).unwrap();
    assert_eq!(scene.restore("latest").unwrap_err().code(), "in_use");
    drop(user.stdin.take());
    user.wait().unwrap();
    assert_eq!(scene.state(), old);
}

#[test]
fn half_a_checkpoint_is_refused_unless_forced_with_words() {
    let scene = Scene::new(DECLARED);
    let made = scene.create().unwrap();
    scene.wreck();
    let old = scene.state();
    let mut workspace = scene.open();
    let mut request = RestoreRequest { which: Which::Only(vec!["app.db".into()]), anyway: None };
    let refused =
        chronicle_checkpoint::restore(&mut workspace, &made.record, &request).unwrap_err();
    assert_eq!(refused.code(), "partial");
    let answers = chronicle_checkpoint::answers(&mut workspace, &made.record, &request).unwrap();
    let codes: Vec<_> = answers.iter().flat_map(|it| &it.no).map(|it| it.code).collect();
    assert_eq!(codes, ["code_newer", "code_newer", "data_stays"]);
    assert_eq!(scene.state(), old);
    request.anyway = Some("the code is meant to stay".into());
    chronicle_checkpoint::restore(&mut workspace, &made.record, &request).unwrap();
    assert!(scene.rows().contains("1,2,3"));
    assert_eq!(fs::read_to_string(scene.root().join("code.py")).unwrap(), "two\n");
}

#[test]
fn damage_is_refused_before_the_first_change() {
    let scene = Scene::new(DECLARED);
    let made = scene.create().unwrap();
    scene.wreck();
    let old = scene.state();
    let workspace = scene.open();
    let id = made.lock.part("app.db").unwrap().captured.digest;
    workspace.content_store().unwrap().delete(&id).unwrap();
    let refused = scene.restore(&made.record.id.hex()).unwrap_err();
    assert!(matches!(refused, Error::Gate(_)), "{refused}");
    assert_eq!(refused.code(), "missing_database");
    assert_eq!(scene.state(), old);
}

#[test]
fn a_second_checkpoint_takes_in_only_what_changed_and_garbage_collection_keeps_both() {
    let scene = Scene::new(DECLARED);
    let mut large = vec![0; 6 << 20];
    for (at, byte) in large.iter_mut().enumerate() {
        *byte = u8::try_from(((at * 2_654_435_761_usize) >> 13) & 0xff).unwrap();
    }
    for number in 0..8 {
        large[number] ^= 0xff;
        fs::write(scene.root().join(format!("uploads/large{number}")), &large).unwrap();
    }
    scene.create().unwrap();
    let stored = || scene.open().content_store().unwrap().stored_bytes().unwrap();
    let before = stored();
    fs::write(scene.root().join("uploads/small"), "small").unwrap();
    scene.create().unwrap();
    assert!(stored() - before < 100_000, "{} bytes more", stored() - before);
    scene.home().collect_garbage(&|_, _| ()).unwrap();
    let workspace = scene.open();
    for record in workspace.checkpoints().unwrap() {
        assert!(chronicle_checkpoint::verify(&workspace, &record).unwrap().problems.is_empty());
    }
}

#[test]
fn what_a_workspace_declares_is_not_run_before_a_person_accepts_it() {
    let scene = Scene::new(DECLARED);
    let evil = "[[checkpoint.command]]\nfreeze = ['touch', 'evil.mark']\n";
    fs::write(scene.root().join("chronicle.toml"), [DECLARED, evil].concat()).unwrap();
    let refused = scene.create().unwrap_err();
    assert!(refused.to_string().contains("config accept"), "{refused}");
    let outside = DECLARED.replace("\"uploads\"", "\"/etc\"");
    fs::write(scene.root().join("chronicle.toml"), outside).unwrap();
    assert!(scene.create().unwrap_err().to_string().contains("config accept"));
    assert!(!scene.root().join("evil.mark").exists());
}

/// An agent that cleaned the project removed `chronicle.toml` too. The restore was refused with the advice
/// to accept what the file says now, which is nothing, and then nothing outside could be restored at all.
/// A restore goes by what was accepted.
#[test]
fn a_declaration_that_was_lost_with_the_rest_does_not_stop_a_restore() {
    let scene = Scene::bare(
        &[DECLARED, "[[checkpoint.part]]\nname = 'out'\ndirectory = '../out'\n"].concat(),
    );
    fs::create_dir(scene.at().join("out")).unwrap();
    fs::write(scene.at().join("out/file"), "one").unwrap();
    scene.adopt();
    let new = scene.state();
    scene.create().unwrap();
    scene.wreck();
    fs::remove_file(scene.root().join("chronicle.toml")).unwrap();
    fs::remove_dir_all(scene.at().join("out")).unwrap();
    assert_eq!(scene.create().unwrap_err().code(), "declared");
    scene.restore("latest").unwrap();
    assert_eq!(scene.state(), new);
    assert_eq!(fs::read_to_string(scene.at().join("out/file")).unwrap(), "one");
}

/// What lies behind a link is known by where it lies; a link that leads elsewhere is another place.
#[test]
fn a_part_behind_a_link_is_where_the_link_leads() {
    let scene = Scene::bare(
        &[DECLARED, "[[checkpoint.part]]\nname = 'out'\ndirectory = '../link/data'\n"].concat(),
    );
    for name in ["real", "other"] {
        fs::create_dir_all(scene.at().join(name).join("data")).unwrap();
        fs::write(scene.at().join(name).join("data/file"), name).unwrap();
    }
    let link = scene.at().join("link");
    std::os::unix::fs::symlink("real", &link).unwrap();
    scene.adopt();
    scene.create().unwrap();
    fs::remove_dir_all(scene.at().join("real/data")).unwrap();
    scene.restore("latest").unwrap();
    assert_eq!(fs::read_to_string(link.join("data/file")).unwrap(), "real");
    fs::remove_file(&link).unwrap();
    std::os::unix::fs::symlink("other", &link).unwrap();
    assert_eq!(scene.restore("latest").unwrap_err().code(), "moved_part");
    assert_eq!(fs::read_to_string(link.join("data/file")).unwrap(), "other");
}

/// `directory = "."` was taken: a restore would have exchanged the workspace itself, and with a home inside it
/// everything that it was made from.
#[test]
fn what_cannot_be_a_part_is_refused_with_words() {
    let check = |declared: &str, expected: &str| {
        let scene = Scene::bare(&format!("[[checkpoint.part]]\nname = 'x'\n{declared}\n"));
        std::os::unix::fs::symlink("app.db", scene.root().join("link.db")).unwrap();
        std::os::unix::fs::symlink("uploads", scene.root().join("link")).unwrap();
        scene.adopt();
        let refused = scene.create().unwrap_err();
        assert_eq!(refused.code(), "declared", "{declared}: {refused}");
        assert!(refused.to_string().contains(expected), "{declared}: {refused}");
    };
    check("directory = '.'", "holds the workspace");
    check("directory = '..'", "holds the workspace");
    check("directory = '../home'", "holds Chronicle's home");
    check("directory = 'link'", "is a symbolic link: declare what it leads to");
    check("sqlite = 'link.db'", "is a symbolic link: declare what it leads to");
    check(
        "directory = 'uploads'\n[[checkpoint.part]]\nsqlite = 'uploads/a.db'",
        "lies inside part",
    );
    check("directory = 'uploads'\ngit = '.'", "not exactly one of");
    check("directory = 'uploads'\n[[checkpoint.part]]\nname = 'x'\nsqlite = 'app.db'", "Two parts");
    check("git = '../elsewhere'", "lies outside the workspace");
}

/// Everything below the project is gone, its repositories too: names that are no text, a detached HEAD, what
/// was staged and stashed, and the commits come back.
#[test]
fn a_project_of_which_nothing_is_left_comes_back() {
    use std::os::unix::ffi::OsStrExt;
    let scene = Scene::new(DECLARED);
    let root = scene.root();
    let odd = root.join(std::ffi::OsStr::from_bytes(b"na\xffme with spaces"));
    fs::write(&odd, "odd").unwrap();
    git(&root, &["checkout", "-q", "--detach"]);
    fs::write(root.join("lib/code.py"), "stashed").unwrap();
    git(&root.join("lib"), &["stash", "-q"]);
    fs::write(root.join("staged"), "staged").unwrap();
    git(&root, &["add", "staged"]);
    let all = || {
        let lists = [&["stash", "list"][..], &["log", "--oneline", "--all"], &["branch"]];
        let said: Vec<_> = lists
            .iter()
            .flat_map(|words| [git(&root, words), git(&root.join("lib"), words)])
            .collect();
        (scene.state(), said, fs::read_to_string(&odd).ok())
    };
    let new = all();
    scene.create().unwrap();
    for item in fs::read_dir(&root).unwrap().flatten() {
        match item.file_type().unwrap().is_dir() {
            true => fs::remove_dir_all(item.path()).unwrap(),
            false => fs::remove_file(item.path()).unwrap(),
        }
    }
    let refused = scene.restore("latest").unwrap_err();
    assert_eq!(refused.code(), "missing_repository");
    fs::create_dir(root.join("lib")).unwrap();
    scene.restore("latest").unwrap();
    assert_eq!(all(), new);
}

/// What a package manager locked, and what a person names, is noted with its hash.
#[test]
fn lock_files_and_artefacts_are_noted_by_their_digests() {
    let scene =
        Scene::new(&DECLARED.replace("[checkpoint]\n", "[checkpoint]\nartefacts = ['app.bin']\n"));
    fs::write(scene.root().join("requirements.txt"), "django==5\n").unwrap();
    fs::write(scene.root().join("app.bin"), "built").unwrap();
    let files = scene.create().unwrap().lock.files;
    let digest = |text: &str| chronicle_core::ObjectId::of(text.as_bytes()).hex();
    assert_eq!(files["requirements.txt"], digest("django==5\n"));
    assert_eq!(files["app.bin"], digest("built"));
}
