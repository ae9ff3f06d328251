//! Which commands a command line runs, and whether one of them is among those that somebody named.
//!
//! Pure, and on the safe side: what could run a named command counts as running it. It is no wall: a
//! script can hide anything from who only reads its name.

mod known;
mod lines;
mod pattern;

use std::borrow::Cow;

use lines::{Line, Simple};

/// Command lines inside one another are read down to here.
const DEPTH: usize = 8;
/// Among so many words of one command another one is looked for.
const WORDS: usize = 1000;
/// The most matches of one line that are told.
const MATCHES: usize = 8;
/// How much of a command is told, in characters.
const TOLD: usize = 120;

/// Which commands and tools are looked for.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Rules<'r> {
    /// Patterns that this program knows.
    pub(crate) known: &'r [&'r str],
    /// Patterns that people wrote.
    pub(crate) commands: &'r [String],
    /// Names of tools.
    pub(crate) tools: &'r [String],
    /// Patterns of commands that are none of them after all.
    pub(crate) except: &'r [String],
}

/// A command or tool that was looked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Matched {
    /// The command, or the tool's name.
    pub(crate) what: String,
    /// The rule that it fits.
    pub(crate) rule: String,
}

/// Commands that reach outside, as this program knows them.
pub(crate) fn known_effects() -> &'static [&'static str] {
    known::EFFECTS
}

/// Commands that change data, as this program knows them.
pub(crate) fn known_data() -> &'static [&'static str] {
    known::DATA
}

/// What is wrong with a pattern that somebody wrote.
pub(crate) fn problem(pattern: &str) -> Option<&'static str> {
    pattern::problem(pattern)
}

/// A command line that was read once, to be compared with several rules.
pub(crate) struct CommandLine<'t> {
    text: Cow<'t, str>,
    commands: Vec<Vec<String>>,
    /// Every command that it may run: one of those above, from one of its words on.
    candidates: Vec<(usize, usize)>,
    /// Somebody in it does more than show text.
    acts: bool,
    gave_up: bool,
}

impl<'t> CommandLine<'t> {
    pub(crate) fn read(text: &'t str) -> Self {
        let mut line = Self::empty(Cow::Borrowed(text));
        line.add(text, DEPTH);
        line
    }

    /// A command that no shell has to read.
    pub(crate) fn of_words(words: &[String]) -> Self {
        let mut line = Self::empty(Cow::Owned(words.join(" ")));
        line.add_simple(&Simple { words: words.to_vec(), ..Simple::default() }, DEPTH);
        line
    }

    fn empty(text: Cow<'t, str>) -> Self {
        let (commands, candidates) = (Vec::new(), Vec::new());
        Self { text, commands, candidates, acts: false, gave_up: false }
    }

    fn candidates(&self) -> impl Iterator<Item = &[String]> {
        self.candidates.iter().map(|(command, from)| &self.commands[*command][*from..])
    }

    fn add(&mut self, text: &str, depth: usize) {
        if depth == 0 {
            self.gave_up = true;
            return;
        }
        let Line { commands, gave_up } = lines::read(text);
        self.gave_up |= gave_up;
        let fed_to_shell = commands.iter().any(reads_commands);
        let resolved =
            commands.iter().any(|one| one.words.first().is_some_and(|word| word.starts_with('$')));
        for simple in &commands {
            if resolved {
                simple.assigned.iter().for_each(|value| self.add(value, depth - 1));
            }
            if fed_to_shell {
                self.add_texts(simple, depth - 1);
            }
            self.add_simple(simple, depth - 1);
        }
    }

