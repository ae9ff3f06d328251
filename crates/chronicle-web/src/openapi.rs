//! The OpenAPI document, made from the table of routes and the shapes themselves.

use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

use crate::problem::ProblemView;
use crate::route::{Gives, Is, PREFIX, Param, Route, TEXT_MOST};
use crate::routes::ROUTES;

/// Answers that every operation may give besides its own, with the reason.
const REFUSALS: [(&str, &str); 11] = [
    ("400", "The request makes no sense"),
    ("401", "Who asks is not known"),
    ("403", "The one who asks may not do that, or the content is secret"),
    ("404", "There is no such workspace, moment, file or plan"),
    ("409", "Stopped, and nothing was changed"),
    ("410", "It was pruned"),
    ("413", "The request is too large"),
    ("415", "The body is not JSON"),
    ("500", "The history or the disk is damaged, or the system refused"),
    ("503", "Somebody else works on the workspace, or there are too many streams"),
    ("507", "There is no room left"),
];

/// The document of this version of the API.
pub fn document() -> Value {
    let settings = |contract: bool| {
        let settings = SchemaSettings::draft2020_12()
            .with(|it| it.definitions_path = "/components/schemas".into());
        if contract { settings.for_serialize() } else { settings.for_deserialize() }
    };
    let mut gives = settings(true).into_generator();
    let mut takes = settings(false).into_generator();
    let problem = gives.subschema_for::<ProblemView>();
    let mut paths = Map::new();
    for route in ROUTES.iter() {
        let operation = operation(route, &mut gives, &mut takes);
        let path = paths.entry(format!("{PREFIX}{}", route.path)).or_insert_with(|| json!({}));
        path[route.method.as_str().to_lowercase()] = operation;
    }
    let mut schemas = gives.take_definitions(true);
    schemas.extend(takes.take_definitions(true));
    schemas.sort_keys();
    let mut responses = Map::new();
    for (status, words) in REFUSALS {
        responses.insert(format!("Refused{status}"), refusal(words, &json!(problem)));
    }
    // Refused before anybody reads it, so without words.
    responses.insert("Refused414".to_owned(), json!({ "description": "The URL is too long" }));
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Chronicle",
            "version": "1",
            "description": "The undo layer for AI agents. Shapes are those of docs/json.md; fields are only ever added.",
            "license": { "name": "MIT OR Apache-2.0", "identifier": "MIT OR Apache-2.0" },
        },
        "servers": [{ "url": "/" }],
        "security": [{ "token": [] }, { "cookie": [] }],
        "paths": paths,
        "components": {
            "securitySchemes": {
                "token": { "type": "http", "scheme": "bearer" },
                "cookie": { "type": "apiKey", "in": "cookie", "name": "chronicle" },
            },
            "responses": responses,
            "schemas": schemas,
        },
    })
}

fn refusal(words: &str, problem: &Value) -> Value {
    json!({ "description": words, "content": { "application/problem+json": { "schema": problem } } })
}

fn operation(
    route: &Route,
    gives: &mut schemars::SchemaGenerator,
    takes: &mut schemars::SchemaGenerator,
) -> Value {
    let mut parameters: Vec<Value> = parts(route).collect();
    parameters.extend(route.params.iter().map(parameter));
    if route.method != http::Method::GET && route.right.is_some() {
        parameters.push(json!({
            "name": "Idempotency-Key", "in": "header", "required": false,
            "description": "A retry with the same key is answered the same, and nothing is done twice",
            "schema": { "type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[!-~]+$" },
        }));
    }
    let mut answers = Map::new();
    for (status, _) in REFUSALS {
        let reference = format!("#/components/responses/Refused{status}");
        answers.insert(status.to_owned(), json!({ "$ref": reference }));
    }
    answers.insert("414".to_owned(), json!({ "$ref": "#/components/responses/Refused414" }));
    match route.gives {
        Gives::Json(shape) => drop(answers.insert(
            "200".to_owned(),
            json!({
                "description": "Done",
                "content": { "application/json": { "schema": shape(gives) } },
            }),
        )),
        Gives::Nothing => drop(answers.insert("204".to_owned(), json!({ "description": "Done" }))),
        Gives::Bytes => {
            let bytes = json!({ "application/octet-stream": { "schema": {} } });
            answers
                .insert("200".to_owned(), json!({ "description": "All of it", "content": bytes }));
            answers.insert("206".to_owned(), json!({ "description": "A part", "content": bytes }));
            answers.insert("416".to_owned(), refusal("There is no such part", &json!({})));
        }
        Gives::Events => {
            let events = json!({ "text/event-stream": { "schema": { "type": "string" } } });
            answers
                .insert("200".to_owned(), json!({ "description": "A stream", "content": events }));
        }
    }
    let right = route.right.map(|right| json!(right));
    let mut operation = json!({
        "operationId": route.id,
        "summary": route.words,
        "parameters": parameters,
        "responses": answers,
        "x-right": right,
    });
    if route.right.is_none() {
        operation["security"] = json!([]);
    }
    if let Some(shape) = route.takes {
        let content = json!({ "application/json": { "schema": shape(takes) } });
        operation["requestBody"] = json!({ "required": true, "content": content });
    }
    operation
}

fn parts(route: &Route) -> impl Iterator<Item = Value> {
    let names = route.path.split('/').filter_map(|part| part.strip_prefix('{'));
    names.map(|name| {
        let name = name.trim_end_matches('}');
        let schema = match name {
            "workspace" => json!({ "type": "string", "pattern": "^[0-9a-f]{32}$" }),
            "turn" => json!({ "type": "integer", "minimum": 1 }),
            _ => json!({ "type": "string", "minLength": 6, "maxLength": 36, "pattern": "^[0-9a-f-]+$" }),
        };
        json!({ "name": name, "in": "path", "required": true, "schema": schema })
    })
}

fn parameter(param: &Param) -> Value {
    let schema = match param.is {
        Is::Text => json!({ "type": "string", "maxLength": TEXT_MOST }),
        Is::Number(least, most) => json!({ "type": "integer", "minimum": least, "maximum": most }),
        Is::Truth => json!({ "type": "boolean" }),
    };
    let required = param.name == "pattern";
    json!({
        "name": param.name, "in": "query", "required": required, "description": param.words,
        "schema": schema,
    })
}
