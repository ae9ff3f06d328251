//! Every word by which a checkpoint is refused is documented.

use std::fs;
use std::path::Path;

/// The words that stand behind `Problem::new(` in a file.
fn words(text: &str) -> Vec<String> {
    let text = text.split("#[cfg(test)]").next().unwrap_or_default();
    let after = text.split("Problem::new(").skip(1);
    let word = |rest: &str| {
        let quoted = rest.trim_start().strip_prefix('"')?;
        Some(quoted.split('"').next()?.to_owned())
    };
    after.filter_map(word).collect()
}

fn sources(top: &Path, see: &mut dyn FnMut(&str)) {
    for item in fs::read_dir(top).unwrap().flatten() {
        match item.path().is_dir() {
            true => sources(&item.path(), see),
            false => see(&fs::read_to_string(item.path()).unwrap()),
        }
    }
}

#[test]
fn every_word_is_documented() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let documented = fs::read_to_string(here.join("../../docs/json.md")).unwrap();
    let mut all: Vec<String> = Vec::new();
    sources(&here.join("src"), &mut |text| all.extend(words(text)));
    assert!(all.len() > 50, "{all:?}");
    let damaged = crate::damage_store::KINDS.iter().map(|(word, _)| *word);
    all.extend(damaged.chain(crate::damage::words()).map(str::to_owned));
    for word in all {
        assert!(documented.contains(&format!("`{word}`")), "docs/json.md does not say {word}");
    }
}
