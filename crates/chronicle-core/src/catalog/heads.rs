//! The signed heads and the kept nodes of the Merkle tree in the catalog.
//!
//! A head is made inside the commit that asks for it, from the peaks of the head before and the
//! records since: that costs what is new, and no device flush of its own.

use std::borrow::Cow;

use ed25519_dalek::SigningKey;
use rusqlite::{Connection, OptionalExtension, params};

use super::{Catalog, LocalState, body};
use crate::chain;
use crate::error::{Error, Finding, Result};
use crate::head::{PublicKey, SignedHead, TreeHead};
use crate::id::{Epoch, LeafHash, LinkHash, Seq, Time, WorkspaceId};
use crate::merkle::{Frontier, Hash, TILE_LEVELS};

/// The public key that this log's heads are signed with, since its first head.
const PINNED_KEY: &str = "head_key";
/// Why the last head that was asked for could not be made.
const PROBLEM: &str = "head_problem";

/// Asks for a head over everything up to the last record.
pub(crate) struct HeadOrder {
    pub(crate) workspace: WorkspaceId,
    pub(crate) time: Time,
    /// The key to sign with, or why there is none.
    pub(crate) key: Result<SigningKey, String>,
}

/// A head as it is stored.
#[derive(Debug, Clone)]
pub(crate) struct HeadRow {
    pub(crate) size: u64,
    /// The signed text.
    pub(crate) note: String,
    /// The peaks of its tree, one after the other, the largest first.
    pub(crate) peaks: Vec<u8>,
}

impl HeadRow {
    /// The edge of the tree that the head is about; `None` if the row makes no sense.
    pub(crate) fn frontier(&self) -> Option<Frontier> {
        let (peaks, rest) = self.peaks.as_chunks::<32>();
        if rest.is_empty() { Frontier::new(self.size, peaks.to_vec()) } else { None }
    }

    /// The head, if the row is what was signed.
    pub(crate) fn signed(&self) -> Option<SignedHead> {
        SignedHead::parse(&self.note).filter(|signed| signed.head.size == self.size)
    }
}

/// A record as verification reads it: what its row says, lent for a moment.
#[derive(Debug, Clone)]
pub(crate) struct Row<'r> {
    pub(crate) seq: Seq,
    pub(crate) kind: u8,
    pub(crate) leaf_hash: LeafHash,
    pub(crate) link: LinkHash,
    pub(crate) leaf: &'r [u8],
    pub(crate) body: Cow<'r, [u8]>,
}

/// Makes the head that was asked for and stores it; `None` if it cannot be made, which is noted.
///
/// Nothing that stands in the way of a head fails the commit: what it is about is worth more.
pub(super) fn make(
    connection: &Connection,
    epoch: Epoch,
    order: &HeadOrder,
) -> rusqlite::Result<Option<SignedHead>> {
    let noted = state(connection, PROBLEM)?;
    let (signed, problem) = match try_make(connection, epoch, order)? {
        Ok(signed) => (Some(signed), None),
        Err(why) => (None, Some(why.into_bytes())),
    };
    if noted != problem {
        match problem {
            Some(why) => set_state(connection, PROBLEM, &why)?,
            None => drop(connection.execute("DELETE FROM state WHERE key = ?1", [PROBLEM])?),
        }
    }
    Ok(signed)
}

/// Leaves all heads to those who signed them: another life has its own.
pub(super) fn forget_all(connection: &Connection) -> rusqlite::Result<()> {
    connection.execute_batch("DELETE FROM head; DELETE FROM node")?;
    connection.execute("DELETE FROM state WHERE key IN (?1, ?2)", [PINNED_KEY, PROBLEM]).map(drop)
}

