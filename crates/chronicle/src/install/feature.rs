//! The switch in Codex's own settings with which a person turns hooks off: TOML, edited in place.
//!
//! Hooks are on unless it says otherwise, so most settings need no change.

use toml_edit::{DocumentMut, Item, TableLike, TomlError};

use super::Malformed;

const TABLE: &str = "features";
/// The words for it, in this version and in older ones.
const KEYS: [&str; 2] = ["hooks", "codex_hooks"];

/// Whether nothing turns hooks off.
pub(super) fn is_on(text: &str) -> Result<bool, Malformed> {
    let document = parse(text)?;
    let table = document.get(TABLE).and_then(Item::as_table_like);
    Ok(table.is_none_or(|table| KEYS.iter().all(|key| read(table, key) != Some(false))))
}

/// The text with hooks on.
pub(super) fn switch_on(text: &str) -> Result<String, Malformed> {
    set(text, |key, table| read(table, key).filter(|on| !on).map(|_| true))
}

/// The text with hooks as an earlier text had them, whatever else changed since.
pub(super) fn put_back(text: &str, earlier: &str) -> Result<String, Malformed> {
    let earlier = parse(earlier)?;
    let earlier = earlier.get(TABLE).and_then(Item::as_table_like);
    set(text, |key, _| earlier.and_then(|table| read(table, key)))
}

/// Gives the switches that are there new values; the comments around a value stay.
fn set(
    text: &str,
    value: impl Fn(&str, &dyn TableLike) -> Option<bool>,
) -> Result<String, Malformed> {
    let mut document = parse(text)?;
    if let Some(table) = document.get_mut(TABLE).and_then(Item::as_table_like_mut) {
        for key in KEYS {
            let Some(wanted) = value(key, table) else { continue };
            if let Some(old) = table.get_mut(key).and_then(Item::as_value_mut) {
                let around = old.decor().clone();
                *old = wanted.into();
                *old.decor_mut() = around;
            }
        }
    }
    Ok(document.to_string())
}

fn read(table: &dyn TableLike, key: &str) -> Option<bool> {
    table.get(key)?.as_bool()
}

fn parse(text: &str) -> Result<DocumentMut, Malformed> {
    text.parse().map_err(|error: TomlError| {
        let start = error.span().map_or(0, |span| span.start).min(text.len());
        let before = text.get(..start).unwrap_or_default();
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
        Malformed::at(line, column, error.message().lines().next().unwrap_or("not TOML"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(off: &str, on: &str) {
        assert!(!is_on(off).expect("TOML") && is_on(on).expect("TOML"), "{off}");
        assert_eq!(switch_on(off).expect("TOML"), on);
        assert_eq!(put_back(on, off).expect("TOML"), off);
    }

    #[test]
    fn only_the_switch_changes() {
        check("[features]\nhooks = false # no\n", "[features]\nhooks = true # no\n");
        check("features = { hooks=false }\n", "features = { hooks=true }\n");
        check("features.codex_hooks = false\n", "features.codex_hooks = true\n");
        check(
            "# mine\nmodel = 'x'\n[features]\n  web = true\n  hooks =  false\n[new]\n",
            "# mine\nmodel = 'x'\n[features]\n  web = true\n  hooks =  true\n[new]\n",
        );
    }

    #[test]
    fn hooks_are_on_unless_somebody_turned_them_off() {
        for on in ["", "model = 'x'\n", "[features]\n", "[features]\nhooks = true\n"] {
            assert!(is_on(on).expect("TOML"), "{on}");
            assert_eq!(switch_on(on).expect("TOML"), on);
        }
    }

    #[test]
    fn what_came_since_stays() {
        let off = "[features]\nhooks = false\n";
        let now = "[features]\nhooks = true\nweb = true\n\n[new]\nb = 2\n";
        let back = put_back(now, off).expect("TOML");
        assert_eq!(back, "[features]\nhooks = false\nweb = true\n\n[new]\nb = 2\n");
    }

    #[test]
    fn what_is_no_toml_says_where() {
        let error = switch_on("a = 1\nb = = 2\n").expect_err("not TOML");
        assert!(error.0.starts_with("line 2, column "), "{error}");
    }
}
