//! A fetch against a peer that answers honestly, late, or with lies.

use super::*;

fn content(length: usize, seed: u8) -> Vec<u8> {
    (0..length).map(|at| (at / 251) as u8 ^ (at % 251) as u8 ^ seed).collect()
}

fn want(bytes: &[u8]) -> Want {
    let path = WorkspacePath::new("f").expect("a path");
    Want { object: ObjectId::of(bytes), size: bytes.len() as u64, path, base: None }
}

fn pieces(bytes: &[u8], length: usize) -> Vec<Piece> {
    let piece = |part: &[u8]| Piece { id: ObjectId::of(part), length: part.len() as u32 };
    bytes.chunks(length).map(piece).collect()
}

fn manifest(bytes: &[u8], pieces: Vec<Piece>) -> Manifest {
    Manifest { object: ObjectId::of(bytes), size: bytes.len() as u64, first: 0, last: true, pieces }
}

const NOW: Duration = Duration::ZERO;

fn fetcher(wants: Vec<Want>) -> Fetcher {
    Fetcher::new(wants, 4, &Limits::default(), NOW)
}

/// Answers everything from these bytes; says how many were sent.
fn serve(fetcher: &mut Fetcher, all: &[Vec<u8>], have: &[ObjectId]) -> usize {
    let (mut sent, mut steps) = (0, fetcher.pump());
    while let Some(step) = steps.pop() {
        match step {
            Step::Send(Frame::Fetch(fetch)) => {
                assert!(fetch.runs.len() <= 4, "no more than the window");
                for run in fetch.runs {
                    let bytes = all
                        .iter()
                        .find(|bytes| ObjectId::of(bytes) == run.wanted.object)
                        .expect("asked for");
                    let start = run.offset as usize;
                    let bytes = bytes[start..start + run.length as usize].to_vec();
                    sent += bytes.len();
                    let content = Content { object: run.wanted.object, offset: run.offset, bytes };
                    steps.extend(fetcher.content(content, NOW).expect("honest"));
                }
            }
            Step::Send(Frame::ManifestRequest(wanted)) => {
                let bytes = all
                    .iter()
                    .find(|bytes| ObjectId::of(bytes) == wanted.object)
                    .expect("asked for");
                steps.extend(
                    fetcher.manifest(manifest(bytes, pieces(bytes, 100_000)), NOW).expect("honest"),
                );
            }
            Step::Check { pieces, .. } => {
                let lacking: Vec<_> =
                    pieces.into_iter().filter(|piece| !have.contains(piece)).collect();
                steps.extend(fetcher.lacking(&lacking, NOW));
            }
            Step::Put(object, bytes) => {
                assert_eq!(ObjectId::of(&bytes), object);
                steps.extend(fetcher.put(object, true, NOW).expect("kept"));
            }
            Step::Assemble { object, .. } => {
                steps.extend(fetcher.put(object, true, NOW).expect("kept"))
            }
            Step::Send(_) => panic!("nothing else is sent"),
        }
        steps.extend(fetcher.pump());
    }
    sent
}

#[test]
fn short_and_long_objects_come_whole() {
    let all = vec![
        content(5000, 1),
        content(3_000_000, 2),
        content(70_000, 3),
        Vec::new(),
        content(2_500_000, 4),
    ];
    let mut fetcher = fetcher(all.iter().map(|bytes| want(bytes)).collect());
    let sent = serve(&mut fetcher, &all, &[]);
    assert!(fetcher.is_done() && fetcher.missing().is_empty());
    assert_eq!(sent, all.iter().map(Vec::len).sum::<usize>());
}

#[test]
fn only_pieces_that_are_not_here_travel() {
    let old = content(3_000_000, 1);
    let mut new = old.clone();
    new[1_234_567] ^= 1;
    let have: Vec<_> = pieces(&old, 100_000).iter().map(|piece| piece.id).collect();
    let mut fetcher = fetcher(vec![want(&new)]);
    assert_eq!(serve(&mut fetcher, &[new], &have), 100_000);
    assert!(fetcher.is_done());
}

#[test]
fn lies_about_bytes_and_lengths_are_noticed() {
    let bytes = content(5000, 1);
    for lie in [content(5000, 2), bytes[..4999].to_vec(), [&bytes[..], b"x"].concat(), Vec::new()] {
        let mut fetcher = fetcher(vec![want(&bytes)]);
        fetcher.pump();
        let content = Content { object: ObjectId::of(&bytes), offset: 0, bytes: lie };
        assert!(matches!(fetcher.content(content, NOW), Err(Trouble::Lie(_))));
    }
}

#[test]
fn lists_of_pieces_that_cannot_be_are_refused() {
    let bytes = content(3_000_000, 1);
    let honest = pieces(&bytes, 100_000);
    let short = honest[1..].to_vec();
    let twice = [&honest[..], &honest[..1]].concat();
    let mut two_lengths = honest.clone();
    two_lengths[0] = Piece { id: honest[1].id, length: 50_000 };
    two_lengths.push(Piece { id: ObjectId([1; 32]), length: 50_000 });
    let crumbs = vec![Piece { id: ObjectId([1; 32]), length: 1 }; 10_000];
    for lie in [short, twice, two_lengths, crumbs, Vec::new()] {
        let mut fetcher = fetcher(vec![want(&bytes)]);
        fetcher.pump();
        assert!(matches!(fetcher.manifest(manifest(&bytes, lie), NOW), Err(Trouble::Lie(_))));
    }
    let mut fetcher = fetcher(vec![want(&bytes)]);
    fetcher.pump();
    let other_size = Manifest { size: 1, ..manifest(&bytes, honest) };
    assert!(fetcher.manifest(other_size, NOW).is_err());
}

#[test]
fn objects_beyond_the_limit_are_not_asked_for() {
    let huge = Want { size: 1 << 62, ..want(b"x") };
    let mut fetcher = fetcher(vec![huge.clone()]);
    assert!(fetcher.pump().is_empty());
    assert!(fetcher.is_done());
    assert_eq!(fetcher.missing(), [huge.object]);
}

#[test]
fn what_does_not_come_is_asked_for_again_and_then_given_up() {
    let mut fetcher = fetcher(vec![want(&content(5000, 1))]);
    let first = fetcher.pump();
    let patience = Limits::default().patience;
    assert_eq!(fetcher.tick(patience / 2), Ok(Vec::new()));
    assert_eq!(fetcher.tick(patience), Ok(first.clone()));
    assert_eq!(fetcher.tick(2 * patience), Ok(first));
    assert_eq!(fetcher.tick(3 * patience), Err(Trouble::Stalled));
}
