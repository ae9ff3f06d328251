//! `chronicle connect`: a directory becomes the replica of a host's workspace, and stays one.

use std::path::{Path, PathBuf};
use std::time::Duration;

use chronicle_core::{Error, Home, InitOptions, SCHEMA, Workspace, WorkspaceId};
use chronicle_replica::drive::{
    Asked, ClientOptions, End, SandboxWork, Stop, Target, Told, Trust, Url, ask, run,
};
use chronicle_replica::{Limits, SandboxSession};

use super::Invocation;
use super::serve::trace;
use super::signals::stop_on_signals;
use crate::bucket::home as bucket_home;
use crate::cli::ConnectArgs;
use crate::environment;
use crate::error::{CommandError, Kind, Outcome};
use crate::render::{count, printable, size};
use crate::ui::Meter;

/// The longest file with a token that is read.
const TOKEN_MOST: usize = 4096;
/// The pause before a host that cannot be reached is asked again, at first and at last.
const PAUSE: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(30));

pub(crate) fn execute(invocation: &mut Invocation, args: &ConnectArgs) -> Outcome {
    let home = bucket_home()?;
    let dir = invocation.directory.join(&args.dir);
    let target = target(invocation, args)?;
    let token = token(invocation, args)?;
    let stop = Stop::default();
    stop_on_signals(&stop)?;
    let named = args.workspace.as_deref().map(parse_id).transpose()?;
    let name = args.name.clone().unwrap_or_else(|| default_name(&dir));
    let opened = open_replica(&home, &dir)?;
    let mut workspace = match opened {
        Some(workspace) => rename(workspace, args, named, &target)?,
        None => {
            let Some(of) = first_word(invocation, args, &target, &token, &name, named, &stop)?
            else {
                return Ok(0);
            };
            std::fs::create_dir_all(&dir).map_err(|error| {
                CommandError::io(format!("Could not make {}", dir.display()), error)
            })?;
            let (mut workspace, _) = Workspace::init(&home, &dir, &InitOptions::default())?;
            workspace.become_replica(of, &target.words(), &name)?;
            workspace
        }
    };
    if args.lazy && !workspace.is_lazy()? {
        workspace.become_lazy()?;
    }
    let mount = args.mount.as_ref().map(|at| Mounting::prepare(invocation, &home, &workspace, at));
    let mount = mount.transpose()?;
    let trace = trace(invocation, args.trace.as_deref())?;
    let work = SandboxWork::new(workspace, &home)?;
    let session = SandboxSession::new(work.begin(token)?, Limits::default().into(), random());
    let session = session.lazily(work.is_lazy());
    let options = ClientOptions { home, target, once: args.once, trace };
    let mut teller = Teller::new(invocation, &dir);
    let mut mounting = mount;
    let end = run(options, work, session, &stop, &mut |told| {
        let equal = told == Told::Equal;
        teller.tell(told);
        if let Some(mounting) = mounting.as_mut().filter(|_| equal)
            && let Err(error) = mounting.begin(teller.invocation)
        {
            teller.failed.get_or_insert(error);
            stop.stop();
        }
    });
    let unmounted = mounting.map_or(Ok(()), |mounting| mounting.end());
    let end = end.map_err(|error| CommandError::io("Could not keep the replica", error))?;
    if let Some(error) = teller.failed.take() {
        return Err(error);
    }
    unmounted?;
    teller.end(end)
}

pub(super) fn parse_id(text: &str) -> Result<WorkspaceId, CommandError> {
    let wrong = |()| CommandError::usage(format!("{text:?} is no workspace's id"));
    text.parse().map_err(wrong)
}

fn target(invocation: &Invocation, args: &ConnectArgs) -> Result<Target, CommandError> {
    if let Some(socket) = &args.socket {
        return Ok(Target::Socket(invocation.directory.join(socket)));
    }
    let text = args.ws.as_deref().unwrap_or_default();
    let url = Url::parse(text).map_err(CommandError::usage)?;
    let ca = args.ca.as_ref().map(|file| invocation.directory.join(file));
    let trust = match url.secure {
        false => None,
        true => {
            let words = "Could not read the certificates to believe";
            Some(Trust::read(ca.as_deref()).map_err(|error| CommandError::io(words, error))?)
        }
    };
    Ok(Target::WebSocket { url, trust })
}

