//! What every stack of stores promises while something fails behind it.
//!
//! No wrong bytes ever; never `Missing` for what could not be asked for; nothing lost that was
//! acknowledged; and an error that names the cause.

use std::collections::BTreeMap;
use std::io::Read;

use chronicle_core::{ContentStorage, Error, LARGE_OBJECT, ObjectId, Result};

use crate::contract::sample;
use crate::dice::Dice;
use crate::faulty::{Fault, Faults};

/// A stack, and what fails behind it.
pub struct Stack {
    /// What is asked.
    pub store: Box<dyn ContentStorage>,
    /// What fails.
    pub faults: Box<dyn Faults>,
    /// Whether it waits out what passes by itself.
    pub retries: bool,
}

/// The suite; `make` gives a new, empty stack each time, and `seeds` is how much random work is done.
pub fn survives_faults(make: impl Fn() -> Stack, seeds: u64) {
    for fault in Fault::ALL {
        reads_are_right_or_say_why(&make(), fault);
        refused_is_not_missing(&make(), fault);
        writes_are_kept_or_say_why(&make(), fault);
        deleted_is_gone_or_says_why(&make(), fault);
    }
    (0..seeds).for_each(|seed| random_work(&make(), seed));
}

fn put(store: &dyn ContentStorage, bytes: &[u8]) -> ObjectId {
    let id = ObjectId::of(bytes);
    store.put(&id, bytes).expect("nothing fails yet");
    id
}

/// Content that is streamed, made of few different pieces.
fn long(seed: u64) -> Vec<u8> {
    let mut bytes = sample(seed, 1 << 16).repeat(LARGE_OBJECT / (1 << 16) + 1);
    bytes.truncate(LARGE_OBJECT + 9);
    bytes
}

fn stream(store: &dyn ContentStorage, id: &ObjectId) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let read = store.reader(id)?.read_to_end(&mut bytes);
    let lost = |source| Error::Io { action: "read", path: "(stream)".into(), source };
    read.map(|_| bytes).map_err(lost)
}

/// The error and all its causes, in one line.
fn chain(error: &Error) -> String {
    let mut words = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(error) = source {
        words = format!("{words}: {error}");
        source = error.source();
    }
    words.to_lowercase()
}

/// A failure must be this fault's, and must not claim that anything is not there.
#[track_caller]
fn check_failure(stack: &Stack, fault: Fault, what: &str, error: &Error) {
    assert!(!matches!(error, Error::Missing(_)), "{what}, {fault:?}: {error}");
    let words = chain(error);
    assert!(words.contains(fault.says()), "{what}, {fault:?}: {words}");
    assert!(!(stack.retries && fault.passes()), "{what} should have passed, {fault:?}: {words}");
}

fn reads_are_right_or_say_why(stack: &Stack, fault: Fault) {
    let contents = [sample(1, 3000), long(2), Vec::new()];
    let ids = contents.each_ref().map(|bytes| put(&*stack.store, bytes));
    for (id, bytes) in ids.iter().zip(&contents) {
        for what in ["get", "reader"] {
            let read = || match what {
                "get" => stack.store.get(id),
                _ => stream(&*stack.store, id),
            };
            stack.faults.begin(fault);
            for _ in 0..3 {
                match read() {
                    Ok(read) => assert!(read == *bytes, "{what}, {fault:?}: wrong bytes"),
                    Err(error) => check_failure(stack, fault, what, &error),
                }
            }
            stack.faults.end();
            assert!(read().expect("nothing fails any more") == *bytes, "{what}, {fault:?}");
        }
        stack.faults.begin(fault);
        match stack.store.exists(id) {
            Ok(there) => assert!(there, "{fault:?}: what is there is said not to be"),
            Err(error) => check_failure(stack, fault, "exists", &error),
        }
        stack.faults.end();
    }
}

fn refused_is_not_missing(stack: &Stack, fault: Fault) {
    let id = ObjectId::of(b"never put");
    stack.faults.begin(fault);
    let said = [
        ("get", stack.store.get(&id).err()),
        ("reader", stream(&*stack.store, &id).err()),
        ("exists", stack.store.exists(&id).err()),
    ];
    if fault.refuses() {
        for (what, error) in said {
            let error = error.unwrap_or_else(|| panic!("{what}, {fault:?}: nobody could say that"));
            check_failure(stack, fault, what, &error);
        }
    }
    stack.faults.end();
    assert!(matches!(stack.store.get(&id), Err(Error::Missing(_))));
}

