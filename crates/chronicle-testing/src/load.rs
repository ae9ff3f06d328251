//! Load on an application: workers that commit and tell both databases, pgbench, and a SQLite writer.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::application::{Application, REPOSITORIES, said};

/// What pgbench does in a second, so that two cores have time for the rest.
const TRANSACTIONS: &str = "150";

/// Load that runs until it is stopped.
#[derive(Debug)]
pub struct Load {
    stop: Arc<AtomicBool>,
    workers: Vec<JoinHandle<()>>,
    done: Arc<AtomicU64>,
    bench: Child,
}

/// A client that is told statements and answers when they are done.
struct Client {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    echo: &'static str,
}

struct Worker {
    number: usize,
    repository: PathBuf,
    file: PathBuf,
    gate: PathBuf,
    next: u64,
}

impl Load {
    /// Starts all of it.
    pub fn start(application: &Application) -> Self {
        let (stop, done) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let mut workers = Vec::new();
        for number in 0..REPOSITORIES {
            let worker = Worker::new(application, number);
            let clients = [Client::postgres(application), Client::sqlite(&application.sqlite)];
            let (stop, done) = (Arc::clone(&stop), Arc::clone(&done));
            workers.push(std::thread::spawn(move || worker.work(clients, &stop, &done)));
        }
        let (noise, silent) = (Client::sqlite(&application.sqlite), Arc::clone(&stop));
        workers.push(std::thread::spawn(move || make_noise(noise, &silent)));
        let mut bench = application.cluster.client("pgbench");
        bench.args(["-n", "-c", "2", "-R", TRANSACTIONS, "-T", "3600"]);
        let bench = bench.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("pgbench");
        Self { stop, workers, done, bench }
    }

    /// How many commits there were since it started.
    pub fn commits(&self) -> u64 {
        self.done.load(Ordering::Relaxed)
    }

    /// Waits until so many more commits were made.
    pub fn let_pass(&self, commits: u64) {
        let until = self.commits() + commits;
        while self.commits() < until {
            let failed = self.workers.iter().any(JoinHandle::is_finished);
            assert!(!failed, "a worker ended before it was told to");
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Stops all of it; panics if any of it had stopped by itself.
    pub fn stop(mut self) {
        let ended = self.bench.try_wait().expect("its state");
        assert!(ended.is_none(), "pgbench ended by itself: {ended:?}");
        self.end();
        for worker in self.workers.drain(..) {
            worker.join().expect("a worker that nothing went wrong for");
        }
    }

    fn end(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = self.bench.kill();
        let _ = self.bench.wait();
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.end();
    }
}

impl Client {
    fn new(mut command: Command, echo: &'static str) -> Self {
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut child = child.expect("a client starts");
        let input = child.stdin.take().expect("it is piped");
        let output = BufReader::new(child.stdout.take().expect("it is piped"));
        Self { child, input, output, echo }
    }

    fn sqlite(database: &Path) -> Self {
        let mut command = Command::new("stdbuf");
        command.args(["-oL", "sqlite3", "-batch", "-bail", "-cmd", ".timeout 20000"]);
        command.arg(database);
        Self::new(command, ".print done")
    }

    fn postgres(application: &Application) -> Self {
        let psql = application.cluster.client("psql");
        let mut command = Command::new("stdbuf");
        command.arg("-oL").arg(psql.get_program());
        command.args(["-X", "-q", "-v", "ON_ERROR_STOP=1"]);
        command.envs(psql.get_envs().filter_map(|(name, value)| Some((name, value?))));
        Self::new(command, "\\echo done")
    }

    /// Has statements done, durably.
    fn tell(&mut self, sql: &str) {
        writeln!(self.input, "{sql}\n{}", self.echo).expect("a client takes a statement");
        let mut line = String::new();
        self.output.read_line(&mut line).expect("a client answers");
        assert_eq!(line.trim(), "done", "a client gave up on {sql}");
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Worker {
    fn new(application: &Application, number: usize) -> Self {
        let repository = application.repository(number);
        let made = said(&repository, &["rev-list", "--count", "--all"]);
        let next = made.parse().unwrap_or(0) + 1;
        let gate = application.gate.clone();
        let file = application.file(number);
        let worker = Self { number, repository, file, gate, next };
        fs::write(worker.flag("alive"), "").expect("a word at the gate");
        worker
    }

    fn flag(&self, word: &str) -> PathBuf {
        self.gate.join(format!("{word}-{}", self.number))
    }

    fn work(mut self, mut clients: [Client; 2], stop: &AtomicBool, done: &AtomicU64) {
        while !stop.load(Ordering::Relaxed) {
            if self.is_closed() {
                std::thread::sleep(Duration::from_millis(2));
                continue;
            }
            self.commit(&mut clients);
            done.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Whether the gate is closed; then it is told that nothing is under way here.
    fn is_closed(&self) -> bool {
        let Ok(question) = fs::read(self.gate.join("closed")) else { return false };
        let answer = self.flag("answering");
        fs::write(&answer, question).expect("an answer");
        fs::rename(answer, self.flag("paused")).expect("an answer");
        true
    }

    fn commit(&mut self, clients: &mut [Client; 2]) {
        let (number, at) = (self.next, &self.repository);
        fs::write(at.join(format!("file-{}", number % 7)), format!("{number}\n")).expect("a file");
        for words in [&["add", "-A", "--", ":!draft"][..], &["commit", "-q", "-m", "work"]] {
            let output = crate::git::run(at, words).expect("git was there before");
            assert!(output.status.success(), "{words:?}: {output:?}");
        }
        let (id, repository) = (said(at, &["rev-parse", "HEAD"]), self.number);
        let row = format!("insert into commits values ({repository}, {number}, '{id}');");
        clients.iter_mut().for_each(|client| client.tell(&row));
        fs::write(at.join("draft"), number.to_string()).expect("a draft");
        fs::write(&self.file, number.to_string()).expect("a file");
        self.next += 1;
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = fs::remove_file(self.flag("alive"));
    }
}

/// Writes that no gate stops.
fn make_noise(mut client: Client, stop: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) {
        client.tell(
            "begin immediate; insert into noise values (randomblob(3000)); \
             delete from noise where rowid < (select max(rowid) - 200 from noise); commit;",
        );
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_spans_code_and_data_holds_when_the_gate_is_closed_and_only_then() {
        let scratch = tempfile::tempdir().unwrap();
        let application = match Application::new(scratch.path()) {
            Ok(application) => application,
            Err(why) => {
                return crate::shared::skip("load::what_spans_code_and_data", &why);
            }
        };
        let load = Load::start(&application);
        load.let_pass(6);
        let shell = |line: String| Command::new("sh").arg("-c").arg(line).status().unwrap();
        assert!(shell(application.freeze_line()).success());
        let before = application.facts().unwrap();
        assert_eq!(before.commits.iter().sum::<u64>(), load.commits());
        assert!(shell(application.thaw_line()).success());
        load.let_pass(4);
        load.stop();
        let after = application.facts().unwrap();
        assert!(after.commits.iter().sum::<u64>() >= before.commits.iter().sum::<u64>() + 4);
        // A row more than there are commits is noticed.
        application.lite("insert into commits values (1, 0, 'none')");
        assert!(application.facts().unwrap_err().contains("rows in SQLite"));
        assert!(application.cluster.is_running());
    }
}
