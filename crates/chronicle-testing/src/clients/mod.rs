//! The agents' real command-line clients, each with a home of its own and the scripted model for a
//! service.
//!
//! They come from the npm registry and are installed by `./test`. Nothing here knows Chronicle.

mod actions;
mod listener;

use std::fs::{self, File};
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::model::Model;
pub use actions::Action;

/// Far longer than a scripted turn takes, on a machine that is busy with other tests too.
const PATIENCE: Duration = Duration::from_secs(180);
/// Without this Codex refuses every `rm -rf` when nobody can be asked.
const CODEX_RULES: &str = "prefix_rule(pattern = [\"rm\"], decision = \"allow\")\n";
/// How often a running client is looked at.
const PAUSE: Duration = Duration::from_millis(20);

/// A client that can be driven.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Client {
    /// Claude Code.
    ClaudeCode,
    /// Codex.
    Codex,
    /// Gemini CLI.
    Gemini,
    /// OpenCode.
    OpenCode,
}

/// A client as it is installed.
#[derive(Debug)]
pub struct Program {
    /// Which one.
    pub client: Client,
    /// What its package says of itself.
    pub version: String,
    path: PathBuf,
}

/// A client at work in one project.
#[derive(Debug)]
pub struct Desk<'a> {
    /// The client.
    pub program: &'a Program,
    /// The person's home directory.
    pub home: &'a Path,
    /// Where the client works.
    pub project: &'a Path,
    /// Who answers it.
    pub model: &'a Model,
}

/// Whose settings have the hooks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// The person's, for every project.
    User,
    /// The project's own, which an agent may delete while it works.
    Project,
}

/// How a client's run ended.
#[derive(Debug)]
pub struct Ended {
    /// Its exit status; `None` if it had to be killed for taking too long.
    pub status: Option<ExitStatus>,
    /// What it wrote, both streams.
    pub output: String,
}

impl Client {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::ClaudeCode, Self::Codex, Self::Gemini, Self::OpenCode];

    /// The name that `chronicle hook` and `chronicle install` know.
    pub fn name(self) -> &'static str {
        match self {
            Self::ClaudeCode => "claude-code",
            Self::Codex => "codex",
            Self::Gemini => "gemini",
            Self::OpenCode => "opencode",
        }
    }

    fn package(self) -> &'static str {
        match self {
            Self::ClaudeCode => "@anthropic-ai/claude-code",
            Self::Codex => "@openai/codex",
            Self::Gemini => "@google/gemini-cli",
            Self::OpenCode => "opencode-ai",
        }
    }

    fn command(self) -> &'static str {
        match self {
            Self::ClaudeCode => "claude",
            other => other.name(),
        }
    }

    /// The installed client, or in words why there is none.
    ///
    /// `CHRONICLE_TOOLS` names the directory of the npm packages; `target/tools` otherwise.
    pub fn find(self) -> Result<Program, String> {
        let default = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/tools");
        let tools = std::env::var_os("CHRONICLE_TOOLS").map_or_else(default, PathBuf::from);
        let modules = tools.join("node_modules");
        let path = modules.join(".bin").join(self.command());
        let package = read_json(&modules.join(self.package()).join("package.json"));
        match package.as_ref().and_then(|package| package["version"].as_str()) {
            Some(version) if path.exists() => {
                let path = fs::canonicalize(path).expect("a path that exists has a real one");
                Ok(Program { client: self, version: version.to_owned(), path })
            }
            _ => Err(format!("{} is not installed", self.package())),
        }
    }
}

