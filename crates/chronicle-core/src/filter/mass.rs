//! Re-creatable mass: the directories that tools fill and can fill again.
//!
//! A name alone is never enough. This module knows the names, the signs beside and inside that
//! a tool made the directory, and how to have it made anew.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::read::{exists, read_small};

/// The beginning of the tag that caches carry, by its specification.
const CACHE_TAG: &[u8] = b"Signature: 8a477f597d28d172789f06886806bc55";
/// The most entries of a directory that are looked through for a sign.
const LISTED_MAX: usize = 10_000;

/// A name that tools give to what they generate.
#[derive(Debug)]
pub(super) struct Known {
    name: &'static str,
    /// Files whose presence beside the directory is a sign; `*.x` is any name that ends so.
    beside: &'static [&'static str],
    /// Files whose presence inside the directory is a sign.
    inside: &'static [&'static str],
    /// How to have it made anew.
    hint: &'static str,
}

const fn known(
    name: &'static str,
    beside: &'static [&'static str],
    inside: &'static [&'static str],
    hint: &'static str,
) -> Known {
    Known { name, beside, inside, hint }
}

const PACKAGE: &[&str] = &["package.json"];
const PYTHON: &[&str] = &["pyproject.toml", "setup.py", "setup.cfg", "*.py"];
const GRADLE: &[&str] =
    &["build.gradle", "build.gradle.kts", "settings.gradle", "settings.gradle.kts", "gradlew"];
const NODE_MODULES: &[&str] = &[".package-lock.json", ".modules.yaml", ".yarn-integrity"];

/// The known names. Those without `beside` and `inside` are words that people use for their own
/// things too, and count only where git ignores them or they carry a cache's tag.
static KNOWN: [Known; 39] = [
    known("node_modules", PACKAGE, NODE_MODULES, "npm install"),
    known("bower_components", &["bower.json"], &[], "bower install"),
    known("target", &["Cargo.toml", "pom.xml", "build.sbt"], &[".rustc_info.json"], "cargo build"),
    known(".venv", &[], &["pyvenv.cfg"], "python -m venv .venv"),
    known("venv", &[], &["pyvenv.cfg"], "python -m venv venv"),
    known("__pycache__", &["*.py"], &[], "run the program again"),
    known(".mypy_cache", PYTHON, &[], "mypy"),
    known(".pytest_cache", PYTHON, &[], "pytest"),
    known(".ruff_cache", PYTHON, &[], "ruff check"),
    known(".tox", &["tox.ini", "pyproject.toml", "setup.cfg"], &[], "tox"),
    known(".nox", &["noxfile.py"], &[], "nox"),
    known(".eggs", &["setup.py", "setup.cfg", "pyproject.toml"], &[], "pip install -e ."),
    known("htmlcov", &[".coverage", ".coveragerc"], &[], "coverage html"),
    known(".gradle", GRADLE, &[], "gradle build"),
    known(".next", &["next.config.js", "next.config.mjs", "next.config.ts"], &[], "next build"),
    known(".nuxt", &["nuxt.config.js", "nuxt.config.ts"], &[], "nuxt build"),
    known(".output", &["nuxt.config.js", "nuxt.config.ts"], &[], "nuxt build"),
    known(".svelte-kit", &["svelte.config.js", "svelte.config.ts"], &[], "vite build"),
    known(".astro", &["astro.config.mjs", "astro.config.ts"], &[], "astro build"),
    known(".turbo", &["turbo.json", "package.json"], &[], "turbo build"),
    known(".parcel-cache", PACKAGE, &[], "parcel build"),
    known(".angular", &["angular.json"], &[], "ng build"),
    known(".pnpm-store", PACKAGE, &[], "pnpm install"),
    known(".dart_tool", &["pubspec.yaml"], &[], "dart pub get"),
    known(".terraform", &["*.tf", ".terraform.lock.hcl"], &[], "terraform init"),
    known("zig-cache", &["build.zig"], &[], "zig build"),
    known(".zig-cache", &["build.zig"], &[], "zig build"),
    known("zig-out", &["build.zig"], &[], "zig build"),
    known("elm-stuff", &["elm.json"], &[], "elm make"),
    known("_build", &["mix.exs", "dune-project", "rebar.config"], &[], "build the project again"),
    known(".stack-work", &["stack.yaml"], &[], "stack build"),
    known("dist-newstyle", &["cabal.project", "*.cabal"], &[], "cabal build"),
    known(".build", &["Package.swift"], &[], "swift build"),
    known("Pods", &["Podfile"], &[], "pod install"),
    known("DerivedData", &["*.xcodeproj", "*.xcworkspace"], &[], "xcodebuild"),
    known(".ccls-cache", &["compile_commands.json", ".ccls"], &[], "open the editor again"),
    known(".cache", &[], &[], "run the tool again"),
    known("build", &[], &[], "build the project again"),
    known("dist", &[], &[], "build the project again"),
];

/// What is known about a directory's name.
pub(super) fn by_name(name: &[u8]) -> Option<&'static Known> {
    // The shortest and the longest of the names above: most names of a tree end here.
    if !(4..=16).contains(&name.len()) {
        return None;
    }
    KNOWN.iter().find(|known| known.name.as_bytes() == name)
}

/// How to make a directory of re-creatable mass anew, by its name.
pub fn recreate_hint(name: &[u8]) -> Option<&'static str> {
    by_name(name).map(|known| known.hint)
}

impl Known {
    /// Whether something in the directory or beside it shows that a tool made it.
    pub(super) fn has_sign(&self, directory: &Path) -> bool {
        has_cache_tag(directory)
            || self.inside.iter().any(|name| exists(&directory.join(name)))
            || directory.parent().is_some_and(|parent| self.has_sign_beside(directory, parent))
    }

    fn has_sign_beside(&self, directory: &Path, parent: &Path) -> bool {
        self.beside.iter().any(|name| match name.strip_prefix('*') {
            Some(suffix) => has_name_ending(parent, suffix.as_bytes()),
            // A manifest inside as well makes it a member of a project, not its output.
            None => exists(&parent.join(name)) && !exists(&directory.join(name)),
        })
    }
}

fn has_cache_tag(directory: &Path) -> bool {
    let tag = read_small(&directory.join("CACHEDIR.TAG"));
    tag.is_ok_and(|tag| tag.is_some_and(|tag| tag.starts_with(CACHE_TAG)))
}

fn has_name_ending(directory: &Path, suffix: &[u8]) -> bool {
    let Ok(entries) = std::fs::read_dir(directory) else { return false };
    let ends = |name: &OsStr| name.as_bytes().ends_with(suffix);
    entries.take(LISTED_MAX).flatten().any(|entry| ends(&entry.file_name()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_known_name_is_found_and_has_a_hint() {
        for known in &KNOWN {
            assert!(recreate_hint(known.name.as_bytes()).is_some(), "{}", known.name);
            assert_eq!(KNOWN.iter().filter(|other| other.name == known.name).count(), 1);
        }
        assert_eq!(recreate_hint(b"node_modules"), Some("npm install"));
        assert_eq!(recreate_hint(b"src"), None);
    }
}
