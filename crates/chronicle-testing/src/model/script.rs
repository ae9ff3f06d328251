//! What the scripted model will do, and how it finds its place: by counting, since every request
//! carries the whole conversation.

use serde_json::Value;

/// A tool call that the model makes.
#[derive(Debug, Clone, PartialEq)]
pub struct Call {
    /// The tool's name, as its client knows it.
    pub tool: String,
    /// What it is given; bare text is the input of a tool without fields.
    pub input: Value,
}

impl Call {
    /// A call of this tool.
    pub fn new(tool: &str, input: Value) -> Self {
        Self { tool: tool.to_owned(), input }
    }

    /// The call with the id of the last plan that the model was shown where it says `PLAN`.
    fn with_plan(&self, heard: &[Heard]) -> Self {
        let mut call = self.clone();
        if call.input.get("plan_id").is_some_and(|id| id == PLAN) {
            let results = heard.iter().rev().filter_map(|item| match item {
                Heard::Result(text) => Some(text),
                Heard::Text(_) => None,
            });
            let id = results.filter_map(|text| plan_in(text)).next().unwrap_or_default();
            call.input["plan_id"] = Value::String(id);
        }
        call
    }
}

/// Stands for the id of the last plan that a tool gave.
pub const PLAN: &str = "PLAN";

/// The plan's id in what a tool gave, whatever is around it.
fn plan_in(text: &str) -> Option<String> {
    let after = &text[text.find("plan_id")? + "plan_id".len()..];
    let id = |c: &char| c.is_ascii_hexdigit() || *c == '-';
    let digits: String = after.chars().skip_while(|c| !id(c)).take_while(id).collect();
    (!digits.is_empty()).then_some(digits)
}

/// What the model does after one prompt, of a person or of an agent that delegates.
#[derive(Debug, Clone, PartialEq)]
pub struct Turn {
    /// Words by which the prompt is known; no other prompt may hold them.
    pub prompt: String,
    /// The answers, one after the other; each is one call or several at once.
    pub steps: Vec<Vec<Call>>,
    /// What it says in the end.
    pub ending: String,
}

/// All turns of all conversations.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Script {
    /// In any order: a request is matched by its prompt.
    pub turns: Vec<Turn>,
}

/// One thing in a request that the model reads.
#[derive(Debug, Clone, PartialEq)]
pub enum Heard {
    /// Text of a person, or of the client in a person's place.
    Text(String),
    /// What came of a call.
    Result(String),
}

/// What the model answers.
#[derive(Debug, Clone, PartialEq)]
pub enum Reply {
    /// Calls, each with an id that no other call of the script has.
    Calls(Vec<(String, Call)>),
    /// Words that end the turn.
    Text(String),
}

impl Script {
    /// The next answer in the conversation so far.
    pub fn reply(&self, heard: &[Heard]) -> Reply {
        let Some((turn, results)) = self.place(heard) else {
            return Reply::Text("There is nothing in the script for this prompt.".to_owned());
        };
        let mut first = 0;
        for step in &self.turns[turn].steps {
            if first >= results {
                let id = |(index, call): (usize, &Call)| {
                    (format!("toolu_{turn}_{}", first + index), call.with_plan(heard))
                };
                return Reply::Calls(step.iter().enumerate().map(id).collect());
            }
            first += step.len();
        }
        Reply::Text(self.turns[turn].ending.clone())
    }

    /// The turn of the newest prompt that the script knows, and how many results came since.
    fn place(&self, heard: &[Heard]) -> Option<(usize, usize)> {
        let mut place = None;
        for item in heard {
            match item {
                Heard::Text(text) => {
                    let known = self.turns.iter().position(|turn| text.contains(&turn.prompt));
                    place = known.map(|turn| (turn, 0)).or(place);
                }
                Heard::Result(_) => place = place.map(|(turn, count)| (turn, count + 1)),
            }
        }
        place
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn script() -> Script {
        let call = |tool: &str| Call::new(tool, Value::Null);
        let turn = |prompt: &str, steps: Vec<Vec<Call>>| Turn {
            prompt: prompt.to_owned(),
            steps,
            ending: format!("end of {prompt}"),
        };
        Script {
            turns: vec![
                turn("first", vec![vec![call("a")], vec![call("b"), call("c")], vec![call("d")]]),
                turn("second", vec![vec![call("e")]]),
            ],
        }
    }

    /// `"first . ."` is a conversation with that prompt and two results; the answer is in words.
    #[track_caller]
    fn check(conversation: &str, expected: &str) {
        let heard = |word| match word {
            "." => Heard::Result(String::new()),
            text => Heard::Text(format!("please do the {text} thing")),
        };
        let heard: Vec<_> = conversation.split_whitespace().map(heard).collect();
        let reply = match script().reply(&heard) {
            Reply::Text(text) => text,
            Reply::Calls(calls) => {
                let show = |(id, call): (String, Call)| format!("{}={id}", call.tool);
                calls.into_iter().map(show).collect::<Vec<_>>().join(" ")
            }
        };
        assert_eq!(reply, expected, "{conversation}");
    }

    #[test]
    fn the_prompt_chooses_the_turn_and_the_results_the_step() {
        check("first", "a=toolu_0_0");
        check("first .", "b=toolu_0_1 c=toolu_0_2");
        check("first . . .", "d=toolu_0_3");
        check("first . . . .", "end of first");
        check("second", "e=toolu_1_0");
    }

    #[test]
    fn a_later_prompt_starts_counting_anew_and_strangers_are_no_prompt() {
        check("first . . . . second", "e=toolu_1_0");
        check("first . reminder", "b=toolu_0_1 c=toolu_0_2");
        check("first . . . . second .", "end of second");
    }

    #[test]
    fn a_plan_is_named_by_what_the_tool_said() {
        assert_eq!(plan_in(r#"{\"plan_id\":\"01a1-bc\",\"x\":1}"#).as_deref(), Some("01a1-bc"));
        assert_eq!(plan_in("nothing of that kind"), None);
    }

    #[test]
    fn an_unknown_prompt_gets_words_only() {
        check("title", "There is nothing in the script for this prompt.");
    }
}
