use super::*;

fn file(ino: u64) -> FileId {
    FileId { device: 7, ino }
}

fn nodes() -> Nodes {
    Nodes::new(file(2))
}

fn see(all: &mut Nodes, parent: u64, name: &str, ino: u64) -> u64 {
    all.found(parent, name.as_bytes(), file(ino), FileType::RegularFile, 1).node
}

fn see_directory(all: &mut Nodes, parent: u64, name: &str, ino: u64) -> u64 {
    all.found(parent, name.as_bytes(), file(ino), FileType::Directory, 1).node
}

fn path(all: &Nodes, node: u64) -> Option<String> {
    let place = all.place(node)?;
    all.path(place.parent, &place.name).map(|path| String::from_utf8(path).unwrap())
}

#[test]
fn hard_links_share_a_node_and_it_has_both_names() {
    let mut all = nodes();
    let (one, two) = (see(&mut all, ROOT, "a", 10), see(&mut all, ROOT, "b", 10));
    assert_eq!(one, two);
    assert_eq!(all.places(one).len(), 2);
    all.removed(ROOT, b"a");
    assert_eq!(path(&all, one).as_deref(), Some("b"));
}

#[test]
fn a_path_follows_the_directories_that_were_renamed() {
    let mut all = nodes();
    let directory = see_directory(&mut all, ROOT, "d", 10);
    let inner = see(&mut all, directory, "f", 11);
    all.renamed((ROOT, b"d"), (ROOT, b"e"), false);
    assert_eq!(path(&all, inner).as_deref(), Some("e/f"));
}

#[test]
fn an_exchange_keeps_both_and_a_rename_replaces() {
    let mut all = nodes();
    let (one, two) = (see(&mut all, ROOT, "a", 10), see(&mut all, ROOT, "b", 11));
    all.renamed((ROOT, b"a"), (ROOT, b"b"), true);
    assert_eq!((all.at(ROOT, b"a"), all.at(ROOT, b"b")), (Some(two), Some(one)));
    all.renamed((ROOT, b"a"), (ROOT, b"b"), false);
    assert_eq!((all.at(ROOT, b"a"), all.at(ROOT, b"b")), (None, Some(two)));
    assert!(all.places(one).is_empty());
}

#[test]
fn what_is_forgotten_takes_no_room_and_its_number_comes_back_with_another_generation() {
    let mut all = nodes();
    let directory = see_directory(&mut all, ROOT, "d", 10);
    let inner = see(&mut all, directory, "f", 11);
    all.forget(directory, 1);
    assert_eq!(all.count(), 3, "its child needs it");
    all.forget(inner, 1);
    assert_eq!(all.count(), 1);
    let again = all.found(ROOT, b"g", file(11), FileType::RegularFile, 1);
    assert_eq!(again.node, inner);
    assert!(again.is_new && again.generation > 3);
}

#[test]
fn a_number_used_again_by_the_disk_is_another_node_unless_it_is_open() {
    let mut all = nodes();
    let one = see(&mut all, ROOT, "a", 10);
    all.removed(ROOT, b"a");
    assert_ne!(see(&mut all, ROOT, "b", 10), one);

    let open = see(&mut all, ROOT, "c", 20);
    all.pin(open);
    all.removed(ROOT, b"c");
    assert_eq!(see(&mut all, ROOT, "d", 20), open, "a hard link that nobody knew");
}

#[test]
fn another_kind_under_the_same_number_is_another_node() {
    let mut all = nodes();
    let one = see(&mut all, ROOT, "a", 10);
    assert_ne!(see_directory(&mut all, ROOT, "a", 10), one);
}

#[test]
fn directories_moved_in_a_circle_have_no_path_instead_of_an_endless_one() {
    let mut all = nodes();
    let one = see_directory(&mut all, ROOT, "a", 10);
    let two = see_directory(&mut all, one, "b", 11);
    // Somebody else moved both, and only the second half was seen yet.
    see_directory(&mut all, two, "a", 10);
    assert_eq!(path(&all, two), None);
}

#[test]
fn a_number_is_the_files_own_unless_that_is_taken() {
    let mut all = nodes();
    let one = see(&mut all, ROOT, "a", 10);
    assert_eq!(one, 10);
    let elsewhere = FileId { device: 8, ino: 10 };
    let other = all.found(ROOT, b"b", elsewhere, FileType::RegularFile, 1).node;
    assert!(other > SPECIAL);
    assert_eq!((all.file(one), all.file(other)), (Some(file(10)), Some(elsewhere)));
    assert_eq!(see(&mut all, ROOT, "c", 1), SPECIAL | 4, "1 is the root's");
    assert_eq!(all.file(ROOT), Some(file(2)));
    all.forget(other, 1);
    assert_eq!(all.file(other), None);
}

#[test]
fn a_node_and_its_name_are_small() {
    assert!(size_of::<Node>() <= 40 && size_of::<Link>() <= 40);
}

#[test]
fn a_filled_placeholder_keeps_its_number() {
    let mut all = Nodes::new(file(2));
    let kind = FileType::RegularFile;
    let node = all.found_as(ROOT, b"a", file(11), kind, 1, true).node;
    let place = all.place(node).unwrap();
    // Whoever heard of the new file first has taken the name away.
    all.removed(ROOT, b"a");
    assert!(all.filled(node, &place, file(12)));
    assert_eq!((all.file(node), all.place(node)), (Some(file(12)), Some(place)));
    assert_eq!(all.found(ROOT, b"a", file(12), kind, 1).node, node);
    // The placeholder's own number may be used again, for another file.
    assert_ne!(all.found(ROOT, b"b", file(11), kind, 1).node, node);
    // One that is known by another number already cannot have two.
    let other = all.found_as(ROOT, b"c", file(13), kind, 1, true).node;
    let place = all.place(other).unwrap();
    let known = all.found(ROOT, b"c", file(14), kind, 1).node;
    assert!(known != other && !all.filled(other, &place, file(14)));
    all.forget(node, 2);
    assert_eq!(all.file(node), None);
}