fn try_make(
    connection: &Connection,
    epoch: Epoch,
    order: &HeadOrder,
) -> rusqlite::Result<Result<SignedHead, String>> {
    let key = match &order.key {
        Ok(key) => key,
        Err(why) => return Ok(Err(why.clone())),
    };
    let public = PublicKey(key.verifying_key().to_bytes());
    let pinned = state(connection, PINNED_KEY)?;
    if pinned.as_ref().is_some_and(|pinned| pinned[..] != public.0) {
        let why = "the key is not the one that signed this workspace's first head: bring that key \
                   back, or verify against a witness before going on";
        return Ok(Err(why.to_owned()));
    }
    let last = newest(connection)?;
    let (mut frontier, mut link, after) = match last {
        None => (Frontier::default(), LinkHash::ZERO, 0),
        Some(row) => match (row.signed(), row.frontier()) {
            (Some(signed), _) if signed.head.key != public || pinned.is_none() => {
                return Ok(Err(format!("{} has another key, or none is noted", over(row.size))));
            }
            (Some(signed), Some(frontier)) if frontier.root() == signed.head.root => {
                if signed.head.size == super::head(connection)?.seq.0 {
                    return Ok(Ok(signed));
                }
                (frontier, signed.head.link, row.size)
            }
            _ => return Ok(Err(format!("{} is damaged", over(row.size)))),
        },
    };
    let mut nodes = Vec::new();
    if let Err(why) = grow(connection, &mut frontier, &mut link, &mut nodes)? {
        return Ok(Err(why));
    }
    let (workspace, size, root, time) =
        (order.workspace, frontier.size(), frontier.root(), order.time);
    let head = TreeHead { workspace, epoch, size, root, link, time, after, key: public };
    let signed = head.sign(key);
    store(connection, &signed, &frontier, &nodes)?;
    if pinned.is_none() {
        set_state(connection, PINNED_KEY, &public.0)?;
    }
    Ok(Ok(signed))
}

fn over(size: u64) -> String {
    format!("the head over {size} records")
}

/// A kept node: its level, its number, its hash.
pub(crate) type Node = (u32, u64, Hash);

/// Appends the records since a head to its tree. What does not follow is never signed.
fn grow(
    connection: &Connection,
    frontier: &mut Frontier,
    link: &mut LinkHash,
    nodes: &mut Vec<Node>,
) -> rusqlite::Result<Result<(), String>> {
    let after = frontier.size();
    let mut kept = connection.prepare_cached("SELECT link FROM record WHERE seq = ?1")?;
    let found = kept.query_row([after.cast_signed()], |row| hash_of(row, 0)).optional()?;
    if after > 0 && found != Some(link.0) {
        return Ok(Err(format!("the log is not the one of {}", over(after))));
    }
    let sql = "SELECT seq, leaf_hash, link FROM record WHERE seq > ?1 ORDER BY seq";
    let mut statement = connection.prepare_cached(sql)?;
    let mut rows = statement.query([after.cast_signed()])?;
    while let Some(row) = rows.next()? {
        let (seq, leaf, found): (i64, _, _) = (row.get(0)?, hash_of(row, 1)?, hash_of(row, 2)?);
        let next = chain::link(link, &LeafHash(leaf));
        if seq.cast_unsigned() != frontier.size() + 1 || found != next.0 {
            return Ok(Err(format!("record {seq} does not follow the one before it")));
        }
        *link = next;
        frontier.push(0, leaf, &mut |level, number, hash| {
            if level > 0 && level % TILE_LEVELS == 0 {
                nodes.push((level, number, *hash));
            }
        });
    }
    Ok(Ok(()))
}

fn store(
    connection: &Connection,
    signed: &SignedHead,
    frontier: &Frontier,
    nodes: &[Node],
) -> rusqlite::Result<()> {
    let sql = "INSERT INTO head (size, note, peaks) VALUES (?1, ?2, ?3)";
    let size = signed.head.size.cast_signed();
    let row = params![size, signed.text(), frontier.peaks().concat()];
    connection.prepare_cached(sql)?.execute(row)?;
    // One that is there already was left by somebody else; verification compares them all.
    let sql = "INSERT OR REPLACE INTO node (level, number, hash) VALUES (?1, ?2, ?3)";
    for (level, number, hash) in nodes {
        let row = params![level, number.cast_signed(), &hash[..]];
        connection.prepare_cached(sql)?.execute(row)?;
    }
    Ok(())
}

