//! `chronicle hook AGENT`: hears an agent's event on stdin, captures, and answers in its dialect.
//!
//! Hooks say when to look and label; the core decides what changed. Nothing here may keep an agent
//! waiting: a watchdog answers when the budget is spent, and the policy decides what that means.

mod adopt;
mod answer;
mod dialect;
mod event;
mod left;
mod lineage;
mod patch;
mod paths;
mod tools;

use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use chronicle_core::{
    Call, CallEnd, CallStart, CheckpointWanted, Error, Home, Process, Prompt, WitnessPatience,
    Workspace,
};

use crate::agent::Agent;
use crate::checkpoint_first;
use crate::commands;
use crate::environment;
use crate::install::receipt::Receipts;
use answer::{Answer, Reply, reply};
use event::{Event, Heard, Reach, Tool};

/// The longest event that is read.
const LONGEST: u64 = 64 << 20;
/// How long a hook may take where nothing else is said.
const BUDGET: Duration = Duration::from_secs(8);
/// How much of a command line is kept in a summary.
const SUMMARY: usize = 120;

/// By how many milliseconds the budget was prolonged, for a checkpoint that has a limit of its own.
static PROLONGED_MS: AtomicU64 = AtomicU64::new(0);

/// How a hook was called.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Hook {
    pub(crate) agent: Agent,
    /// Where history lies, if it is not where it usually does.
    pub(crate) home: Option<PathBuf>,
    /// An action whose befores cannot be saved must not start.
    pub(crate) strict: bool,
    /// How long it may take.
    pub(crate) budget: Option<Duration>,
}

/// Hears one event and answers it; the exit status.
pub(crate) fn run(hook: &Hook) -> u8 {
    if environment::is_off() {
        return say(&reply(hook.agent, None, false, &Answer::default()));
    }
    let answered = Arc::new(AtomicBool::new(false));
    watch(hook, &answered);
    let (heard, answer) = match read().and_then(|value| hook.agent.read(&value)) {
        Ok(heard) => {
            let answer = hook.hear(&heard);
            (Some(heard), answer)
        }
        Err(why) => (None, Answer { failure: Some(why), ..Answer::default() }),
    };
    if answered.swap(true, Ordering::AcqRel) {
        // The watchdog is speaking, and ends the process.
        std::thread::sleep(BUDGET);
    }
    say(&reply(hook.agent, heard.as_ref(), hook.strict, &answer))
}

/// Answers in place of a capture that takes too long, and ends the process: whatever it was doing,
/// a crash leaves old or new.
fn watch(hook: &Hook, answered: &Arc<AtomicBool>) {
    let (hook, answered) = (hook.clone(), Arc::clone(answered));
    std::thread::spawn(move || {
        let budget = hook.budget.unwrap_or(BUDGET);
        let (mut until, mut slept) = (budget, Duration::ZERO);
        while slept < until {
            std::thread::sleep(until - slept);
            slept = until;
            until = budget + Duration::from_millis(PROLONGED_MS.load(Ordering::Acquire));
        }
        if !answered.swap(true, Ordering::AcqRel) {
            let why = format!("the capture took longer than {} ms", budget.as_millis());
            let answer = Answer { failure: Some(why), ..Answer::default() };
            std::process::exit(i32::from(say(&reply(hook.agent, None, hook.strict, &answer))));
        }
    });
}

fn read() -> Result<serde_json::Value, String> {
    let mut bytes = Vec::new();
    let mut input = std::io::stdin().lock().take(LONGEST + 1);
    input
        .read_to_end(&mut bytes)
        .map_err(|error| format!("the event could not be read: {error}"))?;
    if bytes.len() as u64 > LONGEST {
        return Err(format!("the event is longer than {} MiB", LONGEST >> 20));
    }
    serde_json::from_slice(&bytes).map_err(|error| format!("the event is not JSON: {error}"))
}

fn say(reply: &Reply) -> u8 {
    // Nobody is left to tell if the agent does not listen.
    let _ = std::io::stdout().lock().write_all(reply.stdout.as_bytes());
    let _ = std::io::stderr().lock().write_all(reply.stderr.as_bytes());
    reply.exit
}

impl Hook {
    fn home(&self) -> Result<Home, Error> {
        match &self.home {
            Some(path) => Ok(Home::with_keys_from_env(path.clone())),
            None => Home::from_env(),
        }
    }

