//! What becomes of one file, from what stands there and what we remember of it; pure.

use super::Malformed;
use super::content::{Content, Rest};
use super::receipt::Receipt;

/// What installing does to a file.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Install {
    /// It is all there.
    Already,
    /// This is written; `original` is the file without us, to come back to.
    Write { text: String, original: Option<String> },
    /// A file of somebody else stands where ours has to be, or he made ours his own.
    NotOurs,
}

/// What uninstalling does to a file.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Uninstall {
    /// Nothing of ours is there.
    Nothing,
    /// This is written.
    Write(String),
    /// It goes.
    Delete,
    /// It is ours, but somebody edited it: it is moved aside.
    Aside,
}

/// Plans what installing does.
pub(crate) fn install(
    content: &Content,
    current: Option<&str>,
    receipt: Option<&Receipt>,
) -> Result<Install, Malformed> {
    if content.is_in(current)? {
        return Ok(Install::Already);
    }
    let original = match current {
        None => None,
        Some(text) => match without_us(content, text, receipt)? {
            Uninstall::Nothing if matches!(content, Content::Whole(_)) => {
                return Ok(Install::NotOurs);
            }
            Uninstall::Nothing => Some(text.to_owned()),
            Uninstall::Write(text) => Some(text),
            Uninstall::Delete => None,
            Uninstall::Aside => return Ok(Install::NotOurs),
        },
    };
    let text = content.add_to(original.as_deref())?;
    Ok(Install::Write { text, original })
}

/// Plans what uninstalling does.
pub(crate) fn uninstall(
    content: &Content,
    current: Option<&str>,
    receipt: Option<&Receipt>,
) -> Result<Uninstall, Malformed> {
    match current {
        Some(text) => without_us(content, text, receipt),
        None => Ok(Uninstall::Nothing),
    }
}

/// Exactly what was there before, if nobody touched the file since; else what is left of it.
fn without_us(
    content: &Content,
    text: &str,
    receipt: Option<&Receipt>,
) -> Result<Uninstall, Malformed> {
    if let Some(receipt) = receipt.filter(|receipt| receipt.written == text) {
        return Ok(receipt.original.clone().map_or(Uninstall::Delete, Uninstall::Write));
    }
    let original = receipt.map(|receipt| receipt.original.as_deref());
    Ok(match content.remove_from(text, original)? {
        Rest::Untouched => Uninstall::Nothing,
        Rest::Text(rest) if rest == text => Uninstall::Nothing,
        Rest::Text(rest) => Uninstall::Write(rest),
        Rest::Nothing => Uninstall::Delete,
        Rest::Edited => Uninstall::Aside,
    })
}
