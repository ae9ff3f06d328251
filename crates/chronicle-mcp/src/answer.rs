//! What a tool gives back: structured content, bounded, and a short text for people.

use serde::Serialize;
use serde_json::{Value, json};

use chronicle_core::SCHEMA;

/// The longest text that one answer holds of patches or of a file.
pub(crate) const TEXT_MOST: usize = 32 << 10;

/// A call that went well.
#[derive(Debug)]
pub(crate) struct Answer {
    /// The structured content, an object.
    pub(crate) value: Value,
    /// The same for people, shorter.
    pub(crate) text: String,
}

/// A view as JSON.
pub(crate) fn json_of(view: &impl Serialize) -> Value {
    serde_json::to_value(view).expect("BUG: views are plain data")
}

/// A list as an object that says whether it was cut.
pub(crate) fn list(name: &str, items: Vec<Value>, cut: bool) -> Value {
    json!({ "schema": SCHEMA, name: items, "cut": cut })
}

/// Keeps the first items of a list in an object; the object's `left_off` says how many went.
///
/// Tells whether any went.
pub(crate) fn shorten(object: &mut Value, field: &str, most: usize) -> bool {
    let Some(Value::Array(items)) = object.get_mut(field) else { return false };
    let left_off = items.len().saturating_sub(most);
    items.truncate(most);
    if left_off > 0 {
        object["left_off"][field] = left_off.into();
    }
    left_off > 0
}

/// Cuts a text between two characters, and tells whether anything went.
pub(crate) fn cut_text(text: &mut String, most: usize) -> bool {
    if text.len() <= most {
        return false;
    }
    text.truncate(text.floor_char_boundary(most));
    true
}

/// Cuts the text in a field, and says in `FIELD_cut` whether anything went.
pub(crate) fn cut_field(object: &mut Value, field: &str, most: usize) -> bool {
    let Some(Value::String(text)) = object.get_mut(field) else { return false };
    let cut = cut_text(text, most);
    object[format!("{field}_cut")] = cut.into();
    cut
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cut_list_says_how_much_went() {
        let mut value = json!({ "a": [1, 2, 3], "b": [1] });
        assert!(shorten(&mut value, "a", 1));
        assert!(!shorten(&mut value, "b", 1));
        assert!(!shorten(&mut value, "c", 1));
        assert_eq!(value, json!({ "a": [1], "b": [1], "left_off": { "a": 2 } }));
    }

    #[test]
    fn a_text_is_cut_between_characters() {
        let mut value = json!({ "patch": "aé" });
        assert!(cut_field(&mut value, "patch", 2));
        assert_eq!(value, json!({ "patch": "a", "patch_cut": true }));
    }
}
