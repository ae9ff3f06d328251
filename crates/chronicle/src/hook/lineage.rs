//! Which turns a conversation left behind when its person went back in it, read off the client's own
//! transcript. Best effort: what cannot be read says nothing.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

use serde_json::Value;

/// How much of the end of a transcript is read.
const TAIL: u64 = 8 << 20;

/// The agent's names of the turns that the transcript holds and that do not lead to where the
/// conversation is now.
pub(crate) fn left_behind(transcript: &Path) -> Vec<String> {
    tail(transcript).map(|text| abandoned(&text)).unwrap_or_default()
}

fn tail(path: &Path) -> Option<String> {
    let mut file = File::open(path).ok()?;
    let length = file.metadata().ok()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(TAIL))).ok()?;
    let mut bytes = Vec::new();
    file.take(TAIL).read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// Entries name the one before them; a conversation that went back has two that name the same.
fn abandoned(text: &str) -> Vec<String> {
    let (mut parents, mut prompts, mut last) = (HashMap::new(), Vec::new(), None);
    for entry in text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()) {
        let field = |key: &str| entry.get(key).and_then(Value::as_str).map(str::to_owned);
        let Some(uuid) = field("uuid") else { continue };
        if entry.get("isSidechain") == Some(&Value::Bool(true)) {
            continue;
        }
        if let Some(prompt) = field("promptId") {
            prompts.push((uuid.clone(), prompt));
        }
        parents.insert(uuid.clone(), field("parentUuid"));
        last = Some(uuid);
    }
    let mut lineage = HashSet::new();
    while let Some(uuid) = last.filter(|uuid| !lineage.contains(uuid)) {
        last = parents.get(&uuid).cloned().flatten();
        lineage.insert(uuid);
    }
    let leads = |(uuid, _): &&(String, String)| lineage.contains(uuid);
    let alive: HashSet<_> = prompts.iter().filter(leads).map(|(_, prompt)| prompt).collect();
    let mut left: Vec<String> = Vec::new();
    for (_, prompt) in &prompts {
        if !alive.contains(prompt) && !left.contains(prompt) {
            left.push(prompt.clone());
        }
    }
    left
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(uuid: &str, parent: Option<&str>, prompt: Option<&str>) -> String {
        let entry = serde_json::json!({"uuid": uuid, "parentUuid": parent, "promptId": prompt});
        format!("{entry}\n")
    }

    #[test]
    fn turns_that_do_not_lead_here_were_left_behind() {
        let straight = [
            entry("1", None, Some("p1")),
            entry("2", Some("1"), None),
            entry("3", Some("2"), Some("p2")),
            entry("4", Some("3"), None),
        ];
        assert_eq!(abandoned(&straight.concat()), [] as [&str; 0]);
        let back = straight.concat() + &entry("5", Some("2"), Some("p3"));
        assert_eq!(abandoned(&back), ["p2"]);
        assert_eq!(abandoned("no json\n{}\n"), [] as [&str; 0]);
        let ring = entry("a", Some("b"), None) + &entry("b", Some("a"), None);
        assert_eq!(abandoned(&ring), [] as [&str; 0]);
    }
}
