//! A cluster of three Garage nodes on this machine, with three copies of everything.
//!
//! Garage is a program beside the tests: `./test long` builds it, and nothing is linked with it.

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// How many nodes there are, each with a copy of everything.
pub const NODES: usize = 3;

/// How long the cluster may take to come up.
const START: Duration = Duration::from_secs(120);

/// A running cluster with a bucket named `bucket`, ended with the test.
#[derive(Debug)]
pub struct Garage {
    program: PathBuf,
    scratch: TempDir,
    nodes: Vec<Option<Child>>,
    ports: Vec<[u16; 2]>,
    /// The public half of the credentials.
    pub access_key: String,
    /// The secret half.
    pub secret_key: String,
}

/// The program, if it is installed.
pub fn program() -> Option<PathBuf> {
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let program = top.join("target/tools/garage/bin/garage");
    program.exists().then_some(program)
}

impl Garage {
    /// Starts a cluster and makes the bucket; `None` where Garage is not installed.
    pub fn start() -> Option<Self> {
        let (program, scratch) = (program()?, tempfile::tempdir().expect("a directory"));
        let ports = (0..NODES).map(|_| [free_port(), free_port()]).collect();
        let (nodes, access_key, secret_key) = (Vec::new(), String::new(), String::new());
        let mut garage = Self { program, scratch, nodes, ports, access_key, secret_key };
        for node in 0..NODES {
            garage.configure(node);
            garage.nodes.push(None);
            garage.start_node(node);
        }
        garage.lay_out();
        garage.make_bucket();
        Some(garage)
    }

    fn directory(&self, node: usize) -> PathBuf {
        self.scratch.path().join(format!("node-{node}"))
    }

    fn configure(&self, node: usize) {
        let directory = self.directory(node);
        fs::create_dir(&directory).expect("a node's directory");
        let ([rpc, api], at) = (self.ports[node], directory.display());
        let secret = "5a".repeat(32);
        let text = format!(
            "metadata_dir = \"{at}/meta\"\ndata_dir = \"{at}/data\"\ndb_engine = \"sqlite\"\n\
             replication_factor = {NODES}\nrpc_bind_addr = \"127.0.0.1:{rpc}\"\n\
             rpc_public_addr = \"127.0.0.1:{rpc}\"\nrpc_secret = \"{secret}\"\n\
             [s3_api]\ns3_region = \"garage\"\napi_bind_addr = \"127.0.0.1:{api}\"\n\
             root_domain = \".s3.localhost\"\n"
        );
        fs::write(directory.join("garage.toml"), text).expect("a configuration");
    }

    fn command(&self, node: usize, words: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.arg("-c").arg(self.directory(node).join("garage.toml")).args(words);
        command.env("RUST_LOG", "error").stdin(Stdio::null());
        command
    }

    /// Starts a node that does not run.
    pub fn start_node(&mut self, node: usize) {
        let log = fs::File::create(self.directory(node).join("log")).expect("a log");
        let mut command = self.command(node, &["server"]);
        let child = command.stdout(Stdio::null()).stderr(log).spawn().expect("garage starts");
        self.nodes[node] = Some(child);
    }

    /// Ends a node as a power cut would.
    pub fn kill_node(&mut self, node: usize) {
        if let Some(mut child) = self.nodes[node].take() {
            child.kill().expect("it runs");
            child.wait().expect("it ends");
        }
    }

    /// What a command says, once it succeeds.
    fn ask(&self, node: usize, words: &[&str]) -> String {
        let begun = Instant::now();
        loop {
            let output = self.command(node, words).output().expect("garage runs");
            if output.status.success() {
                return String::from_utf8_lossy(&output.stdout).into_owned();
            }
            assert!(begun.elapsed() < START, "{words:?}: {output:?}");
            std::thread::sleep(Duration::from_millis(300));
        }
    }

    fn lay_out(&self) {
        let ids: Vec<String> = (0..NODES)
            .map(|node| self.ask(node, &["node", "id", "-q"]).trim().to_owned())
            .collect();
        for id in &ids[1..] {
            self.ask(0, &["node", "connect", id]);
        }
        for (zone, id) in ids.iter().enumerate() {
            let id = id.split('@').next().unwrap_or(id);
            self.ask(0, &["layout", "assign", "-z", &format!("zone{zone}"), "-c", "1G", id]);
        }
        self.ask(0, &["layout", "apply", "--version", "1"]);
    }

    fn make_bucket(&mut self) {
        let made = self.ask(0, &["key", "create", "chronicle"]);
        let field = |name: &str| {
            let line = made.lines().find(|line| line.trim_start().starts_with(name));
            line.and_then(|line| line.split_whitespace().last()).expect("a key").to_owned()
        };
        (self.access_key, self.secret_key) = (field("Key ID"), field("Secret key"));
        self.ask(0, &["bucket", "create", "bucket"]);
        let allow =
            ["bucket", "allow", "--read", "--write", "--owner", "bucket", "--key", "chronicle"];
        self.ask(0, &allow);
    }

    /// A node's address.
    pub fn endpoint(&self, node: usize) -> String {
        format!("http://127.0.0.1:{}", self.ports[node][1])
    }
}

impl Drop for Garage {
    fn drop(&mut self) {
        (0..self.nodes.len()).for_each(|node| self.kill_node(node));
    }
}

fn free_port() -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
    listener.local_addr().expect("its address").port()
}
