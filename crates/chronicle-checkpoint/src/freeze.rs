//! The freeze as a small machine: commands close admission, parts are frozen, boundaries are taken, and
//! whatever happens everything goes on again.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use chronicle_core::{CheckpointCommand, failpoint};
use serde::{Deserialize, Serialize};

use crate::declare::command_limit;
use crate::driver::{Capture, Captured, Deadline};
use crate::durable;
use crate::error::{Error, Result, sentence};
use crate::exchange::remove;
use crate::part::Part;
use crate::programs::Program;

/// The file that says that commands closed admission, until they opened it again.
const MARK: &str = "frozen";

/// Admission is closed: the commands that close it were run, and those that open it will be.
pub struct Admission {
    place: PathBuf,
    root: PathBuf,
    thaw: Vec<(Vec<String>, u64)>,
    closed: bool,
}

/// What is needed to open admission again in another process.
#[derive(Serialize, Deserialize)]
struct Mark {
    thaw: Vec<(Vec<String>, u64)>,
}

impl Admission {
    /// Runs the commands that close it, in order. If one fails, those before it are taken back.
    pub fn close(
        commands: &[CheckpointCommand],
        place: &Path,
        root: &Path,
        limit: &Deadline,
    ) -> Result<Self> {
        let thaw = commands.iter().rev().filter(|command| !command.thaw.is_empty());
        let thaw: Vec<_> = thaw
            .map(|command| {
                let limit = command_limit(command).as_millis();
                (command.thaw.clone(), u64::try_from(limit).unwrap_or(u64::MAX))
            })
            .collect();
        let (place, root) = (place.to_owned(), root.to_owned());
        let mut admission = Self { place, root, thaw, closed: !commands.is_empty() };
        if admission.closed {
            // First what opens it again, so that nobody's death leaves it closed for good.
            durable::write(&admission.place.join(MARK), &Mark { thaw: admission.thaw.clone() })?;
        }
        for command in commands.iter().filter(|command| !command.freeze.is_empty()) {
            let allowed = command_limit(command).min(limit.left());
            if let Err(error) = run(&command.freeze, &admission.root, allowed) {
                let _ = admission.open();
                return Err(error);
            }
        }
        Ok(admission)
    }

    /// Runs the commands that open it again, all of them, and tells of the first that failed.
    pub fn open(&mut self) -> Result<()> {
        if !std::mem::take(&mut self.closed) {
            return Ok(());
        }
        let opened = run_all(&self.thaw, &self.root);
        remove(&self.place.join(MARK))?;
        opened
    }
}

impl Drop for Admission {
    fn drop(&mut self) {
        let _ = self.open();
    }
}

/// Opens admission that a dead process left closed; tells whether there was any.
pub fn reopen(place: &Path, root: &Path) -> Result<bool> {
    let mark = place.join(MARK);
    let Some(Mark { thaw }) = durable::read(&mark)? else { return Ok(false) };
    let opened = run_all(&thaw, root);
    remove(&mark)?;
    opened.map(|()| true)
}

fn run_all(commands: &[(Vec<String>, u64)], root: &Path) -> Result<()> {
    let mut failure = Ok(());
    for (command, limit) in commands {
        let ran = run(command, root, Duration::from_millis(*limit));
        failure = failure.and(ran);
    }
    failure
}

fn run(command: &[String], root: &Path, limit: Duration) -> Result<()> {
    let Some((program, arguments)) = command.split_first() else { return Ok(()) };
    Program::new(program, limit).args(arguments).within(root).run().map(drop)
}

/// How far a freeze has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Phase {
    Prepared,
    Frozen,
    Bounded,
    Thawed,
}

/// Parts on their way into one checkpoint.
pub struct Freeze<'s> {
    parts: Vec<(Part, Box<dyn Capture + 's>)>,
    phase: Phase,
    begun: Instant,
}

impl<'s> Freeze<'s> {
    /// Parts that are prepared.
    pub fn of(parts: Vec<(Part, Box<dyn Capture + 's>)>) -> Self {
        Self { parts, phase: Phase::Prepared, begun: Instant::now() }
    }

    /// Freezes the parts that are code, or those that are data.
    pub fn freeze(&mut self, code: bool, limit: &Deadline) -> Result<()> {
        assert!(self.phase <= Phase::Frozen, "BUG: a part is frozen after the boundary");
        if self.phase == Phase::Prepared {
            (self.begun, self.phase) = (Instant::now(), Phase::Frozen);
        }
        for (part, capture) in &mut self.parts {
            if part.kind.is_code() == code {
                capture.freeze(limit).map_err(|error| about(part, error))?;
                limit.check(&format!("freezing part {:?}", part.name))?;
                failpoint::hit("checkpoint_in_freeze");
            }
        }
        Ok(())
    }

    /// Takes the boundary of every part.
    pub fn boundary(&mut self, limit: &Deadline) -> Result<()> {
        assert_eq!(self.phase, Phase::Frozen, "BUG: a boundary outside the freeze");
        for (part, capture) in &mut self.parts {
            capture.boundary(limit).map_err(|error| about(part, error))?;
            limit.check(&format!("taking the boundary of part {:?}", part.name))?;
        }
        self.phase = Phase::Bounded;
        failpoint::hit("checkpoint_after_boundary");
        Ok(())
    }

    /// Lets every part go on, the last one first, and tells how long they stood still.
    pub fn thaw(&mut self) -> Result<Duration> {
        let mut failure = Ok(());
        for (part, capture) in self.parts.iter_mut().rev() {
            let thawed = capture.thaw().map_err(|error| about(part, error));
            failure = failure.and(thawed);
        }
        self.phase = Phase::Thawed;
        failure.map(|()| self.begun.elapsed())
    }

    /// Brings in the bytes of every part; tells of each that it has, for whoever must discard it.
    pub fn capture(&mut self, done: &mut dyn FnMut(&Part, Captured)) -> Result<()> {
        assert_eq!(self.phase, Phase::Thawed, "BUG: bytes are brought in before the thaw");
        for (part, capture) in &mut self.parts {
            let captured = capture.capture().map_err(|error| about(part, error))?;
            done(part, captured);
            failpoint::hit("checkpoint_after_part");
        }
        Ok(())
    }
}

impl Drop for Freeze<'_> {
    fn drop(&mut self) {
        if self.phase != Phase::Thawed {
            let _ = self.thaw();
        }
    }
}

/// An error with the part that it is about.
fn about(part: &Part, error: Error) -> Error {
    match error {
        Error::Core(_) | Error::FreezeLimit(_) | Error::Busy => error,
        Error::Refused(problem) if problem.part.is_none() => problem.of(&part.name).into(),
        Error::Refused(_) => error,
        other => Error::Program {
            program: format!("Capturing part {:?}", part.name),
            why: sentence(&other),
        },
    }
}