/// A hash of a row; zeros for what is none, which fits nothing: damage must not fail a commit.
fn hash_of(row: &rusqlite::Row<'_>, at: usize) -> rusqlite::Result<Hash> {
    let bytes = row.get_ref(at)?.as_bytes().unwrap_or_default();
    Ok(bytes.try_into().unwrap_or_default())
}

fn state(connection: &Connection, key: &str) -> rusqlite::Result<Option<Vec<u8>>> {
    let sql = "SELECT value FROM state WHERE key = ?1";
    connection.prepare_cached(sql)?.query_row([key], |row| row.get(0)).optional()
}

fn set_state(connection: &Connection, key: &str, value: &[u8]) -> rusqlite::Result<()> {
    let sql = "INSERT OR REPLACE INTO state (key, value) VALUES (?1, ?2)";
    connection.prepare_cached(sql)?.execute(params![key, value]).map(drop)
}

fn head_row(row: &rusqlite::Row<'_>) -> rusqlite::Result<HeadRow> {
    let size = row.get::<_, i64>(0)?.cast_unsigned();
    // Whatever somebody else wrote there, it is for verification to say what is wrong with it.
    let note = row.get_ref(1)?.as_str().unwrap_or_default().to_owned();
    let peaks = row.get_ref(2)?.as_blob().unwrap_or_default().to_owned();
    Ok(HeadRow { size, note, peaks })
}

fn newest(connection: &Connection) -> rusqlite::Result<Option<HeadRow>> {
    let sql = "SELECT size, note, peaks FROM head ORDER BY size DESC LIMIT 1";
    connection.prepare_cached(sql)?.query_row([], head_row).optional()
}

fn untrusted<'r>(row: &'r rusqlite::Row<'_>) -> rusqlite::Result<Row<'r>> {
    let bytes = |at| row.get_ref(at).map(|value| value.as_bytes().unwrap_or_default());
    let kind = row.get_ref(1)?.as_i64().ok().and_then(|kind| kind.try_into().ok());
    Ok(Row {
        seq: Seq(row.get::<_, i64>(0)?.cast_unsigned()),
        kind: kind.unwrap_or(u8::MAX),
        leaf_hash: LeafHash(hash_of(row, 2)?),
        link: LinkHash(hash_of(row, 3)?),
        leaf: bytes(4)?,
        body: body::unpack(bytes(5)?, row.get(6).unwrap_or_default()),
    })
}

impl Catalog {
    /// The public key that heads are signed with, since the first.
    pub(crate) fn pinned_key(&self) -> Result<Option<PublicKey>> {
        let bytes = self.state(PINNED_KEY)?;
        Ok(bytes.map(|bytes| PublicKey(bytes.try_into().unwrap_or_default())))
    }

    /// Why the last head that was asked for could not be made.
    pub(crate) fn head_problem(&self) -> Result<Option<String>> {
        Ok(self.state(PROBLEM)?.map(|why| String::from_utf8_lossy(&why).into_owned()))
    }

    /// The newest head.
    pub(crate) fn newest_head(&self) -> Result<Option<HeadRow>> {
        newest(&self.connection).map_err(|e| self.error(e))
    }

    /// All heads, oldest first.
    pub(crate) fn heads(&self) -> Result<Vec<HeadRow>> {
        let read = || -> rusqlite::Result<Vec<HeadRow>> {
            let mut statement =
                self.connection.prepare("SELECT size, note, peaks FROM head ORDER BY size")?;
            statement.query_map([], head_row)?.collect()
        };
        read().map_err(|e| self.error(e))
    }

