//! A real PostgreSQL server, under a user of its own, in a directory of its own.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::scene::{DECLARED, Scene};

const PROGRAMS: &str = "/usr/lib/postgresql/15/bin";
const USER: &str = "chronicle-test";

struct Cluster {
    data: PathBuf,
    socket: PathBuf,
}

fn as_user(program: &str) -> Command {
    let mut command = Command::new("setpriv");
    command.args([&format!("--reuid={USER}"), &format!("--regid={USER}"), "--clear-groups"]);
    command.arg(Path::new(PROGRAMS).join(program)).current_dir("/");
    command
}

fn run(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

impl Cluster {
    /// Starts one below a directory; says why not where it cannot be had.
    fn start(holder: &Path) -> Option<Self> {
        let user =
            Command::new("id").arg("-u").arg(USER).output().is_ok_and(|it| it.status.success());
        if !rustix::process::geteuid().is_root() || !user || !Path::new(PROGRAMS).exists() {
            chronicle_testing::shared::skip(
                "postgres",
                "needs root, PostgreSQL 15 and a user for it",
            );
            return None;
        }
        let place = holder.join("cluster");
        std::fs::create_dir(&place).unwrap();
        run(Command::new("chown").arg(USER).arg(&place));
        run(Command::new("chmod").arg("755").arg(holder));
        let cluster = Self { data: place.join("data"), socket: place };
        run(as_user("initdb").args(["-A", "trust", "--no-sync", "-k", "-D"]).arg(&cluster.data));
        let options = format!("-k {} -c listen_addresses=", cluster.socket.display());
        let mut start = as_user("pg_ctl");
        start.args(["start", "-w", "-l", "/dev/null", "-o", &options, "-D"]).arg(&cluster.data);
        assert!(start.stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap().success());
        Some(cluster)
    }

    fn ask(&self, question: &str) -> String {
        run(as_user("psql")
            .args(["-XqAt", "-d", "postgres", "-c", question, "-h"])
            .arg(&self.socket))
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let mut stop = as_user("pg_ctl");
        let _ = stop.args(["stop", "-m", "immediate", "-D"]).arg(&self.data).output();
    }
}

#[test]
fn a_running_cluster_comes_back_with_its_code() {
    let holder = tempfile::tempdir().unwrap();
    let Some(cluster) = Cluster::start(holder.path()) else { return };
    let part = format!("[[checkpoint.part]]\nname = \"db\"\npostgres = {:?}\n", cluster.data);
    let scene = Scene::new(&[DECLARED, &part].concat());
    cluster.ask("CREATE TABLE alembic_version (version_num text); INSERT INTO alembic_version VALUES ('one')");
    cluster.ask("CREATE TABLE rows AS SELECT generate_series(1, 50000) AS number");
    // A writer that never stops: what it committed before the boundary is there, what came after is not.
    let mut writer = as_user("psql")
        .args(["-Xq", "-d", "postgres", "-h"])
        .arg(&cluster.socket)
        .args(["-c", "CREATE TABLE ticks (at int)", "-c"])
        .arg("DO $$ BEGIN FOR i IN 1..100000 LOOP INSERT INTO ticks VALUES (i); COMMIT; END LOOP; END $$")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    while cluster.ask("SELECT count(*) FROM pg_class WHERE relname = 'ticks'") != "1" {}
    let new = scene.state();
    let before: u64 = cluster.ask("SELECT count(*) FROM ticks").parse().unwrap();
    let made = scene.create().unwrap();
    let after: u64 = cluster.ask("SELECT count(*) FROM ticks").parse().unwrap();
    let locked = made.lock.part("db").unwrap();
    assert_eq!(locked.schema.as_deref(), Some("postgres: alembic one"));
    let _ = writer.kill();
    let _ = writer.wait();
    cluster.ask("DROP TABLE rows; UPDATE alembic_version SET version_num = 'two'");
    scene.wreck();
    let restored = scene.restore(&made.record.id.hex()).unwrap();
    assert_eq!(scene.state(), new);
    assert_eq!(cluster.ask("SELECT count(*) FROM rows"), "50000");
    assert_eq!(cluster.ask("SELECT version_num FROM alembic_version"), "one");
    let kept: u64 = cluster.ask("SELECT count(*) FROM ticks").parse().unwrap();
    assert!((before..=after).contains(&kept), "{before} <= {kept} <= {after}");
    assert_eq!(cluster.ask("SELECT count(*) = max(at) FROM ticks"), "t", "commits in order");
    run(as_user("pg_amcheck")
        .args(["-d", "postgres", "--install-missing", "-h"])
        .arg(&cluster.socket));
    // And the present, which was copied while the server stood still.
    assert!(restored.asides.is_empty(), "{:?}", restored.asides);
    scene.restore(&restored.present.id.hex()).unwrap();
    assert_eq!(cluster.ask("SELECT version_num FROM alembic_version"), "two");
}

/// A server that stands still inside the freeze held it for ever. It is given up at the limit, and goes on.
#[test]
fn a_server_that_does_not_answer_is_not_waited_for_longer_than_the_limit() {
    let holder = tempfile::tempdir().unwrap();
    let Some(cluster) = Cluster::start(holder.path()) else { return };
    let pid = std::fs::read_to_string(cluster.data.join("postmaster.pid")).unwrap();
    let pid = pid.lines().next().unwrap();
    let part = format!(
        "[[checkpoint.part]]\nname = \"db\"\npostgres = {:?}\n[[checkpoint.command]]\n\
         freeze = [\"pkill\", \"-STOP\", \"-P\", \"{pid}\"]\nthaw = [\"pkill\", \"-CONT\", \"-P\", \"{pid}\"]\n",
        cluster.data
    );
    let scene = Scene::new(&[DECLARED, &part].concat());
    let limit = Some(std::time::Duration::from_millis(1500));
    let request = chronicle_checkpoint::CreateRequest { limit, ..Default::default() };
    let begun = std::time::Instant::now();
    let failed = chronicle_checkpoint::create(&mut scene.open(), &request).unwrap_err();
    assert_eq!(failed.code(), "freeze_limit", "{failed}");
    assert!(begun.elapsed() < std::time::Duration::from_secs(60));
    assert!(scene.open().checkpoints().unwrap().is_empty());
    assert_eq!(cluster.ask("SELECT 1"), "1");
    assert_eq!(cluster.ask("SELECT count(*) FROM pg_replication_slots"), "0");
}

/// A server in a container has another number there than here. Its files were copied as if it stood still.
#[test]
fn a_cluster_whose_server_runs_in_a_container_is_refused() {
    let holder = tempfile::tempdir().unwrap();
    let Some(cluster) = Cluster::start(holder.path()) else { return };
    run(as_user("pg_ctl").args(["stop", "-m", "fast", "-w", "-D"]).arg(&cluster.data));
    let part = format!("[[checkpoint.part]]\nname = \"db\"\npostgres = {:?}\n", cluster.data);
    let scene = Scene::new(&[DECLARED, &part].concat());
    let made = scene.create().unwrap();
    let mut inside = Command::new("unshare");
    inside.args(["--pid", "--fork", "--kill-child", "setpriv"]);
    inside.args([&format!("--reuid={USER}"), &format!("--regid={USER}"), "--clear-groups"]);
    inside.arg(Path::new(PROGRAMS).join("postgres")).args(["-c", "listen_addresses=", "-k"]);
    inside.arg(&cluster.socket).arg("-D").arg(&cluster.data).current_dir("/");
    let mut inside = inside.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let noted = || std::fs::read_to_string(cluster.data.join("postmaster.pid")).unwrap_or_default();
    while !noted().contains("ready") {}
    assert_eq!(scene.create().err().map(|it| it.code()), Some("server_elsewhere"));
    let restored = scene.restore(&made.record.id.hex());
    assert_eq!(restored.err().map(|it| it.code()), Some("server_elsewhere"));
    assert_eq!(cluster.ask("SELECT 1"), "1", "it still runs");
    inside.kill().unwrap();
    inside.wait().unwrap();
}
