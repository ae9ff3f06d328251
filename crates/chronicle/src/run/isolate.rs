//! The hidden processes of an isolated run: the one that makes the command's view of the file
//! system, and the first process in it.
//!
//! The first makes a mount namespace (and where it is not root, a user namespace in which the
//! caller is itself), lays an overlay over the workspace there, and waits. The second is the init
//! of a process namespace: whatever the command leaves running ends with it, so that nobody writes
//! to the layer once the run is over.

use std::ffi::OsString;
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use chronicle_core::{IsolatedRun, Process, tell_first_process};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::OwnedFd;
use rustix::fs::{Mode, OFlags};
use rustix::mount::{MountFlags, MountPropagationFlags};
use rustix::process::{
    Pid, Signal, WaitOptions, WaitStatus, kill_current_process_group, wait, waitpid,
};
use rustix::thread::UnshareFlags;
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};

use super::session::killed;
use super::signals::Signals;
use super::{could_not_start, exit_status, ourselves};

/// The hidden verb that makes the view.
pub(crate) const ISOLATE: &str = "__isolate";
/// The hidden verb that is the first process in it.
pub(crate) const INIT: &str = "__isolated-init";
/// What the layer must be, so that reading it is plain: whole files, and nothing that refers to what
/// lies below.
const OPTIONS: &str = "redirect_dir=nofollow,metacopy=off,index=off,nfs_export=off,xino=off";
/// How long what the command left running may take to end by itself.
const GRACE: Duration = Duration::from_secs(2);

/// The words that run a command over a layer: `LOWER UPPER WORK FIRST REFUSED MARKS ROOT DIRECTORY CMD...`.
pub(crate) fn isolated(
    run: &IsolatedRun,
    root: &Path,
    directory: &Path,
    command: &[OsString],
) -> Vec<OsString> {
    let marks = if run.user_xattrs() { "user" } else { "trusted" };
    let places = [run.lower(root), run.upper(), run.work(), run.first(), run.refused()];
    let mut words: Vec<OsString> = vec!["/proc/self/exe".into(), ISOLATE.into()];
    words.extend(places.map(OsString::from));
    words.extend([marks.into(), root.into(), directory.into()]);
    words.extend_from_slice(command);
    words
}

/// Makes the view and waits for what runs in it.
pub(crate) fn isolate(arguments: &[OsString]) -> u8 {
    let [lower, upper, work, first, refused, marks, root, directory, command @ ..] = arguments
    else {
        return 125;
    };
    let view = View {
        lower: Path::new(lower),
        upper: Path::new(upper),
        work: Path::new(work),
        user: marks == "user",
        root: Path::new(root),
        directory: Path::new(directory),
    };
    // Whoever started us is gone: then nobody would ever end the run.
    let _ = rustix::process::set_parent_process_death_signal(Some(Signal::KILL));
    match view.make().and_then(|()| start_init(first, command)) {
        Ok(status) => status,
        Err((step, error)) => {
            let _ = std::fs::write(refused, format!("{step}: {error}"));
            125
        }
    }
}

/// What failed, in words, and why.
type Refusal = (&'static str, io::Error);

fn refusal<E: Into<io::Error>>(step: &'static str) -> impl FnOnce(E) -> Refusal {
    move |error| (step, error.into())
}

struct View<'a> {
    lower: &'a Path,
    upper: &'a Path,
    work: &'a Path,
    user: bool,
    root: &'a Path,
    directory: &'a Path,
}

impl View<'_> {
    fn make(&self) -> Result<(), Refusal> {
        let (uid, gid) = (rustix::process::geteuid(), rustix::process::getegid());
        self.unshare()?;
        if self.user {
            map_to_itself(uid.as_raw(), gid.as_raw())
                .map_err(refusal("the user cannot be itself in a user namespace"))?;
        }
        let propagation = MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC;
        rustix::mount::mount_change("/", propagation)
            .map_err(refusal("mounts cannot be made private"))?;
        // Not before: the kernel takes only what is mounted in the namespace that it mounts in.
        let open = |path: &Path| {
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
            rustix::fs::open(path, flags, Mode::empty())
                .map_err(refusal("a directory is not there"))
        };
        let (root, lower) = (open(self.root)?, open(self.lower)?);
        let (upper, work) = (open(self.upper)?, open(self.work)?);
        self.mount(&root, &[&lower, &upper, &work])
            .map_err(refusal("the kernel refuses the overlay"))?;
        // The directory that we stood in lies below the overlay now.
        std::env::set_current_dir(self.directory).map_err(refusal("the directory is not there"))
    }

    fn unshare(&self) -> Result<(), Refusal> {
        let mut flags = UnshareFlags::NEWNS | UnshareFlags::NEWPID;
        if self.user {
            flags |= UnshareFlags::NEWUSER;
        }
        #[expect(
            unsafe_code,
            reason = "rustix has no safe way; the table of descriptors stays shared"
        )]
        // SAFETY: no flag unshares descriptors, and this process has one thread.
        let done = unsafe { rustix::thread::unshare_unsafe(flags) };
        done.map_err(refusal("namespaces are not allowed here"))
    }

    /// By descriptors: a path may hold what separates options, or be exchanged meanwhile.
    fn mount(&self, root: &OwnedFd, layers: &[&OwnedFd; 3]) -> rustix::io::Result<()> {
        let path = |fd: &OwnedFd| format!("/proc/self/fd/{}", fd.as_raw_fd());
        let mut options = format!(
            "lowerdir={},upperdir={},workdir={},{OPTIONS}",
            path(layers[0]),
            path(layers[1]),
            path(layers[2])
        );
        if self.user {
            options.push_str(",userxattr");
        }
        let options = std::ffi::CString::new(options).expect("BUG: numbers have no NUL");
        rustix::mount::mount(
            "chronicle",
            path(root),
            "overlay",
            MountFlags::empty(),
            Some(options.as_c_str()),
        )
    }
}

