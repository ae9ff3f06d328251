//! The log and the bucket that a host shares with others, for `chronicle serve --log`.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use chronicle_core::{
    ContentStorage, Error, Home, LARGE_OBJECT, ObjectId, PushLimits, Seq, Workspace, WorkspaceId,
    pack_object,
};
use chronicle_fleet::{Address, PostgresLog};
use chronicle_remote::RemoteStore;
use chronicle_replica::drive::SharedSlot;
use chronicle_replica::{SharedContents, SharedLog};

use super::connect::{default_name, parse_id};
use crate::bucket::BucketSettings;
use crate::cli::ServeArgs;
use crate::environment;
use crate::error::CommandError;

/// What the address of a shared log begins with, as a workspace remembers it.
const SHARED: &str = "postgres://";
/// The part of the bucket's place where shared contents lie: no collection for homes looks there.
const BELOW: &str = "fleet";

/// The contents that hosts share, in a bucket.
struct FleetBucket(RemoteStore);

impl SharedContents for FleetBucket {
    fn storage(&self) -> &dyn ContentStorage {
        &self.0
    }

    fn keep(&self, objects: &[(ObjectId, u64)], from: &dyn ContentStorage) -> Result<(), Error> {
        let mut writer = self.0.writer();
        for (id, size) in objects.iter().filter(|(id, _)| !self.0.is_known(id)) {
            if !from.exists(id)? && self.0.exists(id)? {
                continue;
            }
            if *size <= LARGE_OBJECT as u64 {
                writer.add(id, &pack_object(&from.get(id)?))?;
                continue;
            }
            let (object, _) = self.0.put_stream(&mut *from.reader(id)?)?;
            if object != *id {
                let why = format!("its bytes have the hash {object}");
                return Err(Error::Corrupt { object: *id, why });
            }
        }
        writer.finish().map(drop)
    }
}

/// The shared log of each root, read to its end; none if the hosts of these workspaces stand alone.
pub(super) fn shared_logs(
    home: &Home,
    roots: &[PathBuf],
    args: &ServeArgs,
) -> Result<Vec<SharedSlot>, CommandError> {
    let Some(url) = &args.log else {
        return roots.iter().try_for_each(|root| check_alone(home, root)).map(|()| Vec::new());
    };
    let join = args.join.as_deref().map(parse_id).transpose()?;
    if join.is_some() && roots.len() > 1 {
        return Err(CommandError::usage("--join is for one workspace at a time"));
    }
    let address = Address::parse(url, environment::pg_password().as_deref())?;
    let contents = shared_bucket(home)?;
    let slot = |root: &PathBuf| -> Result<SharedSlot, CommandError> {
        let shared = follow(home, root, &address, join, Arc::clone(&contents))?;
        Ok(Arc::new(Mutex::new(Some(shared))))
    };
    roots.iter().map(slot).collect()
}

/// Its replicas know it by places of the shared log, which a host that stands alone does not have.
fn check_alone(home: &Home, root: &Path) -> Result<(), CommandError> {
    let state = Workspace::open(home, root)?.replica_state()?;
    match state.filter(|state| state.from.starts_with(SHARED)) {
        None => Ok(()),
        Some(state) => {
            let words = format!("{} follows the shared log {}", root.display(), state.from);
            Err(CommandError::usage(words)
                .hinted("Give its address again: chronicle serve --log URL"))
        }
    }
}

fn shared_bucket(home: &Home) -> Result<Arc<dyn SharedContents>, CommandError> {
    let Some(mut settings) = BucketSettings::read(home)? else {
        let words = "Hosts that share a log share their contents too, and no bucket is set";
        return Err(CommandError::usage(words).hinted("Set one: chronicle bucket set URL"));
    };
    settings.url = format!("{}/{BELOW}", settings.url.trim_end_matches('/'));
    Ok(Arc::new(FleetBucket(settings.connect()?)))
}

/// Opens the shared log of a workspace, and makes the workspace one that follows it.
fn follow(
    home: &Home,
    root: &Path,
    address: &Address,
    join: Option<WorkspaceId>,
    contents: Arc<dyn SharedContents>,
) -> Result<SharedLog, CommandError> {
    let mut workspace = Workspace::open(home, root)?;
    let state = workspace.replica_state()?;
    if state.as_ref().is_some_and(|state| !state.from.starts_with(SHARED)) {
        let words =
            format!("{} is the replica of a host, and cannot be one itself", root.display());
        return Err(CommandError::usage(words).hinted("Serve another directory"));
    }
    let followed = state.as_ref().map(|state| state.of);
    if let (Some(of), Some(join)) = (followed, join)
        && of != join
    {
        let words = format!("{} follows the shared log of workspace {}", root.display(), of.hex());
        return Err(CommandError::usage(words).hinted("Join with another directory"));
    }
    let id = followed.or(join).unwrap_or(workspace.id());
    let log = Box::new(PostgresLog::open(address, id)?);
    let shared = SharedLog::open(id, log, contents, id == workspace.id())?;
    match state.and_then(|state| state.applied) {
        Some(applied) if applied.epoch != shared.place().epoch => {
            let words = format!("{} followed another life of this log", root.display());
            let hint =
                "The database was made anew, or it is another one: join with another directory";
            return Err(CommandError::usage(words).hinted(hint));
        }
        _ => {}
    }
    if followed.is_none() {
        check_whole(&mut workspace)?;
    }
    workspace.become_replica(id, address.shown(), &default_name(root))?;
    Ok(shared)
}

/// What stands in a workspace is told by its log only if that was never pruned.
fn check_whole(workspace: &mut Workspace) -> Result<(), CommandError> {
    let few = PushLimits { items: 1, bytes: 1, content: 0 };
    if workspace.changes_for_replica(Seq(0), few, &|_, _| false)?.is_some() {
        return Ok(());
    }
    let words = format!("The history of {} was pruned", workspace.root().display());
    let hint = "Copy its files into a new directory, adopt that, and serve it";
    Err(CommandError::usage(words).hinted(hint))
}
