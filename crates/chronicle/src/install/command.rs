//! The command that an agent calls: as words, as a line for a shell, and recognised again.

use std::path::Path;

use crate::agent::Agent;

/// How a shared line begins: whoever has no `chronicle` is left alone.
const IF_PRESENT: &str = "command -v chronicle >/dev/null 2>&1 && exec ";

/// What our program's file name holds, so that its entries are recognised from any path.
const PROGRAM: &str = "chronicle";

/// What a hook runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HookCommand {
    pub(crate) agent: Agent,
    pub(crate) strict: bool,
    /// Program and arguments.
    words: Vec<String>,
    /// Found by its name, and no failure where it is not.
    pub(crate) optional: bool,
}

impl HookCommand {
    /// By the program's absolute path, since agents clean the environment; for the same reason with
    /// the home, if it is not the default. `None` if a path is not text, which settings cannot hold,
    /// or if the program's name would not be recognised again.
    pub(crate) fn absolute(
        agent: Agent,
        program: &Path,
        home: Option<&Path>,
        strict: bool,
    ) -> Option<Self> {
        program.file_name()?.to_str().filter(|name| name.contains(PROGRAM))?;
        let mut words = vec![program.to_str()?.to_owned()];
        words.extend(Self::arguments(agent, strict));
        if let Some(home) = home {
            words.extend(["--home".to_owned(), home.to_str()?.to_owned()]);
        }
        Some(Self { agent, strict, words, optional: false })
    }

    /// By name, for files that several people get.
    pub(crate) fn by_name(agent: Agent, strict: bool) -> Self {
        let mut words = vec![PROGRAM.to_owned()];
        words.extend(Self::arguments(agent, strict));
        Self { agent, strict, words, optional: true }
    }

    fn arguments(agent: Agent, strict: bool) -> impl Iterator<Item = String> {
        let strict = strict.then_some("--strict");
        ["hook", agent.name()].into_iter().chain(strict).map(str::to_owned)
    }

    /// Program and arguments.
    pub(crate) fn words(&self) -> &[String] {
        &self.words
    }

    /// The line for a shell. A shared one runs `otherwise` where there is no program; whatever the
    /// program's exit status is, 2 included, is the line's.
    pub(crate) fn line(&self, otherwise: &str) -> String {
        let words: Vec<_> = self.words.iter().map(|word| quote(word)).collect();
        let line = words.join(" ");
        if self.optional { format!("{IF_PRESENT}{line}; {otherwise}") } else { line }
    }
}

/// A word that a shell reads back as it is.
pub(super) fn quote(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_@%+=:,./-".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// Whether a line for a shell is one of ours, of whatever version and path, and nothing else.
pub(super) fn is_ours(line: &str, agent: Agent) -> bool {
    let line = line.trim();
    let command = match line.strip_prefix(IF_PRESENT) {
        Some(rest) => rest.split(';').next().unwrap_or_default(),
        None => line,
    };
    split(command).is_some_and(|words| are_ours(&words, agent))
}

/// Whether program and arguments are ours.
pub(super) fn are_ours<S: AsRef<str>>(words: &[S], agent: Agent) -> bool {
    let [program, verb, name, ..] = words else { return false };
    let file = Path::new(program.as_ref()).file_name().and_then(|file| file.to_str());
    file.is_some_and(|file| file.contains(PROGRAM))
        && verb.as_ref() == "hook"
        && name.as_ref() == agent.name()
}

/// The words of a simple command; `None` if a shell would make more of it than words.
fn split(line: &str) -> Option<Vec<String>> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut rest = line.chars();
    while let Some(c) = rest.next() {
        match c {
            ' ' | '\t' => words.extend(word.take()),
            '\'' => {
                let (quoted, after) = rest.as_str().split_once('\'')?;
                word.get_or_insert_default().push_str(quoted);
                rest = after.chars();
            }
            '\\' => word.get_or_insert_default().push(rest.next()?),
            ';' | '&' | '|' | '<' | '>' | '(' | ')' | '$' | '`' | '"' | '\n' => return None,
            c => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    Some(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ODD: &str = "/opt/it's a \"test\" $HOME/chronicle";

    #[test]
    fn a_line_is_recognised_whatever_the_path() {
        for program in ["/usr/bin/chronicle", "/old/chronicle-0.1", ODD] {
            for home in [None, Some(Path::new("/a b/home"))] {
                let command = HookCommand::absolute(Agent::Codex, Path::new(program), home, true)
                    .expect("text");
                let line = command.line("exit 0");
                assert_eq!(split(&line).as_deref(), Some(command.words()), "{line}");
                assert!(is_ours(&line, Agent::Codex), "{line}");
                assert!(!is_ours(&line, Agent::Gemini), "{line}");
            }
        }
        for otherwise in ["exit 0", "echo '{}'"] {
            let line = HookCommand::by_name(Agent::Codex, false).line(otherwise);
            assert!(is_ours(&line, Agent::Codex), "{line}");
        }
    }

    #[test]
    fn other_peoples_lines_are_not_ours() {
        for line in [
            "",
            "chronicle",
            "chronicle log",
            "chronicle hook gemini",
            "othertool hook codex",
            "chronicle hook codex && ./mine.sh",
            "./mine.sh; chronicle hook codex",
            "echo \"chronicle hook codex\"",
            "'chronicle hook codex",
        ] {
            assert!(!is_ours(line, Agent::Codex), "{line}");
        }
    }

    #[test]
    fn a_program_that_would_not_be_recognised_is_no_command() {
        let command = |path| HookCommand::absolute(Agent::Codex, Path::new(path), None, false);
        assert!(command("/usr/bin/undo").is_none());
        assert!(command("/usr/bin/chronicle").is_some());
    }
}
