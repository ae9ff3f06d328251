//! Reads the repository itself: who depends on whom, how long files are, what nobody may forget.
#![allow(clippy::unwrap_used, reason = "a test that cannot prepare its world fails")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

fn top() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// Every file below a directory of the repository whose name ends so.
fn files(below: &str, ending: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut left = vec![top().join(below)];
    while let Some(directory) = left.pop() {
        for item in fs::read_dir(&directory).unwrap().map(Result::unwrap) {
            match item.file_type().unwrap() {
                kind if kind.is_dir() && item.file_name() != "target" => left.push(item.path()),
                kind if kind.is_file() && item.path().to_string_lossy().ends_with(ending) => {
                    found.push(item.path());
                }
                _ => {}
            }
        }
    }
    found.sort();
    found
}

/// The names under one heading of a manifest.
fn dependencies(name: &str, heading: &str) -> BTreeSet<String> {
    let manifest = fs::read_to_string(top().join("crates").join(name).join("Cargo.toml")).unwrap();
    let section = manifest.split(&format!("[{heading}]\n")).nth(1).unwrap_or("");
    let lines = section.lines().take_while(|line| !line.starts_with('['));
    lines.filter_map(|line| line.split(['.', ' ', '=']).next()).map(str::to_owned).collect()
}

#[test]
fn each_crate_depends_only_on_those_below_it() {
    let below: [(&str, &[&str]); 12] = [
        ("chronicle-core", &[]),
        ("chronicle-testing", &["chronicle-core"]),
        (
            "chronicle-bench",
            &[
                "chronicle-checkpoint",
                "chronicle-core",
                "chronicle-mount",
                "chronicle-remote",
                "chronicle-testing",
            ],
        ),
        ("chronicle-checkpoint", &["chronicle-core"]),
        ("chronicle-fleet", &["chronicle-core"]),
        ("chronicle-mcp", &["chronicle-core"]),
        ("chronicle-mount", &["chronicle-core"]),
        ("chronicle-remote", &["chronicle-core"]),
        ("chronicle-replica", &["chronicle-core"]),
        ("chronicle-tui", &["chronicle-core"]),
        ("chronicle-web", &["chronicle-core"]),
        (
            "chronicle",
            &[
                "chronicle-core",
                "chronicle-checkpoint",
                "chronicle-fleet",
                "chronicle-mcp",
                "chronicle-mount",
                "chronicle-remote",
                "chronicle-replica",
                "chronicle-tui",
                "chronicle-web",
            ],
        ),
    ];
    for (name, allowed) in below {
        let found = dependencies(name, "dependencies");
        let ours: BTreeSet<_> =
            found.iter().filter(|other| other.starts_with("chronicle")).collect();
        assert!(ours.iter().all(|other| allowed.contains(&other.as_str())), "{name} on {ours:?}");
    }
}

#[test]
fn the_core_knows_no_terminal_no_network_and_no_runtime() {
    let found = dependencies("chronicle-core", "dependencies");
    for banned in ["tokio", "clap", "reqwest", "object_store", "fuser", "indicatif", "crossterm"] {
        assert!(!found.contains(banned), "chronicle-core depends on {banned}");
    }
}

#[test]
fn no_source_file_is_longer_than_800_lines() {
    for path in files("crates", ".rs") {
        let lines = fs::read_to_string(&path).unwrap().lines().count();
        assert!(lines <= 800, "{} has {lines} lines", path.display());
    }
}

#[test]
fn every_failpoint_is_listed_and_passed() {
    let list = fs::read_to_string(top().join("crates/chronicle-core/src/failpoint.rs")).unwrap();
    let list = list.split_once("ALL: &[&str] = &[").unwrap().1.split_once(']').unwrap().0;
    let listed: BTreeSet<_> = list.split('"').skip(1).step_by(2).map(str::to_owned).collect();
    let mut passed = BTreeSet::new();
    let sources = ["crates/chronicle-core/src", "crates/chronicle-checkpoint/src"];
    for path in sources.iter().flat_map(|below| files(below, ".rs")) {
        let source = fs::read_to_string(path).unwrap();
        let hits = source.split("failpoint::hit(\"").skip(1);
        passed.extend(hits.map(|rest| rest.split('"').next().unwrap().to_owned()));
    }
    assert_eq!(passed, listed);
}

#[test]
fn no_test_file_is_forgotten() {
    for main in files("crates", "tests/it/main.rs") {
        let listed = fs::read_to_string(&main).unwrap();
        for item in fs::read_dir(main.parent().unwrap()).unwrap().map(Result::unwrap) {
            let (path, is_rust) =
                (item.path(), item.path().extension().is_some_and(|it| it == "rs"));
            if !is_rust && !path.join("mod.rs").exists() {
                continue;
            }
            let name = path.file_stem().unwrap().to_string_lossy().into_owned();
            let known = name == "main" || listed.contains(&format!("mod {name};"));
            assert!(known, "{} is in no list", path.display());
        }
    }
}

