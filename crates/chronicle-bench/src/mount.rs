//! Everyday work through mounts, each beside the plain directory: `bindfs`, the bare passthrough, and ours, which keeps
//! every version.
//!
//! A further mount is one more line in [`columns`].

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::measure::{Result, chronicle, median, program, run};
use crate::rows::Row;

/// Rounds at most, while there is time: a busy machine must not make this endless.
const ROUNDS: usize = 7;
/// No round is begun that would probably end after this.
const TIME: Duration = Duration::from_secs(255);
/// Whatever is mounted then is killed: a mount that hangs must not make this endless either.
const TIME_MOST: Duration = Duration::from_secs(285);
/// How long until a mount has recorded what was written, half a second after it was closed.
const RECORDED: Duration = Duration::from_secs(2);
const DIRECTORIES: usize = 700;
const FILES: usize = 10;
const EDITS: usize = 1000;
const MIB: usize = 1 << 20;
const LARGE: usize = 256;
const RANDOM: u64 = 20_000;
/// Fewer where each waits for the disk.
const FROM_DISK: u64 = 5_000;

/// One way to reach the files.
struct Column {
    name: &'static str,
    /// None for the directory itself.
    mount: Option<fn(&Path, &Path) -> Result<Command>>,
    /// In how many rounds it is measured at most: the slow one is far from any bound.
    rounds: usize,
}

fn columns() -> Vec<Column> {
    let bindfs: fn(&Path, &Path) -> Result<Command> = |backing, at| {
        let mut command = Command::new("bindfs");
        command.args(["-f", "--no-allow-other"]).arg(backing).arg(at);
        Ok(command)
    };
    let bare: fn(&Path, &Path) -> Result<Command> = |backing, at| {
        let mut command = Command::new(program("bare_mount")?);
        command.arg(backing).arg(at);
        Ok(command)
    };
    vec![
        Column { name: "native", mount: None, rounds: ROUNDS },
        Column { name: "bindfs", mount: Some(bindfs), rounds: 1 },
        Column { name: "bare", mount: Some(bare), rounds: ROUNDS },
        Column { name: "chronicle", mount: Some(ours), rounds: ROUNDS },
    ]
}

/// The mount that keeps versions, with a new home.
fn ours(backing: &Path, at: &Path) -> Result<Command> {
    let home = at.with_file_name("home-mount");
    if home.exists() {
        fs::remove_dir_all(&home)?;
    }
    run(&mut chronicle(&home, backing, &["init", "."])?, &[0])?;
    let at = at.to_str().ok_or("the place has a plain name")?;
    let mut command = chronicle(&home, backing, &["mount", "--foreground", at])?;
    command.stderr(Stdio::null());
    Ok(command)
}

