//! Every decoder against mutations of real input; see `chronicle_testing::fuzz`.
//!
//! Decoders that are private to a module are fuzzed in that module's tests, with [`target`] too.
//! `UPDATE_CORPUS=1` adds the samples that the corpus does not have yet.

use std::path::{Path, PathBuf};

use chronicle_testing::fuzz::fuzz;

use crate::codec::{self, Decoder, Encoder};
use crate::entry::Entry;
use crate::head::{Anchor, SignedHead};
use crate::id::{LinkHash, ObjectId};
use crate::known::{DirectoryView, Known, KnownDirectory, Part, Signature};
use crate::record::Record;
use crate::settings::Settings;
use crate::{base64, skim};

/// Mutations that an ordinary run tries of each decoder: a second or so.
const MUTATIONS: u64 = 20_000;

/// Fuzzes a decoder with the corpus of this name, to which these samples belong.
pub(crate) fn target(name: &str, samples: &[Vec<u8>], decode: impl FnMut(&[u8]) -> bool) {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus").join(name);
    if std::env::var_os("UPDATE_CORPUS").is_some() {
        std::fs::create_dir_all(&corpus).unwrap();
        for (number, sample) in samples.iter().enumerate() {
            write_new(corpus.join(format!("sample-{number}")), sample);
        }
    }
    fuzz(&corpus, MUTATIONS, decode);
}

fn write_new(path: PathBuf, bytes: &[u8]) {
    if !path.exists() {
        std::fs::write(path, bytes).unwrap();
    }
}

/// Encodes something.
fn bytes(encode: impl FnOnce(&mut Encoder)) -> Vec<u8> {
    let mut out = Encoder::default();
    encode(&mut out);
    out.0
}

fn samples() -> Vec<Record> {
    let full = codec::tests::sample();
    let plain = Record {
        labels: crate::record::Labels { action: Some("external".into()), ..Default::default() },
        changes: full.changes[..1].to_vec(),
        ..full.clone()
    };
    vec![full, plain]
}

fn entries() -> Vec<Entry> {
    let record = codec::tests::sample();
    let sides = record.changes.into_iter().flat_map(|change| [change.before, change.after]);
    sides.collect()
}

#[test]
fn mutated_entries() {
    let samples: Vec<_> =
        entries().iter().map(|entry| bytes(|out| codec::encode_entry(out, entry))).collect();
    target("entry", &samples, |input| {
        let mut rest = Decoder(input);
        let Ok(entry) = codec::decode_entry(&mut rest) else { return false };
        let read = &input[..input.len() - rest.0.len()];
        assert_eq!(bytes(|out| codec::encode_entry(out, &entry)), read, "not canonical");
        true
    });
}

#[test]
fn mutated_changes() {
    let changes = codec::tests::sample().changes;
    let samples: Vec<_> =
        changes.iter().map(|change| bytes(|out| codec::encode_change(out, change))).collect();
    target("change", &samples, |input| {
        let mut rest = Decoder(input);
        let Ok(change) = codec::decode_change(&mut rest) else { return false };
        let read = &input[..input.len() - rest.0.len()];
        assert_eq!(bytes(|out| codec::encode_change(out, &change)), read, "not canonical");
        true
    });
}

/// Headers with all their labels, references and ranges among them.
#[test]
fn mutated_leaves() {
    let seal = |record: &Record| codec::seal(record, &LinkHash::ZERO).leaf;
    let samples: Vec<_> = samples().iter().map(seal).collect();
    target("leaf", &samples, |input| {
        let (header, claims) = (codec::decode_header(input), skim::claims(input));
        let Ok(header) = header else { return false };
        let claims = claims.expect("what is decoded can be skimmed");
        assert_eq!((claims.seq, claims.kind), (header.seq, codec::kind_number(header.kind)));
        // Without changes a leaf ends with their number, one byte.
        let again = seal(&header);
        assert!(input.starts_with(&again[..again.len() - 1]), "not canonical");
        true
    });
}

