//! A conversation with a PostgreSQL server through psql, in which nobody is waited for without a limit.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};

use crate::driver::Deadline;
use crate::error::{Error, Result};
use crate::programs::{Program, end};

/// The line by which we know that an answer is complete.
const DONE: &str = "chronicle-done";

/// A session that lasts as long as this value.
pub(super) struct Session {
    child: Child,
    input: ChildStdin,
    answers: Receiver<String>,
}

impl Session {
    /// Begins one with a psql that is prepared.
    pub(super) fn begin(psql: Program) -> Result<Self> {
        let mut child = psql.converse()?;
        let (input, output) = (child.stdin.take(), child.stdout.take());
        let (Some(input), Some(output)) = (input, output) else {
            end(&mut child);
            return Err(Error::Program { program: "psql".to_owned(), why: "no pipe".to_owned() });
        };
        let (sender, answers) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(std::io::Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        Ok(Self { child, input, answers })
    }

    /// What the server answers; a server that does not answer in time is a freeze that took too long.
    pub(super) fn ask(&mut self, question: &str, limit: &Deadline) -> Result<String> {
        let wrote =
            writeln!(self.input, "{question};\n\\echo {DONE}").and_then(|()| self.input.flush());
        wrote.map_err(|_| self.failed(question))?;
        let mut said: Vec<String> = Vec::new();
        loop {
            match self.answers.recv_timeout(limit.left()) {
                Ok(line) if line == DONE => return Ok(said.join("\n").trim_end().to_owned()),
                Ok(line) => said.push(line),
                Err(RecvTimeoutError::Timeout) => {
                    return Err(Error::FreezeLimit("waiting for PostgreSQL".to_owned()));
                }
                Err(RecvTimeoutError::Disconnected) => return Err(self.failed(question)),
            }
        }
    }

    /// What psql complained about before it ended.
    fn failed(&mut self, question: &str) -> Error {
        let _ = self.child.kill();
        let mut said = String::new();
        if let Some(pipe) = self.child.stderr.take() {
            let _ = std::io::Read::read_to_string(&mut std::io::Read::take(pipe, 2000), &mut said);
        }
        let why = said.trim().replace('\n', "; ");
        Error::Program { program: format!("psql: {question}"), why }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        end(&mut self.child);
    }
}
