//! Garbage collection: which content any workspace of a home still needs, and taking the rest away.

use std::collections::{HashMap, HashSet};

use crate::catalog::{Catalog, LocalState, Log};
use crate::codec;
use crate::entry::{Change, Entry, File};
use crate::error::{Context, Error, Result};
use crate::failpoint;
use crate::home::Home;
use crate::id::{ObjectId, Seq, WorkspaceId};
use crate::journal;
use crate::objects::Versions;
use crate::record::{Kind, Record, Sealed};
use crate::secret::Secrets;
use crate::store::{ContentStorage, LocalStore, Needed, Row, pack_object};
use crate::view::{GcReport, SCHEMA};
use crate::workspace::{Mirrored, conflict_objects, contents_of, pending_objects};

impl Home {
    /// Takes away all content that no record and no known state of any workspace names.
    ///
    /// Safe beside captures and rewinds. A workspace whose history cannot be read stops it before
    /// anything is taken away, and so does a home without any: then nobody knows what is needed.
    pub fn collect_garbage(&self, progress: &dyn Fn(u64, u64)) -> Result<GcReport> {
        // A copy elsewhere that cannot go now is no reason to keep everything else.
        let _ = self.finish_forgetting()?;
        let mut needed = Everything::read(self)?;
        let store = self.open_store()?;
        // First what stands on other content: without that it would be worse than gone.
        let rows = needed.sweep_rows()?;
        let swept = store.sweep(&mut needed, progress)?;
        let packs_joined = store.join_packs()?;
        Ok(GcReport {
            schema: SCHEMA,
            objects_kept: needed.objects.len() as u64,
            objects_gone: swept.objects + rows.0,
            freed_bytes: swept.bytes + rows.1,
            packs_joined,
        })
    }

    /// Takes away content that is needed, but that another store has, until about so many bytes are free.
    ///
    /// What stands in a workspace stays, and so does what is secret, and what no record names that was pushed
    /// to this place: it may be there for somebody else alone, who may take it away. `has` must not answer by
    /// memory.
    pub fn evict(
        &self,
        bytes: u64,
        place: &str,
        has: &dyn Fn(&ObjectId) -> Result<bool>,
    ) -> Result<GcReport> {
        let mut needed = Everything::gather(self)?;
        let going = needed.may_go(bytes, place, has)?;
        needed.objects.retain(|id| !going.contains(id));
        needed.away = going;
        needed.refresh()?;
        let store = self.open_store()?;
        store.say_away(needed.away.iter().copied())?;
        failpoint::hit("evict_before_sweep");
        let swept = store.sweep(&mut needed, &|_, _| {})?;
        Ok(GcReport {
            schema: SCHEMA,
            objects_kept: needed.objects.len() as u64,
            objects_gone: swept.objects,
            freed_bytes: swept.bytes,
            packs_joined: 0,
        })
    }

    /// Takes away the content that a forget left behind, from every place where it can lie.
    ///
    /// Content that somebody has taken in again since is needed, and stays. Gives the reason why copies
    /// elsewhere could not be taken away; they are tried again next time.
    pub(crate) fn finish_forgetting(&self) -> Result<Option<Error>> {
        let mut names = Vec::new();
        let mut unfinished = false;
        for catalog in self.catalogs()? {
            if let Some(more) = catalog.forgetting()? {
                names.extend(more);
                unfinished = true;
            }
        }
        if !unfinished {
            return Ok(None);
        }
        let store = self.open_store()?;
        let going = names.iter().copied().collect();
        for mut catalog in self.catalogs()? {
            set_apart(&mut catalog, &store, &going, self.secrets())?;
        }
        let mut needed = Everything::read(self)?;
        let gone = store.take_out(&names, &mut needed)?;
        let mut failure = None;
        let mut copies = Vec::new();
        for id in &gone {
            if let Err(error) = self.tier().drop_copy(id) {
                copies.push(*id);
                failure = Some(error);
            }
        }
        for (catalog, _) in &mut needed.catalogs {
            let holds = |id: &ObjectId| catalog.has_object(id);
            let mut concerned = catalog.forgetting()?.is_some();
            for id in &gone {
                concerned |= holds(id)?;
            }
            if concerned {
                // A damaged catalog that was put aside may hold what goes.
                catalog.drop_damaged()?;
                catalog.scrub(&gone, &copies)?;
            }
        }
        Ok(failure)
    }

