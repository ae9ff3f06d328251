//! Databases and repositories in the mount: they are the hardest on a file system, and none of them may notice.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use chronicle_testing::shared::{is_root, skip};

use super::Mount;

/// Runs a script in the mount, with the mount's place and more as its arguments.
#[track_caller]
fn script(mount: &Mount, text: &str, more: &[&Path]) -> String {
    let mut command = Command::new("bash");
    command.args(["-ec", text, "bash"]).arg(mount.place.path()).args(more);
    let said = command.current_dir(mount.place.path()).output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&said.stdout), String::from_utf8_lossy(&said.stderr));
    assert!(said.status.success(), "{out}\n{err}");
    out.into_owned()
}

const SQLITE: &str = r#"
import sqlite3, sys, threading
place = sys.argv[1] + "/data.db"
first = sqlite3.connect(place)
assert first.execute("pragma journal_mode=wal").fetchone() == ("wal",)
first.execute("create table t (a integer primary key, b text)")
first.commit()
def write(who):
    own = sqlite3.connect(place, timeout=60)
    for number in range(60):
        own.execute("insert into t (b) values (?)", (f"{who}-{number} " * 50,))
        own.commit()
writers = [threading.Thread(target=write, args=(who,)) for who in range(4)]
[writer.start() for writer in writers]
[writer.join() for writer in writers]
print(first.execute("select count(*) from t").fetchone()[0], first.execute("pragma integrity_check").fetchone()[0])
"#;

#[test]
fn sqlite_works_in_it_with_its_write_ahead_log() {
    let test = "databases::sqlite_works_in_it_with_its_write_ahead_log";
    let Some(mount) = Mount::new(test, &[("a", "a\n")]) else { return };
    let program = mount.cli.home().with_file_name("work.py");
    fs::write(&program, SQLITE).unwrap();
    let said = script(&mount, r#"python3 "$2" "$1""#, &[&program]);
    assert_eq!(said.trim(), "240 ok");
    mount.status();
    assert!(mount.cli.read("a").is_some());
    mount.cli.call(["verify"]).ok();
}

#[test]
fn git_works_in_it() {
    let Some(mount) = Mount::new("databases::git_works_in_it", &[("a", "a\n")]) else { return };
    let said = script(
        &mount,
        r#"export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_NOSYSTEM=1
           git init -q one; cd one; git config user.name t; git config user.email t@t
           for n in $(seq 200); do mkdir -p d$((n % 9)); echo "line $n" > d$((n % 9))/f$n; done
           git add -A; git commit -qm one; echo more >> d1/f1; git commit -qam two
           cd ..; git clone -q one two; cd two; git checkout -q HEAD~1; git status --short
           git gc -q; git fsck --strict; git -C ../one status --short; git log --oneline | wc -l"#,
        &[],
    );
    assert_eq!(said.trim(), "1", "nothing is changed, and there is one commit below");
    mount.cli.call(["verify"]).ok();
}

const POSTGRES: &str = r#"
as="setpriv --reuid nobody --clear-groups env HOME=/tmp PGHOST=$3" bin=$2 data=$1/pg/data
start() {
  $as $bin/postgres -D "$data" -c listen_addresses= -k "$3" >>"$3/log" 2>&1 & pid=$!
  for _ in $(seq 300); do $as $bin/pg_isready -q && return; sleep 0.1; done
  cat "$3/log" >&2; return 1
}
mkdir "$1/pg"; chown nobody "$1/pg"; cd "$1/pg"
$as $bin/initdb -D "$data" -k -A trust >/dev/null
start "$@"
$as $bin/pgbench -i -q postgres >/dev/null 2>&1
$as $bin/pgbench -n -c 4 -T 3 postgres >/dev/null 2>&1
below=$(pgrep -P $pid); kill -9 $pid; wait $pid || true
for one in $below; do while [ -e /proc/$one/exe ]; do sleep 0.05; done; done
start "$@"
grep -q 'redo done' "$3/log"
$as $bin/pgbench -n -c 4 -T 1 postgres >/dev/null 2>&1
$as $bin/psql -At postgres -c 'select (select sum(abalance) from pgbench_accounts) = (select sum(delta) from pgbench_history)'
kill -INT $pid; wait $pid
$as $bin/pg_checksums -D "$data" | grep -c 'Bad checksums:  0'
"#;

#[test]
fn postgres_recovers_in_it() {
    let test = "databases::postgres_recovers_in_it";
    let programs: Vec<PathBuf> = fs::read_dir("/usr/lib/postgresql")
        .map(|found| found.flatten().map(|entry| entry.path().join("bin")).collect())
        .unwrap_or_default();
    let Some(programs) = programs.first().filter(|_| is_root()) else {
        return skip(&format!("mount::{test}"), "it needs root and PostgreSQL");
    };
    let Some(mount) = Mount::with(test, &[("a", "a\n")], &["--allow-other"]) else { return };
    let sockets = tempfile::tempdir().unwrap();
    let shared = std::os::unix::fs::PermissionsExt::from_mode(0o777);
    fs::set_permissions(sockets.path(), shared).unwrap();
    for place in [mount.place.path(), &mount.cli.root()] {
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        fs::set_permissions(place, open).unwrap();
    }
    let said = script(&mount, POSTGRES, &[programs, sockets.path()]);
    assert_eq!(said.trim(), "t\n1");
    mount.status();
    mount.cli.call(["verify"]).ok();
}