/// Leaf and body together; what is skimmed is what is decoded.
#[test]
fn mutated_records() {
    let sealed = samples().into_iter().map(|record| codec::seal(&record, &LinkHash::ZERO));
    let whole = |sealed: crate::record::Sealed| {
        bytes(|out| {
            out.bytes(&sealed.leaf);
            out.bytes(&sealed.body);
        })
    };
    let samples: Vec<_> = sealed.map(whole).collect();
    target("record", &samples, |input| {
        let mut input = Decoder(input);
        let (Ok(leaf), Ok(body)) = (input.bytes(), input.bytes()) else { return false };
        let Ok(record) = codec::open(leaf, body) else { return false };
        let claims = skim::claims(leaf).expect("what is decoded can be skimmed");
        let mut named = Vec::new();
        skim::changes(claims.commitments, body, &|_, _| true, &mut |id| named.push(id))
            .expect("it too");
        let sides = record.changes.iter().flat_map(|change| [&change.before, &change.after]);
        assert_eq!(named, sides.filter_map(Entry::object).collect::<Vec<_>>());
        true
    });
}

#[test]
fn mutated_known_rows() {
    let signature =
        Signature { size: 1, mtime_ns: -2, ctime_ns: 3, ino: 4, mode: 5, uid: 6, gid: 7 };
    let known =
        |entry| Known { entry, signature: Some(signature), racy: true, part: Part::Ordinary };
    let names = entries().into_iter().enumerate();
    let names = names.map(|(number, entry)| (format!("f{number}").into_bytes(), known(entry)));
    let row = KnownDirectory { names: names.collect(), ..KnownDirectory::default() };
    target("known", &[row.encode(), KnownDirectory::default().encode()], |input| {
        if let Ok(view) = DirectoryView::new(input) {
            view.names().for_each(|item| drop(item.map(|(_, known)| known.signature())));
            let _ = view.find(b"f3");
        }
        let Ok(row) = KnownDirectory::decode(input) else { return false };
        assert_eq!(KnownDirectory::decode(&row.encode()).as_ref(), Ok(&row));
        true
    });
}

#[test]
fn mutated_stored_objects() {
    let of = |content: &[u8]| [&ObjectId::of(content).0[..], &crate::pack_object(content)].concat();
    let mut bomb = of(&vec![0; 1 << 20]);
    // It says that it is eight times as long as anything that is stored this way may be.
    bomb[33..41].copy_from_slice(&(32_u64 << 20).to_le_bytes());
    let samples = [of(b"short"), of(&b"it compresses ".repeat(90)), bomb];
    target("stored", &samples, |input| {
        let Some((name, stored)) = input.split_first_chunk() else { return false };
        let id = ObjectId(*name);
        let Ok(content) = crate::unpack_object(&id, stored) else { return false };
        assert_eq!(ObjectId::of(&content), id);
        true
    });
}

#[test]
fn mutated_heads() {
    let head = crate::head::tests::signed(7, 12).text();
    let root = base64::encode(&[7; 32]);
    let samples = [head.into_bytes(), format!("12:{root}").into_bytes()];
    target("head", &samples, |input| {
        let Ok(text) = std::str::from_utf8(input) else { return false };
        let anchor = Anchor::parse(text);
        let Some(head) = SignedHead::parse(text) else { return anchor.is_some() };
        assert_eq!(head.text(), text, "one head has one text");
        true
    });
}

#[test]
fn mutated_base64() {
    let samples: Vec<_> = (0..5).map(|n| base64::encode(&vec![n; n.into()]).into_bytes()).collect();
    target("base64", &samples, |input| {
        let Ok(text) = std::str::from_utf8(input) else { return false };
        let Some(bytes) = base64::decode(text) else { return false };
        assert_eq!(base64::encode(&bytes), text, "one value has one text");
        true
    });
}

#[test]
fn mutated_settings() {
    let samples = [
        "budget = \"20 GiB\"\nfloor = 1000\nmax_snapshots = 7\n",
        "[retention]\nmax_age_days = \"unlimited\"\nturns = 50\nhours = 48\nmin_age_hours = 24\n",
    ]
    .map(|text| text.as_bytes().to_vec());
    target("settings", &samples, |input| {
        let Ok(text) = std::str::from_utf8(input) else { return false };
        Settings::parse(text, Path::new("chronicle.toml")).is_ok()
    });
}