    /// The other workspaces whose history or known state names one of these, in words.
    pub(crate) fn workspaces_needing(
        &self,
        wanted: &HashSet<ObjectId>,
        but: WorkspaceId,
    ) -> Result<Vec<String>> {
        let roots = self.all()?;
        let mut needing = Vec::new();
        for catalog in self.catalogs()? {
            let id = catalog.workspace()?;
            if id == but {
                continue;
            }
            let mut objects = HashSet::new();
            add_known(&catalog, &mut objects)?;
            add_records(&catalog, Seq(0), &mut objects)?;
            // A clone that nobody has read yet may be anything.
            if !objects.is_disjoint(wanted) || !catalog.pending_clones()?.is_empty() {
                let root = roots.iter().find(|adopted| adopted.id == id);
                needing.push(root.map_or_else(|| id.hex(), |a| a.root.display().to_string()));
            }
        }
        Ok(needing)
    }

    /// The catalogs of all workspaces, also of those whose directory is gone.
    fn catalogs(&self) -> Result<Vec<Catalog>> {
        let directory = self.path().join("workspaces");
        let mut catalogs = Vec::new();
        for entry in std::fs::read_dir(&directory).at("list", &directory)? {
            let path = entry.at("list", &directory)?.path().join("catalog.db");
            // A purge that was interrupted may have left a directory without one.
            if path.exists() {
                catalogs.push(Catalog::open(&path)?);
            }
        }
        Ok(catalogs)
    }
}

/// All content that the workspaces of a home need.
struct Everything {
    /// Each catalog, and how far its log was read.
    catalogs: Vec<(Catalog, Seq)>,
    objects: HashSet<ObjectId>,
    store: LocalStore,
    /// Large objects whose pieces are among them already.
    expanded: HashSet<ObjectId>,
    /// What may go although it is needed, since another store has it.
    away: HashSet<ObjectId>,
}

impl Everything {
    fn read(home: &Home) -> Result<Self> {
        let mut needed = Self::gather(home)?;
        needed.refresh()?;
        Ok(needed)
    }

    /// The same, but for what large objects are made of.
    fn gather(home: &Home) -> Result<Self> {
        let catalogs: Vec<_> = home.catalogs()?.into_iter().map(|c| (c, Seq(0))).collect();
        let store = home.open_store()?;
        let (objects, expanded, away) = (HashSet::new(), HashSet::new(), HashSet::new());
        let mut needed = Self { catalogs, objects, store, expanded, away };
        for (catalog, _) in &needed.catalogs {
            add_known(catalog, &mut needed.objects)?;
        }
        needed.add_named()?;
        if needed.catalogs.iter().all(|(_, seq)| *seq == Seq(0)) {
            let why = "no workspace has a history: nothing tells what is needed".to_owned();
            return Err(Error::Usage(format!(
                "Cannot collect garbage in {}: {why}",
                home.path().display()
            )));
        }
        Ok(needed)
    }

    /// Adds what was recorded since the last time, and what it stands on.
    fn add_named(&mut self) -> Result<()> {
        for (catalog, seq) in &mut self.catalogs {
            if !self.away.is_empty() {
                // What somebody has just counted on stays.
                let mut named = HashSet::new();
                add_records(catalog, *seq, &mut named)?;
                self.away.retain(|id| !named.contains(id));
            }
            *seq = add_records(catalog, *seq, &mut self.objects)?;
            self.objects.extend(pending_objects(catalog)?);
            self.objects.extend(conflict_objects(catalog)?);
            // A list that cannot be read stops everything: nobody knows what is needed then.
            self.objects.extend(contents_of(catalog, &self.store)?);
            add_below(catalog, &mut self.objects)?;
        }
        Ok(())
    }

