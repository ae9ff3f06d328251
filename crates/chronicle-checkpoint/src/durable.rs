//! Small files that are there whole or not at all, and survive a power cut.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::{Context, Problem, Result};
use crate::exchange::sync_directory;

/// Writes a value in the place of another.
pub fn write(path: &Path, value: &impl Serialize) -> Result<()> {
    let text = serde_json::to_vec_pretty(value)
        .map_err(|error| Problem::new("bad_state", error.to_string(), "This is a bug"))?;
    let temporary = path.with_extension("tmp");
    let mut options = OpenOptions::new();
    let mut file = options
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&temporary)
        .at("create", &temporary)?;
    file.write_all(&text).at("write", &temporary)?;
    file.sync_all().at("sync", &temporary)?;
    fs::rename(&temporary, path).at("rename", &temporary)?;
    sync_directory(path.parent().unwrap_or(Path::new("/")))
}

/// Reads one back; nothing there is nothing.
pub fn read<T: DeserializeOwned>(path: &Path) -> Result<Option<T>> {
    let file = match File::open(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        file => file.at("open", path)?,
    };
    let read = serde_json::from_reader(std::io::BufReader::new(file)).map_err(|error| {
        let why = format!("{} cannot be read: {error}", path.display());
        Problem::new("bad_state", why, "chronicle checkpoint list names the checkpoints there are")
    })?;
    Ok(Some(read))
}
