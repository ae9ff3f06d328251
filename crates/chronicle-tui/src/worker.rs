//! Answers what the screen asks for: one thread per lane, a workspace opened for each request, and
//! nothing held while nobody asks.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use chronicle_core::{
    Entry, Error, Home, RewindKind, RewindRequest, Seq, Workspace, WorkspacePath,
};

use crate::doc::Doc;
use crate::request::{Answer, Answered, Lane, Request, ScreenId};

/// How often the log is asked whether it has grown.
const PERIOD: Duration = Duration::from_millis(300);
/// The longest content that is shown.
const LONGEST: u64 = 16 << 20;
/// How many matches of a search are shown.
const MATCHES: usize = 5_000;
/// How many versions of a file are shown.
const VERSIONS: usize = 2_000;

/// Where the workspace is.
#[derive(Clone)]
pub(crate) struct Place {
    pub(crate) home: Home,
    pub(crate) directory: PathBuf,
}

impl Place {
    pub(crate) fn open(&self) -> Result<Workspace, Error> {
        Workspace::open(&self.home, &self.directory)
    }
}

/// One request on its way, with the word that it is not wanted any more.
struct Job {
    request: Request,
    given_up: Arc<AtomicBool>,
}

/// The threads, seen from the screen.
pub(crate) struct Workers {
    lanes: [Sender<Job>; 4],
    /// What may be given up: by what would replace it, and by screen.
    latest: HashMap<(&'static str, ScreenId), Arc<AtomicBool>>,
    under_way: HashMap<ScreenId, Vec<Arc<AtomicBool>>>,
    /// How many requests that change something are not answered yet.
    changing: Arc<AtomicUsize>,
}

impl Workers {
    /// Starts them; `answer` takes what they answer, and tells whether anybody still listens.
    pub(crate) fn start(
        place: &Place,
        answer: impl Fn(Answer) -> bool + Send + Clone + 'static,
    ) -> std::io::Result<Self> {
        let changing = Arc::new(AtomicUsize::new(0));
        let start = |name: &str, looks: bool| {
            let (sender, receiver) = channel();
            let worker = Worker {
                place: place.clone(),
                answer: answer.clone(),
                changing: Arc::clone(&changing),
                head: None,
            };
            let work = move || worker.work(&receiver, looks);
            std::thread::Builder::new().name(name.to_owned()).spawn(work).map(|_| sender)
        };
        let lanes = [
            start("look", true)?,
            start("read", false)?,
            start("search", false)?,
            start("change", false)?,
        ];
        Ok(Self { lanes, latest: HashMap::new(), under_way: HashMap::new(), changing })
    }

    /// Hands a request over; an earlier one that it makes useless is given up.
    pub(crate) fn ask(&mut self, request: Request) {
        let given_up = Arc::new(AtomicBool::new(false));
        if let Some(key) = request.replaces()
            && let Some(earlier) = self.latest.insert(key, Arc::clone(&given_up))
        {
            earlier.store(true, Ordering::Relaxed);
        }
        if request.changes_something() {
            self.changing.fetch_add(1, Ordering::SeqCst);
        } else {
            let all = self.under_way.entry(request.screen()).or_default();
            all.retain(|flag| Arc::strong_count(flag) > 1);
            all.push(Arc::clone(&given_up));
        }
        let lane = match request.lane() {
            Lane::Look => 0,
            Lane::Read => 1,
            Lane::Search => 2,
            Lane::Change => 3,
        };
        // A thread that is gone died of a bug, and that was told.
        let _ = self.lanes[lane].send(Job { request, given_up });
    }

    /// What a screen still waits for is not wanted any more.
    pub(crate) fn give_up(&mut self, screen: ScreenId) {
        for flag in self.under_way.remove(&screen).unwrap_or_default() {
            flag.store(true, Ordering::Relaxed);
        }
    }

