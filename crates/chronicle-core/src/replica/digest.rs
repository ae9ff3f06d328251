//! Hashed directories: which parts of two trees differ, without listing what is equal.

use super::{Item, Version};
use crate::codec::{DecodeError, Decoder, Encoder};
use crate::id::{ObjectId, Seq};
use crate::path::WorkspacePath;

/// What a directory holds, all the way down, as a hash.
pub type Digest = [u8; 32];

/// Told apart from every other hash by this.
const CONTEXT: &str = "chronicle replication: directory";

/// One name in a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// The name.
    pub name: Vec<u8>,
    /// What stands there; never absent.
    pub version: Version,
    /// Of a directory, what it holds.
    pub below: Option<Digest>,
}

/// One directory of the other side: what it holds, in the order of the names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listing {
    /// Which directory.
    pub path: WorkspacePath,
    /// What it holds.
    pub nodes: Vec<Node>,
}

/// A side's own tree, without what the other must not see or has nothing to do with.
pub trait Tree {
    /// What a directory holds, in the order of the names; empty where there is none.
    fn nodes(&self, directory: &WorkspacePath) -> Vec<Node>;
}

/// The hash of what a directory holds; its nodes are in the order of their names.
pub fn digest(nodes: &[Node]) -> Digest {
    let mut hasher = blake3::Hasher::new_derive_key(CONTEXT);
    let mut out = Encoder::default();
    for node in nodes {
        out.0.clear();
        out.bytes(&node.name);
        out.fixed(&value(node).0);
        hasher.update(&out.0);
    }
    *hasher.finalize().as_bytes()
}

/// The hash of what stands at a name and below it.
fn value(node: &Node) -> ObjectId {
    match &node.below {
        None => node.version.hash(),
        Some(below) => {
            let own = node.version.hash();
            ObjectId::of(&[&own.0[..], &below[..]].concat())
        }
    }
}

/// What comparing some directories showed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ResyncStep {
    /// What stands on the other side where something else stands here, as a push would say it.
    pub items: Vec<Item>,
    /// The directories to ask for next.
    pub ask: Vec<WorkspacePath>,
}

/// Compares directories of the other side, as they are at `shown`, with the own tree.
pub fn resync_step(tree: &dyn Tree, theirs: &[Listing], shown: Seq) -> ResyncStep {
    let mut step = ResyncStep::default();
    for listing in theirs {
        compare(tree, listing, shown, &mut step);
    }
    step
}

fn compare(tree: &dyn Tree, theirs: &Listing, shown: Seq, step: &mut ResyncStep) {
    let mine = tree.nodes(&theirs.path);
    let find = |nodes: &[Node], name: &[u8]| {
        nodes.binary_search_by(|node| node.name.as_slice().cmp(name)).ok()
    };
    for node in &theirs.nodes {
        let own = find(&mine, &node.name).map(|place| &mine[place]);
        compare_node(tree, &theirs.path.join(&node.name), own, node, shown, step);
    }
    for node in mine.iter().filter(|node| find(&theirs.nodes, &node.name).is_none()) {
        gone(tree, &theirs.path.join(&node.name), node, shown, step);
    }
}

fn compare_node(
    tree: &dyn Tree,
    path: &WorkspacePath,
    mine: Option<&Node>,
    theirs: &Node,
    shown: Seq,
    step: &mut ResyncStep,
) {
    if mine.is_none_or(|mine| !mine.version.same_value(&theirs.version)) {
        step.items.push(Item { path: path.clone(), seq: shown, version: theirs.version.clone() });
    }
    match (mine, &theirs.below) {
        (Some(mine), None) if mine.below.is_some() => below(tree, path, shown, step),
        (mine, Some(below)) => {
            let equal = mine.and_then(|mine| mine.below) == Some(*below);
            let empty = mine.is_none_or(|mine| mine.below.is_none()) && *below == digest(&[]);
            if !equal && !empty {
                step.ask.push(path.clone());
            }
        }
        _ => {}
    }
}

/// Something that stands only here, and everything below it.
fn gone(tree: &dyn Tree, path: &WorkspacePath, node: &Node, shown: Seq, step: &mut ResyncStep) {
    if node.below.is_some() {
        below(tree, path, shown, step);
    }
    step.items.push(Item { path: path.clone(), seq: shown, version: Version::Absent });
}

fn below(tree: &dyn Tree, directory: &WorkspacePath, shown: Seq, step: &mut ResyncStep) {
    for node in tree.nodes(directory) {
        gone(tree, &directory.join(&node.name), &node, shown, step);
    }
}

impl Listing {
    /// Writes it.
    pub fn encode(&self, out: &mut Encoder) {
        out.bytes(self.path.as_bytes());
        out.int(self.nodes.len() as u64);
        for node in &self.nodes {
            out.bytes(&node.name);
            node.version.encode(out);
            if let Some(below) = &node.below {
                out.fixed(below);
            }
        }
    }

    /// Reads one: names are plain and in order, directories and only they have something below.
    pub fn decode(input: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        let (path, count) = (input.path()?, input.count()?);
        let mut nodes: Vec<Node> = Vec::new();
        for _ in 0..count {
            let name = decode_name(input, &path)?;
            if nodes.last().is_some_and(|last| last.name >= name) {
                return Err(DecodeError::Malformed("names are out of order"));
            }
            let version = Version::decode(input)?;
            let below = match &version {
                Version::Absent => return Err(DecodeError::Malformed("a name stands for nothing")),
                Version::Directory { .. } => Some(input.array()?),
                _ => None,
            };
            nodes.push(Node { name, version, below });
        }
        Ok(Self { path, nodes })
    }
}

/// A name that can stand in this directory.
fn decode_name(input: &mut Decoder<'_>, directory: &WorkspacePath) -> Result<Vec<u8>, DecodeError> {
    let name = input.bytes()?;
    let whole = [directory.as_bytes(), b"/", name].concat();
    let whole = if directory.is_root() { name.to_vec() } else { whole };
    let plain = WorkspacePath::new(whole).is_ok() && !name.is_empty() && !name.contains(&b'/');
    if plain { Ok(name.to_vec()) } else { Err(DecodeError::Malformed("a name is not plain")) }
}