#[test]
fn every_json_field_is_documented() {
    let shapes = ["view.rs", "view/effects.rs", "view/formats.rs", "view/pages.rs"];
    let core = top().join("crates/chronicle-core/src");
    let read = |name: &str| fs::read_to_string(core.join(name)).unwrap();
    let views = shapes.map(read).concat();
    let document = fs::read_to_string(top().join("docs/json.md")).unwrap();
    let fields = views.lines().filter_map(|line| line.strip_prefix("    pub "));
    for field in fields.filter_map(|line| line.split_once(": ")).map(|(name, _)| name) {
        assert!(document.contains(&format!("`{field}`")), "docs/json.md lacks {field}");
    }
}

#[test]
fn every_link_in_the_documents_leads_somewhere() {
    let mut documents = files("docs", ".md");
    documents.extend(files("packaging", ".md").into_iter().chain(files("clients", "README.md")));
    let tops = ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "AGENTS.md", "CHANGELOG.md"];
    documents.extend(tops.map(|name| top().join(name)));
    for document in documents {
        let text = fs::read_to_string(&document).unwrap();
        for link in text.split("](").skip(1).filter_map(|rest| rest.split([')', '#']).next()) {
            let outside = link.is_empty() || link.contains("://");
            let found = outside || document.parent().unwrap().join(link).exists();
            assert!(found, "{} links to {link}, which is not there", document.display());
        }
    }
}

/// The modules that stand at the top of a crate.
fn modules(name: &str) -> BTreeSet<String> {
    let source = top().join("crates").join(name).join("src");
    let items = fs::read_dir(source).unwrap().map(Result::unwrap);
    let names = items.map(|item| item.path().file_stem().unwrap().to_string_lossy().into_owned());
    names.collect()
}

/// What stands in backticks, in the first column of the tables below a heading.
fn tabled(document: &str, heading: &str) -> BTreeSet<String> {
    let section = document.split(heading).nth(1).unwrap_or_else(|| panic!("no {heading:?}"));
    let section = section.split("\n## ").next().unwrap();
    let rows = section.lines().filter_map(|line| line.strip_prefix("| `"));
    let cells = rows.filter_map(|row| row.split(" |").next());
    cells.flat_map(|cell| cell.split("`, `")).map(|it| it.replace('`', "")).collect()
}

#[test]
fn every_module_in_the_architecture_is_there_and_every_module_of_the_core_is_in_it() {
    let document = fs::read_to_string(top().join("ARCHITECTURE.md")).unwrap();
    let core = tabled(&document, "## chronicle-core, module by module");
    let mut there = modules("chronicle-core");
    // Only a test's, and the crate itself.
    assert!(there.remove("lib") && there.remove("fuzz"));
    there.retain(|name| !name.ends_with("_tests"));
    assert_eq!(core, there, "ARCHITECTURE.md and the modules of chronicle-core");
    let mut crates = 0;
    for line in document.lines().filter_map(|line| line.strip_prefix("## chronicle-")) {
        if line.contains(' ') {
            continue;
        }
        let (name, there) = (format!("chronicle-{line}"), modules(&format!("chronicle-{line}")));
        let named = tabled(&document, &format!("## {name}\n"));
        assert!(!named.is_empty(), "{name}");
        for module in named {
            let below = top().join("crates").join(&name).join("src").join(&module);
            let found = there.contains(&module) || below.exists();
            let nested = files(&format!("crates/{name}/src"), &format!("/{module}.rs"));
            assert!(found || !nested.is_empty(), "{name} has no module {module}");
        }
        crates += 1;
    }
    assert!(crates >= 7, "only {crates} crates were found");
}

#[test]
fn every_failpoint_in_the_architecture_is_one() {
    let document = fs::read_to_string(top().join("ARCHITECTURE.md")).unwrap();
    let words = document.split('`').skip(1).step_by(2);
    let is_point = |word: &&str| {
        let parts: Vec<_> = word.split('_').collect();
        let middle = parts.iter().skip(1).any(|part| ["after", "before", "in"].contains(part));
        parts.len() > 2
            && middle
            && word.chars().all(|c| c.is_ascii_lowercase() || "_*".contains(c))
    };
    let mut count = 0;
    for word in words.filter(is_point) {
        let fits = |point: &&&str| match word.strip_suffix('*') {
            Some(start) => point.starts_with(start),
            None => **point == word,
        };
        assert!(chronicle_core::FAILPOINTS.iter().any(|point| fits(&point)), "no failpoint {word}");
        count += 1;
    }
    assert!(count > 30, "only {count} were found");
}

/// A workflow that did something of its own would be green where `.ci/run` is red.
#[test]
fn the_workflows_run_what_everybody_runs() {
    let workflows = files(".github/workflows", ".yml");
    assert!(!workflows.is_empty());
    for path in workflows {
        let text = fs::read_to_string(&path).unwrap();
        let steps: Vec<_> = text.lines().filter_map(|line| line.split_once("run: ")).collect();
        assert!(!steps.is_empty(), "{}", path.display());
        for (_, command) in steps {
            let known = [".ci/run", "./test long"].iter().any(|end| command.ends_with(end));
            assert!(known, "{} runs {command}", path.display());
        }
    }
}
