//! Everyday work through mounts, each beside the plain directory: `bindfs`, the bare passthrough, and ours, which keeps
//! every version.
//!
//! A further mount is one more line in [`columns`].

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::measure::{Result, chronicle, median, program, run};

const ROUNDS: usize = 3;
const DIRECTORIES: usize = 700;
const FILES: usize = 10;
const EDITS: usize = 1000;
const MIB: usize = 1 << 20;
const LARGE: usize = 256;
const RANDOM: u64 = 20_000;

/// One way to reach the files.
struct Column {
    name: &'static str,
    /// None for the directory itself.
    mount: Option<fn(&Path, &Path) -> Result<Command>>,
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
    let ours: fn(&Path, &Path) -> Result<Command> = |backing, at| {
        let home = at.with_file_name("home-mount");
        if home.exists() {
            fs::remove_dir_all(&home)?;
        }
        run(&mut chronicle(&home, backing, &["init", "."])?, &[0])?;
        let at = at.to_str().ok_or("the place has a plain name")?;
        let mut command = chronicle(&home, backing, &["mount", "--foreground", at])?;
        command.stderr(Stdio::null());
        Ok(command)
    };
    vec![
        Column { name: "native", mount: None },
        Column { name: "bindfs", mount: Some(bindfs) },
        Column { name: "bare", mount: Some(bare) },
        Column { name: "chronicle", mount: Some(ours) },
    ]
}

/// One job: its name, and how long it took in a directory, in milliseconds.
type Job = (&'static str, fn(&Path, &Path) -> Result<f64>);

const JOBS: [Job; 12] = [
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
    ("`rm -rf`", |at, _| timed(Command::new("rm").arg("-rf").arg(at.join("tree")))),
    ("write 256 MiB", |at, _| sequential_write(&at.join("large"))),
    ("read 256 MiB", |at, _| sequential_read(&at.join("large"))),
    ("20,000 random reads of 4 KiB", |at, _| random(&at.join("large"), false)),
    ("20,000 random writes of 4 KiB", |at, _| random(&at.join("large"), true)),
];

/// Measures in a directory, and makes the table.
pub(crate) fn table(scratch: &Path) -> Result<String> {
    let tar = make_tar(scratch)?;
    let columns = columns();
    let mut figures = vec![vec![Vec::new(); JOBS.len()]; columns.len()];
    for round in 0..ROUNDS {
        for (column, figures) in columns.iter().zip(&mut figures) {
            let backing = scratch.join(format!("{}-{round}", column.name));
            let at = scratch.join("at");
            fs::create_dir_all(&backing)?;
            fs::create_dir_all(&at)?;
            let mounted =
                column.mount.map(|mount| Mounted::new(mount(&backing, &at)?, &at)).transpose()?;
            let place = if mounted.is_some() { &at } else { &backing };
            for (figure, (_, job)) in figures.iter_mut().zip(JOBS) {
                figure.push(job(place, &tar)?);
            }
            drop(mounted);
            fs::remove_dir_all(&backing)?;
            rustix::fs::sync();
        }
    }
    let mut text = format!("| ms, median of {ROUNDS} |");
    text.extend(columns.iter().map(|column| format!(" {} |", column.name)));
    text.push_str("\n|---|");
    text.extend(columns.iter().map(|_| "---|"));
    for (at, (name, _)) in JOBS.iter().enumerate() {
        let native = median(figures[0][at].clone());
        text.push_str(&format!("\n| {name} |"));
        for figure in &figures {
            let found = median(figure[at].clone());
            text.push_str(&format!(" {found:.1} (x{:.2}) |", found / native));
        }
    }
    text.push('\n');
    Ok(text)
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
        let mounted = Self { child, at: at.to_owned() };
        let begun = Instant::now();
        while device(at)? == before {
            if begun.elapsed() > Duration::from_secs(10) {
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

fn random(path: &Path, writes: bool) -> Result<f64> {
    let file = OpenOptions::new().read(true).write(true).open(path)?;
    let mut block = [3; 4096];
    let mut state = 1_u64;
    let begun = Instant::now();
    for _ in 0..RANDOM {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let at = (state >> 33) % (LARGE as u64 * 256) * 4096;
        if writes {
            file.write_all_at(&block, at)?;
        } else {
            file.read_exact_at(&mut block, at)?;
        }
    }
    Ok(since(begun))
}
