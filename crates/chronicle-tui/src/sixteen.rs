//! Colours in the words that every terminal knows: 30 to 37 and 90 to 97, one write per picture.
//!
//! The library names even the first sixteen colours by their place among 256, which a terminal that has
//! only sixteen takes for something else, such as blinking.

use std::io::{self, Write};

/// Gathers what is drawn and writes it at once.
pub(crate) struct Sixteen<W> {
    out: W,
    gathered: Vec<u8>,
}

impl<W> Sixteen<W> {
    pub(crate) fn new(out: W) -> Self {
        Self { out, gathered: Vec::new() }
    }
}

impl<W: Write> Write for Sixteen<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.gathered.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        let drawn = translate(&std::mem::take(&mut self.gathered));
        self.out.write_all(&drawn)?;
        self.out.flush()
    }
}

/// Says colours by their own numbers; nothing else is touched. No text holds an escape.
fn translate(drawn: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(drawn.len());
    let mut rest = drawn;
    while let Some(at) = rest.windows(2).position(|two| two == b"\x1b[") {
        let (text, sequence) = rest.split_at(at + 2);
        out.extend_from_slice(text);
        let end = sequence.iter().position(|byte| !matches!(byte, b'0'..=b'9' | b';'));
        let end = end.unwrap_or(sequence.len());
        let (numbers, tail) = sequence.split_at(end);
        match tail.first() {
            Some(b'm') => out.extend_from_slice(&simple(numbers)),
            _ => out.extend_from_slice(numbers),
        }
        rest = tail;
    }
    out.extend_from_slice(rest);
    out
}

/// `38;5;6` is `36`, `38;5;8` is `90`, and the same behind 48.
fn simple(numbers: &[u8]) -> Vec<u8> {
    let parts: Vec<&[u8]> = numbers.split(|byte| *byte == b';').collect();
    let mut said: Vec<String> = Vec::new();
    let mut at = 0;
    while at < parts.len() {
        let text = |index: usize| parts.get(index).and_then(|it| std::str::from_utf8(it).ok());
        let base = match (text(at), text(at + 1)) {
            (Some("38"), Some("5")) => Some((30, 90)),
            (Some("48"), Some("5")) => Some((40, 100)),
            _ => None,
        };
        let color = text(at + 2).and_then(|it| it.parse::<u8>().ok());
        match (base, color) {
            (Some((dark, _)), Some(color @ 0..=7)) => said.push((dark + color).to_string()),
            (Some((_, light)), Some(color @ 8..=15)) => said.push((light + color - 8).to_string()),
            _ => {
                said.push(text(at).unwrap_or_default().to_owned());
                at += 1;
                continue;
            }
        }
        at += 3;
    }
    said.join(";").into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(drawn: &str, expected: &str) {
        assert_eq!(String::from_utf8(translate(drawn.as_bytes())).unwrap(), expected);
    }

    #[test]
    fn the_first_sixteen_have_numbers_of_their_own() {
        check("a\x1b[38;5;6mb", "a\x1b[36mb");
        check("\x1b[38;5;8;48;5;1mx", "\x1b[90;41mx");
        check("\x1b[48;5;9mx\x1b[0m", "\x1b[101mx\x1b[0m");
        check("\x1b[38;5;200m\x1b[39;49m\x1b[1m", "\x1b[38;5;200m\x1b[39;49m\x1b[1m");
        check("\x1b[2;5H\x1b[?25l38;5;6", "\x1b[2;5H\x1b[?25l38;5;6");
        check("\x1b[", "\x1b[");
        check("\x1b[m", "\x1b[m");
    }

    #[test]
    fn a_picture_is_one_write() {
        struct Counting(Vec<Vec<u8>>);
        impl Write for Counting {
            fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
                self.0.push(bytes.to_vec());
                Ok(bytes.len())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let mut out = Sixteen::new(Counting(Vec::new()));
        for _ in 0..100 {
            out.write_all(b"\x1b[38;5;6mx").unwrap();
        }
        out.flush().unwrap();
        assert_eq!(out.out.0.len(), 1);
    }
}
