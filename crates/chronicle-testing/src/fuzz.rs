//! A small mutational fuzzer: a corpus of real inputs, seeded mutations of them, and a decoder that must
//! survive all of it within bounds.
//!
//! The corpus of a decoder is a directory of small files, made from real encodings and from every input
//! that ever failed. `CHRONICLE_FUZZ` multiplies how many mutations an ordinary run tries.

use std::path::Path;
use std::time::{Duration, Instant};

use crate::dice::Dice;
use crate::shared::setting;

/// No input may keep a decoder busy for longer; generous, since machines are shared.
const LONGEST: Duration = Duration::from_secs(5);
/// Inputs do not grow beyond this.
const LARGEST: usize = 1 << 16;
/// Memory that a run of mutations may add to what the process took before, in KiB.
const MOST_MEMORY: u64 = 768 << 10;
/// Values at which decoders go wrong: ends of integers, and lengths that nobody has the bytes for.
const INTERESTING: [&[u8]; 12] = [
    &[0x00],
    &[0x7f],
    &[0x80],
    &[0xff],
    &[0xff, 0xff, 0xff, 0xff],
    &[0x00, 0x00, 0x00, 0x80],
    &[0xff, 0xff, 0xff, 0x7f],
    &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff],
    &[0xff, 0xff, 0xff, 0xff, 0x0f],
    &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01],
    &[0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x00],
    &[0x80, 0x00],
];
/// The same for what reads text.
const WORDS: [&str; 12] = [
    "[[[[[[[[[[[[[[[[",
    "{\"\":",
    "\"",
    "\\u0000",
    "\\ud800",
    "\n",
    "***",
    "..",
    "null",
    "-1e999",
    "\u{feff}",
    "18446744073709551616",
];

/// Runs a decoder over a corpus, then over so many mutations of it.
///
/// The decoder returns whether it took the input; it must take some, or nothing was tested.
pub fn fuzz(corpus: &Path, mutations: u64, decode: impl FnMut(&[u8]) -> bool) {
    fuzz_all(&corpus.display().to_string(), &read(corpus), mutations, decode);
}

/// The same with inputs that lie elsewhere.
pub fn fuzz_all(
    name: &str,
    seeds: &[Vec<u8>],
    mutations: u64,
    mut decode: impl FnMut(&[u8]) -> bool,
) {
    let before = peak_memory();
    let mut taken = 0;
    for seed in seeds {
        taken += u64::from(run(&mut decode, seed));
    }
    assert!(taken > 0, "no input in {name} is taken: the corpus is out of date");
    let mut dice = Dice::new(seeds.len() as u64);
    for _ in 0..mutations * setting("CHRONICLE_FUZZ", 1) {
        run(&mut decode, &mutated(seeds, &mut dice));
    }
    let added = peak_memory().saturating_sub(before);
    assert!(added < MOST_MEMORY, "{added} KiB were needed for {name}");
}

/// One of these inputs, changed once or a few times.
pub fn mutated(seeds: &[Vec<u8>], dice: &mut Dice) -> Vec<u8> {
    let mut input = dice.pick(seeds).clone();
    for _ in 0..dice.between(1, 4) {
        mutate(&mut input, seeds, dice);
    }
    input
}

/// The inputs of a corpus, in the order of their names.
fn read(corpus: &Path) -> Vec<Vec<u8>> {
    let entries = std::fs::read_dir(corpus)
        .unwrap_or_else(|error| panic!("no corpus at {}: {error}", corpus.display()));
    let mut paths: Vec<_> = entries.map(|entry| entry.expect("an entry").path()).collect();
    paths.sort();
    paths.iter().map(|path| std::fs::read(path).expect("a file of the corpus")).collect()
}

/// Runs one input; a panic tells which.
fn run(decode: &mut impl FnMut(&[u8]) -> bool, input: &[u8]) -> bool {
    let begun = Instant::now();
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| decode(input)));
    let took = begun.elapsed();
    let shown: String = input.iter().map(|byte| format!("{byte:02x}")).collect();
    let taken = result.unwrap_or_else(|_| panic!("failed on the {} bytes {shown}", input.len()));
    assert!(took < LONGEST, "it took {took:?} for {shown}");
    taken
}

/// Changes an input in one of the ways that break decoders.
fn mutate(input: &mut Vec<u8>, seeds: &[Vec<u8>], dice: &mut Dice) {
    let at = dice.below(input.len() + 1);
    let end = (at + dice.between(1, 16)).min(input.len());
    match dice.below(9) {
        0 if at < input.len() => input[at] ^= 1 << dice.below(8),
        1 if at < input.len() => input[at] = dice.below(256) as u8,
        2 => drop(input.drain(at..end)),
        3 => input.truncate(at),
        4 => {
            let again = input[at..end].to_vec();
            input.splice(at..at, again);
        }
        5 => {
            let value = *dice.pick(&INTERESTING);
            let over =
                if dice.chance(50) { at..(at + value.len()).min(input.len()) } else { at..at };
            input.splice(over, value.iter().copied());
        }
        6 => {
            let word = dice.pick(&WORDS).as_bytes();
            input.splice(at..at, word.iter().copied());
        }
        7 => {
            let other = dice.pick(seeds);
            let from = dice.below(other.len() + 1);
            input.truncate(at);
            input.extend_from_slice(&other[from..]);
        }
        _ => {
            let count = dice.between(1, 8);
            let random = dice.bytes(count);
            input.splice(at..at, random);
        }
    }
    input.truncate(LARGEST);
}

/// The most memory that this process ever took, in KiB.
fn peak_memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn corpus() -> tempfile::TempDir {
        let directory = tempfile::tempdir().expect("a scratch directory");
        std::fs::write(directory.path().join("one"), b"length\x05bytes").expect("a file");
        directory
    }

    #[test]
    fn a_decoder_that_trusts_a_length_is_caught() {
        let corpus = corpus();
        let trusting = |input: &[u8]| {
            let Some(length) = input.get(6) else { return false };
            input[7..7 + usize::from(*length)].len() == 5
        };
        let caught = std::panic::catch_unwind(|| fuzz(corpus.path(), 1000, trusting));
        assert!(caught.is_err());
    }

    #[test]
    fn a_decoder_that_takes_nothing_is_no_test() {
        let corpus = corpus();
        assert!(std::panic::catch_unwind(|| fuzz(corpus.path(), 10, |_| false)).is_err());
        fuzz(corpus.path(), 1000, |input| input.len() < 100);
    }
}
