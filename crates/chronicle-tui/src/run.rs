//! The terminal: taken, drawn on, heard, and given back however it ends.

use std::collections::VecDeque;
use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use chronicle_core::{Error, Home};
use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::event::{
    self, DisableBracketedPaste, DisableMouseCapture, EnableBracketedPaste, EnableMouseCapture,
    KeyEventKind,
};
use ratatui::crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use ratatui::crossterm::{cursor, execute};
use signal_hook::consts::{SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP};

use crate::model::Model;
use crate::request::Answer;
use crate::sixteen::Sixteen;
use crate::theme::Theme;
use crate::update::{Effect, Event, begin, update};
use crate::worker::{Place, Workers};

/// How often the time on the screen is looked at.
const TICK: Duration = Duration::from_secs(1);
/// How long a terminal that takes nothing may keep a process that was told to end.
const PATIENCE: Duration = Duration::from_secs(2);
/// The most events that are taken before the screen is drawn again.
const BURST: usize = 64;

/// What to show, and how.
pub struct Options {
    /// Where history lies.
    pub home: Home,
    /// A directory in the workspace.
    pub directory: PathBuf,
    /// With colours.
    pub color: bool,
    /// Whether everything that changes something is switched off.
    pub off: bool,
}

/// Why it could not be shown.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TuiError {
    /// There is nobody to show it to.
    #[error("This needs a terminal, on standard input and on standard output")]
    NoTerminal,
    /// The workspace cannot be opened.
    #[error(transparent)]
    Workspace(#[from] Error),
    /// The terminal cannot be used.
    #[error("Could not use the terminal")]
    Terminal(#[from] io::Error),
}

/// What the loop hears.
enum Heard {
    Terminal(event::Event),
    Answer(Box<Answer>),
    Signal(i32),
    /// The terminal is gone.
    Gone,
}

/// Shows the workspace until the person leaves, or the terminal does.
pub fn run(options: &Options) -> Result<(), TuiError> {
    if !io::stdin().is_terminal() || !io::stdout().is_terminal() {
        return Err(TuiError::NoTerminal);
    }
    let place = Place { home: options.home.clone(), directory: options.directory.clone() };
    let root = place.open()?.root().to_string_lossy().into_owned();
    let (sender, receiver) = channel();
    let answered = sender.clone();
    let workers = Workers::start(&place, move |answer| {
        answered.send(Heard::Answer(Box::new(answer))).is_ok()
    })?;
    let ended = Arc::new(AtomicBool::new(false));
    listen_for_signals(sender.clone(), Arc::clone(&ended), workers.changing())?;
    let size = ratatui::crossterm::terminal::size().unwrap_or((80, 24));
    let theme = Theme { color: options.color };
    let model = Model::new(root, theme, size, now(), options.off);
    restore_on_panic();
    let _taken = Taken::new()?;
    listen_to_terminal(sender)?;
    let mut screen = Screen { model, workers, terminal: new_terminal()? };
    let outcome = screen.live(&receiver);
    // A rewind that was begun is finished, whatever became of the terminal.
    screen.workers.finish_changes();
    ended.store(true, Ordering::SeqCst);
    match outcome {
        Err(error) if is_gone(&error) => Ok(()),
        outcome => Ok(outcome?),
    }
}

fn new_terminal() -> io::Result<Terminal<CrosstermBackend<Sixteen<io::Stdout>>>> {
    Terminal::new(CrosstermBackend::new(Sixteen::new(io::stdout())))
}

/// A terminal that went away is a way to leave, not a failure.
fn is_gone(error: &io::Error) -> bool {
    let hung_up = error.raw_os_error() == Some(rustix::io::Errno::IO.raw_os_error());
    hung_up || error.kind() == io::ErrorKind::BrokenPipe
}

fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| i64::try_from(since.as_secs()).unwrap_or(i64::MAX))
}

/// The terminal while it is ours; given back when dropped.
struct Taken;

impl Taken {
    fn new() -> io::Result<Self> {
        take()?;
        Ok(Self)
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        give_back();
    }
}

fn take() -> io::Result<()> {
    enable_raw_mode()?;
    let taken = execute!(
        io::stdout(),
        EnterAlternateScreen,
        EnableMouseCapture,
        EnableBracketedPaste,
        cursor::Hide
    );
    if taken.is_err() {
        give_back();
    }
    taken
}

/// Nothing can be told if this fails: there is nowhere left to tell it.
fn give_back() {
    let mut out = io::stdout();
    let _ = execute!(
        out,
        DisableBracketedPaste,
        DisableMouseCapture,
        LeaveAlternateScreen,
        cursor::Show
    );
    let _ = out.flush();
    let _ = disable_raw_mode();
}

/// A bug is told on a terminal that is itself again, and ends the process, whichever thread it is in:
/// a screen that nobody answers any more would only look alive.
fn restore_on_panic() {
    let told = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        give_back();
        told(panic);
        std::process::exit(101);
    }));
}

