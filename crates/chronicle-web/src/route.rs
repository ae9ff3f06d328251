//! A route as a value: from it requests are matched and checked, and the OpenAPI document is made.

use std::collections::BTreeMap;

use http::Method;
use schemars::{Schema, SchemaGenerator};

use crate::access::Right;
use crate::answer::Answer;
use crate::call::Call;
use crate::problem::Problem;

/// Where the API begins.
pub(crate) const PREFIX: &str = "/api/v1";
/// The longest text that a parameter may be, in characters.
pub(crate) const TEXT_MOST: usize = 4 << 10;

/// What a parameter may be.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Is {
    /// Text.
    Text,
    /// A whole number from one to another.
    Number(u64, u64),
    /// `true` or `false`.
    Truth,
}

/// One parameter of the query.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Param {
    pub(crate) name: &'static str,
    pub(crate) is: Is,
    pub(crate) words: &'static str,
}

/// The shape of something, as a schema.
pub(crate) type Shape = fn(&mut SchemaGenerator) -> Schema;

/// What an answer is.
#[derive(Clone, Copy)]
pub(crate) enum Gives {
    /// JSON of this shape.
    Json(Shape),
    /// No content.
    Nothing,
    /// A file's bytes.
    Bytes,
    /// Server-sent events.
    Events,
}

/// What is done.
#[derive(Clone, Copy)]
pub(crate) enum Run {
    /// This, on a thread that may block.
    Blocking(fn(&Call<'_>) -> Result<Answer, Problem>),
    /// A stream of events.
    Events,
}

/// One operation.
pub(crate) struct Route {
    pub(crate) method: Method,
    /// Below the prefix; `{name}` stands for a part.
    pub(crate) path: &'static str,
    /// Its name in the document.
    pub(crate) id: &'static str,
    pub(crate) words: &'static str,
    /// Who may ask; nobody needs to be known for `None`.
    pub(crate) right: Option<Right>,
    pub(crate) params: &'static [Param],
    pub(crate) takes: Option<Shape>,
    pub(crate) gives: Gives,
    pub(crate) run: Run,
}

/// What a request said: parts of its path, and its query.
pub(crate) type Said = BTreeMap<&'static str, String>;

impl Route {
    /// The parts of a path that fits.
    pub(crate) fn matches(&self, path: &str) -> Option<Said> {
        let mut said = Said::new();
        let (mut wanted, mut given) = (self.path.split('/'), path.split('/'));
        loop {
            match (wanted.next(), given.next()) {
                (None, None) => return Some(said),
                (Some(name), Some(part)) if name.starts_with('{') => {
                    let name = name.trim_matches(['{', '}']);
                    let part = decode(part).filter(|part| !part.is_empty())?;
                    said.insert(name, part);
                }
                (Some(name), Some(part)) if name == part => {}
                _ => return None,
            }
        }
    }

    /// Reads the query; what is not known or makes no sense is refused.
    pub(crate) fn read_query(&self, query: &str, said: &mut Said) -> Result<(), Problem> {
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let plain = |text: &str| decode(&text.replace('+', " "));
            let (Some(name), Some(value)) = (plain(name), plain(value)) else {
                return Err(Problem::usage("The query is not valid: it does not decode as UTF-8"));
            };
            let Some(param) = self.params.iter().find(|param| param.name == name) else {
                let known: Vec<_> = self.params.iter().map(|param| param.name).collect();
                return Err(Problem::usage(format!("There is no parameter {name:?} here"))
                    .hinted(format!("There are: {}", known.join(", "))));
            };
            param.check(&value)?;
            if said.insert(param.name, value).is_some() {
                return Err(Problem::usage(format!("{name} is given twice")));
            }
        }
        Ok(())
    }
}

impl Param {
    fn check(&self, value: &str) -> Result<(), Problem> {
        let name = self.name;
        match self.is {
            Is::Text if value.chars().count() > TEXT_MOST || value.contains('\0') => {
                Err(Problem::usage(format!("{name} is too long or holds a NUL")))
            }
            Is::Number(least, most)
                if !value.parse().is_ok_and(|number: u64| (least..=most).contains(&number)) =>
            {
                Err(Problem::usage(format!("{name} must be a number from {least} to {most}")))
            }
            Is::Truth if !["true", "false"].contains(&value) => {
                Err(Problem::usage(format!("{name} must be true or false")))
            }
            _ => Ok(()),
        }
    }
}

/// Text without its percent signs, if it is UTF-8.
pub(crate) fn decode(text: &str) -> Option<String> {
    let bytes = text.as_bytes();
    let mut plain = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        if bytes[at] == b'%' {
            let digits = std::str::from_utf8(bytes.get(at + 1..at + 3)?).ok()?;
            let sound = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
            plain.push(u8::from_str_radix(digits, 16).ok().filter(|_| sound)?);
            at += 3;
        } else {
            plain.push(bytes[at]);
            at += 1;
        }
    }
    String::from_utf8(plain).ok()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot prepare its world fails")]
mod tests {
    use super::*;

    #[test]
    fn percent_signs_decode_or_are_refused() {
        for (text, plain) in [("a%20b", "a b"), ("%C3%A4", "\u{e4}"), ("", "")] {
            assert_eq!(decode(text).as_deref(), Some(plain));
        }
        for bad in ["%", "%1", "%zz", "%ff", "%+1"] {
            assert_eq!(decode(bad), None, "{bad}");
        }
    }
}