    /// Waits until nothing that changes the workspace is under way.
    pub(crate) fn finish_changes(&self) {
        while self.changing.load(Ordering::SeqCst) > 0 {
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Whether something that changes the workspace is under way, for other threads.
    pub(crate) fn changing(&self) -> Arc<AtomicUsize> {
        Arc::clone(&self.changing)
    }
}

struct Worker<A> {
    place: Place,
    answer: A,
    changing: Arc<AtomicUsize>,
    head: Option<u64>,
}

impl<A: Fn(Answer) -> bool> Worker<A> {
    fn work(mut self, jobs: &Receiver<Job>, looks: bool) {
        loop {
            let job = match looks {
                true => jobs.recv_timeout(PERIOD),
                false => jobs.recv().map_err(|_| RecvTimeoutError::Disconnected),
            };
            let listened = match job {
                Ok(job) => self.serve(job),
                Err(RecvTimeoutError::Timeout) => self.look_at_head(),
                Err(RecvTimeoutError::Disconnected) => return,
            };
            if !listened {
                return;
            }
        }
    }

    fn serve(&self, job: Job) -> bool {
        let changes = job.request.changes_something();
        if job.given_up.load(Ordering::Relaxed) && !changes {
            return true;
        }
        let answer = answer(&self.place, job.request, &job.given_up);
        if changes {
            self.changing.fetch_sub(1, Ordering::SeqCst);
        }
        (self.answer)(answer)
    }

    /// Tells if the log has grown. A workspace that cannot be opened right now is asked again.
    fn look_at_head(&mut self) -> bool {
        let head = self.place.open().and_then(|workspace| workspace.last_position());
        match head {
            Ok(head) if self.head != Some(head.0) => {
                self.head = Some(head.0);
                (self.answer)(Answer::Head(head.0))
            }
            _ => true,
        }
    }
}

fn with<T>(place: &Place, act: impl FnOnce(&mut Workspace) -> Result<T, Error>) -> Answered<T> {
    Ok(place.open().and_then(|mut workspace| act(&mut workspace))?)
}

fn answer(place: &Place, request: Request, given_up: &AtomicBool) -> Answer {
    match request {
        Request::Outline { filter } => {
            let outline = with(place, |workspace| match &filter {
                None => workspace.outline(),
                Some(words) => workspace.outline_touching(words, given_up),
            });
            Answer::Outline(filter, outline)
        }
        Request::Stretches { generation, wanted } => {
            let views = with(place, |workspace| workspace.stretches(&wanted));
            Answer::Stretches(generation, wanted, views)
        }
        Request::Files { screen, of } => {
            Answer::Files(screen, with(place, |workspace| workspace.changed_files(&of)))
        }
        Request::Versions { screen, path } => {
            let versions = with(place, |workspace| workspace.versions_of(&path, VERSIONS));
            Answer::Versions(screen, versions)
        }
        Request::Counts { screen, wanted } => {
            Answer::Counts(screen, counts(place, wanted, given_up))
        }
        Request::Patch { screen, index, span } => {
            let patch = with(place, |workspace| workspace.span_patch(&span));
            Answer::Doc(screen, index, patch.map(|patch| Doc::of_patch(&patch)))
        }
        Request::Compare { screen, index, before, after } => {
            let patch = with(place, |workspace| workspace.compare_views(&before, &after));
            Answer::Doc(screen, index, patch.map(|patch| compared(&patch)))
        }
        Request::Directory { screen, moment, path } => {
            let listing = with(place, |workspace| workspace.directory_at(moment, &path));
            Answer::Directory(screen, path, listing.map(|all| all.into_iter().collect()))
        }
        Request::Content { screen, moment, path } => {
            let doc = with(place, |workspace| content(workspace, moment, &path));
            Answer::Doc(screen, 0, doc)
        }
        Request::Grep { screen, pattern, glob } => {
            let found = with(place, |workspace| {
                workspace.grep_until(&pattern, glob.as_deref(), MATCHES, &|| {
                    given_up.load(Ordering::Relaxed)
                })
            });
            Answer::Grep(screen, found)
        }
        Request::Plan { screen, serial, request } => {
            let plan = with(place, |workspace| workspace.plan(&request));
            Answer::Plan(screen, serial, plan.map(Box::new))
        }
        Request::Apply { screen, plan } => apply(place, screen, RewindKind::Plan { id: plan }),
        Request::TakeBack { screen, id } => {
            apply(place, screen, RewindKind::Undo { what: Some(id) })
        }
    }
}

fn apply(place: &Place, screen: ScreenId, kind: RewindKind) -> Answer {
    let request = RewindRequest::new(kind);
    let report = with(place, |workspace| workspace.rewind(&request, &mut |_| true));
    Answer::Applied(screen, report.map(Box::new))
}

fn counts(
    place: &Place,
    wanted: Vec<(usize, chronicle_core::FileSpan)>,
    given_up: &AtomicBool,
) -> Vec<(usize, Option<chronicle_core::LineStat>)> {
    let Ok(workspace) = place.open() else { return Vec::new() };
    let wanted = wanted.into_iter().take_while(|_| !given_up.load(Ordering::Relaxed));
    // Content that is gone makes the counts unknown, not the change.
    wanted.map(|(index, span)| (index, workspace.span_counts(&span).ok())).collect()
}

fn compared(patch: &str) -> Doc {
    match patch.starts_with('@') {
        true => Doc::of_patch(patch),
        false if patch.is_empty() => Doc::of_note("The content is the same"),
        false => Doc::of_note(patch),
    }
}

/// The content of a file at a moment, or words about what is there instead.
fn content(workspace: &Workspace, moment: Seq, path: &WorkspacePath) -> Result<Doc, Error> {
    let entry = workspace.entry_just_after(moment, path)?;
    let note = match &entry {
        Entry::File(file) if file.size > LONGEST => "The file is too large to be shown",
        Entry::File(file) if file.secret => "The content is secret; chronicle cat prints it",
        Entry::File(_) => "",
        Entry::Symlink(link) => {
            let target = chronicle_core::escape(&link.target);
            return Ok(Doc::of_note(&format!("A symbolic link to {target}")));
        }
        other => return Ok(Doc::of_note(&format!("At this moment it was {}", other.kind()))),
    };
    if !note.is_empty() {
        return Ok(Doc::of_note(note));
    }
    let mut bytes = Vec::new();
    workspace.write_past(path, &entry, &mut bytes)?;
    if bytes.iter().take(8 << 10).any(|byte| *byte == 0) {
        let size = chronicle_core::shown::size(bytes.len() as u64);
        return Ok(Doc::of_note(&format!("Binary, {size}")));
    }
    Ok(Doc::of_text(&String::from_utf8_lossy(&bytes)))
}