/// Sends what the terminal says, until nobody listens or it is gone.
fn listen_to_terminal(sender: Sender<Heard>) -> io::Result<()> {
    let listen = move || {
        loop {
            let heard = match event::poll(TICK) {
                Ok(true) => event::read().map(Heard::Terminal).unwrap_or(Heard::Gone),
                Ok(false) if has_hung_up() => Heard::Gone,
                Ok(false) => continue,
                Err(_) => Heard::Gone,
            };
            let last = matches!(heard, Heard::Gone);
            if sender.send(heard).is_err() || last {
                return;
            }
        }
    };
    std::thread::Builder::new().name("terminal".to_owned()).spawn(listen).map(drop)
}

/// Whether nobody is at the other end any more.
fn has_hung_up() -> bool {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let stdin = rustix::stdio::stdin();
    let mut events = [PollFd::new(&stdin, PollFlags::IN)];
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    let gone = PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL;
    poll(&mut events, Some(&at_once)).is_ok() && events[0].revents().intersects(gone)
}

/// Turns signals into events. Where the screen is stuck on a terminal that takes nothing, the process
/// ends all the same, but never in the middle of a rewind.
fn listen_for_signals(
    sender: Sender<Heard>,
    ended: Arc<AtomicBool>,
    changing: Arc<AtomicUsize>,
) -> io::Result<()> {
    let mut signals =
        signal_hook::iterator::Signals::new([SIGHUP, SIGTERM, SIGINT, SIGQUIT, SIGCONT])?;
    let listen = move || {
        for signal in signals.forever() {
            let _ = sender.send(Heard::Signal(signal));
            if signal == SIGCONT {
                continue;
            }
            let told = Instant::now();
            while !ended.load(Ordering::SeqCst) {
                let patient = told.elapsed() < PATIENCE;
                if !patient && changing.load(Ordering::SeqCst) == 0 {
                    give_back();
                    std::process::exit(128 + signal);
                }
                std::thread::sleep(Duration::from_millis(20));
            }
        }
    };
    std::thread::Builder::new().name("signals".to_owned()).spawn(listen).map(drop)
}

/// Everything that the loop works with.
struct Screen {
    model: Model,
    workers: Workers,
    terminal: Terminal<CrosstermBackend<Sixteen<io::Stdout>>>,
}

impl Screen {
    /// Draws, waits, takes what came, until it is over.
    fn live(&mut self, heard: &Receiver<Heard>) -> io::Result<()> {
        let mut goes_on = self.act(begin())?;
        while goes_on {
            self.draw()?;
            let mut news = VecDeque::new();
            match heard.recv_timeout(TICK) {
                Ok(first) => news.push_back(first),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
            }
            news.extend(heard.try_iter().take(BURST));
            goes_on = self.handle(Event::Tick(now()))?;
            for one in news {
                goes_on = goes_on && self.hear(one)?;
            }
        }
        Ok(())
    }

    fn draw(&mut self) -> io::Result<()> {
        let model = &self.model;
        self.terminal.draw(|frame| {
            let area = frame.area();
            crate::view::draw(model, area, frame.buffer_mut());
        })?;
        Ok(())
    }

    fn hear(&mut self, heard: Heard) -> io::Result<bool> {
        let event = match heard {
            Heard::Gone => return Ok(false),
            Heard::Signal(SIGCONT) => {
                // Whoever had the terminal meanwhile may have left it otherwise.
                take()?;
                self.terminal.clear()?;
                return Ok(true);
            }
            Heard::Signal(_) => return Ok(false),
            Heard::Answer(answer) => Event::Answer(answer),
            Heard::Terminal(event::Event::Key(key)) if key.kind != KeyEventKind::Release => {
                Event::Key(key)
            }
            Heard::Terminal(event::Event::Mouse(mouse)) => Event::Mouse(mouse),
            Heard::Terminal(event::Event::Paste(text)) => Event::Paste(text),
            Heard::Terminal(event::Event::Resize(columns, rows)) => {
                self.terminal.autoresize()?;
                Event::Resize(columns, rows)
            }
            Heard::Terminal(_) => return Ok(true),
        };
        self.handle(event)
    }

    fn handle(&mut self, event: Event) -> io::Result<bool> {
        let effects = update(&mut self.model, event);
        self.act(effects)
    }

    /// Does what is to be done outside; tells whether it goes on.
    fn act(&mut self, effects: Vec<Effect>) -> io::Result<bool> {
        for effect in effects {
            match effect {
                Effect::Ask(request) => self.workers.ask(request),
                Effect::GiveUp(screen) => self.workers.give_up(screen),
                Effect::Mouse(true) => execute!(io::stdout(), EnableMouseCapture)?,
                Effect::Mouse(false) => execute!(io::stdout(), DisableMouseCapture)?,
                Effect::Redraw => self.terminal.clear()?,
                Effect::Suspend => self.suspend()?,
                Effect::Quit => return Ok(false),
            }
        }
        Ok(true)
    }

    /// Stops as every program does at Ctrl-Z, and goes on where it was.
    fn suspend(&mut self) -> io::Result<()> {
        give_back();
        signal_hook::low_level::emulate_default_handler(SIGTSTP)?;
        take()?;
        self.terminal.clear()
    }
}
