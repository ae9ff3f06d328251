//! JSON values that keep the order in which they were written down.

use jsonc_parser::ParseOptions;
use jsonc_parser::cst::{CstInputValue, CstRootNode};
use serde_json::Value;

/// A value to put into a document.
pub(super) type Json = CstInputValue;

/// An object with its members in this order.
pub(super) fn object<const N: usize>(members: [(&str, Json); N]) -> Json {
    Json::Object(members.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
}

/// A list.
pub(super) fn list(items: impl IntoIterator<Item = Json>) -> Json {
    Json::Array(items.into_iter().collect())
}

/// Adds a member at an object's end.
pub(super) fn push(object: &mut Json, name: &str, value: impl Into<Json>) {
    if let Json::Object(members) = object {
        members.push((name.to_owned(), value.into()));
    }
}

/// The value without its order, to compare.
pub(super) fn plain(json: &Json) -> Value {
    match json {
        Json::Null => Value::Null,
        Json::Bool(value) => Value::Bool(*value),
        Json::Number(digits) => digits.parse().map_or(Value::Null, Value::Number),
        Json::String(text) => Value::String(text.clone()),
        Json::Array(items) => Value::Array(items.iter().map(plain).collect()),
        Json::Object(members) => Value::Object(
            members.iter().map(|(name, value)| (name.clone(), plain(value))).collect(),
        ),
    }
}

/// A document of its own.
pub(super) fn document(json: &Json) -> String {
    let root = CstRootNode::parse("", &ParseOptions::default())
        .expect("BUG: nothing is a document without a value");
    root.set_value(json.clone());
    root.to_string()
}