/// One job: its name, and how long it took in a directory, in milliseconds.
type Job = (&'static str, fn(&Path, &Path) -> Result<f64>);

const JOBS: [Job; 17] = [
    ("untar 7,000 files", |at, tar| {
        timed(Command::new("tar").arg("xf").arg(tar).arg("-C").arg(at))
    }),
    ("`git add`", |at, _| {
        git(at, &["init", "-q"])?;
        git(at, &["add", "-A"])
    }),
    ("`git status`", |at, _| git(at, &["status", "--short"])),
    ("`git status` again", |at, _| git(at, &["status", "--short"])),
    ("`find -size`", |at, _| timed(Command::new("find").arg(at).args(["-size", "+100k"]))),
    ("`grep -r`", |at, _| timed(Command::new("grep").args(["-r", "no such words"]).arg(at))),
    ("1,000 edits by write and rename", |at, _| edits(at)),
    ("SQLite, 20,000 rows in 200 transactions", |at, _| sqlite(&at.join("base"))),
    ("`rm -rf`", |at, _| timed(Command::new("rm").arg("-rf").arg(at.join("tree")))),
    ("untar three times at once", three_at_once),
    ("write 256 MiB", |at, _| sequential_write(&at.join("large"))),
    ("read 256 MiB", |at, _| sequential_read(&at.join("large"))),
    ("5,000 random reads of 4 KiB from the disk", |at, _| {
        drop_caches()?;
        random(&at.join("large"), FROM_DISK, Access::Read)
    }),
    ("20,000 random reads of 4 KiB from memory", |at, _| {
        sequential_read(&at.join("large"))?;
        random(&at.join("large"), RANDOM, Access::Read)
    }),
    ("20,000 random writes of 4 KiB, and a sync", |at, _| {
        // Every mount gets the time in which ours records what was written before.
        std::thread::sleep(RECORDED);
        random(&at.join("large"), RANDOM, Access::WriteAndSync)
    }),
    ("20,000 random writes of 4 KiB into memory", |at, _| {
        std::thread::sleep(RECORDED);
        random(&at.join("large"), RANDOM, Access::Write)
    }),
    ("the same in a file that was closed a moment before", |at, _| {
        sequential_write(&at.join("large"))?;
        random(&at.join("large"), RANDOM, Access::Write)
    }),
];

/// From this job on it is about data, which is compared with the plain directory.
const DATA: usize = 10;

/// What was measured: for each column and job the times of all rounds, in milliseconds.
struct Measured {
    columns: Vec<Column>,
    figures: Vec<Vec<Vec<f64>>>,
    rounds: usize,
}

/// Measures in a directory; the table of all columns, and the rows that are bound.
pub(crate) fn table(scratch: &Path) -> Result<(String, Vec<Row>)> {
    let measured = measure(scratch)?;
    Ok((measured.table(), measured.rows()))
}

fn measure(scratch: &Path) -> Result<Measured> {
    let tar = make_tar(scratch)?;
    let columns = columns();
    let mut figures = vec![vec![Vec::new(); JOBS.len()]; columns.len()];
    let (begun, mut rounds, mut last) = (Instant::now(), 0, Duration::ZERO);
    std::thread::spawn(|| {
        std::thread::sleep(TIME_MOST);
        kill_what_is_mounted();
    });
    while rounds < ROUNDS && begun.elapsed() + last < TIME {
        let round_begun = Instant::now();
        let columns = columns.iter().zip(&mut figures).filter(|(column, _)| rounds < column.rounds);
        for (column, figures) in columns {
            round(scratch, column, rounds, &tar, figures)?;
        }
        last = round_begun.elapsed();
        rounds += 1;
    }
    Ok(Measured { columns, figures, rounds })
}

fn round(
    scratch: &Path,
    column: &Column,
    round: usize,
    tar: &Path,
    figures: &mut [Vec<f64>],
) -> Result<()> {
    let backing = scratch.join(format!("{}-{round}", column.name));
    let at = scratch.join("at");
    fs::create_dir_all(&backing)?;
    fs::create_dir_all(&at)?;
    let mounted = column.mount.map(|mount| Mounted::new(mount(&backing, &at)?, &at)).transpose()?;
    let place = if mounted.is_some() { &at } else { &backing };
    for (figure, (_, job)) in figures.iter_mut().zip(JOBS) {
        figure.push(job(place, tar)?);
    }
    drop(mounted);
    fs::remove_dir_all(&backing)?;
    rustix::fs::sync();
    Ok(())
}

impl Measured {
    fn median(&self, column: usize, job: usize) -> f64 {
        median(self.figures[column][job].clone())
    }

    fn table(&self) -> String {
        let mut text = format!("| ms, median of {} |", self.rounds);
        text.extend(self.columns.iter().map(|column| format!(" {} |", column.name)));
        text.push_str("\n|---|");
        text.extend(self.columns.iter().map(|_| "---|"));
        for (job, (name, _)) in JOBS.iter().enumerate() {
            text.push_str(&format!("\n| {name} |"));
            for column in 0..self.columns.len() {
                text.push_str(&format!(" {:.1} |", self.median(column, job)));
            }
        }
        text.push_str("\n\n");
        text
    }

    /// Ours beside bindfs in every row, beside the bare mount for names, and beside the plain directory for data.
    fn rows(&self) -> Vec<Row> {
        let [native, bindfs, bare, ours] = [0, 1, 2, 3];
        let mut rows = Vec::new();
        for (job, (name, _)) in JOBS.iter().enumerate() {
            let mut row = |column, beside, bound| {
                rows.push(Row {
                    what: format!("mount: {name}"),
                    ours: self.median(ours, job),
                    limit: self.median(column, job),
                    unit: "ms",
                    beside,
                    bound,
                });
            };
            row(bindfs, "bindfs", 1.0);
            if job < DATA {
                row(bare, "the bare mount", 1.3);
            } else {
                row(native, "the plain directory", 1.25);
            }
        }
        rows
    }
}

/// The most memory that a mount of a large tree takes that keeps versions, from its start until all of the tree was walked,
/// beside the bound.
pub(crate) fn walk(scratch: &Path, top: &Path, files: usize) -> Result<Row> {
    let at = scratch.join("at");
    fs::create_dir_all(&at)?;
    let mounted = Mounted::new(ours(top, &at)?, &at)?;
    timed(Command::new("find").arg(&at).args(["-size", "+100k"]))?;
    let status = fs::read_to_string(format!("/proc/{}/status", mounted.child.id()))?;
    let most = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kilobytes: f64 =
        most.and_then(|most| most.trim().split(' ').next()).unwrap_or("0").parse()?;
    Ok(Row {
        what: format!("mount: resident memory after {files} files were walked"),
        ours: kilobytes / 1e3,
        limit: 500.0,
        unit: "MB",
        beside: "fixed bound",
        bound: 1.0,
    })
}

/// Who serves a mount at the moment; 0 is nobody.
static SERVES: AtomicI32 = AtomicI32::new(0);

/// Whoever waits for it hears that it is over.
fn kill_what_is_mounted() {
    if let Some(serves) = Pid::from_raw(SERVES.load(Ordering::SeqCst)) {
        eprintln!("the mount takes too long and is killed");
        let _ = kill_process(serves, Signal::KILL);
    }
}

/// A process that serves a mount, for as long as this lives.
struct Mounted {
    child: Child,
    at: PathBuf,
}

impl Mounted {
    fn new(mut command: Command, at: &Path) -> Result<Self> {
        let device = |path: &Path| rustix::fs::stat(path).map(|stat| stat.st_dev);
        let before = device(at)?;
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn()?;
        SERVES.store(child.id() as i32, Ordering::SeqCst);
        let mounted = Self { child, at: at.to_owned() };
        let begun = Instant::now();
        while device(at)? == before {
            // One that keeps versions looks at everything first.
            if begun.elapsed() > Duration::from_secs(120) {
                return Err(format!("{command:?} did not mount").into());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(mounted)
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.at).status();
        let _ = self.child.wait();
        SERVES.store(0, Ordering::SeqCst);
    }
}

fn make_tar(scratch: &Path) -> Result<PathBuf> {
    let tree = scratch.join("source/tree");
    for directory in 0..DIRECTORIES {
        let place = tree.join(format!("{}/{directory}", directory % 20));
        fs::create_dir_all(&place)?;
        for file in 0..FILES {
            let line =
                format!("fn number_{directory}_{file}() -> usize {{ {directory} * {file} }}\n");
            fs::write(
                place.join(format!("file_{file}.rs")),
                line.repeat(10 + (directory * file) % 150),
            )?;
        }
    }
    let tar = scratch.join("tree.tar");
    run(
        Command::new("tar").arg("cf").arg(&tar).arg("-C").arg(scratch.join("source")).arg("tree"),
        &[0],
    )?;
    Ok(tar)
}

fn three_at_once(at: &Path, tar: &Path) -> Result<f64> {
    let begun = Instant::now();
    let mut all = Vec::new();
    for place in ["one", "two", "three"].map(|name| at.join(name)) {
        fs::create_dir(&place)?;
        all.push(Command::new("tar").arg("xf").arg(tar).arg("-C").arg(place).spawn()?);
    }
    for mut one in all {
        if !one.wait()?.success() {
            return Err("one of three `tar` failed".into());
        }
    }
    Ok(since(begun))
}

fn timed(command: &mut Command) -> Result<f64> {
    Ok(run(command, &[0, 1])?.seconds * 1e3)
}

fn git(at: &Path, words: &[&str]) -> Result<f64> {
    let mut command = Command::new("git");
    command.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_NOSYSTEM", "1");
    command.args(["-c", "safe.directory=*"]).arg("-C").arg(at.join("tree")).args(words);
    timed(&mut command)
}

fn since(begun: Instant) -> f64 {
    begun.elapsed().as_secs_f64() * 1e3
}

fn edits(at: &Path) -> Result<f64> {
    let begun = Instant::now();
    for edit in 0..EDITS {
        let directory = edit % DIRECTORIES;
        let path =
            at.join(format!("tree/{}/{directory}/file_{}.rs", directory % 20, edit / DIRECTORIES));
        let text = fs::read_to_string(&path)?;
        let new = path.with_extension("new");
        fs::write(&new, text + "// edited\n")?;
        fs::rename(&new, &path)?;
    }
    Ok(since(begun))
}

/// A fixed script in WAL mode: rows are inserted, found by an index, changed and counted.
fn sqlite(path: &Path) -> Result<f64> {
    let mut script = "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;\n\
                      CREATE TABLE t(a INTEGER PRIMARY KEY, b INTEGER, c TEXT); CREATE INDEX i ON t(b);\n"
        .to_owned();
    for transaction in 0..200 {
        script.push_str("BEGIN;\n");
        for row in 0..100 {
            let (key, value) =
                (transaction * 100 + row, (transaction * 7919 + row * 104_729) % 10_007);
            script.push_str(&format!(
                "INSERT INTO t VALUES({key}, {value}, 'row {value} of many');\n"
            ));
        }
        let found = transaction * 31 % 10_007;
        script.push_str(&format!("UPDATE t SET c = 'changed' WHERE b = {found};\nCOMMIT;\n"));
        script.push_str(&format!(
            "SELECT count(*) FROM t WHERE b BETWEEN {found} AND {found} + 100;\n"
        ));
    }
    let file = path.with_extension("sql");
    fs::write(&file, script)?;
    timed(Command::new("sqlite3").arg(path).stdin(File::open(&file)?).stdout(Stdio::null()))
}

fn sequential_write(path: &Path) -> Result<f64> {
    let data = vec![7; MIB];
    let begun = Instant::now();
    let mut file = File::create(path)?;
    for _ in 0..LARGE {
        file.write_all(&data)?;
    }
    drop(file);
    Ok(since(begun))
}

fn sequential_read(path: &Path) -> Result<f64> {
    let mut room = vec![0; MIB];
    let begun = Instant::now();
    let mut file = File::open(path)?;
    while file.read(&mut room)? > 0 {}
    Ok(since(begun))
}

/// What [`random`] does to each block.
#[derive(Clone, Copy, PartialEq)]
enum Access {
    Read,
    Write,
    /// The time until all of it is on the disk counts.
    WriteAndSync,
}

fn random(path: &Path, blocks: u64, access: Access) -> Result<f64> {
    let mut block = [3; 4096];
    let mut state = 1_u64;
    let begun = Instant::now();
    let file = OpenOptions::new().read(true).write(access != Access::Read).open(path)?;
    for _ in 0..blocks {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let at = (state >> 33) % (LARGE as u64 * 256) * 4096;
        if access == Access::Read {
            file.read_exact_at(&mut block, at)?;
        } else {
            file.write_all_at(&block, at)?;
        }
    }
    if access == Access::WriteAndSync {
        file.sync_data()?;
    }
    Ok(since(begun))
}

/// What was read or written before must come from the disk again.
fn drop_caches() -> Result<()> {
    rustix::fs::sync();
    Ok(fs::write("/proc/sys/vm/drop_caches", "1")?)
}
