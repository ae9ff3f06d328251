//! Reads which files a patch in the `*** Begin Patch` form touches.

use std::path::PathBuf;

const BEGIN: &str = "*** Begin Patch";
const FILES: [&str; 4] =
    ["*** Add File: ", "*** Update File: ", "*** Delete File: ", "*** Move to: "];

/// The files that a text names in such patches, in order; empty if it holds none.
pub(crate) fn paths(text: &str) -> Vec<PathBuf> {
    let Some(start) = text.find(BEGIN) else { return Vec::new() };
    let mut paths: Vec<PathBuf> = Vec::new();
    for line in text[start..].lines() {
        let named = FILES.iter().find_map(|mark| line.trim_start().strip_prefix(mark));
        if let Some(name) = named.map(str::trim).filter(|name| !name.is_empty()) {
            let path = PathBuf::from(name);
            if !paths.contains(&path) {
                paths.push(path);
            }
        }
    }
    paths
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mutated_patches() {
        let seeds =
            ["*** Begin Patch\n*** Update File: a\n@@\n-x\n+y\n*** Move to: b c\n*** End Patch\n"];
        let seeds = seeds.map(|text| text.as_bytes().to_vec());
        chronicle_testing::fuzz::fuzz_all("patches", &seeds, 20_000, |input| {
            let paths = paths(&String::from_utf8_lossy(input));
            assert!(paths.iter().all(|path| !path.as_os_str().is_empty()));
            !paths.is_empty()
        });
    }

    #[track_caller]
    fn check(text: &str, expected: &[&str]) {
        assert_eq!(paths(text), expected.iter().map(PathBuf::from).collect::<Vec<_>>());
    }

    #[test]
    fn every_file_of_a_patch_is_named_once() {
        check(
            "*** Begin Patch\n*** Update File: a.txt\n*** Move to: d/b.txt\n@@\n-x\n+y\n\
             *** Add File: new file.txt\n+*** not a mark\n*** Delete File: a.txt\n*** End Patch\n",
            &["a.txt", "d/b.txt", "new file.txt"],
        );
        check(
            "apply_patch <<'X'\n*** Begin Patch\n  *** Add File: b\n+1\n*** End Patch\nX",
            &["b"],
        );
        check("*** Update File: not in a patch", &[]);
        check("", &[]);
    }
}
