//! The OpenAPI document is what the code says, and what is kept in `docs`.

use std::path::Path;

use serde_json::Value;

#[test]
fn the_document_that_is_kept_is_current() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/openapi.json");
    let made = serde_json::to_string_pretty(&chronicle_web::openapi()).unwrap() + "\n";
    if std::env::var_os("CHRONICLE_UPDATE").is_some() {
        std::fs::write(&path, &made).unwrap();
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        kept == made,
        "docs/openapi.json is not current; make it with: CHRONICLE_UPDATE=1 cargo test -p chronicle-web document"
    );
}

#[test]
fn every_reference_leads_somewhere_and_every_operation_has_a_name() {
    let document = chronicle_web::openapi();
    assert_eq!(document["openapi"], "3.1.0");
    let mut names = std::collections::BTreeSet::new();
    for (path, methods) in document["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            let name = operation["operationId"].as_str().unwrap();
            assert!(names.insert(name.to_owned()), "{method} {path}: {name} twice");
            let answers = operation["responses"].as_object().unwrap();
            assert!(answers.keys().any(|status| status.starts_with('2')), "{name}");
        }
    }
    assert!(names.len() >= 25, "{names:?}");
    check(&document, &document);
}

fn check(document: &Value, value: &Value) {
    match value {
        Value::Object(fields) => {
            if let Some(reference) = fields.get("$ref").and_then(Value::as_str) {
                let place = reference.strip_prefix('#').unwrap();
                assert!(document.pointer(place).is_some(), "{reference}");
            }
            fields.values().for_each(|value| check(document, value));
        }
        Value::Array(items) => items.iter().for_each(|value| check(document, value)),
        _ => {}
    }
}