/// The token: never from the command line, where everybody on the machine could read it.
fn token(invocation: &Invocation, args: &ConnectArgs) -> Result<Vec<u8>, CommandError> {
    let (file, text) = environment::token();
    let file = args.token_file.clone().or(file);
    let Some(file) = file.map(|file| invocation.directory.join(file)) else {
        return Ok(text.unwrap_or_default().trim().as_bytes().to_vec());
    };
    let words = format!("Could not read the token in {}", file.display());
    let text = std::fs::read(&file).map_err(|error| CommandError::io(words, error))?;
    let text = text.trim_ascii();
    if text.is_empty() || text.len() > TOKEN_MOST {
        return Err(CommandError::failed("token", format!("{} holds no token", file.display())));
    }
    Ok(text.to_vec())
}

pub(super) fn default_name(dir: &Path) -> String {
    let machine = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let machine = machine.trim();
    let dir = dir.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let name: String = format!("{machine}:{dir}").chars().filter(|c| !c.is_control()).collect();
    name.chars().take(60).collect()
}

/// The replica that a directory is already; `None` if it is empty or not there.
fn open_replica(home: &Home, dir: &Path) -> Result<Option<Workspace>, CommandError> {
    let real = dir.canonicalize().unwrap_or_else(|_| dir.to_owned());
    let opened = match real.is_dir() {
        true => Workspace::open(home, &real),
        false => Err(Error::NoWorkspace(real.clone())),
    };
    let shown = printable(&dir.to_string_lossy()).into_owned();
    match opened {
        Ok(workspace) if workspace.root() != real => {
            let around = workspace.root().display();
            Err(stopped(format!("{shown} lies inside the workspace {around}"))
                .hinted("Choose a directory outside of it"))
        }
        Ok(workspace) if workspace.replica_state()?.is_some() => Ok(Some(workspace)),
        Ok(_) => Err(stopped(format!("{shown} is a workspace of its own, and no replica"))
            .hinted("Choose an empty or new directory: what is in this one stays as it is")),
        Err(Error::NoWorkspace(_)) if is_empty(dir)? => Ok(None),
        Err(Error::NoWorkspace(_)) => Err(stopped(format!("{shown} is not empty"))
            .hinted("Choose an empty or new directory: what is in this one stays as it is")),
        Err(error) => Err(error.into()),
    }
}

fn stopped(words: String) -> CommandError {
    CommandError::failed("not_a_replica", words).of(Kind::Stopped)
}

fn is_empty(dir: &Path) -> Result<bool, CommandError> {
    match std::fs::read_dir(dir) {
        Ok(mut entries) => Ok(entries.next().is_none()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(true),
        Err(error) => Err(CommandError::io(format!("Could not list {}", dir.display()), error)),
    }
}

/// A replica that goes on: it stays that of its workspace, under the name that is given now.
fn rename(
    mut workspace: Workspace,
    args: &ConnectArgs,
    named: Option<WorkspaceId>,
    target: &Target,
) -> Result<Workspace, CommandError> {
    let Some(state) = workspace.replica_state()? else { return Ok(workspace) };
    if named.is_some_and(|named| named != state.of) {
        let words = format!("This is a replica of workspace {}, and not of that", state.of.hex());
        return Err(stopped(words));
    }
    let name = args.name.clone().unwrap_or(state.name);
    workspace.become_replica(state.of, &target.words(), &name)?;
    Ok(workspace)
}

/// Asks the host which workspace it serves; `None` if somebody stopped it meanwhile.
fn first_word(
    invocation: &mut Invocation,
    args: &ConnectArgs,
    target: &Target,
    token: &[u8],
    name: &str,
    named: Option<WorkspaceId>,
    stop: &Stop,
) -> Result<Option<WorkspaceId>, CommandError> {
    let (mut pause, most) = PAUSE;
    loop {
        let words = match ask(target, token, name, named, stop) {
            Asked::Workspace(of) => return Ok(Some(of)),
            Asked::Stopped => return Ok(None),
            Asked::Refused(words) => {
                let words = format!("The host does not let this replica in: {}", printable(&words));
                return Err(CommandError::failed("refused", words));
            }
            Asked::Failed(words) => words,
        };
        let words = format!("Could not reach {}: {}", target.words(), printable(&words));
        if args.once {
            return Err(CommandError::failed("unreachable", words)
                .hinted("Is chronicle serve running there?"));
        }
        invocation.ui.note(format!("{words}; trying again"));
        std::thread::sleep(pause);
        pause = (pause * 2).min(most);
    }
}

fn random() -> u64 {
    let mut bytes = [0; 8];
    // Only spreads the times at which many come back.
    let _ = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
    u64::from_le_bytes(bytes)
}

/// The mount of a lazy replica, for as long as it is connected.
struct Mounting {
    home: Home,
    root: PathBuf,
    at: PathBuf,
    begun: bool,
}

impl Mounting {
    /// What has a tree is mounted at once, also without the host; a new one when its tree is there.
    fn prepare(
        invocation: &mut Invocation,
        home: &Home,
        workspace: &Workspace,
        at: &Path,
    ) -> Result<Self, CommandError> {
        let at = invocation.directory.join(at);
        let standing = workspace.mount_place()?;
        let is_here = |at: &Path| standing.as_ref().is_some_and(|place| place.at == at);
        if is_here(&at) && !workspace.is_mounted()? {
            // Whoever served it was killed, and what it left cannot even be looked at.
            let _ = chronicle_mount::detach(&at, true);
        }
        let failed = |error| CommandError::io(format!("Could not make {}", at.display()), error);
        std::fs::create_dir_all(&at).map_err(failed)?;
        let at = at.canonicalize().map_err(failed)?;
        let (home, root) = (home.clone(), workspace.root().to_owned());
        // One that outlived the process that was connected goes on.
        let begun = is_here(&at) && workspace.is_mounted()?;
        let mut mounting = Self { home, root, at, begun };
        if workspace.replica_state()?.is_some_and(|state| state.applied.is_some()) {
            mounting.begin(invocation)?;
        }
        Ok(mounting)
    }

    fn begin(&mut self, invocation: &mut Invocation) -> Result<(), CommandError> {
        if !std::mem::replace(&mut self.begun, true) {
            super::mount::start(&self.root, &self.at, false)?;
            invocation.ui.note(super::mount::words(&self.root, &self.at));
        }
        Ok(())
    }

    fn end(self) -> Result<(), CommandError> {
        let workspace = Workspace::open(&self.home, &self.root)?;
        match workspace.mount_place()?.filter(|place| self.begun && place.at == self.at) {
            Some(place) => super::unmount::end(&workspace, &place, true),
            None => Ok(()),
        }
    }
}

/// Tells a person what happens.
struct Teller<'i> {
    invocation: &'i mut Invocation,
    meter: Meter,
    dir: PathBuf,
    last: Option<Told>,
    refused: Option<String>,
    rejected: u64,
    equal: bool,
    /// Why it must end.
    failed: Option<CommandError>,
}

