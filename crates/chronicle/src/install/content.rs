//! What a file has to hold: hooks among settings, a switch, or a text that is wholly ours.

use super::settings::Hooks;
use super::{Malformed, feature};
use crate::agent::Agent;

/// What has to be in one file.
#[derive(Debug, Clone)]
pub(crate) enum Content {
    /// Hooks among other people's settings.
    Hooks(Hooks),
    /// Codex's switch, which somebody may have turned off.
    Feature,
    /// A file of our own.
    Whole(Whole),
}

/// A file that is wholly ours.
#[derive(Debug, Clone)]
pub(crate) struct Whole {
    pub(super) text: String,
    pub(super) executable: bool,
    pub(super) agent: Agent,
}

/// What is left of a file without us.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Rest {
    /// Nothing of ours is in it.
    Untouched,
    /// This text.
    Text(String),
    /// Nothing: it was all ours.
    Nothing,
    /// Ours, but somebody made it his own.
    Edited,
}

/// The line by which a file of our own is recognised.
pub(super) fn marker(agent: Agent) -> String {
    format!("Made by: chronicle install {}. Take back with: chronicle uninstall", agent.name())
}

impl Content {
    /// Whether the file must be executable.
    pub(crate) fn is_executable(&self) -> bool {
        matches!(self, Self::Whole(whole) if whole.executable)
    }

    /// Whether it is all there, and nothing older of ours.
    pub(super) fn is_in(&self, text: Option<&str>) -> Result<bool, Malformed> {
        match (self, text) {
            (Self::Feature, text) => feature::is_on(text.unwrap_or_default()),
            (Self::Hooks(hooks), Some(text)) => hooks.are_in(text),
            (Self::Whole(whole), Some(text)) => Ok(whole.text == text),
            (Self::Hooks(_) | Self::Whole(_), None) => Ok(false),
        }
    }

    /// The text with it; without a text, a new one.
    pub(super) fn add_to(&self, text: Option<&str>) -> Result<String, Malformed> {
        let text = text.unwrap_or_default();
        match self {
            Self::Hooks(hooks) => hooks.add_to(text),
            Self::Feature => feature::switch_on(text),
            Self::Whole(whole) => Ok(whole.text.clone()),
        }
    }

    /// What is left without it, given the original if we know it: `Some(None)` is a file that we
    /// made.
    pub(super) fn remove_from(
        &self,
        text: &str,
        original: Option<Option<&str>>,
    ) -> Result<Rest, Malformed> {
        let made = original == Some(None);
        match self {
            Self::Hooks(hooks) => Ok(match hooks.remove_from(text)? {
                None => Rest::Untouched,
                Some(rest) if made && hooks.is_bare(&rest) => Rest::Nothing,
                Some(rest) => Rest::Text(rest),
            }),
            Self::Feature => match original {
                // Whoever switched it on, it was not us.
                None => Ok(Rest::Untouched),
                Some(original) => {
                    feature::put_back(text, original.unwrap_or_default()).map(Rest::Text)
                }
            },
            Self::Whole(whole) if !text.contains(&marker(whole.agent)) => Ok(Rest::Untouched),
            // Whatever version of us wrote it; but if we know what we wrote, this is not it.
            Self::Whole(_) if original.is_some() => Ok(Rest::Edited),
            Self::Whole(_) => Ok(Rest::Nothing),
        }
    }
}
