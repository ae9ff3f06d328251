//! Decides whose a change is from the processes that wrote it; pure.
//!
//! A writer below a session's agent is that session's. One who is proven to be below no agent is a
//! person. Everything else is not known, and the rules of windows decide.

use std::collections::BTreeSet;

use super::attribute::{
    Group, Openings, PERSON, Window, is_within_session, session_of, shared_group,
};
use crate::entry::{Author, Evidence};
use crate::process::Process;

/// What is known of a session's processes.
#[derive(Debug, Clone, Default)]
pub(super) struct Kin {
    pub(super) session: String,
    /// The agent.
    pub(super) agent: Option<Process>,
    /// All that it does is done below that process, and nothing else is.
    pub(super) tools_below: bool,
    /// Whether the agent still runs.
    pub(super) alive: bool,
    /// The processes above the agent, if somebody saw them.
    pub(super) above: Option<Vec<Process>>,
    /// What the agent's calls left running.
    pub(super) left: Vec<Process>,
}

/// Who can be behind a process.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Origin {
    Session(String),
    Person,
}

/// Everything that a verdict needs.
pub(super) struct Kinship<'a> {
    pub(super) open: &'a Openings,
    pub(super) kin: Vec<Kin>,
    /// Whether a living process is a shell.
    pub(super) is_shell: &'a dyn Fn(&Process) -> bool,
    /// The last turn of a session that has none open.
    pub(super) last_turn: &'a dyn Fn(&str) -> Option<u64>,
}

impl Kinship<'_> {
    /// Who is behind a process, given with those above it; `None` if that is not proven.
    pub(super) fn origin(&self, line: &[Process]) -> Option<Origin> {
        for process in line {
            let agents: Vec<_> =
                self.kin.iter().filter(|kin| kin.agent.as_ref() == Some(process)).collect();
            if !agents.is_empty() {
                let sessions: Vec<_> = agents.iter().map(|kin| &kin.session[..]).collect();
                // In an editor a person's saves come from the very process of the agent.
                return self.one_of(&sessions).filter(|_| agents.iter().all(|kin| kin.tools_below));
            }
            let left: Vec<_> = self.kin.iter().filter(|kin| kin.left.contains(process)).collect();
            match left[..] {
                [] => {}
                // While another session's call runs, it may be what that one left.
                [kin] if self.is_alone(&kin.session) => {
                    return Some(Origin::Session(kin.session.clone()));
                }
                _ => return None,
            }
        }
        let outside = || self.kin.iter().all(|kin| is_outside(line, kin, self.is_shell));
        (!line.is_empty() && self.all_agents_are_known() && outside()).then_some(Origin::Person)
    }

    /// Several conversations can be led by one process: only one that is at work writes.
    fn one_of(&self, sessions: &[&str]) -> Option<Origin> {
        let at_work: Vec<_> = match sessions {
            [_] => sessions.to_vec(),
            several => several.iter().copied().filter(|session| self.is_at_work(session)).collect(),
        };
        match at_work[..] {
            [one] => Some(Origin::Session(one.to_owned())),
            _ => None,
        }
    }

    fn is_at_work(&self, session: &str) -> bool {
        let open = self.open;
        open.windows.iter().any(|window| is_within_session(&window.session, session))
            || open.announced.iter().any(|one| is_within_session(&session_of(&one.labels), session))
            || open.turns.iter().any(|turn| turn.session.as_deref() == Some(session))
            || open.background.iter().any(|left| left == session)
    }

    /// Whether no other session has a call open.
    fn is_alone(&self, session: &str) -> bool {
        let windows = &self.open.windows;
        windows.iter().all(|window| is_within_session(&window.session, session))
    }

    /// Whether of everybody who may be writing it is known which process he is, and that he writes
    /// below it: an MCP server may be anywhere.
    fn all_agents_are_known(&self) -> bool {
        let known = |key: &str| {
            let of = |kin: &Kin| kin.agent.is_some() && is_within_session(key, &kin.session);
            self.kin.iter().any(|kin| of(kin) && kin.tools_below)
        };
        self.open.windows.iter().all(|window| known(&window.session) && is_command(window))
            && self.open.background.iter().all(|session| known(session))
    }

    /// Whose a change is that these made, and where it is recorded; `None` if that is not proven.
    pub(super) fn verdict(&self, origins: &BTreeSet<Origin>) -> Option<(Group, Author, Evidence)> {
        let keys: BTreeSet<String> =
            origins.iter().flat_map(|origin| self.keys_of(origin)).collect();
        let keys: Vec<_> = keys.into_iter().collect();
        match &keys[..] {
            [] => None,
            [one] if one == PERSON => Some((Group::External, Author::Person, Evidence::Process)),
            [one] => {
                let group = self.group_of(one)?;
                Some((group, Author::Session(one.clone()), Evidence::Process))
            }
            several => {
                let words: Vec<_> = several.iter().map(|key| &key[..]).collect();
                let group = shared_group(self.open, &words);
                Some((group, Author::Shared(keys), Evidence::Process))
            }
        }
    }

    /// A session's sub-agents have windows of their own in the one process.
    fn keys_of(&self, origin: &Origin) -> Vec<String> {
        let Origin::Session(session) = origin else { return vec![PERSON.to_owned()] };
        let windows = self.open.windows.iter().map(|window| &window.session);
        let own: Vec<_> = windows.filter(|key| is_within_session(key, session)).cloned().collect();
        if own.is_empty() { vec![session.clone()] } else { own }
    }

    /// Where a session's change is recorded: in its call, its turn, or the last one it had.
    fn group_of(&self, key: &str) -> Option<Group> {
        if let Some(index) = self.open.windows.iter().rposition(|window| window.session == key) {
            let action = self.open.windows[index].action;
            let same = |id| self.open.announced.iter().position(|announced| announced.id == id);
            return Some(action.and_then(same).map_or(Group::Window(index), Group::Action));
        }
        let session = key.split('/').next().unwrap_or_default();
        let of_session = |turn: &crate::record::Labels| turn.session.as_deref() == Some(session);
        match self.open.turns.iter().rposition(of_session) {
            Some(turn) => Some(Group::Turn(turn)),
            None => (self.last_turn)(session).map(Group::Past),
        }
    }
}