fn writes_are_kept_or_say_why(stack: &Stack, fault: Fault) {
    let contents = [sample(3, 3000), sample(4, 10), long(5)];
    for (number, bytes) in contents.iter().enumerate() {
        let id = ObjectId::of(bytes);
        for streamed in [false, true] {
            stack.faults.begin(fault);
            let refused = stack.store.put(&id, b"other bytes");
            assert!(refused.is_err(), "{fault:?}: bytes of another name");
            stack.faults.begin(fault);
            let kept = match streamed {
                false => stack.store.put(&id, bytes),
                true => stack.store.put_stream(&mut bytes.as_slice()).map(|said| {
                    assert_eq!(said, (id, bytes.len() as u64));
                }),
            };
            stack.faults.end();
            match kept {
                Ok(()) => {
                    assert!(stack.store.exists(&id).expect("exists"), "{fault:?}, {number}");
                    assert!(stack.store.get(&id).expect("acknowledged") == *bytes, "{fault:?}");
                }
                // A long stream cannot be had twice, so that it may fail where a put would not.
                Err(error) if streamed && bytes.len() > LARGE_OBJECT => {
                    assert!(!matches!(error, Error::Missing(_)), "{error}");
                }
                Err(error) => check_failure(stack, fault, "put", &error),
            }
            stack.store.put(&id, bytes).expect("put again");
            assert!(stack.store.get(&id).expect("get") == *bytes, "{fault:?}");
            stack.store.delete(&id).expect("delete");
        }
    }
}

fn deleted_is_gone_or_says_why(stack: &Stack, fault: Fault) {
    let (id, kept) = (put(&*stack.store, b"going"), put(&*stack.store, b"staying"));
    stack.faults.begin(fault);
    let deleted = stack.store.delete(&id);
    stack.faults.end();
    match deleted {
        Ok(()) => assert!(matches!(stack.store.get(&id), Err(Error::Missing(_))), "{fault:?}"),
        Err(error) => check_failure(stack, fault, "delete", &error),
    }
    assert_eq!(stack.store.get(&kept).expect("get"), b"staying");
}

/// What a store said about one content.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Said {
    Kept,
    Gone,
    /// It failed: either may be.
    Neither,
}

fn random_work(stack: &Stack, seed: u64) {
    let mut dice = Dice::new(seed);
    let contents: Vec<_> = (0..12).map(|n| sample(n, 1 << n)).collect();
    let mut said = BTreeMap::new();
    let mut fault = None;
    for step in 0..200 {
        if dice.below(4) == 0 {
            fault = (dice.below(3) > 0).then(|| Fault::ALL[dice.below(Fault::ALL.len())]);
            fault.map_or_else(|| stack.faults.end(), |fault| stack.faults.begin(fault));
        }
        let number = dice.below(contents.len());
        let (bytes, id) = (&contents[number], ObjectId::of(&contents[number]));
        let before = said.get(&number).copied().unwrap_or(Said::Gone);
        let what = format!("seed {seed}, step {step}, {fault:?}");
        let judge = |error: &Error| match (error, fault) {
            (Error::Missing(_), _) => assert!(before != Said::Kept, "{what}: lost"),
            (error, None) => panic!("{what}: {error}"),
            (error, Some(fault)) => check_failure(stack, fault, &what, error),
        };
        let check = |read: Result<Vec<u8>>| match read {
            Ok(read) => assert!(before != Said::Gone && read == *bytes, "{what}"),
            Err(error) => judge(&error),
        };
        let write = |done: Result<()>, then: Said| match done {
            Ok(()) => then,
            Err(error) => {
                judge(&error);
                if before == then { before } else { Said::Neither }
            }
        };
        match dice.below(6) {
            0 => check(stack.store.get(&id)),
            1 => check(stream(&*stack.store, &id)),
            2 => match stack.store.exists(&id) {
                Ok(there) => {
                    assert!(before == Said::Neither || there == (before == Said::Kept), "{what}")
                }
                Err(error) => judge(&error),
            },
            3 => {
                said.insert(number, write(stack.store.delete(&id), Said::Gone));
            }
            4 => {
                said.insert(number, write(stack.store.put(&id, bytes), Said::Kept));
            }
            _ => {
                let done = stack.store.put_stream(&mut bytes.as_slice()).map(|_| ());
                said.insert(number, write(done, Said::Kept));
            }
        }
    }
    stack.faults.end();
    for (number, said) in said {
        let read = stack.store.get(&ObjectId::of(&contents[number]));
        match said {
            Said::Kept => assert!(read.expect("acknowledged") == contents[number], "seed {seed}"),
            Said::Gone => assert!(matches!(read, Err(Error::Missing(_))), "seed {seed}"),
            Said::Neither => {}
        }
    }
}
