//! What an isolated run changed: its layer compared with what stood there when it started.
//!
//! The cost is that of the layer; the workspace is not walked. Nothing is changed here.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use rustix::fs::FileType;

use super::Workspace;
use super::isolated_base::Base;
use super::link::group_links;
use super::unit;
use crate::entry::{self, Entry, Meta, Special, SpecialKind, Symlink, Why};
use crate::error::{Context, Error, Result};
use crate::filter::Filter;
use crate::fs;
use crate::id::ObjectId;
use crate::isolated::{Item, Layer, State, What, plain_xattrs};
use crate::known::{Known, Part};
use crate::look::{Candidate, ExamineOptions, Examined, default_threads, examine_all};
use crate::path::WorkspacePath;
use crate::repository::{Class, Flavor, classify, is_repository};
use crate::secret::SecretRules;
use crate::store::Intake;

/// One path that is not what it was when the run started.
#[derive(Debug, Clone)]
pub(super) struct Touched {
    pub(super) before: Entry,
    pub(super) after: Entry,
    /// A repository's file that is no part of its value.
    pub(super) neutral: bool,
    /// A filter keeps it out, so nobody knows what stood there.
    pub(super) filtered: bool,
}

/// Everything that a run changed, by path.
pub(super) type Touches = BTreeMap<WorkspacePath, Touched>;

/// How contents are looked at.
pub(super) enum Eyes<'a> {
    /// They are taken into the store.
    Taking(&'a Intake<'a>),
    /// They are read only where that tells whether something changed, or everywhere.
    Looking {
        /// New contents are hashed too.
        all: bool,
    },
}

/// A repository's metadata that the layer holds something of.
struct Unit {
    path: WorkspacePath,
    flavor: Flavor,
    /// Its value when the run started, where that still counts.
    was: Option<entry::Repository>,
}

impl Unit {
    fn inner<'p>(&self, path: &'p WorkspacePath) -> &'p [u8] {
        &path.as_bytes()[self.path.as_bytes().len() + 1..]
    }
}

impl Workspace {
    /// Compares a run's layer with what stood there when it started.
    pub(super) fn touches(&self, state: &State, layer: &Layer, eyes: &Eyes<'_>) -> Result<Touches> {
        let base = Base::new(self, state.start)?;
        let reading = Reading {
            workspace: self,
            layer,
            base: &base,
            filter: self.filter()?,
            units: units(layer, &base)?,
            held: layer.items.iter().map(|item| &item.path).collect(),
        };
        reading.touches(eyes)
    }
}

struct Reading<'a> {
    workspace: &'a Workspace,
    layer: &'a Layer,
    base: &'a Base<'a>,
    filter: Filter,
    units: Vec<Unit>,
    /// The paths that the layer holds.
    held: BTreeSet<&'a WorkspacePath>,
}