    /// Adds the pieces of what is kept in pieces; where those cannot be told, nothing may go.
    fn add_pieces(&mut self) -> Result<()> {
        for id in self.store.large()? {
            if self.objects.contains(&id) && self.expanded.insert(id) {
                self.objects.extend(self.store.pieces_of(&id)?);
            }
        }
        Ok(())
    }

    /// What may go, the oldest first: in no workspace, not secret, and in the other store.
    fn may_go(
        &self,
        bytes: u64,
        place: &str,
        has: &dyn Fn(&ObjectId) -> Result<bool>,
    ) -> Result<HashSet<ObjectId>> {
        let (mut stays, mut going, mut freed) = (HashSet::new(), HashSet::new(), 0);
        for (catalog, _) in &self.catalogs {
            add_known(catalog, &mut stays)?;
            // No record that travels names them.
            stays.extend(contents_of(catalog, &self.store)?);
            // What later versions stand on is read with every one of them.
            stays.extend(catalog.standing_on()?.into_iter().map(|(_, base)| base));
        }
        for (catalog, _) in &self.catalogs {
            let (mut after, pushed) = (Seq(0), Mirrored::up_to(catalog, place)?);
            while freed < bytes {
                let mut records = catalog.read(after, 64)?;
                records.retain(|sealed| sealed.seq <= pushed);
                let Some(last) = records.last() else { break };
                after = last.seq;
                for file in files_in(catalog, &records)? {
                    let id = file.object;
                    if freed < bytes
                        && !file.secret
                        && !stays.contains(&id)
                        && !going.contains(&id)
                        && self.store.exists(&id)?
                        && has(&id)?
                    {
                        // How much of it is on disk is not asked for: text shrinks to a third.
                        freed += file.size / 3 + 1;
                        going.insert(id);
                    }
                }
            }
        }
        Ok(going)
    }

    /// Takes small contents out of the catalogs: how many, and how many bytes.
    fn sweep_rows(&mut self) -> Result<(u64, u64)> {
        let (mut objects, mut bytes) = (0, 0);
        for (catalog, seq) in &mut self.catalogs {
            let needed = &mut self.objects;
            let (more, length) = catalog.sweep_objects(&mut |catalog| {
                *seq = add_records(catalog, *seq, needed)?;
                needed.extend(pending_objects(catalog)?);
                needed.extend(conflict_objects(catalog)?);
                add_below(catalog, needed)?;
                Ok(needed.clone())
            })?;
            objects += more;
            bytes += length;
        }
        Ok((objects, bytes))
    }
}

impl Needed for Everything {
    fn refresh(&mut self) -> Result<()> {
        self.add_named()?;
        self.add_pieces()
    }

    fn contains(&self, id: &ObjectId) -> bool {
        self.objects.contains(id)
    }
}

/// What stands in the workspace is the before of what comes next, whether or not a record still
/// names it.
fn add_known(catalog: &Catalog, objects: &mut HashSet<ObjectId>) -> Result<()> {
    let table = catalog.known_table()?;
    let directories: HashSet<_> = table.rows.keys().chain(table.newer.keys()).collect();
    for path in directories {
        let directory =
            table.directory(path).map_err(|source| Error::Record { seq: Seq(0), source })?;
        let own = directory.own.iter();
        objects
            .extend(directory.names.values().chain(own).filter_map(|known| known.entry.object()));
    }
    Ok(())
}

