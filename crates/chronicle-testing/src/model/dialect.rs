//! The services' dialects: what a request says, and how an answer is written.

use serde_json::{Value, json};

use super::script::{Call, Heard, Reply};

/// How a client talks to its model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Dialect {
    /// Anthropic's messages: Claude Code, OpenCode.
    Messages,
    /// OpenAI's responses: Codex.
    Responses,
    /// Gemini's generated content: Gemini CLI.
    Contents,
}

impl Dialect {
    /// The dialect of a request for an answer; `None` for anything else that clients ask.
    pub(super) fn of(path: &str) -> Option<Self> {
        if path.ends_with("/messages") {
            Some(Self::Messages)
        } else if path.ends_with("/responses") {
            Some(Self::Responses)
        } else if path.ends_with("enerateContent") {
            Some(Self::Contents)
        } else {
            None
        }
    }

    /// Whether the answer is wanted as a stream of events.
    pub(super) fn streams(self, path: &str, body: &Value) -> bool {
        match self {
            Self::Contents => path.ends_with("streamGenerateContent"),
            Self::Messages | Self::Responses => body["stream"] == true,
        }
    }

    /// The names of the tools that the client offers; a side request has none.
    pub(super) fn tools(self, body: &Value) -> Vec<String> {
        let name =
            |tool: &Value| tool["name"].as_str().or(tool["type"].as_str()).map(str::to_owned);
        let tools = list(&body["tools"]);
        match self {
            Self::Contents => {
                let declared = tools.iter().flat_map(|tool| list(&tool["functionDeclarations"]));
                declared.filter_map(name).collect()
            }
            Self::Messages | Self::Responses => tools.iter().filter_map(name).collect(),
        }
    }

    /// The conversation, as far as the script counts it.
    pub(super) fn heard(self, body: &Value) -> Vec<Heard> {
        match self {
            Self::Messages => list(&body["messages"])
                .iter()
                .filter(|message| message["role"] == "user")
                .flat_map(|message| parts(&message["content"]))
                .filter_map(|part| match part["type"].as_str() {
                    Some("text") => Some(Heard::Text(text(&part["text"]))),
                    Some("tool_result") => Some(Heard::Result(text(&part["content"]))),
                    _ => None,
                })
                .collect(),
            Self::Responses => list(&body["input"]).iter().filter_map(response_item).collect(),
            Self::Contents => list(&body["contents"])
                .iter()
                .filter(|content| content["role"] == "user")
                .flat_map(|content| list(&content["parts"]))
                .filter_map(|part| match (&part["functionResponse"], &part["text"]) {
                    (Value::Null, Value::Null) => None,
                    (Value::Null, words) => Some(Heard::Text(text(words))),
                    (result, _) => Some(Heard::Result(text(&result["response"]))),
                })
                .collect(),
        }
    }

    /// The answer as a stream of events, or as one object.
    pub(super) fn write(self, reply: &Reply, streams: bool) -> String {
        match (self, streams) {
            (Self::Messages, true) => message_events(reply),
            (Self::Messages, false) => message(reply).to_string(),
            (Self::Responses, true) => response_events(reply),
            (Self::Responses, false) => response(reply).to_string(),
            (Self::Contents, true) => format!("data: {}\n\n", content(reply)),
            (Self::Contents, false) => content(reply).to_string(),
        }
    }
}

