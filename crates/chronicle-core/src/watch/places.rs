//! The directories that are watched, as a tree: from the kernel's number of a watch to a path, also
//! after directories above it were renamed; pure.

use std::collections::{BTreeMap, HashMap};

use super::handle::DirectoryHandle;

/// A directory's number in the tree.
pub(super) type Place = usize;

/// One directory.
#[derive(Debug, Default)]
struct Node {
    /// The directory above; `None` for a root, and while it is on its way from one to another.
    parent: Option<Place>,
    /// A root's whole path.
    root: Option<Vec<u8>>,
    name: Vec<u8>,
    watch: Option<i32>,
    /// What the kernel calls it, where somebody asks.
    handle: Option<DirectoryHandle>,
    children: BTreeMap<Vec<u8>, Place>,
    kept_out: bool,
}

/// All of them.
#[derive(Debug, Default)]
pub(super) struct Places {
    nodes: Vec<Option<Node>>,
    free: Vec<Place>,
    by_watch: HashMap<i32, Place>,
    by_handle: HashMap<DirectoryHandle, Place>,
    /// Where directories were that are gone: notices of what was done in them are still to come.
    departed: HashMap<DirectoryHandle, Vec<u8>>,
}

impl Places {
    fn node(&self, place: Place) -> Option<&Node> {
        self.nodes.get(place)?.as_ref()
    }

    fn node_mut(&mut self, place: Place) -> Option<&mut Node> {
        self.nodes.get_mut(place)?.as_mut()
    }

    fn add(&mut self, node: Node) -> Place {
        match self.free.pop() {
            Some(place) => {
                self.nodes[place] = Some(node);
                place
            }
            None => {
                self.nodes.push(Some(node));
                self.nodes.len() - 1
            }
        }
    }

    /// Adds a root.
    pub(super) fn add_root(&mut self, path: &[u8]) -> Place {
        self.add(Node { root: Some(path.to_vec()), ..Node::default() })
    }

    /// The directory of this name in another, added if it is new.
    pub(super) fn child_or_new(&mut self, parent: Place, name: &[u8]) -> Place {
        if let Some(child) = self.child(parent, name) {
            return child;
        }
        let node = Node { parent: Some(parent), name: name.to_vec(), ..Node::default() };
        let place = self.add(node);
        if let Some(above) = self.node_mut(parent) {
            above.children.insert(name.to_vec(), place);
        }
        place
    }

    /// The directory of this name in another.
    pub(super) fn child(&self, parent: Place, name: &[u8]) -> Option<Place> {
        self.node(parent)?.children.get(name).copied()
    }

    /// The directories in another.
    pub(super) fn children(&self, parent: Place) -> Vec<Place> {
        self.node(parent).map_or_else(Vec::new, |node| node.children.values().copied().collect())
    }

    /// Whether a directory is a root.
    pub(super) fn is_root(&self, place: Place) -> bool {
        self.node(place).is_some_and(|node| node.root.is_some())
    }

    /// A directory's name; a root has none.
    pub(super) fn name(&self, place: Place) -> &[u8] {
        self.node(place).map_or(&[], |node| &node.name)
    }

    /// The directory that one is in, if it is in one that is watched or will be.
    pub(super) fn parent(&self, place: Place) -> Option<Place> {
        self.node(place)?.parent
    }

    /// Where a directory is; `None` while it is nowhere.
    pub(super) fn path(&self, place: Place) -> Option<Vec<u8>> {
        let mut names = Vec::new();
        let mut node = self.node(place)?;
        let root = loop {
            if let Some(root) = &node.root {
                break root;
            }
            names.push(&node.name[..]);
            node = self.node(node.parent?)?;
        };
        let mut path = root.clone();
        for name in names.into_iter().rev() {
            path = join(&path, name);
        }
        Some(path)
    }

    /// Whether filters keep a directory out.
    pub(super) fn is_kept_out(&self, place: Place) -> bool {
        self.node(place).is_some_and(|node| node.kept_out)
    }

