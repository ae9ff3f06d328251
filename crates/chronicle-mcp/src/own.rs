//! What is the model's own: its sessions, and the check that a plan touches nobody else's work.

use chronicle_core::{LogQuery, SnapshotMetadata, TurnView, Workspace};

use crate::refusal::Refusal;

/// The session of whoever does not say which session it is.
const DEFAULT_SESSION: &str = "default";
/// How many snapshots are looked at for the newest work of a session that has no turns.
const NEWEST_MOST: usize = 200;

/// The sessions of the model.
#[derive(Debug)]
pub(crate) struct Own(Vec<String>);

impl Own {
    pub(crate) fn new(sessions: Vec<String>) -> Self {
        Self(sessions)
    }

    pub(crate) fn sessions(&self) -> &[String] {
        &self.0
    }

    pub(crate) fn is_known(&self) -> bool {
        !self.0.is_empty()
    }

    /// Refuses where nobody knows whose work is whose.
    pub(crate) fn require(&self) -> Result<(), Refusal> {
        if self.is_known() {
            return Ok(());
        }
        let message = "It is not known which session you are, so nothing can be taken back here";
        Err(Refusal::new("unknown_session", message).hinted(
            "Ask the person to install the hooks for this agent, to start the server with \
             --session KEY, or to apply the plan with: chronicle undo --plan ID",
        ))
    }

    /// Whether an author is one of the sessions, or a sub-agent of one.
    fn is_own(&self, author: &str) -> bool {
        self.0.iter().any(|session| is_within(author, session))
    }

    /// Refuses a plan that takes back or brings back work of anybody else.
    pub(crate) fn refuse_others(&self, authors: &[String]) -> Result<(), Refusal> {
        let Some(author) = authors.iter().find(|author| !self.is_own(author)) else {
            return Ok(());
        };
        let whose = match &author[..] {
            "person" => "a person's work".to_owned(),
            "shared" => "work that could be another session's".to_owned(),
            session => format!("the work of session {session:?}"),
        };
        Err(other_session(format!("This would touch {whose}")))
    }

    /// The session whose work a preview is about.
    ///
    /// The one that was named, else the one whose turn or action the target names, else the one
    /// that began a turn last.
    pub(crate) fn choose(
        &self,
        workspace: &Workspace,
        named: Option<&str>,
        target: Option<&str>,
    ) -> Result<String, Refusal> {
        let owner = target.map(|target| owner_of(workspace, target)).transpose()?.flatten();
        for key in [named, owner.as_deref()].into_iter().flatten() {
            if !self.0.iter().any(|own| own == key) {
                return Err(other_session(format!("{key:?} is another session")));
            }
        }
        if let Some(key) = named.map(str::to_owned).or(owner) {
            return Ok(key);
        }
        let turns = workspace.turns()?;
        let newest = turns.iter().rev().map(session_of).find(|key| self.0.contains(key));
        newest
            .or_else(|| self.0.first().cloned())
            .ok_or_else(|| Refusal::new("unknown_session", "It is not known which session you are"))
    }
}

fn other_session(message: String) -> Refusal {
    Refusal::new("other_session", message).hinted(
        "You may take back your own session's work only. Tell the person what you found: \
         chronicle undo and chronicle rewind can do it",
    )
}

/// The newest work of a session that is in effect, as `undo` names it: a turn, else a snapshot.
pub(crate) fn newest_work(workspace: &Workspace, session: &str) -> Result<String, Refusal> {
    let own = |turn: &&TurnView| session_of(turn) == session;
    for turn in workspace.turns()?.iter().rev().filter(own) {
        let query = LogQuery { turn: Some(turn.number), ..LogQuery::default() };
        if workspace.log(&query)?.iter().any(|snapshot| is_live(snapshot, session)) {
            return Ok(format!("turn:{}", turn.number));
        }
    }
    let key = Some(session.to_owned());
    let query = LogQuery { session: key, limit: Some(NEWEST_MOST), ..LogQuery::default() };
    let snapshots = workspace.log(&query)?;
    let newest = snapshots.into_iter().find(|snapshot| is_live(snapshot, session));
    newest.map(|snapshot| snapshot.id).ok_or_else(|| {
        Refusal::new("nothing_to_do", "Nothing to undo: no work of your session is in effect")
            .hinted("Call list_turns to see what happened")
    })
}

/// Whether an author's key is a session's, or one of its sub-agents'.
fn is_within(author: &str, session: &str) -> bool {
    author.strip_prefix(session).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

fn is_live(snapshot: &SnapshotMetadata, session: &str) -> bool {
    snapshot.changes.iter().any(|change| change.live && is_within(&change.author, session))
}

pub(crate) fn session_of(turn: &TurnView) -> String {
    turn.session.clone().unwrap_or_else(|| DEFAULT_SESSION.to_owned())
}

/// The session whose turn or action a target names; `None` where it names a mere moment.
fn owner_of(workspace: &Workspace, target: &str) -> Result<Option<String>, Refusal> {
    let name = target.strip_prefix("before:").or_else(|| target.strip_prefix("after:"));
    let name = name.unwrap_or(target);
    if let Some(number) = name.strip_prefix("turn:") {
        let turns = workspace.turns()?;
        let number = number.parse::<i64>().ok();
        return Ok(number.and_then(|number| turn_of(&turns, number)).map(session_of));
    }
    // What is no snapshot is a moment by another name, or the plan will say that it is nothing.
    let Ok(snapshot) = workspace.show(name) else { return Ok(None) };
    let nobodys = ["external", "init", "rewind", "rollback", "undo", "redo"];
    let by_agent = !nobodys.contains(&&snapshot.action_type[..]);
    Ok(by_agent.then(|| snapshot.session.unwrap_or_else(|| DEFAULT_SESSION.to_owned())))
}

/// The turn of a number; a negative one counts back from the last that ended.
fn turn_of(turns: &[TurnView], number: i64) -> Option<&TurnView> {
    if number >= 0 {
        return turns.iter().find(|turn| turn.number == number.unsigned_abs());
    }
    let mut ended: Vec<_> = turns.iter().filter(|turn| turn.end_seq.is_some()).collect();
    ended.sort_by_key(|turn| turn.end_seq);
    let back = usize::try_from(number.unsigned_abs()).ok()?;
    ended.len().checked_sub(back).map(|index| ended[index])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(authors: &[&str], expected: Option<&str>) {
        let own = Own::new(vec!["s".into(), "t".into()]);
        let authors: Vec<_> = authors.iter().map(|&author| author.to_owned()).collect();
        let refused = own.refuse_others(&authors).err().map(|refusal| refusal.message);
        assert_eq!(refused.as_deref(), expected);
    }

    #[test]
    fn a_plan_may_touch_own_work_only() {
        check(&[], None);
        check(&["s", "t"], None);
        check(&["s", "u"], Some("This would touch the work of session \"u\""));
        check(&["person"], Some("This would touch a person's work"));
        check(&["shared"], Some("This would touch work that could be another session's"));
    }

    #[test]
    fn without_a_session_nothing_is_own() {
        assert_eq!(Own::new(Vec::new()).require().unwrap_err().code, "unknown_session");
    }
}