    fn hear(&self, heard: &Heard) -> Answer {
        let concerns = match &heard.event {
            Event::Nothing => false,
            Event::Before(tool) | Event::After(tool) => tool.reach != Reach::Nothing,
            _ => true,
        };
        if let Event::Settings(file) = &heard.event {
            let refusal = self.settings_without_us(file);
            return Answer { refusal, ..Answer::default() };
        }
        if !concerns {
            return Answer::default();
        }
        let mut answer = Answer::default();
        if let Err(error) = self.act(heard, &mut answer) {
            answer.failure = Some(sentence(&error));
        }
        answer
    }

    /// Why an agent must not read its settings again: our hooks were in them, nobody uninstalled
    /// them, and they are gone. A `git clean` does that, in the middle of the turn it is a part of.
    fn settings_without_us(&self, file: &Path) -> Option<String> {
        let home = self.home().ok()?;
        let receipt = Receipts::new(home.path()).read(self.agent, file)?;
        let text = std::fs::read_to_string(file).unwrap_or_default();
        let ours = ["chronicle", "hook", self.agent.name()];
        if ours.iter().all(|word| text.contains(word)) || receipt.written.is_empty() {
            return None;
        }
        Some(format!(
            "Chronicle's hooks are gone from {}: this session keeps them, so that it stays \
             protected. Put them back with: chronicle install {}; or take them out with: \
             chronicle uninstall {}",
            file.display(),
            self.agent.name(),
            self.agent.name()
        ))
    }

    fn act(&self, heard: &Heard, answer: &mut Answer) -> Result<(), Error> {
        let home = self.home()?;
        let begins = matches!(heard.event, Event::Prompt(_) | Event::Before(_));
        let budget = self.budget.unwrap_or(BUDGET);
        let mut workspace = match Workspace::open(&home, &heard.directory) {
            // Only what begins adopts: an end without a beginning has nothing to tell.
            Err(Error::NoWorkspace(_)) if begins => adopt::adopt(&home, &heard.directory, budget)?,
            Err(Error::NoWorkspace(_)) => return Ok(()),
            // The agent is the command of an isolated run: all it does is on the run's layer.
            Err(Error::InIsolation(_)) => return Ok(()),
            opened => opened?,
        };
        workspace.set_witness_patience(WitnessPatience::Hook);
        if begins {
            crate::commands::watch::ensure(&workspace);
        }
        match &heard.event {
            Event::Prompt(text) => {
                workspace.prompt(&Prompt {
                    session: heard.session.clone(),
                    agent: self.agent.name().to_owned(),
                    turn_key: heard.turn_key.clone(),
                    text: text.clone(),
                    process: Process::caller(),
                    tools_below: self.agent.runs_its_tools(),
                })?;
            }
            Event::Before(tool) => self.before(&mut workspace, heard, tool, answer)?,
            Event::After(tool) => self.after(&mut workspace, heard, tool)?,
            Event::BatchEnd(calls) => {
                workspace.batch_end(&heard.session, heard.sub_agent.as_deref(), calls)?;
            }
            Event::Stop { task } => {
                workspace.stop(&heard.session, *task)?;
                commands::prune::start_if_due(&workspace);
                answer.warning = self.left_behind(&mut workspace, heard)?;
            }
            Event::Settings(_) | Event::Nothing => {}
        }
        if matches!(heard.event, Event::Prompt(_) | Event::Stop { .. }) {
            crate::commands::hand_over::leave(&home, &workspace);
            crate::commands::push::leave(&home, &workspace);
        }
        // Who is told of a failure is told of nothing else.
        if answer.failure.is_none()
            && self.agent.listens(&heard.event)
            && let Some(news) = workspace.news(&heard.session)?
        {
            workspace.told(&heard.session, &news)?;
            answer.context = Some(news.text);
        }
        Ok(())
    }

    /// Tells the person, once a turn, whose files did not go back with the conversation.
    fn left_behind(
        &self,
        workspace: &mut Workspace,
        heard: &Heard,
    ) -> Result<Option<String>, Error> {
        let Some(transcript) =
            heard.transcript.as_ref().filter(|_| self.agent == Agent::ClaudeCode)
        else {
            return Ok(None);
        };
        let mut words = Vec::new();
        for (turn, files) in
            workspace.live_turns(&heard.session, &lineage::left_behind(transcript))?
        {
            if workspace.warn_once(&heard.session, &format!("left behind: turn {turn}"))? {
                words.push(format!(
                    "The conversation went back before turn {turn}, its files did not: {}. \
                     Take them back with: chronicle undo turn:{turn}",
                    files.join(", ")
                ));
            }
        }
        Ok((!words.is_empty()).then(|| format!("Chronicle: {}", words.join("\n"))))
    }