    pub(super) fn set_kept_out(&mut self, place: Place, kept_out: bool) {
        if let Some(node) = self.node_mut(place) {
            node.kept_out = kept_out;
        }
    }

    /// The directories that filters keep out.
    pub(super) fn kept_out(&self) -> Vec<Place> {
        let all = self.nodes.iter().enumerate();
        all.filter(|(_, node)| node.as_ref().is_some_and(|node| node.kept_out))
            .map(|(place, _)| place)
            .collect()
    }

    /// The directory that a watch is on.
    pub(super) fn by_watch(&self, watch: i32) -> Option<Place> {
        self.by_watch.get(&watch).copied()
    }

    /// The directory that the kernel calls this.
    pub(super) fn by_handle(&self, handle: &DirectoryHandle) -> Option<Place> {
        self.by_handle.get(handle).copied()
    }

    /// Where a directory was that went since the last time that these were forgotten.
    pub(super) fn departed(&self, handle: &DirectoryHandle) -> Option<&[u8]> {
        self.departed.get(handle).map(|path| &path[..])
    }

    /// All notices of what was done in directories that are gone have come.
    pub(super) fn forget_departed(&mut self) {
        self.departed = HashMap::new();
    }

    /// Notes where the directories at and below a place are, before they go.
    fn note_departure(&mut self, place: Place) {
        let mut left = vec![place];
        while let Some(place) = left.pop() {
            let Some(node) = self.node(place) else { continue };
            left.extend(node.children.values());
            if let (Some(handle), Some(path)) = (node.handle.clone(), self.path(place)) {
                self.departed.insert(handle, path);
            }
        }
    }

    /// Notes what the kernel calls a directory.
    pub(super) fn set_handle(&mut self, place: Place, handle: DirectoryHandle) {
        let Some(node) = self.node_mut(place) else { return };
        if let Some(old) = node.handle.replace(handle.clone()) {
            self.by_handle.remove(&old);
        }
        self.by_handle.insert(handle, place);
    }

    /// The watch that is on a directory.
    pub(super) fn watch(&self, place: Place) -> Option<i32> {
        self.node(place)?.watch
    }

    /// How many directories are watched.
    pub(super) fn watches(&self) -> usize {
        self.by_watch.len()
    }

    /// Notes the watch of a directory. False if the kernel has it on another one already: then two
    /// places are one directory, and the tree is wrong somewhere.
    #[must_use]
    pub(super) fn set_watch(&mut self, place: Place, watch: i32) -> bool {
        if self.by_watch.get(&watch).is_some_and(|other| *other != place) {
            return false;
        }
        let Some(node) = self.node_mut(place) else { return false };
        let old = node.watch.replace(watch);
        if let Some(old) = old.filter(|old| *old != watch) {
            self.by_watch.remove(&old);
        }
        self.by_watch.insert(watch, place);
        true
    }

    /// The kernel took a watch away.
    pub(super) fn drop_watch(&mut self, watch: i32) {
        if let Some(place) = self.by_watch.remove(&watch)
            && let Some(node) = self.node_mut(place)
        {
            node.watch = None;
        }
    }

    /// Takes a directory out of the one above it; it is nowhere until it is put somewhere.
    pub(super) fn detach(&mut self, place: Place) {
        let Some(node) = self.node_mut(place) else { return };
        let (parent, name) = (node.parent.take(), node.name.clone());
        if let Some(above) = parent.and_then(|parent| self.node_mut(parent)) {
            above.children.remove(&name);
        }
    }

    /// Puts a directory that is nowhere into another, under a name that is free.
    pub(super) fn attach(&mut self, place: Place, parent: Place, name: &[u8]) {
        if let Some(node) = self.node_mut(place) {
            (node.parent, node.name) = (Some(parent), name.to_vec());
        }
        if let Some(above) = self.node_mut(parent) {
            above.children.insert(name.to_vec(), place);
        }
    }