/// In a new user namespace the caller is who he was, and nobody else is anybody.
fn map_to_itself(uid: u32, gid: u32) -> io::Result<()> {
    std::fs::write("/proc/self/setgroups", "deny")?;
    std::fs::write("/proc/self/uid_map", format!("{uid} {uid} 1"))?;
    std::fs::write("/proc/self/gid_map", format!("{gid} {gid} 1"))
}

/// Starts the first process of the new process namespace, and ends as it ends.
fn start_init(first: &OsString, command: &[OsString]) -> Result<u8, Refusal> {
    // Signals to the whole group are for the command; ^Z stops us with it, as by default.
    for signal in [SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2] {
        signal_hook::flag::register(signal, Arc::new(AtomicBool::new(false)))
            .map_err(refusal("signals cannot be taken over"))?;
    }
    let child = ourselves(INIT).arg(first).args(command).spawn();
    let child = Pid::from_child(&child.map_err(refusal("no process can be started"))?);
    loop {
        match waitpid(Some(child), WaitOptions::empty()) {
            Ok(Some((_, status))) => return Ok(killed(status)),
            Ok(None) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(("the command cannot be waited for", error.into())),
        }
    }
}

/// The first process: `FIRST CMD...` starts the command, and gives every orphan a parent.
pub(crate) fn init(arguments: &[OsString]) -> u8 {
    let _ = rustix::process::set_parent_process_death_signal(Some(Signal::KILL));
    let Some((first, command)) = arguments.split_first() else { return 125 };
    // Whoever decides about the run later must be able to ask whether we live.
    if tell(Path::new(first)).is_none() {
        return 125;
    }
    // Where it may not be had, the old one shows the processes under their outer numbers.
    let _ = rustix::mount::mount("proc", "/proc", "proc", MountFlags::empty(), None);
    watch(command).unwrap_or(125)
}

/// Says which process we are outside: as long as the old `/proc` is there, it names us so.
fn tell(first: &Path) -> Option<()> {
    let own = std::fs::read_link("/proc/self").ok()?;
    let process = Process::of(own.to_str()?.parse().ok()?)?;
    tell_first_process(first, &process).ok()
}

fn watch(command: &[OsString]) -> io::Result<u8> {
    let mut signals = Signals::take_over()?;
    let Some((program, words)) = command.split_first() else { return Ok(125) };
    let command = match Command::new(program).args(words).spawn() {
        Ok(child) => Pid::from_child(&child),
        Err(error) => return Ok(could_not_start(program, error)),
    };
    let status = loop {
        match next(&mut signals, None)? {
            Some((pid, status)) if pid == command => match exit_status(status) {
                Some(status) => break status,
                None => pass_stop_on(status),
            },
            Some(_) | None => {}
        }
    };
    end_the_rest(&mut signals)?;
    Ok(status)
}

/// The command stopped: whoever waits for us must stop with it. We ourselves cannot.
fn pass_stop_on(status: WaitStatus) {
    let signal = status.stopping_signal().and_then(Signal::from_named_raw);
    if let Some(signal @ (Signal::TSTP | Signal::TTIN | Signal::TTOU)) = signal {
        let _ = kill_current_process_group(signal);
    }
}

/// The next child that ended or stopped; `None` when the time is over or there is none.
fn next(signals: &mut Signals, limit: Option<Duration>) -> io::Result<Option<(Pid, WaitStatus)>> {
    let deadline = limit.map(|limit| Instant::now() + limit);
    loop {
        match wait(WaitOptions::NOHANG | WaitOptions::UNTRACED) {
            Ok(Some(ended)) => return Ok(Some(ended)),
            Err(rustix::io::Errno::CHILD) => return Ok(None),
            Err(rustix::io::Errno::INTR) | Ok(None) => {}
            Err(error) => return Err(error.into()),
        }
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        if left.is_some_and(|left| left.is_zero()) {
            return Ok(None);
        }
        let left = left.map(|left| left.try_into().expect("BUG: a short time"));
        match poll(&mut [PollFd::new(&*signals, PollFlags::IN)], left.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        signals.take();
    }
}

/// Waits a little for what the command left running. What still runs then ends with us.
fn end_the_rest(signals: &mut Signals) -> io::Result<()> {
    let begun = Instant::now();
    while begun.elapsed() < GRACE {
        match wait(WaitOptions::NOHANG) {
            Err(rustix::io::Errno::CHILD) => return Ok(()),
            Ok(Some(_)) => {}
            _ => drop(next(signals, Some(GRACE.saturating_sub(begun.elapsed())))?),
        }
    }
    if !matches!(wait(WaitOptions::NOHANG), Err(rustix::io::Errno::CHILD)) {
        crate::ui::say(
            "Processes that the command left running were ended with the isolated run\n",
        );
    }
    Ok(())
}

/// Whether words name one of the hidden processes, and what came of it.
pub(crate) fn hidden(verb: &str, arguments: &[OsString]) -> Option<u8> {
    match verb {
        ISOLATE => Some(isolate(arguments)),
        INIT => Some(init(arguments)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_few_words_are_refused() {
        assert_eq!(isolate(&[]), 125);
    }
}