    fn before(
        &self,
        workspace: &mut Workspace,
        heard: &Heard,
        tool: &Tool,
        answer: &mut Answer,
    ) -> Result<(), Error> {
        let Some(mut call) = self.call(workspace, heard, tool)? else {
            let cause = format!("outside {}", paths::first(tool));
            if workspace.warn_once(&heard.session, &cause)? {
                let path = paths::first(tool);
                answer.warning = Some(format!(
                    "Chronicle: {path} lies outside the workspace and cannot be protected there"
                ));
            }
            return Ok(());
        };
        if let CallStart::CheckpointFirst(wanted) = workspace.call_begin(&call)? {
            answer.failure = self.checkpoint(workspace, heard, &wanted, &mut call)?;
            let blocked = self.strict && answer.failure.is_some();
            if !blocked {
                workspace.call_start(&call)?;
            }
        }
        Ok(())
    }

    /// Makes the checkpoint that is wanted before a call; why it could not be made.
    fn checkpoint(
        &self,
        workspace: &mut Workspace,
        heard: &Heard,
        wanted: &CheckpointWanted,
        call: &mut Call,
    ) -> Result<Option<String>, Error> {
        // One that is due for the turns is tried once in each, unless nothing may go on without it.
        if let Some(turn) = wanted.due.filter(|_| !self.strict)
            && !workspace.warn_once(&heard.session, &format!("checkpoint due in turn {turn}"))?
        {
            return Ok(None);
        }
        let longest = wanted.limit + 2 * checkpoint_first::LAST_WORDS;
        let prolonged = u64::try_from(longest.as_millis()).unwrap_or(u64::MAX);
        PROLONGED_MS.store(prolonged, Ordering::Release);
        let made = checkpoint_first::make(self.home()?.path(), workspace.root(), wanted);
        Ok(match made {
            Ok(words) => {
                call.checkpoint = Some(words);
                None
            }
            Err(why) => {
                let why = format!("the checkpoint {} could not be made: {why}", wanted.reason);
                call.checkpoint = Some(format!("no checkpoint was made before it: {why}"));
                Some(why)
            }
        })
    }

    fn after(&self, workspace: &mut Workspace, heard: &Heard, tool: &Tool) -> Result<(), Error> {
        let Some(call) = self.call(workspace, heard, tool)? else { return Ok(()) };
        let anything = tool.reach == Reach::Anything;
        let end = CallEnd {
            until_batch: self.agent.tells_of_batches(),
            task: anything && tool.in_background,
            left: match anything {
                true => left::running(self.agent, call.process.as_ref(), workspace.root()),
                false => Vec::new(),
            },
        };
        workspace.call_end(&call, &end)
    }

    /// The call of a tool; `None` if it names only what cannot be protected.
    fn call(
        &self,
        workspace: &mut Workspace,
        heard: &Heard,
        tool: &Tool,
    ) -> Result<Option<Call>, Error> {
        let paths = match &tool.reach {
            Reach::Named(named) => paths::named(workspace, &heard.directory, named)?,
            _ => Vec::new(),
        };
        if paths.is_empty() && matches!(tool.reach, Reach::Named(_)) {
            return Ok(None);
        }
        let (action, what) = match (&tool.reach, &tool.command) {
            (Reach::Named(_), _) => ("write_file", paths[0].to_string()),
            (_, Some(command)) => ("shell", shortened(command)),
            (_, None) => ("tool", tool.name.clone()),
        };
        let more =
            if paths.len() > 1 { format!(" and {} more", paths.len() - 1) } else { String::new() };
        Ok(Some(Call {
            session: heard.session.clone(),
            agent: self.agent.name().to_owned(),
            sub_agent: heard.sub_agent.clone(),
            turn_key: heard.turn_key.clone(),
            tool: tool.name.clone(),
            call_id: tool.call_id.clone(),
            action: action.to_owned(),
            summary: format!("{action}: {what}{more}"),
            command: tool.command.clone(),
            checkpoint: None,
            paths,
            process: Process::caller(),
            tools_below: self.agent.runs_its_tools(),
            ends_earlier: self.agent.may_leave_out_ends(),
        }))
    }
}

/// The first line of a command, not too long.
fn shortened(command: &str) -> String {
    let line = command.trim().lines().next().unwrap_or("");
    let mut text: String = line.chars().take(SUMMARY).collect();
    if text.len() < command.trim().len() {
        text.push_str(" ...");
    }
    text
}

/// An error with its causes, as one sentence.
fn sentence(error: &Error) -> String {
    use std::error::Error as _;
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(&format!(": {error}"));
        cause = error.source();
    }
    text
}
