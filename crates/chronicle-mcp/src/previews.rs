//! The plans that this process has shown, and what each was a plan of.
//!
//! A plan is applied at most once, and only by the process that showed it: a plan id that a model
//! found in a file or was told by somebody is worth nothing.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::arguments::Action;
use crate::refusal::Refusal;

/// How many plans are remembered; a model that made more has forgotten the first ones too.
const MOST: usize = 64;

/// The plans, newest last.
#[derive(Debug, Default)]
pub(crate) struct Previews {
    shown: Mutex<VecDeque<(String, Action)>>,
}

impl Previews {
    fn shown(&self) -> MutexGuard<'_, VecDeque<(String, Action)>> {
        self.shown.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Remembers that a plan was shown.
    pub(crate) fn remember(&self, plan_id: &str, action: Action) {
        let mut shown = self.shown();
        shown.push_back((plan_id.to_owned(), action));
        if shown.len() > MOST {
            shown.pop_front();
        }
    }

    /// Takes out a plan that is about to be applied, if it was shown and is of this kind.
    pub(crate) fn take(&self, plan_id: Option<&str>, action: Action) -> Result<String, Refusal> {
        let word = action.word();
        let first = format!("Call preview with action {word} and look at its plan first");
        let Some(plan_id) = plan_id else {
            let message = format!("{word} needs the plan_id of a preview");
            return Err(Refusal::new("not_previewed", message).hinted(first));
        };
        let mut shown = self.shown();
        match shown.iter().position(|(id, _)| id == plan_id) {
            Some(index) if shown[index].1 == action => {
                shown.remove(index);
                Ok(plan_id.to_owned())
            }
            Some(index) => {
                let other = shown[index].1.word();
                let message = format!("Plan {plan_id} is a plan of {other}, not of {word}");
                Err(Refusal::new("not_previewed", message).hinted(format!("Call {other} with it")))
            }
            None => {
                let message = format!(
                    "Plan {plan_id} was not previewed by this server, or was already applied"
                );
                Err(Refusal::new("not_previewed", message).hinted(first))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_is_taken_once_and_by_its_own_tool() {
        let previews = Previews::default();
        previews.remember("p", Action::Undo);
        assert!(previews.take(Some("p"), Action::Rewind).unwrap_err().message.contains("undo"));
        assert_eq!(previews.take(Some("p"), Action::Undo).unwrap(), "p");
        for given in [Some("p"), Some("q"), None] {
            let refused = previews.take(given, Action::Undo).unwrap_err();
            assert_eq!(refused.code, "not_previewed");
            assert!(refused.hint.unwrap().contains("preview"));
        }
    }

    #[test]
    fn only_so_many_are_remembered() {
        let previews = Previews::default();
        (0..=MOST).for_each(|n| previews.remember(&n.to_string(), Action::Undo));
        assert!(previews.take(Some("0"), Action::Undo).is_err());
        assert!(previews.take(Some("1"), Action::Undo).is_ok());
    }
}