    /// Forgets a directory and everything below it; returns the watches that were on them.
    pub(super) fn remove(&mut self, place: Place) -> Vec<i32> {
        self.note_departure(place);
        self.detach(place);
        let (mut watches, mut left) = (Vec::new(), vec![place]);
        let mut handles = Vec::new();
        while let Some(place) = left.pop() {
            let Some(node) = self.nodes.get_mut(place).and_then(Option::take) else { continue };
            left.extend(node.children.into_values());
            watches.extend(node.watch);
            handles.extend(node.handle.map(|handle| (handle, place)));
            self.free.push(place);
        }
        for (handle, place) in handles {
            if self.by_handle.get(&handle) == Some(&place) {
                self.by_handle.remove(&handle);
            }
        }
        for watch in &watches {
            self.by_watch.remove(watch);
        }
        watches
    }

    /// Forgets everything below a directory; returns the watches that were on it.
    pub(super) fn remove_below(&mut self, place: Place) -> Vec<i32> {
        let children = self.children(place);
        children.into_iter().flat_map(|child| self.remove(child)).collect()
    }
}

/// The path of an entry in a directory.
pub(super) fn join(directory: &[u8], name: &[u8]) -> Vec<u8> {
    if directory.is_empty() { name.to_vec() } else { [directory, name].join(&b'/') }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(places: &Places, place: Place) -> String {
        places.path(place).map_or("nowhere".to_owned(), |path| String::from_utf8(path).unwrap())
    }

    #[test]
    fn paths_follow_renames() {
        let mut places = Places::default();
        let root = places.add_root(b"");
        let a = places.child_or_new(root, b"a");
        let b = places.child_or_new(a, b"b");
        let c = places.child_or_new(b, b"c");
        assert!(places.set_watch(c, 7));
        assert_eq!(path(&places, c), "a/b/c");
        places.detach(b);
        assert_eq!(path(&places, c), "nowhere");
        places.attach(b, root, b"x");
        assert_eq!((path(&places, c), places.by_watch(7)), ("x/c".to_owned(), Some(c)));
        assert_eq!(places.child(a, b"b"), None);
        assert_eq!(places.remove(b), [7]);
        assert_eq!((places.by_watch(7), places.path(c)), (None, None));
    }

    #[test]
    fn a_directory_that_went_is_remembered_until_its_last_notice_has_come() {
        let handle = |byte| DirectoryHandle { file_system: 1, kind: 1, bytes: vec![byte] };
        let mut places = Places::default();
        let root = places.add_root(b"");
        let a = places.child_or_new(root, b"a");
        let b = places.child_or_new(a, b"b");
        places.set_handle(a, handle(1));
        places.set_handle(b, handle(2));
        places.set_handle(b, handle(3));
        assert_eq!((places.by_handle(&handle(2)), places.by_handle(&handle(3))), (None, Some(b)));
        places.remove(a);
        assert_eq!(places.by_handle(&handle(3)), None);
        assert_eq!(places.departed(&handle(3)), Some(&b"a/b"[..]));
        places.forget_departed();
        assert_eq!(places.departed(&handle(1)), None);
    }

    #[test]
    fn a_further_root_begins_at_its_own_path() {
        let mut places = Places::default();
        let root = places.add_root(b"/etc/x");
        let below = places.child_or_new(root, b"y");
        assert_eq!(
            (path(&places, root), path(&places, below)),
            ("/etc/x".into(), "/etc/x/y".into())
        );
    }

    #[test]
    fn one_directory_in_two_places_is_noticed() {
        let mut places = Places::default();
        let root = places.add_root(b"");
        let (a, b) = (places.child_or_new(root, b"a"), places.child_or_new(root, b"b"));
        assert!(places.set_watch(a, 1) && places.set_watch(a, 1));
        assert!(!places.set_watch(b, 1));
        assert!(places.set_watch(a, 2));
        assert_eq!((places.by_watch(1), places.watches()), (None, 1));
        assert!(places.set_watch(b, 1));
    }
}