impl Reading<'_> {
    fn touches(&self, eyes: &Eyes<'_>) -> Result<Touches> {
        let mut touches = Touches::new();
        let mut candidates = Vec::new();
        for item in &self.layer.items {
            let before = self.base.at(&item.path)?;
            let hides = match item.what {
                What::Gone => {
                    self.add_gone(&mut touches, &item.path, before.clone())?;
                    true
                }
                What::Directory { alone } => alone || before.is_present() && !before.is_directory(),
                What::Other => true,
            };
            if hides && (before.is_directory() || before.is_unknown()) {
                for (path, entry) in self.base.below(&item.path)? {
                    if !self.held.contains(&path) {
                        self.add_gone(&mut touches, &path, entry)?;
                    }
                }
            }
            let is_unit = self.units.iter().any(|unit| unit.path == item.path);
            if item.what != What::Gone
                && !is_unit
                && let Some(part) = self.part(&item.path, is_directory(item))
            {
                candidates.push(self.candidate(item, before, part));
            }
        }
        self.examine(candidates, eyes, &mut touches)?;
        for unit in &self.units {
            self.add_unit(unit, eyes, &mut touches)?;
        }
        self.add_lonely(&mut touches)?;
        Ok(touches)
    }

    /// A file whose other names all went their own way has one name now, which is a change of it too.
    fn add_lonely(&self, touches: &mut Touches) -> Result<()> {
        let group = |entry: &Entry| match entry {
            Entry::File(file) => file.link,
            _ => None,
        };
        let left = touches.values().filter(|t| group(&t.before) != group(&t.after));
        let groups: HashSet<_> = left.filter_map(|touched| group(&touched.before)).collect();
        for (link, names) in self.workspace.members_of(&groups)? {
            let stays = |path: &&WorkspacePath| match touches.get(*path) {
                Some(touched) => group(&touched.after) == Some(link),
                None => true,
            };
            let staying: Vec<_> = names.iter().filter(stays).collect();
            let [path] = staying[..] else { continue };
            let before = self.base.at(path)?;
            if touches.contains_key(path) || group(&before) != Some(link) {
                continue;
            }
            let mut after = before.clone();
            if let Entry::File(file) = &mut after {
                file.link = None;
            }
            let touched = Touched { before, after, neutral: false, filtered: false };
            touches.insert(path.clone(), touched);
        }
        Ok(())
    }

    fn add_gone(&self, touches: &mut Touches, path: &WorkspacePath, before: Entry) -> Result<()> {
        let unit = self.unit_of(path);
        if let Some(unit) = unit {
            let inner = unit.inner(path);
            // Git's own objects are never deleted: somebody else may have begun to need them.
            let is_object = inner.starts_with(b"objects/") || inner.ends_with(b".lock");
            if is_object || self.part(path, false) != Some(Part::Neutral) {
                return Ok(());
            }
        }
        let filtered = self.is_filtered(path, before.is_directory());
        let before = if filtered { self.hidden(path, before)? } else { before };
        if before == Entry::Absent {
            return Ok(());
        }
        let neutral = unit.is_some();
        let after = Entry::Absent;
        touches.insert(path.clone(), Touched { before, after, neutral, filtered });
        Ok(())
    }

    fn is_filtered(&self, path: &WorkspacePath, is_directory: bool) -> bool {
        !path.is_root() && self.filter.covers(path, is_directory)
    }

    /// What stood where filters keep looks out: what is known of it, or only whether anything does.
    fn hidden(&self, path: &WorkspacePath, known: Entry) -> Result<Entry> {
        Ok(match self.workspace.stat(path)? {
            None => Entry::Absent,
            Some(_) if known.is_present() => known,
            Some(_) => Entry::Unknown(Why::Filtered),
        })
    }

    fn unit_of(&self, path: &WorkspacePath) -> Option<&Unit> {
        self.units.iter().find(|unit| path != &unit.path && path.is_within(&unit.path))
    }

    /// How a path takes part in rewinds, as a look at the workspace would say.
    fn part(&self, path: &WorkspacePath, is_directory: bool) -> Option<Part> {
        let Some(unit) = self.unit_of(path) else { return Some(Part::Ordinary) };
        match classify(unit.flavor, unit.inner(path)) {
            Class::Ignored => None,
            Class::Significant | Class::Carried if !is_directory => None,
            _ => Some(Part::Neutral),
        }
    }

    fn candidate(&self, item: &Item, before: Entry, part: Part) -> Candidate {
        let was = Some(Known { entry: before, signature: None, racy: false, part });
        let (path, stat) = (item.path.clone(), Some(item.stat));
        Candidate { path, stat, was, part, filtered: false }
    }

    fn examine(
        &self,
        candidates: Vec<Candidate>,
        eyes: &Eyes<'_>,
        touches: &mut Touches,
    ) -> Result<()> {
        let examined = match eyes {
            Eyes::Taking(intake) => {
                let threads = if candidates.len() > 8 { default_threads() } else { 1 };
                let clock = &*self.workspace.clock;
                let options = ExamineOptions { threads, clock, cancelled: None, progress: None };
                examine_all(&self.layer.roots, &candidates, intake, &options)?
            }
            Eyes::Looking { all } => {
                let rules = self.workspace.secret_rules()?;
                let peek = |candidate| self.peek(candidate, *all, &rules);
                candidates.iter().map(peek).collect::<Result<_>>()?
            }
        };
        let mut pairs: Vec<_> = examined.into_iter().map(|examined| (None, examined)).collect();
        let born = |index: usize| {
            let path: &WorkspacePath = &candidates[index].path;
            self.layer.roots.born_ns(path).ok().flatten().unwrap_or(0)
        };
        group_links(&mut pairs, &[], &born);
        for (candidate, (_, examined)) in candidates.into_iter().zip(pairs) {
            self.add(candidate, examined, touches)?;
        }
        Ok(())
    }

    fn add(&self, candidate: Candidate, examined: Examined, touches: &mut Touches) -> Result<()> {
        let Candidate { path, was, part, .. } = candidate;
        let before = was.map_or(Entry::Absent, |was| was.entry);
        let mut after = examined.known.entry;
        if let Some(meta) = after.meta_mut() {
            plain_xattrs(&mut meta.xattrs);
        }
        let filtered = self.is_filtered(&path, after.is_directory());
        if filtered {
            // Of directories that filters keep out only that they are there matters. The rest is
            // a change whatever is known of it: nobody has looked since.
            if !(after.is_directory() && self.is_directory_now(&path)?) {
                let before = self.hidden(&path, before)?;
                touches.insert(path, Touched { before, after, neutral: false, filtered });
            }
            return Ok(());
        }
        if !is_same(&before, &mut after) {
            let neutral = part == Part::Neutral;
            touches.insert(path, Touched { before, after, neutral, filtered });
        }
        Ok(())
    }

    fn is_directory_now(&self, path: &WorkspacePath) -> Result<bool> {
        Ok(self.workspace.stat(path)?.is_some_and(|stat| stat.is_directory()))
    }

    /// The value that a repository has now: what it was, with what the layer holds of it.
    fn add_unit(&self, unit: &Unit, eyes: &Eyes<'_>, touches: &mut Touches) -> Result<()> {
        let Some(item) = self.layer.items.iter().find(|item| item.path == unit.path) else {
            return Ok(());
        };
        let mut files = match &unit.was {
            Some(was) => self.workspace.bundle(&was.bundle)?.files,
            None => Vec::new(),
        };
        let hidden = |inner: &[u8]| {
            let Ok(path) = unit::join(&unit.path, inner) else { return true };
            let whole = |above: WorkspacePath| {
                let found = self.layer.items.binary_search_by(|item| item.path.cmp(&above));
                found.is_ok_and(|at| match self.layer.items[at].what {
                    What::Directory { alone } => alone && above != path,
                    _ => true,
                })
            };
            whole(path.clone()) || path.ancestors().take_while(|a| *a != unit.path).any(whole)
        };
        files.retain(|file| !hidden(&file.inner));
        files.extend(unit::significant(&self.layer.roots, &unit.path, unit.flavor)?);
        let meta = Meta {
            mode: item.stat.signature.mode & 0o7777,
            uid: item.stat.signature.uid,
            gid: item.stat.signature.gid,
            mtime_ns: item.stat.signature.mtime_ns,
            xattrs: Vec::new(),
        };
        let (bundle, encoded) = unit::value(files, meta);
        if unit.was.as_ref().is_some_and(|was| was.identity == bundle.identity) {
            return Ok(());
        }
        if let Eyes::Taking(intake) = eyes {
            intake.take(&encoded)?;
        }
        let before = self.base.at(&unit.path)?;
        let after = Entry::Repository(bundle);
        let touched = Touched { before, after, neutral: false, filtered: false };
        touches.insert(unit.path.clone(), touched);
        Ok(())
    }

    /// Reads as little as tells whether something changed; contents are not kept.
    fn peek(&self, candidate: &Candidate, all: bool, rules: &SecretRules) -> Result<Examined> {
        let stat = candidate.stat.expect("BUG: the layer was listed");
        let path = &candidate.path;
        let signature = stat.signature;
        let meta = |xattrs| Meta {
            mode: signature.mode & 0o7777,
            uid: signature.uid,
            gid: signature.gid,
            mtime_ns: signature.mtime_ns,
            xattrs,
        };
        let special = |kind| Entry::Special(Special { kind, meta: meta(Vec::new()) });
        let entry = match stat.kind() {
            FileType::RegularFile => self.peek_file(candidate, all, rules, &meta)?,
            FileType::Directory => {
                let directory = self.layer.roots.open_directory(path)?;
                let xattrs = fs::xattrs(&directory).at("read", self.layer.roots.real(path))?;
                Entry::Directory(meta(xattrs))
            }
            FileType::Symlink => {
                let target = self.layer.roots.read_link(path)?;
                Entry::Symlink(Symlink { target, meta: meta(Vec::new()) })
            }
            FileType::Fifo => special(SpecialKind::Fifo),
            FileType::Socket => special(SpecialKind::Socket),
            FileType::BlockDevice => special(SpecialKind::Block),
            FileType::CharacterDevice | FileType::Unknown => special(SpecialKind::Character),
        };
        let (signature, part) = (Some(stat.signature), candidate.part);
        let known = Known { entry, signature, racy: false, part };
        Ok(Examined { known, nlink: stat.nlink, dev: stat.dev })
    }

    fn peek_file(
        &self,
        candidate: &Candidate,
        all: bool,
        rules: &SecretRules,
        meta: &dyn Fn(fs::Xattrs) -> Meta,
    ) -> Result<Entry> {
        let size = candidate.stat.map_or(0, |stat| stat.signature.size);
        let was = match candidate.was.as_ref().map(|was| &was.entry) {
            Some(Entry::File(was)) if was.size == size => Some(was),
            _ => None,
        };
        let named = rules.by_name(&candidate.path);
        let mut secret = named == Some(crate::secret::Class::Secret);
        let mut file = entry::File {
            object: ObjectId([0; 32]),
            secret,
            pending: false,
            size,
            sparse: was.is_some_and(|was| was.sparse),
            link: None,
            meta: meta(Vec::new()),
        };
        if was.is_none() && !all {
            return Ok(Entry::File(file));
        }
        let opened = match self.layer.roots.open_file(&candidate.path) {
            Err(Error::Io { source, .. })
                if source.kind() == std::io::ErrorKind::PermissionDenied =>
            {
                return Ok(Entry::Unknown(Why::Unreadable));
            }
            opened => opened?,
        };
        let real = self.layer.roots.real(&candidate.path);
        file.meta.xattrs = fs::xattrs(&opened).at("read", &real)?;
        let sealed = was.is_some_and(|was| was.secret);
        let mut hasher = match sealed {
            true => self.workspace.home.secrets().key()?.hasher(),
            false => blake3::Hasher::new(),
        };
        hasher.update_reader(&opened).at("read", &real)?;
        file.object = ObjectId(*hasher.finalize().as_bytes());
        let same = was.is_some_and(|was| was.object == file.object);
        if named.is_none() && !same {
            let start = self.start_of(&candidate.path)?;
            secret = SecretRules::by_content(&start) == crate::secret::Class::Secret;
        }
        file.secret = if same { sealed } else { secret };
        Ok(Entry::File(file))
    }

    fn start_of(&self, path: &WorkspacePath) -> Result<Vec<u8>> {
        use std::io::Read;
        let (file, mut start) = (self.layer.roots.open_file(path)?, Vec::new());
        file.take(1 << 16).read_to_end(&mut start).at("read", self.layer.roots.real(path))?;
        Ok(start)
    }
}

