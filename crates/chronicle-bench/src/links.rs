//! Replication beside `rsync`, `unison` and the bare limit, on one machine over a Unix socket.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::daemon::Daemon;
use crate::measure::{Result, chronicle, median, run};
use crate::rows::Row;
use crate::trees;

/// The tree in which one change is made.
const TREE: usize = 7000;
/// The tree that fills an empty replica.
const FILL: usize = 100_000;
const CHANGES: usize = 40;
const MIB: usize = 1 << 20;
const LARGE: usize = 1024;
const PATIENCE: Duration = Duration::from_secs(600);

/// A host and one replica, as processes.
struct Link {
    host: PathBuf,
    replica: PathBuf,
    trace: BufReader<File>,
    metrics: String,
    children: Vec<Child>,
}

impl Link {
    /// Serves a tree and fills a replica of it; says how long that took, in seconds.
    ///
    /// Each side has a home of its own, as on two machines: in one store nothing would have to travel.
    fn new(scratch: &Path, host: &Path) -> Result<(Self, f64)> {
        let (home, own) = (scratch.join("home-host"), scratch.join("home-replica"));
        let replica = scratch.join("replica");
        for old in [&home, &own, &replica] {
            let _ = fs::remove_dir_all(old);
        }
        run(&mut chronicle(&home, host, &["init", "."])?, &[0])?;
        let socket = home.join("host.sock");
        let socket = socket.to_str().ok_or("a plain name")?.to_owned();
        let words = ["serve", "--json", "--socket", &socket, "--metrics", "127.0.0.1:0"];
        let mut serving = chronicle(&home, host, &words)?.stdout(Stdio::piped()).spawn()?;
        let mut line = String::new();
        let out = serving.stdout.take().ok_or("a pipe")?;
        BufReader::new(out).read_line(&mut line)?;
        let told: serde_json::Value = serde_json::from_str(&line)?;
        let metrics = told["metrics"].as_str().ok_or("metrics")?.to_owned();
        let trace = home.join("trace");
        File::create(&trace)?;
        run(&mut Command::new("sync"), &[0])?;
        let begun = Instant::now();
        let (to, path) = (replica.to_str().ok_or("a plain name")?, trace.to_str().ok_or("plain")?);
        run(&mut chronicle(&own, host, &["connect", "--socket", &socket, "--once", to])?, &[0])?;
        let filled = begun.elapsed().as_secs_f64();
        let words = ["connect", "--socket", &socket, "--trace", path, to];
        let connected = chronicle(&own, host, &words)?.stderr(Stdio::null()).spawn()?;
        let (host, trace) = (host.to_owned(), BufReader::new(File::open(&trace)?));
        let children = vec![connected, serving];
        let mut link = Self { host, replica, trace, metrics, children };
        link.wait_for("welcome")?;
        Ok((link, filled))
    }

    /// Waits for an event of the replica, and says when it was, in seconds since 1970.
    fn wait_for(&mut self, event: &str) -> Result<f64> {
        let deadline = Instant::now() + PATIENCE;
        let mut line = String::new();
        while Instant::now() < deadline {
            if self.trace.read_line(&mut line)? == 0 || !line.ends_with('\n') {
                std::thread::sleep(Duration::from_micros(200));
                continue;
            }
            let told: serde_json::Value = serde_json::from_str(&line)?;
            line.clear();
            if told["event"] == event {
                return Ok(told["time_ns"].as_f64().ok_or("a time")? / 1e9);
            }
        }
        Err("the replica does not go on".into())
    }

