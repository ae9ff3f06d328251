//! Cutting values out of JSON with comments: the value and its comma go, every comment stays.

use jsonc_parser::ast::{Array, Object, Value as Node};
use jsonc_parser::common::{Range, Ranged};
use jsonc_parser::tokens::{Token, TokenAndRange};
use jsonc_parser::{CollectOptions, CommentCollectionStrategy, ParseResult, parse_to_ast};
use serde_json::Value;

use super::Malformed;
use super::settings::{HOOKS, malformed, options, value_of};

/// The text without the handlers that are ours, and without groups, lists and objects that only
/// they had filled; `None` if there are none.
pub(super) fn without(
    text: &str,
    is_ours: &dyn Fn(&Value) -> bool,
) -> Result<Option<String>, Malformed> {
    let mut rest = text.to_owned();
    let mut emptied = Vec::new();
    // One at a time: each cut moves everything behind it.
    while let Some((event, cut)) = first_of_ours(&rest, is_ours)? {
        rest = cut;
        emptied.push(event);
    }
    if emptied.is_empty() {
        return Ok(None);
    }
    for event in &emptied {
        rest = without_hollow(rest, Some(event))?;
    }
    without_hollow(rest, None).map(Some)
}

/// Cuts out the first handler of ours, with its group if nothing else is in that: the event, and
/// the text without it.
fn first_of_ours(
    text: &str,
    is_ours: &dyn Fn(&Value) -> bool,
) -> Result<Option<(String, String)>, Malformed> {
    let parsed = parse(text)?;
    let tokens = parsed.tokens.as_deref().unwrap_or_default();
    let ours = |node: &Node<'_>| {
        let range = node.range();
        value_of(&text[range.start..range.end]).is_some_and(|value| is_ours(&value))
    };
    for property in hooks(&parsed).map(|hooks| hooks.properties.as_slice()).unwrap_or_default() {
        let entries = property.value.as_array().map(|list| list.elements.as_slice());
        for entry in entries.unwrap_or_default() {
            if let Some(range) = range_of_ours(entry, tokens, &ours) {
                return Ok(Some((property.name.as_str().to_owned(), cut(text, tokens, range))));
            }
        }
    }
    Ok(None)
}

/// What to cut of an entry: all of it, one handler in its group, or nothing.
fn range_of_ours(
    entry: &Node<'_>,
    tokens: &[TokenAndRange<'_>],
    ours: &dyn Fn(&Node<'_>) -> bool,
) -> Option<Range> {
    if ours(entry) {
        return Some(entry.range());
    }
    let group = entry.as_object()?.get_array(HOOKS)?;
    let handler = group.elements.iter().find(|handler| ours(handler))?;
    let alone = group.elements.len() == 1 && !has_comment(tokens, entry.range());
    Some(if alone { entry.range() } else { handler.range() })
}

/// Cuts out an event's list, or all hooks, if there is nothing in it.
fn without_hollow(text: String, event: Option<&str>) -> Result<String, Malformed> {
    let parsed = parse(&text)?;
    let tokens = parsed.tokens.as_deref().unwrap_or_default();
    let top = parsed.value.as_ref().and_then(Node::as_object);
    let property = match event {
        Some(event) => hooks(&parsed).and_then(|hooks| hooks.get(event)),
        None => top.and_then(|top| top.get(HOOKS)),
    };
    let hollow = property.filter(|property| {
        let empty = match &property.value {
            Node::Array(Array { elements, .. }) => elements.is_empty(),
            Node::Object(Object { properties, .. }) => properties.is_empty(),
            _ => false,
        };
        empty && !has_comment(tokens, property.range())
    });
    Ok(hollow.map(|property| cut(&text, tokens, property.range())).unwrap_or(text))
}

fn hooks<'p, 't>(parsed: &'p ParseResult<'t>) -> Option<&'p Object<'t>> {
    parsed.value.as_ref()?.as_object()?.get_object(HOOKS)
}

fn is_comment(token: &TokenAndRange<'_>) -> bool {
    matches!(token.token, Token::CommentLine(_) | Token::CommentBlock(_))
}

fn has_comment(tokens: &[TokenAndRange<'_>], within: Range) -> bool {
    let inside = |range: Range| within.start <= range.start && range.end <= within.end;
    tokens.iter().any(|token| is_comment(token) && inside(token.range))
}

/// The text without a range, without the comma that belongs to it, and without the line that it
/// would leave empty.
fn cut(text: &str, tokens: &[TokenAndRange<'_>], range: Range) -> String {
    let significant = || tokens.iter().filter(|token| !is_comment(token));
    let next = significant().find(|token| token.range.start >= range.end);
    let previous = significant().rfind(|token| token.range.end <= range.start);
    let is_comma = |token: &&TokenAndRange<'_>| matches!(token.token, Token::Comma);
    let comma = next.filter(is_comma).or(previous.filter(is_comma)).map(|token| token.range);

    let before = &text[..range.start];
    let spaces = before.trim_end_matches([' ', '\t']);
    let line = spaces.strip_suffix('\n').map(|line| line.strip_suffix('\r').unwrap_or(line));
    let after_comma = match comma {
        Some(comma) if text[range.end..].starts_with(',') => comma.end,
        _ => range.end,
    };
    let rest = text[after_comma..].trim_start_matches([' ', '\t']);
    // A line comment before must not swallow what follows.
    let ends_line = rest.starts_with(['\n', '\r']);
    let start = match line {
        Some(line) if ends_line => line.len(),
        Some(_) => range.start,
        None => spaces.len(),
    };
    let mut kept = String::with_capacity(text.len());
    let mut ranges = vec![Range::new(start, range.end)];
    match comma {
        Some(comma) if comma.end <= start => ranges.insert(0, comma),
        Some(comma) if comma.start >= range.end => ranges.push(comma),
        _ => {}
    }
    let mut position = 0;
    for range in ranges {
        kept += &text[position..range.start];
        position = range.end;
    }
    kept + &text[position..]
}

fn parse(text: &str) -> Result<ParseResult<'_>, Malformed> {
    let collect = CollectOptions { comments: CommentCollectionStrategy::AsTokens, tokens: true };
    parse_to_ast(text, &collect, &options()).map_err(|error| malformed(&error))
}