/// Adds what the records after a position name, and tells how far the log goes.
///
/// What a mount has saved is named by its journal first: that is read before the log, into which it goes.
fn add_records(catalog: &Catalog, mut after: Seq, objects: &mut HashSet<ObjectId>) -> Result<Seq> {
    objects.extend(journal::saved_in(&catalog.directory().join(journal::DIRECTORY))?);
    loop {
        let records = catalog.read(after, 64)?;
        let Some(last) = records.last() else { return Ok(after) };
        after = last.seq;
        for sealed in &records {
            let Some(record) = opened(sealed)? else { continue };
            for change in &record.changes {
                match record.kind {
                    Kind::Resolve => swap_clone(change, objects),
                    _ => objects
                        .extend([&change.before, &change.after].iter().filter_map(|e| e.object())),
                }
            }
        }
    }
}

/// The files that records name, on either side.
fn files_in(catalog: &Catalog, records: &[Sealed]) -> Result<Vec<File>> {
    let mut files = Vec::new();
    for sealed in records {
        let named = named_in(catalog, sealed)?;
        let sides = named.into_iter().flat_map(|change| [change.before, change.after]);
        files.extend(sides.filter_map(|entry| match entry {
            Entry::File(file) if !file.pending => Some(file),
            _ => None,
        }));
    }
    Ok(files)
}

/// The changes of a record, with the contents that clones turned out to be.
pub(crate) fn named_in(catalog: &Catalog, sealed: &Sealed) -> Result<Vec<Change>> {
    let record = opened(sealed)?.filter(|record| record.kind != Kind::Resolve);
    let mut changes = record.map(|record| record.changes).unwrap_or_default();
    catalog.name_contents(&mut changes)?;
    Ok(changes)
}

/// Adds the versions that needed ones are kept against, and those below them.
fn add_below(catalog: &Catalog, objects: &mut HashSet<ObjectId>) -> Result<()> {
    let below: HashMap<_, _> = catalog.standing_on()?.into_iter().collect();
    let mut next: Vec<_> = below.keys().filter(|id| objects.contains(id)).copied().collect();
    while let Some(id) = next.pop() {
        if let Some(base) = below.get(&id)
            && objects.insert(*base)
        {
            next.push(*base);
        }
    }
    Ok(())
}

/// Keeps contents on their own that are kept against what is to be forgotten.
fn set_apart(
    catalog: &mut Catalog,
    local: &LocalStore,
    gone: &HashSet<ObjectId>,
    secrets: &Secrets,
) -> Result<()> {
    let concerned = |(id, below): &(ObjectId, ObjectId)| gone.contains(below) && !gone.contains(id);
    let mut rows = Vec::new();
    for (id, _) in catalog.standing_on()?.into_iter().filter(concerned) {
        match (Versions { catalog, local }).get(&id, secrets) {
            Ok((content, _)) => {
                rows.push(Row { id, stored: pack_object(&content), base: None });
            }
            // It is lost already.
            Err(Error::Corrupt { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    if rows.is_empty() {
        return Ok(());
    }
    catalog.restore_objects(&rows)?;
    failpoint::hit("forget_after_setting_apart");
    Ok(())
}

/// What a clone turned out to be is needed in its place, by those who needed it.
fn swap_clone(change: &Change, objects: &mut HashSet<ObjectId>) {
    if let (Some(name), Some(object)) = (change.before.pending(), change.after.object())
        && objects.remove(&name)
    {
        objects.insert(object);
    }
}

/// A record with the changes that it has itself; what a prune took from it, the prune record has.
pub(crate) fn opened(sealed: &Sealed) -> Result<Option<Record>> {
    // A forget's stand for those of other records, which name what they need themselves.
    let forget = sealed.leaf.get(1) == Some(&codec::kind_number(Kind::Forget));
    if sealed.leaf.is_empty() || sealed.body.is_empty() || forget {
        return Ok(None);
    }
    let record = codec::open(&sealed.leaf, &sealed.body);
    Ok(Some(record.map_err(|source| Error::Record { seq: sealed.seq, source })?))
}