    /// Bytes that the host has sent so far.
    fn sent(&self) -> Result<u64> {
        let address = self.metrics.trim_start_matches("http://").trim_end_matches("/metrics");
        let mut stream = TcpStream::connect(address)?;
        stream.write_all(b"GET /metrics HTTP/1.1\r\n\r\n")?;
        let mut text = String::new();
        stream.read_to_string(&mut text)?;
        let line =
            text.lines().find(|line| line.starts_with("chronicle_replica_bytes_sent_total "));
        Ok(line.and_then(|line| line.split(' ').nth(1)).ok_or("the counter")?.parse()?)
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        for child in &mut self.children {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// The table.
pub(crate) fn rows(scratch: &Path) -> Result<Vec<Row>> {
    let top = scratch.join("host");
    trees::make(&top, TREE)?;
    let (mut link, _) = Link::new(scratch, &top)?;
    let mut rows = one_change(scratch, &mut link)?;
    rows.extend(thousand(scratch, &mut link)?);
    rows.push(large(&mut link)?);
    drop(link);
    fs::remove_dir_all(&top)?;
    rows.push(fill(scratch)?);
    Ok(rows)
}

fn wall() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

/// One change of 1 KiB, from its write to durable on the other side.
fn one_change(scratch: &Path, link: &mut Link) -> Result<Vec<Row>> {
    let (mut ours, mut limit, mut rsync, mut unison) = (vec![], vec![], vec![], vec![]);
    let mut linked = vec![];
    let other = scratch.join("other");
    copy(&link.host, &other)?;
    let daemon = Daemon::new(scratch, "other-linked")?;
    copy(&link.host, daemon.directory())?;
    let mut bare = Bare::new(scratch)?;
    for round in 0..CHANGES {
        let content = vec![b'a' + (round % 26) as u8; 1024];
        let file = link.host.join(trees::path(round));
        let begun = wall();
        fs::write(&file, &content)?;
        let there = link.replica.join(trees::path(round));
        // A write may be pushed in two halves, so that an event of the one before may still wait to be read: only one that
        // came after this write, and with which its content stands there, counts.
        let applied = loop {
            let at = link.wait_for("applied")?;
            if at > begun && fs::read(&there)? == content {
                break at;
            }
        };
        ours.push((applied - begun) * 1e3);
        limit.push(bare.change(&content)?);
        if round % 8 == 0 {
            rsync.push(synced(&link.host, &other)?);
            linked.push(daemon.synced(&link.host)?);
            unison.extend(with_unison(scratch, &link.host)?);
        }
    }
    let (ours, limit, rsync) = (median(ours), median(limit), median(rsync));
    let linked = median(linked);
    let row = |limit: f64, beside, bound| Row {
        what: "1 KiB written on the host, until it is durable on the replica".to_owned(),
        ours,
        limit,
        unit: "ms",
        beside,
        bound,
    };
    let mut rows = vec![
        row(limit, "socket + write + fdatasync + rename", 4.0),
        row(linked, "`rsync -a` of a tree of 7,000 files to a daemon, and a sync", 0.02),
        row(rsync, "the same without a link: `rsync -a` from directory to directory", 0.02),
        Row {
            what: "the bare limit itself: socket + write + fdatasync + rename".to_owned(),
            ours: limit,
            limit: linked,
            unit: "ms",
            beside: "the same `rsync -a` to a daemon: what no program goes below here",
            bound: 0.02,
        },
    ];
    if !unison.is_empty() {
        rows.push(row(median(unison), "`unison -batch` of the same", 1.0));
    }
    Ok(rows)
}

/// The least that must be done: the bytes over a socket, a new file, synced and renamed, and a word back.
struct Bare {
    from: UnixStream,
    source: PathBuf,
}

impl Bare {
    fn new(scratch: &Path) -> Result<Self> {
        let (from, mut to) = UnixStream::pair()?;
        let (source, place) = (scratch.join("bare-host"), scratch.join("bare-replica"));
        std::thread::spawn(move || -> std::io::Result<()> {
            let mut content = vec![0; 1024];
            loop {
                to.read_exact(&mut content)?;
                let beside = place.with_extension("new");
                let mut file = File::create(&beside)?;
                file.write_all(&content)?;
                file.sync_data()?;
                fs::rename(&beside, &place)?;
                to.write_all(b".")?;
            }
        });
        Ok(Self { from, source })
    }

    fn change(&mut self, content: &[u8]) -> Result<f64> {
        let begun = Instant::now();
        fs::write(&self.source, content)?;
        self.from.write_all(content)?;
        self.from.read_exact(&mut [0])?;
        Ok(begun.elapsed().as_secs_f64() * 1e3)
    }
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    run(Command::new("cp").arg("-a").arg(from).arg(to), &[0]).map(drop)
}

/// `rsync` and what makes it durable, in milliseconds.
fn synced(from: &Path, to: &Path) -> Result<f64> {
    let begun = Instant::now();
    rsynced(from, to.as_os_str(), &[])?;
    run(Command::new("sync").arg("-f").arg(to), &[0])?;
    Ok(begun.elapsed().as_secs_f64() * 1e3)
}

/// `rsync` alone, in milliseconds: what it wrote is not durable, unless it is told to make it so.
pub(crate) fn rsynced(from: &Path, to: &OsStr, more: &[&str]) -> Result<f64> {
    let mut from = from.as_os_str().to_owned();
    from.push("/");
    let begun = Instant::now();
    run(Command::new("rsync").args(["-a", "--delete"]).args(more).arg(&from).arg(to), &[0])?;
    Ok(begun.elapsed().as_secs_f64() * 1e3)
}

fn with_unison(scratch: &Path, host: &Path) -> Result<Option<f64>> {
    let other = scratch.join("unison");
    let mut command = Command::new("unison");
    command.arg(host).arg(&other).args(["-batch", "-auto", "-silent", "-confirmbigdel=false"]);
    command.env("UNISON", scratch.join("unison-state")).stdout(Stdio::null()).stderr(Stdio::null());
    let begun = Instant::now();
    match command.status() {
        Ok(status) if status.success() => Ok(Some(begun.elapsed().as_secs_f64() * 1e3)),
        _ => Ok(None),
    }
}

/// A thousand small files at once.
fn thousand(scratch: &Path, link: &mut Link) -> Result<Vec<Row>> {
    let mut times: [Vec<f64>; 7] = Default::default();
    let others = ["other", "other-plain", "other-each"].map(|name| scratch.join(name));
    for other in &others[1..] {
        copy(&link.host, other)?;
    }
    let daemons = ["linked", "linked-plain", "linked-each"];
    let daemons = daemons.map(|name| Daemon::new(scratch, &format!("thousand-{name}")));
    let [linked, linked_plain, linked_each] = daemons;
    let (linked, linked_plain, linked_each) = (linked?, linked_plain?, linked_each?);
    for daemon in [&linked, &linked_plain, &linked_each] {
        copy(&link.host, daemon.directory())?;
    }
    for round in 0..5 {
        run(&mut Command::new("sync"), &[0])?;
        let directory = link.host.join(format!("thousand-{round}"));
        times[0].push(thousand_ours(link, &directory, round)?);
        times[1].push(linked_each.rsynced(&link.host, &["--fsync"])?);
        times[2].push(linked.synced(&link.host)?);
        times[3].push(synced(&link.host, &others[0])?);
        times[4].push(rsynced(&link.host, others[2].as_os_str(), &["--fsync"])?);
        times[5].push(linked_plain.rsynced(&link.host, &[])?);
        times[6].push(rsynced(&link.host, others[1].as_os_str(), &[])?);
    }
    let [ours, limits @ ..] = times.map(median);
    let row = |(limit, beside)| Row {
        what: "1,000 small files written on the host, until they are durable on the replica"
            .to_owned(),
        ours,
        limit,
        unit: "ms",
        beside,
        bound: 0.2,
    };
    let beside = [
        "`rsync -a --fsync` to a daemon: durable too",
        "`rsync -a` to a daemon, and a sync: durable too",
        "`rsync -a` without a link, and a sync: durable too",
        "`rsync -a --fsync` without a link: durable too",
        "`rsync -a` to a daemon alone: not durable",
        "`rsync -a` without a link alone: not durable",
    ];
    Ok(limits.into_iter().zip(beside).map(row).collect())
}

/// Writes a thousand files and waits until the replica has said that it has all of them; in milliseconds, the writing too.
fn thousand_ours(link: &mut Link, directory: &Path, round: usize) -> Result<f64> {
    let replica = link.replica.join(directory.file_name().ok_or("a name")?);
    let count = || fs::read_dir(&replica).map_or(0, Iterator::count);
    let begun = wall();
    fs::create_dir(directory)?;
    for number in 0..1000 {
        fs::write(directory.join(format!("{number}.txt")), format!("{round} {number}\n"))?;
    }
    let mut last = link.wait_for("applied")?;
    while last < begun || count() < 1000 {
        last = link.wait_for("applied")?;
    }
    Ok((last - begun) * 1e3)
}

/// A large file of which a hundredth changes: what goes over the wire.
fn large(link: &mut Link) -> Result<Row> {
    let path = link.host.join("large.bin");
    let (mut file, mut state) = (File::create(&path)?, 1_u64);
    let mut block = vec![0_u8; MIB];
    let mut scramble = |block: &mut [u8]| {
        for word in block.chunks_mut(8) {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            word.copy_from_slice(&state.to_le_bytes()[..word.len()]);
        }
    };
    for _ in 0..LARGE {
        scramble(&mut block);
        file.write_all(&block)?;
    }
    file.sync_all()?;
    drop(file);
    let whole = (LARGE * MIB) as u64;
    let there = link.replica.join("large.bin");
    while fs::metadata(&there).map_or(0, |meta| meta.len()) < whole {
        link.wait_for("applied")?;
    }
    let before = link.sent()?;
    let mut file = File::options().write(true).open(&path)?;
    // In one place, as an append or a record of a database is.
    file.seek(SeekFrom::Start(whole / 3))?;
    let mut changed = vec![0; LARGE * MIB / 100];
    scramble(&mut changed);
    file.write_all(&changed)?;
    file.sync_all()?;
    drop(file);
    link.wait_for("applied")?;
    while fs::read(&there)? != fs::read(&path)? {
        link.wait_for("applied")?;
    }
    let moved = link.sent()? - before;
    if moved == 0 {
        return Err("the counter of bytes does not count".into());
    }
    Ok(Row {
        what: "bytes moved for a 1 GiB file of which 1 % changed".to_owned(),
        ours: moved as f64 / MIB as f64,
        limit: LARGE as f64,
        unit: "MiB",
        beside: "the file",
        bound: 0.02,
    })
}

/// The first fill of an empty replica.
fn fill(scratch: &Path) -> Result<Row> {
    let top = scratch.join("host-large");
    trees::make(&top, FILL)?;
    run(&mut Command::new("sync"), &[0])?;
    let (link, ours) = Link::new(scratch, &top)?;
    drop(link);
    let limit = tarred(&top, &scratch.join("tarred"))?;
    Ok(Row {
        what: "first fill of a replica with 100,000 files, durable".to_owned(),
        ours,
        limit,
        unit: "s",
        beside: "`tar | tar` over a Unix socket, and a sync",
        bound: 1.0,
    })
}

/// A tree through `tar`, a socket and `tar` into an empty directory, and a sync, in seconds.
fn tarred(from: &Path, to: &Path) -> Result<f64> {
    fs::create_dir(to)?;
    run(&mut Command::new("sync"), &[0])?;
    let begun = Instant::now();
    let (sending, receiving) = UnixStream::pair()?;
    let mut unpacking = Command::new("tar")
        .arg("-C")
        .arg(to)
        .args(["-xf", "-"])
        .stdin(OwnedFd::from(receiving))
        .spawn()?;
    let mut packing = Command::new("tar");
    packing.arg("-C").arg(from).args(["-cf", "-", "."]).stdout(OwnedFd::from(sending));
    let packed = packing.spawn()?.wait()?;
    // Its end of the socket, so that the other side sees the end.
    drop(packing);
    if !packed.success() || !unpacking.wait()?.success() {
        return Err("tar failed".into());
    }
    run(Command::new("sync").arg("-f").arg(to), &[0])?;
    Ok(begun.elapsed().as_secs_f64())
}