/// Whether a window is that of a command, which the agent itself starts.
fn is_command(window: &Window) -> bool {
    let tool = window.labels.tool.as_deref().unwrap_or_default();
    window.labels.action.as_deref() == Some("shell") && !tool.to_lowercase().starts_with("mcp")
}

/// Whether a process is proven to owe nothing to an agent.
///
/// A child is never older than its parent. So what is older than the agent is not its child. What such
/// a one started later may be: a service does what it is asked to, and an agent's orphans go to its
/// ancestors. Neither is so for a shell; and of an agent that is gone only the orphans are left.
fn is_outside(line: &[Process], kin: &Kin, is_shell: &dyn Fn(&Process) -> bool) -> bool {
    let Some(agent) = &kin.agent else { return true };
    // Nothing survives a reboot.
    if line.iter().all(|process| process.boot != agent.boot) {
        return true;
    }
    let older = |process: &Process| process.started < agent.started;
    let Some(first) = line.iter().position(older) else { return false };
    let may_adopt = kin.above.as_ref().is_none_or(|above| above.contains(&line[first]));
    first == 0 || is_shell(&line[first]) || !kin.alive && !may_adopt
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Labels;

    fn process(text: &str) -> Process {
        let (pid, started) = text.split_once('@').unwrap();
        let (pid, started) = (pid.parse().unwrap(), started.parse().unwrap());
        Process { pid, started, boot: "b".to_owned() }
    }

    /// Processes as `number@start`, a writer first.
    fn line(text: &str) -> Vec<Process> {
        text.split_whitespace().map(process).collect()
    }

    fn kin(session: &str, agent: &str, above: Option<&str>) -> Kin {
        let agent = (!agent.is_empty()).then(|| process(agent));
        let (session, above) = (session.to_owned(), above.map(line));
        Kin { session, agent, tools_below: true, alive: true, above, left: vec![] }
    }

    fn window(session: &str) -> Window {
        let labels = Labels { action: Some("shell".to_owned()), ..Labels::default() };
        Window { session: session.to_owned(), labels, action: None }
    }

    fn turn(session: &str) -> Labels {
        Labels { session: Some(session.to_owned()), turn: Some(1), ..Labels::default() }
    }

    /// The verdict on writers, each a line; shells have numbers from 900.
    #[track_caller]
    fn check(kin: &[Kin], open: &Openings, writers: &[&str], expected: &str) {
        let kinship = Kinship {
            open,
            kin: kin.to_vec(),
            is_shell: &|process| process.pid >= 900,
            last_turn: &|session| (session == "past").then_some(7),
        };
        let origins: Option<BTreeSet<_>> =
            writers.iter().map(|text| kinship.origin(&line(text))).collect();
        let found = match origins.and_then(|origins| kinship.verdict(&origins)) {
            None => "unknown".to_owned(),
            Some((group, author, evidence)) => {
                assert_eq!(evidence, Evidence::Process);
                let author = match author {
                    Author::Session(key) => key,
                    Author::Shared(keys) => format!("shared {}", keys.join(" ")),
                    Author::Person => "person".to_owned(),
                    Author::Chronicle => "chronicle".to_owned(),
                };
                format!("{author} in {group:?}")
            }
        };
        assert_eq!(found, expected, "{writers:?}");
    }

    #[test]
    fn a_writer_below_an_agent_is_its_sessions_and_calls_that_overlap_are_told_apart() {
        let kin = [kin("s", "10@50", Some("5@1")), kin("t", "20@60", Some("5@1"))];
        let open = Openings { windows: vec![window("s"), window("t")], ..Openings::default() };
        check(&kin, &open, &["12@90 11@80 10@50 5@1"], "s in Window(0)");
        check(&kin, &open, &["21@90 20@60 5@1"], "t in Window(1)");
        check(&kin, &open, &["10@50 5@1"], "s in Window(0)");
        check(&kin, &open, &["21@90 20@60 5@1", "10@50 5@1"], "shared s t in Shared");
        // An agent that another one started works for its own session.
        check(&kin, &open, &["21@95 20@60 10@50"], "t in Window(1)");
        // The same number, but not the same process.
        check(&kin, &open, &["21@95 20@90 10@50"], "s in Window(0)");
    }

    #[test]
    fn between_calls_it_belongs_to_the_turn_and_after_that_to_the_last_one() {
        let kin = [kin("s", "10@50", None), kin("past", "20@60", None), kin("new", "30@60", None)];
        let open = Openings { turns: vec![turn("s")], ..Openings::default() };
        check(&kin, &open, &["12@90 10@50"], "s in Turn(0)");
        check(&kin, &open, &["22@90 20@60"], "past in Past(7)");
        check(&kin, &open, &["32@90 30@60"], "unknown");
    }

    #[test]
    fn older_than_the_agent_is_a_person_also_within_a_window() {
        let kin = [kin("s", "10@50", Some("906@3 5@1"))];
        let open = Openings { windows: vec![window("s")], ..Openings::default() };
        let person = "person in External";
        check(&kin, &open, &["7@2 5@1"], person);
        // A command in a shell that was there before, even the one that started the agent.
        check(&kin, &open, &["9@99 8@98 907@2 5@1"], person);
        check(&kin, &open, &["8@99 906@3 5@1"], person);
        // Started later by somebody else: the agent may have asked for it, as by `tmux new-window`.
        check(&kin, &open, &["8@99 7@2"], "unknown");
        check(&kin, &open, &["8@99 5@1"], "unknown");
        // Below nobody but the first process of all: it may be the agent's orphan.
        check(&kin, &open, &["8@99"], "unknown");
        // As old as the agent, for all one can tell.
        check(&kin, &open, &["8@50"], "unknown");
        check(&kin, &open, &["7@2", "11@80 10@50"], "shared person s in Shared");
        check(&kin, &Openings::default(), &["7@2"], person);
    }

    #[test]
    fn an_agent_that_is_gone_leaves_only_orphans_and_those_go_to_its_ancestors() {
        let mut kin = [kin("s", "10@50", Some("6@3 5@1"))];
        kin[0].alive = false;
        let open = Openings::default();
        check(&kin, &open, &["8@99 7@2"], "person in External");
        check(&kin, &open, &["8@99 6@3 5@1"], "unknown");
        check(&kin, &open, &["8@99"], "unknown");
        // Nobody saw its ancestors: anybody older may be one.
        kin[0].above = None;
        check(&kin, &open, &["8@99 7@2"], "unknown");
        check(&kin, &open, &["8@99 907@2"], "person in External");
        check(&kin, &open, &["8@40 7@2"], "person in External");
        kin[0].agent.as_mut().unwrap().boot = "before".to_owned();
        check(&kin, &open, &["8@99 7@2"], "person in External");
    }

    #[test]
    fn whoever_opened_a_window_and_is_not_known_could_be_anybody() {
        let kin = [kin("s", "10@50", Some("5@1")), kin("t", "", None)];
        let open = Openings { windows: vec![window("s"), window("t")], ..Openings::default() };
        check(&kin, &open, &["7@2"], "unknown");
        check(&kin, &open, &["12@90 10@50"], "s in Window(0)");
        let left = Openings { background: vec!["t".to_owned()], ..Openings::default() };
        check(&kin, &left, &["7@2"], "unknown");
        check(&kin, &left, &[], "unknown");
    }

    #[test]
    fn where_an_agent_acts_elsewhere_than_below_its_process_nothing_is_proven() {
        let mut kin = [kin("s", "10@50", Some("5@1"))];
        let mut open = Openings { windows: vec![window("s")], ..Openings::default() };
        open.windows[0].labels.tool = Some("mcp__files__write".to_owned());
        check(&kin, &open, &["7@2 5@1"], "unknown");
        check(&kin, &open, &["12@90 10@50"], "s in Window(0)");
        // An editor, where the person's saves are the same process's.
        kin[0].tools_below = false;
        let open = Openings { windows: vec![window("s")], ..Openings::default() };
        check(&kin, &open, &["7@2 5@1"], "unknown");
        check(&kin, &open, &["12@90 10@50"], "unknown");
    }

    #[test]
    fn what_a_call_left_running_is_its_sessions_unless_two_could_have() {
        let mut kin = [kin("s", "10@50", Some("5@1")), kin("t", "20@60", Some("5@1"))];
        kin[0].left = line("30@70");
        let open = Openings { turns: vec![turn("s")], ..Openings::default() };
        check(&kin, &open, &["31@99 30@70 1@0"], "s in Turn(0)");
        let other = Openings { windows: vec![window("t")], ..open.clone() };
        check(&kin, &other, &["30@70 1@0"], "unknown");
        kin[1].left = line("30@70");
        check(&kin, &open, &["30@70 1@0"], "unknown");
    }

    #[test]
    fn of_several_conversations_in_one_process_the_one_at_work_wrote() {
        let kin = [kin("s", "10@50", None), kin("past", "10@50", None)];
        let open = Openings { windows: vec![window("s/sub")], ..Openings::default() };
        check(&kin, &open, &["11@90 10@50"], "s/sub in Window(0)");
        check(&kin, &Openings::default(), &["11@90 10@50"], "unknown");
        let subs = Openings { windows: vec![window("s"), window("s/sub")], ..Openings::default() };
        check(&kin, &subs, &["11@90 10@50"], "shared s s/sub in Shared");
        let both = Openings { windows: vec![window("s"), window("past")], ..Openings::default() };
        check(&kin, &both, &["11@90 10@50"], "unknown");
    }
}
