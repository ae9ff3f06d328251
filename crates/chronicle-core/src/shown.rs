//! Words for people, made of things that are not: names and contents that cannot make a terminal do
//! anything, numbers, sizes and spans of time.

use std::borrow::Cow;

/// Text that cannot make a terminal do anything: control characters (but tabs) and marks that
/// change the order of what is shown or hide in it become escapes. Text that was escaped before
/// stays the same.
pub fn printable(text: &str) -> Cow<'_, str> {
    if !text.chars().any(needs_escape) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        if needs_escape(c) { shown.extend(c.escape_default()) } else { shown.push(c) }
    }
    Cow::Owned(shown)
}

/// Whether a character is shown as an escape: it would act on the terminal, change the order of its
/// neighbours, or not be seen at all.
pub fn needs_escape(c: char) -> bool {
    let marks = [
        '\u{200b}'..='\u{200f}',
        '\u{2028}'..='\u{202e}',
        '\u{2060}'..='\u{206f}',
        '\u{fff9}'..='\u{fffb}',
        '\u{e0000}'..='\u{e007f}',
    ];
    let single = ['\u{ad}', '\u{61c}', '\u{180e}', '\u{feff}'];
    let hides = single.contains(&c) || marks.iter().any(|range| range.contains(&c));
    c != '\t' && (c.is_control() || hides)
}

/// `1 file`, `2 files`, `1,234 files`.
pub fn count(number: u64, one: &str) -> String {
    match number {
        1 => format!("1 {one}"),
        _ if one.ends_with("entry") => format!("{} {}ies", grouped(number), &one[..one.len() - 1]),
        _ => format!("{} {one}s", grouped(number)),
    }
}

/// A number with its thousands apart.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// `512 B`, `3.4 KiB`, `1.2 GiB`.
pub fn size(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut value = bytes as f64;
    let mut unit = "B";
    for next in UNITS {
        if value < 1024.0 {
            break;
        }
        value /= 1024.0;
        unit = next;
    }
    format!("{value:.1} {unit}")
}

/// `42 s`, `3 min`, `5 h`, `2 days`.
pub fn span(seconds: u64) -> String {
    match seconds {
        0..=90 => format!("{seconds} s"),
        91..=5400 => format!("{} min", (seconds + 30) / 60),
        5401..=129_600 => format!("{} h", (seconds + 1800) / 3600),
        _ => format!("{} days", (seconds + 43_200) / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_text_is_shown_harmless_and_only_once() {
        assert_eq!(printable("a\tb ä \\n"), "a\tb ä \\n");
        assert_eq!(printable("\u{1b}[2J"), "\\u{1b}[2J");
        assert_eq!(printable(&printable("x\n")), "x\\n");
        assert_eq!(printable("a\u{202e}b\u{61c}\u{2028}\u{e0041}"), {
            "a\\u{202e}b\\u{61c}\\u{2028}\\u{e0041}"
        });
    }

    #[test]
    fn numbers_read_easily() {
        assert_eq!(grouped(7), "7");
        assert_eq!(grouped(1_234_567), "1,234,567");
        assert_eq!(count(1, "file"), "1 file");
        assert_eq!(count(1000, "file"), "1,000 files");
        assert_eq!(size(512), "512 B");
        assert_eq!(size(3482), "3.4 KiB");
        assert_eq!(size(5 << 30), "5.0 GiB");
    }
}
