//! `chronicle mount`: the workspace at another place, where everything that any process does is in the log.

use std::ffi::OsString;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use chronicle_core::{SCHEMA, Workspace};
use chronicle_mount::{Fill, MountError, Mounted, Past, Recorder, Settings};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use super::Invocation;
use super::fetch::Asking;
use crate::cli::MountArgs;
use crate::error::{CommandError, Kind, Outcome};
use crate::render::printable;

/// The hidden verb of the process that serves a mount in the background.
pub(crate) const SERVE: &str = "__mount";

/// How often it is asked whether a mount has ended.
const OFTEN: Duration = Duration::from_millis(50);

/// What the process in the background says when everything is there.
const READY: &str = "ready\n";

pub(crate) fn execute(invocation: &mut Invocation, args: &MountArgs) -> Outcome {
    let (directory, at) = match &args.places[..] {
        [at] => (invocation.directory.clone(), invocation.directory.join(at)),
        [directory, at, ..] => {
            (invocation.directory.join(directory), invocation.directory.join(at))
        }
        [] => return Err(CommandError::usage("Where should it be mounted?")),
    };
    let workspace = Workspace::open(&crate::bucket::home()?, &directory)?;
    let root = workspace.root().to_owned();
    drop(workspace);
    let at = at.canonicalize().map_err(|error| {
        let what = format!("Could not mount at {}", printable(&at.to_string_lossy()));
        CommandError::io(what, error).hinted("Make the directory first; it must be empty")
    })?;
    if args.foreground {
        let serving = Serving::begin(&root, &at, args.allow_other)?;
        invocation.ui.note(words(&root, &at));
        serving.until_the_end()?;
        return Ok(0);
    }
    let process = start(&root, &at, args.allow_other)?;
    if invocation.ui.json() {
        let (root, at) = (root.to_string_lossy(), at.to_string_lossy());
        let said =
            serde_json::json!({ "schema": SCHEMA, "root": root, "at": at, "process": process });
        invocation.ui.data(&said);
    }
    invocation.ui.note(words(&root, &at));
    Ok(0)
}

pub(super) fn words(root: &Path, at: &Path) -> String {
    let at = at.to_string_lossy();
    format!(
        "Mounted {} at {at}: what is done there is in the log. The past is in {at}/.chronicle/at. \
         End it with: chronicle unmount {at}",
        root.display()
    )
}

/// Starts a process that serves the mount, and waits until it does.
pub(super) fn start(root: &Path, at: &Path, allow_other: bool) -> Result<u32, CommandError> {
    let program = std::env::current_exe()
        .map_err(|error| CommandError::usage(format!("Which program: {error}")))?;
    let mut command = Command::new(program);
    command.arg(SERVE).arg(root).arg(at).arg(if allow_other { "others" } else { "" });
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).current_dir("/");
    let failed = |error| CommandError::io("Could not start a process for the mount", error);
    let mut child = command.spawn().map_err(failed)?;
    let mut said = String::new();
    child.stdout.take().expect("it is piped").read_to_string(&mut said).map_err(failed)?;
    if said == READY {
        return Ok(child.id());
    }
    let _ = child.wait();
    // The other process has the words and the hints; they are ours from here on.
    let mut lines = said.lines();
    let (code, text) = (lines.next().unwrap_or("io"), lines.next().unwrap_or("It ended by itself"));
    let error = CommandError::failed(known_code(code), text.to_owned());
    Err(lines.fold(error, |error, hint| error.hinted(hint.to_owned())))
}

/// Codes are contracts: only those that are documented are passed on.
fn known_code(code: &str) -> &'static str {
    MountError::CODES
        .into_iter()
        .chain(["busy", "no_workspace"])
        .find(|known| *known == code)
        .unwrap_or("io")
}

/// The process in the background.
pub(crate) fn serve(arguments: &[OsString]) -> u8 {
    super::watch::detach();
    let [root, at, others] = arguments else { return 2 };
    let begun = Serving::begin(Path::new(root), Path::new(at), others == "others");
    let mut out = std::io::stdout();
    let (said, serving) = match begun {
        Ok(serving) => (READY.to_owned(), Some(serving)),
        Err(error) => {
            let hints = error.hints.iter().map(|hint| format!("{hint}\n")).collect::<String>();
            (format!("{}\n{}\n{hints}", error.code, error.error), None)
        }
    };
    let _ = out.write_all(said.as_bytes()).and_then(|()| out.flush());
    // Whoever started us waits for the end of this.
    if let Ok(nowhere) = std::fs::File::options().write(true).open("/dev/null") {
        let _ = rustix::stdio::dup2_stdout(&nowhere);
    }
    match serving.map(Serving::until_the_end) {
        Some(Ok(())) => 0,
        _ => 1,
    }
}

/// A mount that this process serves.
pub(crate) struct Serving {
    recorder: Arc<Recorder>,
    mounted: Mounted,
    folding: std::thread::JoinHandle<()>,
    root: PathBuf,
}

impl Serving {
    /// Records what stands in the workspace, and mounts it.
    pub(crate) fn begin(root: &Path, at: &Path, allow_other: bool) -> Result<Self, CommandError> {
        let home = crate::bucket::home()?;
        let recorder = Recorder::begin(&home, root)?;
        let owner = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
        let past = Arc::new(Past::new(Arc::clone(&recorder), home.path(), owner));
        let asking = Asking::of(&Workspace::open(&home, root)?)?;
        let fill = asking.map(|asking| Arc::new(asking) as Arc<dyn Fill>);
        let settings = Settings { allow_other, fill, ..Settings::new(root, at) };
        let mounted = chronicle_mount::mount(&settings, Arc::clone(&recorder) as _, past)?;
        recorder.set_place(Some(at))?;
        let folding = recorder.keep_folding();
        Ok(Self { recorder, mounted, folding, root: root.to_owned() })
    }

    /// Serves until it is unmounted or told to end; then everything is brought into the log.
    pub(crate) fn until_the_end(self) -> Result<(), CommandError> {
        let stop = Arc::new(AtomicBool::new(false));
        for signal in [SIGTERM, SIGINT, SIGHUP] {
            // Without it the signal ends the process; the journal is there for whoever comes next.
            let _ = signal_hook::flag::register(signal, Arc::clone(&stop));
        }
        while !self.mounted.is_over() && !stop.load(Ordering::Relaxed) {
            std::thread::sleep(OFTEN);
        }
        self.end()
    }

    /// Takes it away, also from under those who use it, and records what they did.
    pub(crate) fn end(self) -> Result<(), CommandError> {
        let Self { recorder, mounted, folding, root } = self;
        let unmounted = mounted.unmount();
        recorder.stop();
        let _ = folding.join();
        let folded = recorder.fold(true);
        recorder.set_place(None)?;
        unmounted.map_err(|error| CommandError::io("Could not unmount", error))?;
        folded.map(drop).map_err(|error| {
            CommandError::from(error).hinted(format!(
                "What is not recorded yet is recorded by: chronicle -C {} settle",
                root.display()
            ))
        })
    }
}

impl From<MountError> for CommandError {
    fn from(error: MountError) -> Self {
        let code = error.code();
        Self { kind: Kind::Failed, code, error: error.into(), hints: Vec::new() }
    }
}