impl<'i> Teller<'i> {
    fn new(invocation: &'i mut Invocation, dir: &Path) -> Self {
        let meter = Meter::new(&invocation.ui);
        let dir = dir.to_owned();
        let (last, refused, failed) = (None, None, None);
        Self { invocation, meter, dir, last, refused, rejected: 0, equal: false, failed }
    }

    fn tell(&mut self, told: Told) {
        if let Told::Applied { paths, bytes } = &told {
            if !self.equal {
                let (paths, bytes) = (count(*paths, "path"), size(*bytes));
                self.meter.show(|| format!("catching up: {paths}, {bytes}"));
            }
            return;
        }
        // What stays the same is said once.
        if self.last.as_ref() == Some(&told) {
            return;
        }
        self.meter.clear();
        let dir = self.dir.display();
        match &told {
            Told::Welcome { may_write, behind } => {
                self.equal = false;
                let right = if *may_write { "" } else { ", read only" };
                let behind = match behind {
                    Some(0) => "up to date".to_owned(),
                    Some(behind) => format!("{} behind", count(*behind, "record")),
                    None => "to be filled".to_owned(),
                };
                self.note(format!("Connected{right}: {dir} is {behind}"));
            }
            Told::Equal => {
                self.equal = true;
                self.note(format!("Equal: {dir} has what the host has"));
            }
            Told::Lost(words) => self.note(format!("{}; trying again", printable(words))),
            Told::Refused(words) => {
                self.refused = Some(words.clone());
                self.note(format!("The host does not let this replica in: {}", printable(words)));
            }
            Told::Rejected(number) => {
                self.rejected += number;
                let writes = count(*number, "write");
                self.note(format!("The host did not take {writes}. See: chronicle conflicts list"));
            }
            Told::Trouble(words) => self.note(format!("{}; trying again", printable(words))),
            Told::Applied { .. } => {}
        }
        self.last = Some(told);
    }

    fn note(&mut self, text: String) {
        self.invocation.ui.note(text);
    }

    fn end(self, end: End) -> Outcome {
        self.meter.clear();
        if self.invocation.ui.json() {
            let word = match end {
                End::Stopped => "stopped",
                End::Equal => "equal",
                End::Refused => "refused",
            };
            let line = serde_json::json!({
                "schema": SCHEMA, "end": word, "rejected": self.rejected,
            });
            self.invocation.ui.data(&line);
        }
        match end {
            End::Refused => {
                let words = self.refused.unwrap_or_default();
                let words = format!("The host does not let this replica in: {}", printable(&words));
                Err(CommandError::failed("refused", words))
            }
            End::Stopped | End::Equal => Ok(0),
        }
    }
}
