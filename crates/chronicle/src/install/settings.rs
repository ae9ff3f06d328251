//! Hooks among other people's settings: JSON with comments, edited in place.
//!
//! Text in, text out. Comments, order, indentation, line ends and other hooks stay.

use jsonc_parser::ParseOptions;
use jsonc_parser::cst::{CstArray, CstNode, CstObject, CstObjectProp, CstRootNode};
use jsonc_parser::errors::ParseError;
use serde_json::Value;

use super::command::{are_ours, is_ours};
use super::json::{Json, plain};
use super::{Malformed, cut};
use crate::agent::Agent;

/// The key under which every agent keeps its hooks.
pub(super) const HOOKS: &str = "hooks";
/// What some editors put at the beginning of a file.
const BYTE_ORDER_MARK: char = '\u{feff}';

/// The hooks that are to be in a file.
#[derive(Debug, Clone)]
pub(crate) struct Hooks {
    pub(super) agent: Agent,
    /// What the file needs beside hooks, where it is not there.
    pub(super) preamble: Vec<(&'static str, Json)>,
    /// One entry for each event.
    pub(super) entries: Vec<(&'static str, Json)>,
}

impl Hooks {
    /// Whether exactly these entries of ours are there.
    pub(super) fn are_in(&self, text: &str) -> Result<bool, Malformed> {
        let mut found = ours(text, self.agent)?;
        for (event, entry) in &self.entries {
            let wanted = plain(entry);
            let place = found.iter().position(|(name, value)| name == event && *value == wanted);
            match place {
                Some(place) => drop(found.swap_remove(place)),
                None => return Ok(false),
            }
        }
        Ok(found.is_empty())
    }

    /// The text with our entries, each behind those of its event that are there.
    pub(super) fn add_to(&self, text: &str) -> Result<String, Malformed> {
        let (mark, root) = parse(text)?;
        let top = root
            .object_value_or_create()
            .ok_or_else(|| Malformed::not("the whole document", "an object"))?;
        for (name, value) in &self.preamble {
            if top.get(name).is_none() {
                top.append(name, value.clone());
            }
        }
        refuse_twice(&top, HOOKS)?;
        let hooks =
            top.object_value_or_create(HOOKS).ok_or_else(|| Malformed::not(HOOKS, "an object"))?;
        for (event, entry) in &self.entries {
            refuse_twice(&hooks, event)?;
            let list = hooks
                .array_value_or_create(event)
                .ok_or_else(|| Malformed::not(&format!("{HOOKS}.{event}"), "a list"))?;
            list.ensure_multiline();
            list.append(entry.clone());
        }
        Ok(format!("{mark}{root}"))
    }

    /// The text without our entries, and without what only they had filled; `None` if there are none.
    pub(super) fn remove_from(&self, text: &str) -> Result<Option<String>, Malformed> {
        let (mark, rest) = without_mark(text);
        let rest = cut::without(rest, &|handler| is_our_handler(handler, self.agent))?;
        Ok(rest.map(|rest| format!("{mark}{rest}")))
    }

    /// Whether a file holds nothing but what we put there beside the hooks.
    pub(super) fn is_bare(&self, text: &str) -> bool {
        let Ok((_, root)) = parse(text) else { return false };
        let Some(Value::Object(members)) = root.to_serde_value() else { return false };
        let ours = |name: &str, value: &Value| {
            self.preamble.iter().any(|(known, json)| *known == name && plain(json) == *value)
        };
        let comment = root.children().iter().any(CstNode::is_comment)
            || root.value().is_some_and(|value| value.children().iter().any(CstNode::is_comment));
        !comment && members.iter().all(|(name, value)| ours(name, value))
    }
}

/// Our entries in a text: event and entry.
fn ours(text: &str, agent: Agent) -> Result<Vec<(String, Value)>, Malformed> {
    let (_, root) = parse(text)?;
    let mut found = Vec::new();
    let hooks = root.object_value().and_then(|top| top.object_value(HOOKS));
    for property in hooks.iter().flat_map(CstObject::properties) {
        let Some(event) = property.decoded_name() else { continue };
        for entry in property.array_value().iter().flat_map(CstArray::elements) {
            if let Some(value) = entry.to_serde_value()
                && holds_ours(&value, agent)
            {
                found.push((event.clone(), value));
            }
        }
    }
    Ok(found)
}

/// Whether an entry is our handler, or a group with it.
fn holds_ours(entry: &Value, agent: Agent) -> bool {
    let group = entry.get(HOOKS).and_then(Value::as_array);
    is_our_handler(entry, agent)
        || group.is_some_and(|group| group.iter().any(|handler| is_our_handler(handler, agent)))
}

/// A handler is recognised by its command: as words, or as a line.
fn is_our_handler(handler: &Value, agent: Agent) -> bool {
    let line = ["command", "bash"].iter().find_map(|key| handler.get(key)?.as_str());
    let Some(line) = line else { return false };
    match handler.get("args").and_then(Value::as_array) {
        Some(arguments) => {
            let arguments = arguments.iter().filter_map(Value::as_str);
            are_ours(&std::iter::once(line).chain(arguments).collect::<Vec<_>>(), agent)
        }
        None => is_ours(line, agent),
    }
}

/// Agents take the last of two members of one name, and we would edit the first.
fn refuse_twice(object: &CstObject, name: &str) -> Result<(), Malformed> {
    let named = |property: &CstObjectProp| property.decoded_name().as_deref() == Some(name);
    if object.properties().iter().filter(|property| named(property)).count() > 1 {
        return Err(Malformed(format!("{name} is there twice")));
    }
    Ok(())
}

/// A text's byte order mark, if it has one, and the rest.
fn without_mark(text: &str) -> (&str, &str) {
    let rest = text.strip_prefix(BYTE_ORDER_MARK).unwrap_or(text);
    text.split_at(text.len() - rest.len())
}

/// The value of a text, if it is one.
pub(super) fn value_of(text: &str) -> Option<Value> {
    CstRootNode::parse(text, &options()).ok()?.to_serde_value()
}

fn parse(text: &str) -> Result<(&str, CstRootNode), Malformed> {
    let (mark, rest) = without_mark(text);
    let root = CstRootNode::parse(rest, &options()).map_err(|error| malformed(&error))?;
    Ok((mark, root))
}

/// Where and why a text is no JSON.
pub(super) fn malformed(error: &ParseError) -> Malformed {
    Malformed::at(error.line_display(), error.column_display(), error.kind())
}

/// JSON with comments and trailing commas; what else some parsers let pass, agents do not.
pub(super) fn options() -> ParseOptions {
    ParseOptions {
        allow_comments: true,
        allow_trailing_commas: true,
        allow_loose_object_property_names: false,
        allow_missing_commas: false,
        allow_single_quoted_strings: false,
        allow_hexadecimal_numbers: false,
        allow_unary_plus_numbers: false,
        allow_bare_decimal_point_numbers: false,
        allow_non_finite_numbers: false,
        allow_extended_string_escapes: false,
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use chronicle_testing::dice::Dice;

    use super::*;
    use crate::install::command::HookCommand;
    use crate::install::content::Content;
    use crate::install::dialect;
    use crate::install::plan::{self, Install, Uninstall};
    use crate::install::receipt::Receipt;

    const JSON_AGENTS: [Agent; 5] =
        [Agent::ClaudeCode, Agent::Codex, Agent::Gemini, Agent::Cursor, Agent::Copilot];

    fn hooks(agent: Agent, program: &str) -> Hooks {
        let command = HookCommand::absolute(agent, Path::new(program), None, false).expect("text");
        dialect::hooks(&command).expect("an agent with hooks in JSON")
    }

    fn value(text: &str) -> Value {
        parse(text).expect("JSON").1.to_serde_value().unwrap_or(Value::Null)
    }

    /// The value without hooks that are empty, which come and go with what fills them.
    fn tidy(text: &str) -> Value {
        let mut value = value(text);
        let Some(top) = value.as_object_mut() else { return Value::Object(Default::default()) };
        if let Some(hooks) = top.get_mut(HOOKS).and_then(Value::as_object_mut) {
            hooks.retain(|_, list| list.as_array().is_none_or(|list| !list.is_empty()));
            if hooks.is_empty() {
                top.remove(HOOKS);
            }
        }
        value
    }

    fn comments(text: &str) -> Vec<String> {
        let words = text.split_whitespace();
        words.filter(|word| word.contains("note")).map(str::to_owned).collect()
    }

    #[test]
    fn one_entry_goes_behind_those_that_are_there() {
        let mut hooks = hooks(Agent::Cursor, "/bin/chronicle");
        hooks.entries.truncate(1);
        let text = "{\n    \"hooks\": {\n        // mine\n        \"sessionStart\": [{\"command\": \"x\"}]\n    },\n    \"version\": 1\n}\n";
        let added = hooks.add_to(text).expect("JSON");
        assert_eq!(
            added,
            "{\n    \"hooks\": {\n        // mine\n        \"sessionStart\": [\n            {\"command\": \"x\"},\n            {\n                \
             \"command\": \"/bin/chronicle hook cursor\",\n                \"timeout\": 30\n            }\n        ]\n    },\n    \"version\": 1\n}\n"
        );
        assert!(hooks.are_in(&added).expect("JSON") && !hooks.are_in(text).expect("JSON"));
        assert_eq!(value(&hooks.remove_from(&added).expect("JSON").expect("ours")), value(text));
    }

    #[test]
    fn an_older_path_of_ours_is_replaced() {
        for agent in JSON_AGENTS {
            let (old, new) = (hooks(agent, "/old/chronicle"), hooks(agent, "/new/chronicle"));
            let text = old.add_to("{\"a\": 1}").expect("JSON");
            assert!(!new.are_in(&text).expect("JSON"));
            let planned = plan::install(&Content::Hooks(new.clone()), Some(&text), None);
            let Ok(Install::Write { text, .. }) = planned else { panic!("{planned:?}") };
            assert!(new.are_in(&text).expect("JSON") && !text.contains("/old/"), "{text}");
        }
    }

    #[test]
    fn a_handler_beside_ours_stays() {
        let hooks = hooks(Agent::ClaudeCode, "/bin/chronicle");
        let text = hooks.add_to("").expect("JSON");
        let mine = r#"{"type": "command", "command": "mine"}, "#;
        let text = text.replacen("\"hooks\": [", &format!("\"hooks\": [{mine}"), 1);
        let rest = hooks.remove_from(&text).expect("JSON").expect("ours");
        let expected = serde_json::json!({ "hooks": { "SessionStart": [
            { "hooks": [{ "type": "command", "command": "mine" }] }
        ] } });
        assert_eq!(value(&rest), expected);
    }

    #[test]
    fn what_is_no_json_or_no_settings_says_where() {
        let hooks = hooks(Agent::Codex, "/bin/chronicle");
        let check = |text: &str, expected: &str| {
            let error = hooks.add_to(text).expect_err(text);
            assert!(error.0.starts_with(expected), "{text}: {error}");
        };
        check("{\n  \"a\": \n}", "line 3, column 1: ");
        check("{} {}", "line 1, column 4: ");
        check("[]", "the whole document is not an object");
        check("{\"hooks\": []}", "hooks is not an object");
        check("{\"hooks\": {\"Stop\": {}}}", "hooks.Stop is not a list");
        check("{\"hooks\": {}, \"hooks\": {}}", "hooks is there twice");
        check("{'a': 1}", "line 1, column 2: ");
    }

    #[test]
    fn random_settings_keep_what_is_theirs_and_come_back_exactly() {
        for seed in 0..500 {
            let mut dice = Dice::new(seed);
            let agent = *dice.pick(&JSON_AGENTS);
            let text = random_settings(&mut dice, agent);
            let hooks = hooks(agent, "/opt/a 'b'/chronicle");
            let added =
                hooks.add_to(&text).unwrap_or_else(|error| panic!("{seed} {error}: {text}"));
            assert!(hooks.are_in(&added).expect("JSON"), "{seed}: {added}");
            assert_eq!(comments(&text), comments(&added), "{seed}: {added}");
            check_removed_by_structure(seed, &hooks, &text, &added);
            check_exact(seed, hooks, &text);
        }
    }

    fn check_removed_by_structure(seed: u64, hooks: &Hooks, text: &str, added: &str) {
        let rest = hooks.remove_from(added).expect("JSON").expect("ours");
        let mut expected = tidy(text);
        for (name, json) in &hooks.preamble {
            let top = expected.as_object_mut().expect("an object");
            top.entry(*name).or_insert_with(|| plain(json));
        }
        assert_eq!(tidy(&rest), expected, "{seed}: {added}");
        assert_eq!(comments(text), comments(&rest), "{seed}: {rest}");
        assert_eq!(hooks.remove_from(&rest).expect("JSON"), None, "{seed}: {rest}");
    }

    fn check_exact(seed: u64, hooks: Hooks, text: &str) {
        let content = Content::Hooks(hooks);
        let planned = plan::install(&content, Some(text), None).expect("JSON");
        let Install::Write { text: written, original } = planned else { panic!("{seed}: {text}") };
        let receipt = Receipt {
            path: String::new(),
            original,
            written: written.clone(),
            directories: Vec::new(),
        };
        let again = plan::install(&content, Some(&written), Some(&receipt)).expect("JSON");
        assert_eq!(again, Install::Already, "{seed}");
        let back = plan::uninstall(&content, Some(&written), Some(&receipt)).expect("JSON");
        assert_eq!(back, Uninstall::Write(text.to_owned()), "{seed}");
    }

    /// Settings as people and other programs leave them.
    fn random_settings(dice: &mut Dice, agent: Agent) -> String {
        if dice.chance(5) {
            return (*dice.pick(&["", "\n", "{}", " { } \n", "// note\n", "{\n}"])).to_owned();
        }
        let mut members: Vec<String> =
            (0..dice.below(4)).map(|n| format!("\"key{n}\": {}", random_value(dice, 3))).collect();
        if dice.chance(70) {
            let events: Vec<_> = hooks(agent, "/x/chronicle").entries;
            let lists = (0..dice.below(3)).map(|n| {
                let count = dice.below(3);
                let entries: Vec<_> = (0..count).map(|_| other_entry(dice)).collect();
                format!("\"{}\": {}", events[n].0, joined(dice, '[', &entries, ']'))
            });
            let lists: Vec<_> = lists.collect();
            let place = dice.below(members.len() + 1);
            members.insert(place, format!("\"hooks\": {}", joined(dice, '{', &lists, '}')));
        }
        let end = *dice.pick(&["", "\n", "\n\n", " // note-end"]);
        let text = joined(dice, '{', &members, '}') + end;
        let text = if dice.chance(20) { text.replace('\n', "\r\n") } else { text };
        if dice.chance(10) { format!("{BYTE_ORDER_MARK}{text}") } else { text }
    }

    fn other_entry(dice: &mut Dice) -> String {
        (*dice.pick(&[
            r#"{"command": "./mine.sh", "timeout": 3}"#,
            r#"{"matcher": "Bash", "hooks": [{"type": "command", "command": "lint 'a b'"}]}"#,
            r#"{"type": "command", "bash": "othertool hook codex"}"#,
            r#"{"hooks": []}"#,
        ]))
        .to_owned()
    }

    fn random_value(dice: &mut Dice, depth: usize) -> String {
        match dice.below(if depth == 0 { 4 } else { 6 }) {
            0 => (*dice.pick(&["null", "true", "1.5e3", "-0"])).to_owned(),
            1 => (*dice.pick(&[r#""""#, r#""a // b""#, r#""\"\\\u00e9""#, "\"ü\"", "\"/* x */\""]))
                .to_owned(),
            2 => "{}".to_owned(),
            3 => "[]".to_owned(),
            4 => {
                let items: Vec<_> =
                    (0..dice.below(3)).map(|_| random_value(dice, depth - 1)).collect();
                joined(dice, '[', &items, ']')
            }
            _ => {
                let items: Vec<_> = (0..dice.below(3))
                    .map(|n| format!("\"k{n}\":{}", random_value(dice, depth - 1)))
                    .collect();
                joined(dice, '{', &items, '}')
            }
        }
    }

    /// Items between brackets, with whatever space and comments people put there.
    fn joined(dice: &mut Dice, open: char, items: &[String], close: char) -> String {
        let space = |dice: &mut Dice| {
            *dice.pick(&[
                "",
                "",
                " ",
                "\n",
                "\n  ",
                "\n\t",
                "\n   ",
                " /* note */ ",
                "\n  // note\n  ",
            ])
        };
        let mut text = String::from(open);
        for (index, item) in items.iter().enumerate() {
            let comma = if index + 1 < items.len() || dice.chance(20) { "," } else { "" };
            text += &format!("{}{item}{}{comma}", space(dice), space(dice));
        }
        text += space(dice);
        text.push(close);
        text
    }
}
