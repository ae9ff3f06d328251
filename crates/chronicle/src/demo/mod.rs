//! A demonstration for a newcomer: an agent wrecks a workspace while a person works beside it, and
//! all of the agent's work is taken back, and only that.
//!
//! It calls the library and prints the command that would do the same. Each claim at the end is
//! checked against the directory itself; one that does not hold is a failure.

mod project;
mod tree;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use chronicle_core::{
    DiffRequest, Home, InitOptions, RewindKind, RewindReport, RewindRequest, SnapshotRequest,
    TurnRequest, Workspace,
};

use crate::error::{CommandError, Outcome};
use crate::render::{Paint, Style, count, diff, plan, printable, size};
use crate::ui::Ui;
use project::Scratch;
use tree::{Tree, describe, differences};

/// The shell commands of an agent that was told to clean up.
const WRECK: [&str; 8] = [
    "sed -i 's/Usage/USAGE/' README.md",
    "rm -rf docs",
    "mv src lib",
    "chmod 777 scripts/deploy.sh",
    "rm .env",
    "head -c 3000 /dev/zero > assets/logo.png",
    "rm app.db",
    "rm -f data/also-people.csv run && rmdir empty",
];
/// The line that the person adds, far from those of the agent.
const PERSONS_LINE: &str = "Licence: MIT, ask me for others";
const IDEAS: &str = "- greet in other languages\n";

/// Plays the demonstration; exit status 1 if a claim does not hold.
pub(crate) fn play(ui: &mut Ui, keep: bool) -> Outcome {
    let started = Instant::now();
    let mut scratch = Scratch::new().map_err(failed("make a scratch directory"))?;
    if keep {
        scratch.keep();
    }
    let root = scratch.path().join("workspace");
    let mut story = Story { paint: ui.paint(), ui, root: &root, step: 0, failures: 0 };
    story.tell(&scratch.path().join("home"))?;
    let failures = story.failures;
    let took = started.elapsed().as_secs_f64();
    match failures {
        0 => ui.line(format!("\nEverything holds ({took:.1} s).")),
        _ => ui.line(format!("\n{} failed.", count(failures, "claim"))),
    }
    if keep || failures > 0 {
        scratch.keep();
        ui.line(format!("The scratch directory is {}", scratch.path().display()));
        ui.line("Look around there with: CHRONICLE_HOME=$PWD/home chronicle -C workspace log");
    } else {
        ui.line("Try it on your own: chronicle init, then chronicle run -- COMMAND");
    }
    Ok(u8::from(failures > 0))
}

fn failed(what: &'static str) -> impl Fn(io::Error) -> CommandError {
    move |error| CommandError::io(format!("Could not {what}"), error)
}

/// One telling of the story.
struct Story<'s> {
    ui: &'s mut Ui,
    paint: Paint,
    root: &'s Path,
    step: u32,
    failures: u64,
}

