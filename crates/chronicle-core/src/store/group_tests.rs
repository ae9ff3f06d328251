//! Groups in a store: what is taken away, damaged or put aside of them.

use std::collections::HashSet;
use std::fs::File;
use std::os::unix::fs::FileExt;

use super::group::is_group;
use super::index::Location;
use super::sweep::Needed;
use super::{ContentStorage, LocalStore, repair};
use crate::Error;
use crate::error::Result;
use crate::id::ObjectId;
use crate::secret::Secrets;

/// What is needed, and nothing else.
struct Only(HashSet<ObjectId>);

impl Needed for Only {
    fn refresh(&mut self) -> Result<()> {
        Ok(())
    }

    fn contains(&self, id: &ObjectId) -> bool {
        self.0.contains(id)
    }
}

/// Small ones, and every fifth of middle length, so that both kinds of groups are there.
fn content(number: u32) -> Vec<u8> {
    let lines = if number % 5 == 3 { 300 } else { 30 };
    format!("fn number_{number}() -> u32 {{ {number} }}\n").repeat(lines).into_bytes()
}

/// A store with one pack: some objects alone, which came first, then groups.
fn packed(count: u32) -> (tempfile::TempDir, LocalStore, Vec<ObjectId>) {
    let home = tempfile::tempdir().unwrap();
    let store = LocalStore::open(&home.path().join("store")).unwrap();
    let mut intake = store.intake().unwrap();
    let ids = (0..count).map(|number| intake.take(&content(number)).unwrap()).collect();
    assert_eq!(intake.finish().unwrap(), []);
    drop(intake);
    (home, store, ids)
}

/// Everything that the bytes of the packs hold, whatever their indexes say.
fn really_there(store: &LocalStore) -> HashSet<ObjectId> {
    let mut there = HashSet::new();
    for pack in store.packs.list_again().unwrap().iter() {
        let file = File::open(pack.path()).unwrap();
        let scan = repair::scan(&file, pack.path(), &Secrets::default()).unwrap();
        there.extend(scan.objects.into_iter().map(|(id, _)| id));
    }
    there
}

fn location(store: &LocalStore, id: &ObjectId) -> Location {
    let packs = store.packs.list_again().unwrap();
    packs.iter().find_map(|pack| pack.find(id, true).unwrap()).unwrap()
}

/// Damages the group that holds this object, and says which objects it had.
fn damage(store: &LocalStore, id: &ObjectId, ids: &[ObjectId]) -> HashSet<ObjectId> {
    let place = location(store, id);
    let pack = &store.packs.list_again().unwrap()[0];
    let file = File::options().read(true).write(true).open(pack.path()).unwrap();
    let mut stored = vec![0; place.length as usize];
    file.read_exact_at(&mut stored, place.offset).unwrap();
    assert!(is_group(&stored));
    // Its codec stays, so that it still says what it was.
    file.write_all_at(&vec![0xff; stored.len() - 1], place.offset + 1).unwrap();
    store.packs.forget().unwrap();
    ids.iter().copied().filter(|id| location(store, id).offset == place.offset).collect()
}

#[track_caller]
fn check_left(store: &LocalStore, ids: &[ObjectId], gone: &HashSet<ObjectId>) {
    let left: HashSet<_> = ids.iter().copied().filter(|id| !gone.contains(id)).collect();
    assert_eq!(really_there(store), left);
    for (number, id) in (0..).zip(ids) {
        match store.get(id) {
            Ok(bytes) => assert!(left.contains(id) && bytes == content(number)),
            Err(error) => assert!(gone.contains(id), "{error}"),
        }
    }
}

#[test]
fn what_is_forgotten_is_not_in_the_bytes_of_its_group_any_more() {
    let (_home, store, ids) = packed(400);
    assert!(location(&store, &ids[399]).member > 0 && location(&store, &ids[398]).member > 0);
    let gone: Vec<_> = [3, 100, 101, 250].map(|number| ids[number]).to_vec();
    let mut needed = Only(ids.iter().copied().filter(|id| !gone.contains(id)).collect());
    assert_eq!(store.take_out(&gone, &mut needed).unwrap(), gone);
    check_left(&store, &ids, &gone.into_iter().collect());
}