    /// All kept nodes of the tree.
    pub(crate) fn nodes(&self) -> Result<Vec<Node>> {
        let read = || -> rusqlite::Result<Vec<Node>> {
            let sql = "SELECT level, number, hash FROM node ORDER BY level, number";
            let mut statement = self.connection.prepare(sql)?;
            let node = |row: &rusqlite::Row<'_>| {
                let number = |at| row.get_ref(at).map(|value| value.as_i64().unwrap_or(-1));
                let level = u32::try_from(number(0)?).unwrap_or(u32::MAX);
                Ok((level, number(1)?.cast_unsigned(), hash_of(row, 2)?))
            };
            statement.query_map([], node)?.collect()
        };
        read().map_err(|e| self.error(e))
    }

    /// The hash of a complete subtree, from the nearest kept level below it: of a long log only a
    /// few hundred hashes are read, whatever is asked.
    pub(crate) fn subtree(&self, level: u32, number: u64) -> Result<Hash> {
        let kept = level / TILE_LEVELS * TILE_LEVELS;
        let first = number << (level - kept);
        let count = 1_u64 << (level - kept);
        let read = || -> rusqlite::Result<Vec<Hash>> {
            let sql = match kept {
                0 => "SELECT leaf_hash FROM record WHERE seq > ?1 ORDER BY seq LIMIT ?2",
                _ => {
                    "SELECT hash FROM node WHERE level = ?3 AND number >= ?1
                     ORDER BY number LIMIT ?2"
                }
            };
            let mut statement = self.connection.prepare_cached(sql)?;
            let (first, count) = (first.cast_signed(), count.cast_signed());
            match kept {
                0 => statement.query_map(params![first, count], |row| hash_of(row, 0))?.collect(),
                _ => {
                    let rows = params![first, count, kept];
                    statement.query_map(rows, |row| hash_of(row, 0))?.collect()
                }
            }
        };
        let hashes = read().map_err(|e| self.error(e))?;
        if hashes.len() as u64 != count {
            let why = "a node of the Merkle tree is missing".to_owned();
            let (seq, finding) = (Seq((number << level) + 1), Finding::NodeEdited);
            return Err(Error::Tampered { seq, finding, why });
        }
        let mut frontier = Frontier::default();
        hashes.into_iter().for_each(|hash| frontier.push(0, hash, &mut |_, _, _| {}));
        Ok(frontier.root())
    }

    /// The head of this size.
    pub(crate) fn head_at(&self, size: u64) -> Result<Option<HeadRow>> {
        let sql = "SELECT size, note, peaks FROM head WHERE size = ?1";
        let read = || {
            let mut statement = self.connection.prepare_cached(sql)?;
            statement.query_row([size.cast_signed()], head_row).optional()
        };
        read().map_err(|e| self.error(e))
    }

    /// The records after one position up to another, with what only their rows say. Whatever
    /// somebody else wrote there can be read: it is for verification to say what is wrong with it.
    ///
    /// `false` stops it.
    pub(crate) fn for_each_row(
        &self,
        after: Seq,
        upto: Seq,
        visit: &mut dyn FnMut(Row<'_>) -> bool,
    ) -> Result<()> {
        let sql = "SELECT seq, kind, leaf_hash, link, leaf, body, packed FROM record
                   WHERE seq > ?1 AND seq <= ?2 ORDER BY seq";
        let mut read = || -> rusqlite::Result<()> {
            let mut statement = self.connection.prepare_cached(sql)?;
            let mut rows = statement.query([after.0.cast_signed(), upto.0.cast_signed()])?;
            while let Some(row) = rows.next()? {
                if !visit(untrusted(row)?) {
                    break;
                }
            }
            Ok(())
        };
        read().map_err(|e| self.error(e))
    }

    /// The highest position that anything beside the records speaks of.
    pub(crate) fn last_mentioned(&self) -> Result<Seq> {
        let sql = "SELECT max(coalesce((SELECT max(seq) FROM touched), 0),
                              coalesce((SELECT max(seq) FROM by_id), 0))";
        let read = || self.connection.query_row(sql, [], |row| row.get::<_, i64>(0));
        Ok(Seq(read().map_err(|e| self.error(e))?.cast_unsigned()))
    }
}