impl Story<'_> {
    fn tell(&mut self, home: &Path) -> Result<(), CommandError> {
        fs::create_dir(self.root)
            .and_then(|()| project::write(self.root))
            .map_err(failed("write the project"))?;
        self.ui
            .line("Chronicle takes back what an agent did, and nothing else. Watch it, here in a");
        self.ui.line("scratch directory with a small project.");
        let mut workspace = self.adopt(home)?;
        let before = self.describe()?;
        self.edit_by_tool(&mut workspace)?;
        self.person_works()?;
        self.wreck_by_shell(&mut workspace)?;
        self.show_damage(&mut workspace)?;
        let wrecked = self.describe()?;
        self.rewind(&mut workspace)?;
        self.prove(&before)?;
        self.redo(&mut workspace, &wrecked)?;
        self.verify(&workspace)
    }

    fn title(&mut self, text: &str) {
        self.step += 1;
        let title = format!("{}. {text}", self.step);
        let title = self.paint.text(Style::Heading, &title).into_owned();
        self.ui.line(format!("\n{title}"));
    }

    fn command(&mut self, text: &str) {
        let text = format!("$ {text}");
        let text = self.paint.text(Style::Id, &text).into_owned();
        self.ui.line(format!("   {text}"));
    }

    fn lines(&mut self, text: &str) {
        for line in text.lines() {
            self.ui.line(format!("   {line}"));
        }
    }

    /// A claim, and whether it holds.
    fn claim(&mut self, text: &str, wrong: &[String]) {
        let (word, style) =
            if wrong.is_empty() { ("holds", Style::Added) } else { ("FAILS", Style::Removed) };
        let word = self.paint.text(style, word).into_owned();
        self.ui.line(format!("   {word}  {text}"));
        for line in wrong.iter().take(10) {
            self.ui.line(format!("          {}", printable(line)));
        }
        self.failures += u64::from(!wrong.is_empty());
    }

    fn describe(&self) -> Result<Tree, CommandError> {
        describe(self.root).map_err(failed("describe the workspace"))
    }

    fn at(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    fn adopt(&mut self, home: &Path) -> Result<Workspace, CommandError> {
        self.title("Adopt a workspace");
        self.command("chronicle init");
        let options = InitOptions { progress: None, cancelled: None };
        let (workspace, found) = Workspace::init(&Home::at(home), self.root, &options)?;
        let files = count(found.files, "file");
        self.lines(&format!(
            "{files} ({}) protected; nothing was written into it",
            size(found.bytes)
        ));
        Ok(workspace)
    }

    fn turn(&mut self, prompt: &str) -> TurnRequest {
        self.command(&format!("chronicle turn start --session agent --prompt \"{prompt}\""));
        TurnRequest {
            key: None,
            session: Some("agent".into()),
            prompt: Some(prompt.into()),
            agent: Some("demo".into()),
            by_hook: false,
        }
    }

    fn edit_by_tool(&mut self, workspace: &mut Workspace) -> Result<(), CommandError> {
        self.title("An agent edits with its tool");
        let turn = self.turn("Greet more warmly");
        workspace.turn_start(&turn)?;
        self.command("chronicle snapshot --action write_file --path src/main.py --path README.md");
        let path = |name: &str| workspace.path(Path::new(name), self.root);
        let request = SnapshotRequest {
            action: "write_file".into(),
            paths: vec![path("src/main.py")?, path("README.md")?],
            to: None,
            summary: None,
            tool: Some("edit".into()),
            call_id: None,
            session: Some("agent".into()),
            turn_key: None,
            agent: Some("demo".into()),
            transaction: None,
        };
        workspace.snapshot(&request)?;
        let main = project::MAIN.replace("'Hello, ' + name", "'Hello, dear ' + name + '!'");
        fs::write(self.at("src/main.py"), main).map_err(failed("edit"))?;
        let readme = project::README.replace("It greets people.", "It greets people warmly.");
        fs::write(self.at("README.md"), readme).map_err(failed("edit"))?;
        self.lines("(it writes both files)");
        self.command("chronicle turn end --session agent");
        workspace.turn_end(&turn)?;
        Ok(())
    }

    fn person_works(&mut self) -> Result<(), CommandError> {
        self.title("You work beside it");
        let readme = fs::read_to_string(self.at("README.md")).map_err(failed("read"))?;
        let readme = readme.replace("Licence: MIT", PERSONS_LINE);
        fs::write(self.at("README.md"), readme).map_err(failed("write"))?;
        fs::write(self.at("notes/ideas.md"), IDEAS).map_err(failed("write"))?;
        self.lines("(you change the last line of README.md, and write notes/ideas.md)");
        Ok(())
    }

    fn wreck_by_shell(&mut self, workspace: &mut Workspace) -> Result<(), CommandError> {
        self.title("The agent cleans up, with a shell");
        let turn = self.turn("Clean up the project");
        workspace.turn_start(&turn)?;
        for line in WRECK {
            self.command(line);
            let done = Command::new("sh").arg("-c").arg(line).current_dir(self.root).status();
            let done = done.map_err(failed("run a shell"))?;
            if !done.success() {
                let error = io::Error::other(format!("{line}: {done}"));
                return Err(CommandError::io("Could not run a shell command", error));
            }
        }
        self.command("chronicle turn end --session agent");
        workspace.turn_end(&turn)?;
        Ok(())
    }

    fn show_damage(&mut self, workspace: &mut Workspace) -> Result<(), CommandError> {
        self.title("What became of it all");
        self.command("chronicle diff start");
        let request = DiffRequest { from: Some("start".into()), ..DiffRequest::default() };
        let found = workspace.diff(&request)?;
        let paint = Paint { width: self.paint.width - 3, ..self.paint };
        self.lines(&diff::stat(&found, paint));
        Ok(())
    }

    fn take_back(
        &mut self,
        workspace: &mut Workspace,
        kind: RewindKind,
    ) -> Result<RewindReport, CommandError> {
        let request = RewindRequest::new(kind);
        Ok(workspace.rewind(&request, &mut |_| true)?)
    }

    fn rewind(&mut self, workspace: &mut Workspace) -> Result<(), CommandError> {
        self.title("Take back all that the agent did");
        self.command("chronicle rewind start");
        let done = self.take_back(workspace, RewindKind::Rewind { target: "start".into() })?;
        self.lines(&plan::plan(&done.plan, self.paint));
        let left = plan::left_over(&done, self.paint);
        self.lines(&left);
        self.lines(&format!("Rewound to {}", printable(&done.plan.resolved_target)));
        Ok(())
    }

    fn prove(&mut self, before: &Tree) -> Result<(), CommandError> {
        self.title("The proof");
        let now = self.describe()?;
        let persons = ["README.md", "notes", "notes/ideas.md"].map(Path::new);
        let paths = count((before.len() - 2) as u64, "path");
        let wrong = differences(before, &now, &persons);
        self.claim(
            &format!(
                "{paths} exactly as before: kind, mode, bytes, time, target, attributes, hard links"
            ),
            &wrong,
        );
        let readme = fs::read_to_string(self.at("README.md")).unwrap_or_default();
        let wanted = project::README.replace("Licence: MIT", PERSONS_LINE);
        let wrong =
            if readme == wanted { Vec::new() } else { vec![format!("README.md: {readme:?}")] };
        self.claim("README.md has your line, and none of the agent's", &wrong);
        let ideas = fs::read_to_string(self.at("notes/ideas.md")).unwrap_or_default();
        let wrong =
            if ideas == IDEAS { Vec::new() } else { vec![format!("notes/ideas.md: {ideas:?}")] };
        self.claim("notes/ideas.md, which you wrote, is there", &wrong);
        Ok(())
    }

    fn redo(&mut self, workspace: &mut Workspace, wrecked: &Tree) -> Result<(), CommandError> {
        self.title("Changed your mind? Taking back is taken back as well");
        self.command("chronicle redo");
        self.take_back(workspace, RewindKind::Redo)?;
        let wrong = differences(wrecked, &self.describe()?, &[]);
        self.claim(
            &format!("{} exactly as the agent left them", count(wrecked.len() as u64, "path")),
            &wrong,
        );
        Ok(())
    }

    fn verify(&mut self, workspace: &Workspace) -> Result<(), CommandError> {
        self.title("And nobody changed the history");
        self.command("chronicle verify --deep");
        let found = workspace.verify(true, &|_, _| {})?;
        let words = format!(
            "{} chained, {} read back and unchanged",
            count(found.records, "record"),
            count(found.objects_read, "object")
        );
        self.claim(&words, &[]);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shell_command_of_the_story_works_and_does_damage() {
        let scratch = tempfile::tempdir().expect("scratch");
        project::write(scratch.path()).expect("write the project");
        let mut before = describe(scratch.path()).expect("describe");
        for line in WRECK {
            let done = Command::new("sh").arg("-c").arg(line).current_dir(scratch.path()).status();
            assert!(done.expect("run a shell").success(), "{line}");
            let after = describe(scratch.path()).expect("describe");
            assert!(!differences(&before, &after, &[]).is_empty(), "{line} changed nothing");
            before = after;
        }
    }

    #[test]
    fn the_person_and_the_agent_change_lines_that_can_be_told_apart() {
        let lines: Vec<_> = project::README.lines().collect();
        let agents =
            lines.iter().position(|line| line.contains("It greets people.")).expect("agent");
        let persons = lines.iter().position(|line| line.contains("Licence: MIT")).expect("person");
        assert!(persons - agents > 3);
    }
}
