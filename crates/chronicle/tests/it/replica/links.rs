//! A real link between two network namespaces: cut and restored under load, and made slow.

use std::io::Read;
use std::process::{Command, Stdio};
use std::time::Duration;

use super::scene::{Host, Replica, Running, wait_until, wait_until_equal};

/// Two namespaces with a link between them, gone at the end.
struct Spaces {
    host: String,
    sandbox: String,
}

fn ip(words: &str) -> bool {
    let mut command = Command::new("ip");
    command.args(words.split(' ')).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

impl Spaces {
    /// `None` where this may not be done.
    fn new() -> Option<Self> {
        let number = std::process::id();
        let spaces = Self { host: format!("ch{number}"), sandbox: format!("cs{number}") };
        let (h, s) = (&spaces.host, &spaces.sandbox);
        let made = ip(&format!("netns add {h}"))
            && ip(&format!("netns add {s}"))
            && ip(&format!("link add v{h} netns {h} type veth peer name v{s} netns {s}"))
            && ip(&format!("-n {h} addr add 10.99.0.1/24 dev v{h}"))
            && ip(&format!("-n {s} addr add 10.99.0.2/24 dev v{s}"))
            && ip(&format!("-n {h} link set v{h} up"))
            && ip(&format!("-n {s} link set v{s} up"))
            && ip(&format!("-n {h} link set lo up"));
        made.then_some(spaces)
    }

    /// A command of the host's or the sandbox's, inside its namespace.
    fn inside(space: &str, command: &Command) -> Command {
        let mut wrapped = Command::new("ip");
        wrapped.args(["netns", "exec", space]).arg(command.get_program()).args(command.get_args());
        wrapped.env_clear();
        for (name, value) in command.get_envs() {
            if let Some(value) = value {
                wrapped.env(name, value);
            }
        }
        if let Some(directory) = command.get_current_dir() {
            wrapped.current_dir(directory);
        }
        wrapped
    }

    fn cut(&self) {
        assert!(ip(&format!("-n {} link set v{} down", self.host, self.host)));
    }

    fn restore(&self) {
        assert!(ip(&format!("-n {} link set v{} up", self.host, self.host)));
    }

    /// Lets only so much through.
    fn slow_down(&self) -> bool {
        let words = format!(
            "netns exec {h} tc qdisc add dev v{h} root tbf rate 4mbit burst 32kbit latency 400ms",
            h = self.host
        );
        ip(&words)
    }
}

impl Drop for Spaces {
    fn drop(&mut self) {
        ip(&format!("netns del {}", self.host));
        ip(&format!("netns del {}", self.sandbox));
    }
}

#[test]
fn a_link_that_is_cut_and_slow_loses_nothing() {
    let Some(spaces) = Spaces::new() else {
        eprintln!("skipped: no network namespaces can be made here (that needs root and ip)");
        return;
    };
    let host = Host::new(&[("a.txt", "one\n")]);
    let file = host.cli.home().join("token");
    let path = file.to_str().expect("text").to_owned();
    host.cli.call(["token", "create", "sandbox", "--file", &path]).ok();
    let serve = host.cli.command(["serve", "--json", "--without-tls", "--ws", "10.99.0.1:0"]);
    let mut serve = Spaces::inside(&spaces.host, &serve);
    let mut serving = Running::start(serve.stdout(Stdio::piped()).stderr(Stdio::null()));
    let mut out = serving.0.stdout.take().expect("piped");
    let (mut line, mut byte) = (Vec::new(), [0]);
    while out.read(&mut byte).expect("read") == 1 && byte[0] != b'\n' {
        line.push(byte[0]);
    }
    let told: serde_json::Value = serde_json::from_slice(&line).expect("JSON");
    let url = told["websocket"].as_str().expect("a URL").to_owned();
    let replica = Replica::of(&host);
    let root = replica.root();
    let words = ["connect", "--ws", &url, "--token-file", &path, root.to_str().expect("text")];
    let mut connect = Spaces::inside(&spaces.sandbox, &replica.cli.command(words));
    let _connected = Running::start(connect.stderr(Stdio::null()).stdout(Stdio::null()));
    let (h, r) = (host.cli.root(), replica.root());
    wait_until_equal(&[&h, &r]);
    for round in 0..3 {
        for number in 0..30 {
            host.cli.write(&format!("host/{round}-{number}.txt"), &"h".repeat(number * 300));
            replica.cli.write(&format!("replica/{round}-{number}.txt"), &"r".repeat(number * 300));
            if number == 10 {
                spaces.cut();
            }
        }
        // Long enough for what was under way to be lost.
        std::thread::sleep(Duration::from_millis(300));
        spaces.restore();
    }
    wait_until_equal(&[&h, &r]);
    if !spaces.slow_down() {
        eprintln!("skipped a part: tc cannot slow the link down here");
        return;
    }
    std::fs::write(h.join("large.bin"), vec![7_u8; 600_000]).expect("written");
    replica.cli.write("small.txt", "not held up for ever\n");
    wait_until("both arrive", || h.join("small.txt").exists() && r.join("large.bin").exists());
    wait_until_equal(&[&h, &r]);
}