impl Desk<'_> {
    /// Writes the settings of a person who uses this client with this model.
    pub fn settle_in(&self) {
        let url = self.model.url();
        match self.program.client {
            Client::ClaudeCode => {}
            Client::Codex => {
                let settings = codex_settings(&url, self.project);
                write(&self.home.join(".codex/config.toml"), &settings);
                write(&self.home.join(".codex/rules/default.rules"), CODEX_RULES);
            }
            Client::Gemini => {
                let auth = json!({"security": {"auth": {"selectedType": "gemini-api-key"}}});
                write(&self.home.join(".gemini/settings.json"), &auth.to_string());
                let trusted = json!({self.project.display().to_string(): "TRUST_FOLDER"});
                write(&self.home.join(".gemini/trustedFolders.json"), &trusted.to_string());
            }
            Client::OpenCode => {
                let settings = open_code_settings(&url);
                write(&self.home.join(".config/opencode/opencode.json"), &settings.to_string());
            }
        }
    }

    /// Makes the client report every event into a file.
    pub fn listen(&self, scope: Scope, log: &Path) {
        listener::install(self, scope, log);
    }

    /// One turn, without a person at the terminal.
    pub fn run(&self, prompt: &str) -> Ended {
        self.run_with(prompt, &[])
    }

    /// The same, with more words on the client's command line.
    pub fn run_with(&self, prompt: &str, more: &[&str]) -> Ended {
        let mut command = self.command(&[]);
        command.args(self.prompt(prompt)).args(more);
        self.start(command)
    }

    /// One more turn of the conversation that was last.
    pub fn go_on(&self, prompt: &str) -> Ended {
        let again: &[&str] = match self.program.client {
            Client::ClaudeCode | Client::OpenCode => &["--continue"],
            Client::Codex => &["resume", "--last"],
            Client::Gemini => &["--resume", "latest"],
        };
        let mut command = self.command(again);
        command.args(self.prompt(prompt));
        self.start(command)
    }

    fn start(&self, mut command: Command) -> Ended {
        let log = self.home.join("client-output");
        let output = File::create(&log).unwrap_or_else(|error| fail("create", &log, &error));
        // A file, not a pipe: what a turn leaves running in the background may hold it open.
        command
            .stdin(Stdio::null())
            .stdout(output.try_clone().expect("a descriptor can be copied"))
            .stderr(output)
            .process_group(0);
        let path = &self.program.path;
        let child = command.spawn().unwrap_or_else(|error| fail("start", path, &error));
        let status = wait(child);
        let output = fs::read(&log).unwrap_or_else(|error| fail("read", &log, &error));
        Ended { status, output: String::from_utf8_lossy(&output).into_owned() }
    }

    /// The words that give the client its prompt.
    fn prompt<'p>(&self, prompt: &'p str) -> Vec<&'p str> {
        match self.program.client {
            Client::ClaudeCode | Client::Gemini => vec!["-p", prompt],
            Client::Codex | Client::OpenCode => vec![prompt],
        }
    }

    /// The client, with these words after its own, and without a prompt.
    fn command(&self, more: &[&str]) -> Command {
        let mut command = Command::new(&self.program.path);
        let inherited = std::env::var_os("PATH").unwrap_or_else(|| "/usr/bin:/bin".into());
        command
            .env_clear()
            .env("PATH", inherited)
            .env("HOME", self.home)
            .env("TMPDIR", self.home)
            .env("SHELL", "/bin/bash")
            .env("LC_ALL", "C.UTF-8")
            .env("NO_COLOR", "1")
            .env("GIT_CONFIG_NOSYSTEM", "1")
            // OpenCode believes this rather than the directory that it is started in.
            .env("PWD", self.project)
            .current_dir(self.project);
        let url = self.model.url();
        match self.program.client {
            Client::ClaudeCode => command
                .env("ANTHROPIC_BASE_URL", url)
                .env("ANTHROPIC_API_KEY", "scripted")
                .env("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1")
                .env("DISABLE_AUTOUPDATER", "1")
                .env("DISABLE_TELEMETRY", "1")
                .args(["--permission-mode", "acceptEdits"])
                .args(["--allowedTools", "Read,Edit,Write,Bash,Agent,Task"]),
            Client::Codex => command
                .env("SCRIPTED_API_KEY", "scripted")
                .args(["exec", "--skip-git-repo-check", "--dangerously-bypass-hook-trust"])
                .arg("--dangerously-bypass-approvals-and-sandbox"),
            Client::Gemini => command
                .env("GEMINI_API_KEY", "scripted")
                .env("GOOGLE_GEMINI_BASE_URL", url)
                // Naming a model keeps it from asking another one which to take.
                .args(["-m", "gemini-2.5-pro", "-y"]),
            Client::OpenCode => command
                // It looks for packages whenever it starts; here it is told at once that there are none.
                .env("npm_config_registry", url)
                .env("OPENCODE_DISABLE_MODELS_FETCH", "1")
                .env("OPENCODE_DISABLE_AUTOUPDATE", "1")
                .arg("run"),
        };
        command.args(more);
        command
    }
}

fn codex_settings(url: &str, project: &Path) -> String {
    format!(
        "model = \"gpt-5.5\"\nmodel_provider = \"scripted\"\n\n\
         [model_providers.scripted]\nname = \"scripted\"\nbase_url = \"{url}/v1\"\n\
         env_key = \"SCRIPTED_API_KEY\"\nwire_api = \"responses\"\n\n\
         [projects.\"{}\"]\ntrust_level = \"trusted\"\n",
        project.display()
    )
}

fn open_code_settings(url: &str) -> Value {
    let options = json!({"baseURL": format!("{url}/v1"), "apiKey": "scripted"});
    json!({
        "model": "anthropic/claude-sonnet-4-5",
        "provider": {"anthropic": {"options": options}},
        "permission": {"edit": "allow", "bash": "allow"},
        "autoupdate": false,
        "share": "disabled",
    })
}

/// Waits for the end; kills the client with everything that it started if it takes too long.
fn wait(mut child: Child) -> Option<ExitStatus> {
    let begun = Instant::now();
    while begun.elapsed() < PATIENCE {
        if let Some(status) = child.try_wait().expect("a child can be waited for") {
            return Some(status);
        }
        thread::sleep(PAUSE);
    }
    let group = rustix::process::Pid::from_child(&child);
    // It may have ended by itself just now.
    let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
    drop(child.wait());
    None
}

fn read_json(path: &Path) -> Option<Value> {
    serde_json::from_slice(&fs::read(path).ok()?).ok()
}

fn write(path: &Path, text: &str) {
    let parent = path.parent().expect("a file lies in a directory");
    fs::create_dir_all(parent).unwrap_or_else(|error| fail("make", parent, &error));
    fs::write(path, text).unwrap_or_else(|error| fail("write", path, &error));
}

fn fail(action: &str, path: &Path, error: &io::Error) -> ! {
    panic!("could not {action} {}: {error}", path.display())
}