fn response_item(item: &Value) -> Option<Heard> {
    match item["type"].as_str() {
        Some("function_call_output" | "custom_tool_call_output") => {
            Some(Heard::Result(text(&item["output"])))
        }
        Some("message") | None if item["role"] == "user" => {
            Some(Heard::Text(text(&item["content"])))
        }
        _ => None,
    }
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// Content is a list of parts, or bare text in place of one part.
fn parts(content: &Value) -> Vec<Value> {
    match content {
        Value::String(words) => vec![json!({"type": "text", "text": words})],
        other => list(other).to_vec(),
    }
}

/// The words in a value, however deep the service packs them.
fn text(value: &Value) -> String {
    match value {
        Value::String(words) => words.clone(),
        Value::Array(parts) => parts.iter().map(text).collect::<Vec<_>>().join("\n"),
        Value::Object(fields) => match fields.get("text") {
            Some(words) => text(words),
            None => value.to_string(),
        },
        _ => String::new(),
    }
}

fn event(data: &Value) -> String {
    format!("event: {}\ndata: {data}\n\n", data["type"].as_str().unwrap_or_default())
}

fn message_events(reply: &Reply) -> String {
    let whole = message(reply);
    let mut start = whole.clone();
    start["content"] = json!([]);
    start["stop_reason"] = Value::Null;
    let mut events = vec![json!({"type": "message_start", "message": start})];
    for (index, block) in list(&whole["content"]).iter().enumerate() {
        let (mut empty, delta) = (block.clone(), block_delta(block));
        let hollow = if block["type"] == "text" { "text" } else { "input" };
        empty[hollow] = if block["type"] == "text" { json!("") } else { json!({}) };
        events.push(json!({"type": "content_block_start", "index": index, "content_block": empty}));
        events.push(json!({"type": "content_block_delta", "index": index, "delta": delta}));
        events.push(json!({"type": "content_block_stop", "index": index}));
    }
    events.push(json!({
        "type": "message_delta",
        "delta": {"stop_reason": whole["stop_reason"], "stop_sequence": null},
        "usage": {"output_tokens": 1},
    }));
    events.push(json!({"type": "message_stop"}));
    events.iter().map(event).collect()
}

fn block_delta(block: &Value) -> Value {
    if block["type"] == "text" {
        json!({"type": "text_delta", "text": block["text"]})
    } else {
        json!({"type": "input_json_delta", "partial_json": block["input"].to_string()})
    }
}

fn message(reply: &Reply) -> Value {
    let (content, reason) = match reply {
        Reply::Text(words) => (vec![json!({"type": "text", "text": words})], "end_turn"),
        Reply::Calls(calls) => {
            let block = |(id, call): &(String, Call)| json!({"type": "tool_use", "id": id, "name": call.tool, "input": call.input});
            (calls.iter().map(block).collect(), "tool_use")
        }
    };
    json!({
        "id": "msg_scripted", "type": "message", "role": "assistant", "model": "scripted",
        "content": content, "stop_reason": reason, "stop_sequence": null,
        "usage": {"input_tokens": 1, "output_tokens": 1},
    })
}

fn response_events(reply: &Reply) -> String {
    let whole = response(reply);
    let mut events = vec![json!({"type": "response.created", "response": {"id": "resp_scripted"}})];
    for (index, item) in list(&whole["output"]).iter().enumerate() {
        events.push(json!({
            "type": "response.output_item.done", "output_index": index, "item": item,
        }));
    }
    events.push(json!({"type": "response.completed", "response": whole}));
    events.iter().map(event).collect()
}

fn response(reply: &Reply) -> Value {
    let output = match reply {
        Reply::Text(words) => vec![json!({
            "type": "message", "id": "msg_scripted", "role": "assistant",
            "content": [{"type": "output_text", "text": words}],
        })],
        Reply::Calls(calls) => calls.iter().map(|(id, call)| response_call(id, call)).collect(),
    };
    json!({
        "id": "resp_scripted", "object": "response", "status": "completed", "output": output,
        "usage": {
            "input_tokens": 1, "input_tokens_details": null,
            "output_tokens": 1, "output_tokens_details": null, "total_tokens": 2,
        },
    })
}

fn response_call(id: &str, call: &Call) -> Value {
    match &call.input {
        Value::String(words) => {
            json!({"type": "custom_tool_call", "call_id": id, "name": call.tool, "input": words})
        }
        fields => json!({
            "type": "function_call", "call_id": id, "name": call.tool,
            "arguments": fields.to_string(),
        }),
    }
}

fn content(reply: &Reply) -> Value {
    let parts: Vec<_> = match reply {
        Reply::Text(words) => vec![json!({"text": words})],
        Reply::Calls(calls) => calls
            .iter()
            .map(|(_, call)| json!({"functionCall": {"name": call.tool, "args": call.input}}))
            .collect(),
    };
    json!({
        "candidates": [{
            "index": 0, "finishReason": "STOP", "content": {"role": "model", "parts": parts},
        }],
        "usageMetadata": {"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2},
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(path: &str, body: &Value, tools: &[&str], heard: &[&str]) {
        let dialect = Dialect::of(path).expect("a request for an answer");
        let show = |item: Heard| match item {
            Heard::Text(words) => format!("text {words}"),
            Heard::Result(words) => format!("result {words}"),
        };
        assert_eq!(dialect.tools(body), tools);
        assert_eq!(dialect.heard(body).into_iter().map(show).collect::<Vec<_>>(), heard);
    }

    #[test]
    fn prompts_and_results_are_heard_in_every_dialect() {
        let body = json!({"tools": [{"name": "Bash"}], "messages": [
            {"role": "user", "content": "hello"},
            {"role": "assistant", "content": [{"type": "tool_use", "name": "Bash"}]},
            {"role": "user", "content": [
                {"type": "tool_result", "content": [{"type": "text", "text": "done"}]},
                {"type": "text", "text": "go on"}]},
        ]});
        check("/v1/messages", &body, &["Bash"], &["text hello", "result done", "text go on"]);
        let body = json!({"tools": [{"type": "custom", "name": "apply_patch"}], "input": [
            {"type": "message", "role": "developer", "content": [{"text": "rules"}]},
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hello"}]},
            {"type": "custom_tool_call", "name": "apply_patch"},
            {"type": "custom_tool_call_output", "output": "done"},
        ]});
        check("/v1/responses", &body, &["apply_patch"], &["text hello", "result done"]);
        let body = json!({"tools": [{"functionDeclarations": [{"name": "replace"}]}], "contents": [
            {"role": "user", "parts": [{"text": "hello"}]},
            {"role": "model", "parts": [{"functionCall": {"name": "replace"}}]},
            {"role": "user", "parts": [{"functionResponse": {"response": {"output": "done"}}}]},
        ]});
        let path = "/v1beta/models/m:streamGenerateContent";
        check(path, &body, &["replace"], &["text hello", r#"result {"output":"done"}"#]);
    }

    #[test]
    fn counting_tokens_is_no_request_for_an_answer() {
        assert_eq!(Dialect::of("/v1/messages/count_tokens"), None);
        assert_eq!(Dialect::of("/v1/models"), None);
    }

    #[test]
    fn calls_are_written_in_every_dialect() {
        let call = Call::new("edit", json!({"path": "a"}));
        let reply = Reply::Calls(vec![("toolu_0_0".to_owned(), call)]);
        let messages = Dialect::Messages.write(&reply, true);
        assert!(messages.contains(r#""partial_json":"{\"path\":\"a\"}""#), "{messages}");
        assert!(messages.contains(r#""stop_reason":"tool_use""#), "{messages}");
        let responses = Dialect::Responses.write(&reply, true);
        assert!(responses.contains("event: response.output_item.done\n"), "{responses}");
        assert!(responses.contains(r#""arguments":"{\"path\":\"a\"}""#), "{responses}");
        let contents = Dialect::Contents.write(&reply, true);
        assert!(contents.contains(r#""functionCall":{"args":{"path":"a"}"#), "{contents}");
    }

    #[test]
    fn bare_text_is_the_input_of_a_tool_without_fields() {
        let call = Call::new("apply_patch", json!("*** Begin Patch"));
        let reply = Reply::Calls(vec![("toolu_0_0".to_owned(), call)]);
        let written = Dialect::Responses.write(&reply, true);
        assert!(written.contains(r#""type":"custom_tool_call""#), "{written}");
    }
}