#[test]
fn a_sweep_leaves_of_each_group_what_is_needed() {
    let (_home, store, ids) = packed(400);
    let before = store.stored_bytes().unwrap();
    let needed = ids.iter().copied().step_by(3).collect::<HashSet<_>>();
    let swept = store.sweep(&mut Only(needed.clone()), &|_, _| {}).unwrap();
    assert_eq!(swept.objects, 400 - needed.len() as u64);
    // What shares a frame shares its bytes: no more can be freed than there was.
    assert!(swept.bytes < before);
    let gone = ids.iter().copied().filter(|id| !needed.contains(id)).collect();
    check_left(&store, &ids, &gone);
    // One that is left over stands by itself.
    store.sweep(&mut Only(HashSet::from([ids[399]])), &|_, _| {}).unwrap();
    assert_eq!(location(&store, &ids[399]).member, 0);
    assert_eq!(store.get(&ids[399]).unwrap(), content(399));
}

#[test]
fn a_sweep_keeps_a_damaged_group_for_the_doctor() {
    let (_home, store, ids) = packed(400);
    let lost = damage(&store, &ids[399], &ids);
    let needed: HashSet<_> = ids.iter().copied().step_by(2).collect();
    store.sweep(&mut Only(needed.clone()), &|_, _| {}).unwrap();
    for id in &ids {
        match store.get(id) {
            Ok(_) => assert!(needed.contains(id) && !lost.contains(id)),
            Err(Error::Corrupt { .. }) => assert!(lost.contains(id)),
            Err(_) => assert!(!needed.contains(id) && !lost.contains(id)),
        }
    }
}

#[test]
fn a_damaged_group_goes_aside_and_forgetting_any_content_takes_it_from_there() {
    let (_home, store, ids) = packed(400);
    let lost = damage(&store, &ids[399], &ids);
    assert!(lost.len() > 1 && lost.len() < 300);
    let aside = store.quarantine(&HashSet::from([ids[399]])).unwrap();
    assert_eq!(std::fs::read_dir(&aside).unwrap().count(), 1);
    check_left(&store, &ids, &lost);
    let mut needed = Only(ids.iter().copied().skip(1).collect());
    store.take_out(&ids[..1], &mut needed).unwrap();
    assert_eq!(std::fs::read_dir(&aside).unwrap().count(), 0);
}

#[test]
fn neighbours_are_read_without_opening_their_group_again() {
    let (_home, store, ids) = packed(400);
    store.packs.forget().unwrap();
    assert_eq!(store.get(&ids[399]).unwrap(), content(399));
    // What was read is remembered: it is right whatever becomes of the file.
    let lost = damage_only(&store, &ids[399]);
    for id in ids.iter().filter(|id| location(&store, id).offset == lost) {
        assert!(store.get(id).is_ok());
    }
}

fn damage_only(store: &LocalStore, id: &ObjectId) -> u64 {
    let place = location(store, id);
    let pack = &store.packs.list_again().unwrap()[0];
    let file = File::options().write(true).open(pack.path()).unwrap();
    file.write_all_at(&vec![0xff; place.length as usize - 1], place.offset + 1).unwrap();
    place.offset
}

#[test]
fn many_are_read_in_the_order_in_which_they_lie() {
    let (_home, store, ids) = packed(400);
    let mut mixed = ids.clone();
    mixed.sort_unstable();
    let nowhere = ObjectId::of(b"nowhere");
    mixed.push(nowhere);
    let ordered = store.by_place(&mixed).unwrap();
    assert_eq!((ordered.len(), ordered[0]), (401, nowhere));
    assert!(ordered[1..].is_sorted_by_key(|id| location(&store, id).offset));
}