    fn add_simple(&mut self, simple: &Simple, depth: usize) {
        let Some(first) = simple.words.first() else { return };
        let name = pattern::program_name(first);
        self.acts |= !among(known::READERS, name);
        if first.contains(char::is_whitespace) {
            // A text where a program should be: code of another language that runs it.
            self.add(first, depth);
        }
        let runs = among(known::RUNNERS, name);
        let last = if runs { simple.words.len().min(WORDS) } else { 1 };
        self.gave_up |= runs && simple.words.len() > WORDS;
        self.candidates.extend((0..last).map(|from| (self.commands.len(), from)));
        self.commands.push(simple.words.clone());
        if !runs {
            return;
        }
        if name == "eval" {
            self.add(&simple.words[1..].join(" "), depth);
        }
        for text in simple.words[1..].iter().filter(is_line) {
            self.add(text, depth);
        }
        if among(known::SHELLS, name) {
            simple.fed.iter().for_each(|text| self.add(text, depth));
        }
    }

    /// What a shell further on in the line reads from this command.
    fn add_texts(&mut self, simple: &Simple, depth: usize) {
        simple.fed.iter().for_each(|text| self.add(text, depth));
        if let Some((_, arguments)) = simple.words.split_first() {
            for text in arguments.iter().filter(is_line) {
                // As `printf` and some `echo` would say it.
                self.add(&text.replace("\\n", "\n"), depth);
            }
        }
    }

    /// The commands of the line that fit some rules.
    pub(crate) fn matches(&self, rules: &Rules<'_>) -> Vec<Matched> {
        let mut found: Vec<Matched> = Vec::new();
        let all = || rules.known.iter().copied().chain(rules.commands.iter().map(String::as_str));
        for words in self.candidates() {
            let fits = |pattern: &&str| pattern::fits(pattern, words);
            let Some(rule) = all().filter(|one| pattern::in_text(one).is_none()).find(fits) else {
                continue;
            };
            if !rules.except.iter().any(|except| pattern::fits(except, words)) {
                add(&mut found, &words.join(" "), rule);
            }
        }
        for rule in all().filter(|_| self.acts) {
            let fits =
                pattern::in_text(rule).is_some_and(|text| pattern::fits_text(text, &self.text));
            if fits && !self.is_excepted(rules) {
                add(&mut found, &self.text, rule);
            }
        }
        if self.gave_up && found.is_empty() {
            add(&mut found, &self.text, "(nested too deeply to be read)");
        }
        found
    }

    fn is_excepted(&self, rules: &Rules<'_>) -> bool {
        let excepted = |except: &String| self.candidates().any(|it| pattern::fits(except, it));
        rules.except.iter().any(excepted)
    }
}

/// Whether a tool is among those that are looked for.
pub(crate) fn match_tool(name: &str, rules: &Rules<'_>) -> Option<Matched> {
    let rule = rules.tools.iter().find(|pattern| pattern::fits_name(pattern, name))?;
    Some(Matched { what: shortened(name), rule: rule.clone() })
}

fn add(found: &mut Vec<Matched>, what: &str, rule: &str) {
    // `sudo git push` is one command, not two.
    let known = found.iter().any(|one| one.what.ends_with(&shortened(what)));
    if found.len() < MATCHES && !known {
        found.push(Matched { what: shortened(what), rule: rule.to_owned() });
    }
}

/// One line of a command, not too long.
fn shortened(text: &str) -> String {
    let line = text.trim().lines().next().unwrap_or_default();
    let mut told: String = line.chars().take(TOLD).collect();
    if told.len() < text.trim().len() {
        told.push_str(" ...");
    }
    told
}

fn among(names: &[&str], name: &str) -> bool {
    names.iter().any(|one| pattern::fits_name(one, name))
}

fn is_line(word: &&String) -> bool {
    word.contains(|c: char| c.is_whitespace() || matches!(c, ';' | '|' | '&'))
}

/// Whether a command is a shell that is told by its standard input what to do.
fn reads_commands(simple: &Simple) -> bool {
    let Some((first, arguments)) = simple.words.split_first() else { return false };
    let asked = |word: &String| word == "-s" || word == "-";
    among(known::SHELLS, pattern::program_name(first))
        && (arguments.iter().all(|word| word.starts_with('-') && word != "-c")
            || arguments.iter().any(asked))
}

#[cfg(test)]
mod tests;