fn is_directory(item: &Item) -> bool {
    matches!(item.what, What::Directory { .. })
}

/// The repositories whose metadata the layer holds something of.
fn units(layer: &Layer, base: &Base<'_>) -> Result<Vec<Unit>> {
    let mut units: Vec<Unit> = Vec::new();
    for item in &layer.items {
        let What::Directory { alone } = item.what else { continue };
        let flavor = match item.path.name() {
            b".git" => Flavor::Git,
            b".jj" => Flavor::Jj,
            _ => continue,
        };
        if units.iter().any(|unit| item.path.is_within(&unit.path)) {
            continue;
        }
        let was = match base.at(&item.path)? {
            Entry::Repository(was) if !alone => Some(was),
            _ => None,
        };
        let holds = |name: &[u8]| {
            let directory = layer.roots.open_directory(&item.path);
            directory.is_ok_and(|directory| fs::exists_beneath(&directory, name))
        };
        if was.is_some() || is_repository(item.path.name(), &holds).is_some() {
            units.push(Unit { path: item.path.clone(), flavor, was });
        }
    }
    Ok(units)
}

/// Whether a run left something as it was. What the kernel only copied into the layer has one name
/// and may have lost its holes; both are given back where nothing else differs.
fn is_same(before: &Entry, after: &mut Entry) -> bool {
    if let (Entry::File(was), Entry::File(now)) = (before, &mut *after)
        && was.object == now.object
    {
        now.sparse = was.sparse;
        if now.link.is_none() && was.meta == now.meta {
            now.link = was.link;
        }
    }
    before == after
}
