//! Objects with a file of their own: large ones, and single ones that must be durable at once.
//!
//! Such a file is the stored form and nothing else; large content passes through in pieces, in both
//! directions.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, BufReader, Read, Seek, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::chunks::{CODEC_CHUNKS, ChunkManifest, PiecesReader};
use super::files::{self, Temporary};
use super::packs::Packs;
use super::tier::Tier;
use super::{CODEC_RAW, CODEC_SEALED, CODEC_ZSTD, HEADER, LEVEL};
use super::{corrupt, decoder, header, parse_header, refused};
use crate::error::{Context, Error, Result};
use crate::failpoint;
use crate::id::ObjectId;
use crate::room::Room;
use crate::secret::{Sealing, SecretKey, Secrets, Unsealing};

/// Bytes of content that are in memory at a time.
const PIECE: usize = 256 << 10;

/// Files that are written before any is synced.
const AT_ONCE: usize = 64;
/// Threads that wait for the disk at a time.
const WAITING: usize = 8;

#[derive(Clone)]
pub(super) struct Loose {
    directory: PathBuf,
    temporary: PathBuf,
    secrets: Secrets,
    /// Where the pieces of large objects lie.
    packs: Arc<Packs>,
    /// Where a piece may be that is not here.
    tier: Tier,
}

impl Loose {
    pub(super) fn new(
        directory: PathBuf,
        temporary: PathBuf,
        secrets: Secrets,
        packs: Arc<Packs>,
        tier: Tier,
    ) -> Self {
        Self { directory, temporary, secrets, packs, tier }
    }

    pub(super) fn directory(&self) -> &Path {
        &self.directory
    }

    fn path(&self, id: &ObjectId) -> PathBuf {
        let hex = id.hex();
        self.directory.join(&hex[..2]).join(hex)
    }

    pub(super) fn exists(&self, id: &ObjectId) -> Result<bool> {
        files::is_there(&self.path(id))
    }

    /// Whether there is any object here.
    pub(super) fn is_used(&self) -> Result<bool> {
        files::is_there(&self.directory)
    }

    /// Makes the name of an object durable that somebody else may just have given it.
    pub(super) fn settle(&self, id: &ObjectId) -> Result<()> {
        self.sync_names(&self.path(id))
    }

    /// Keeps an object in its stored form, in place of the one that may be there.
    pub(super) fn put(&self, id: &ObjectId, stored: &[u8]) -> Result<()> {
        let temporary = Temporary::create(&self.temporary)?;
        temporary.file().write_all_at(stored, 0).at("write", temporary.path())?;
        self.install(temporary, id)
    }

    /// Keeps many objects in their stored form, and waits for the disk a few times in all.
    pub(super) fn put_all(&self, objects: &[(ObjectId, Vec<u8>)]) -> Result<()> {
        for batch in objects.chunks(AT_ONCE) {
            let write = |(_, stored): &(ObjectId, Vec<u8>)| {
                let temporary = Temporary::create(&self.temporary)?;
                temporary.file().write_all_at(stored, 0).at("write", temporary.path())?;
                Ok(temporary)
            };
            let files: Vec<Temporary> = batch.iter().map(write).collect::<Result<_>>()?;
            sync_all(&files)?;
            failpoint::hit("store_after_object_data");
            let named = files.into_iter().zip(batch);
            let parents: Result<BTreeSet<PathBuf>> =
                named.map(|(temporary, (id, _))| self.name(temporary, id)).collect();
            let parents = parents?;
            parents.iter().try_for_each(|parent| files::sync_directory(parent))?;
            files::sync_directory(&self.directory)?;
            files::sync_directory(parent(&self.directory))?;
        }
        Ok(())
    }

    /// Keeps everything the source gives, in bounded memory.
    pub(super) fn put_stream(&self, source: &mut dyn Read) -> Result<(ObjectId, u64)> {
        self.put_pieces(source, false, None, None)
    }

    /// The same for secret content, sealed piece by piece, as far as there is room.
    pub(super) fn put_secret_within(
        &self,
        source: &mut dyn Read,
        room: Option<&Room>,
    ) -> Result<(ObjectId, u64)> {
        self.put_pieces(source, false, room, Some(self.secrets.key_or_make()?))
    }

    /// Keeps a large object, in place of the one that may be there.
    pub(super) fn replace(&self, mut bytes: &[u8]) -> Result<()> {
        self.put_pieces(&mut bytes, true, None, None).map(|_| ())
    }

    fn put_pieces(
        &self,
        source: &mut dyn Read,
        replace: bool,
        room: Option<&Room>,
        key: Option<&SecretKey>,
    ) -> Result<(ObjectId, u64)> {
        let temporary = Temporary::create(&self.temporary)?;
        let (id, length) = compress(source, &temporary, room, key)?;
        if !replace && self.exists(&id)? {
            self.settle(&id)?;
        } else {
            self.install(temporary, &id)?;
        }
        Ok((id, length))
    }

    fn install(&self, temporary: Temporary, id: &ObjectId) -> Result<()> {
        temporary.sync()?;
        failpoint::hit("store_after_object_data");
        self.name(temporary, id)?;
        self.sync_names(&self.path(id))
    }

    /// Gives durable bytes their name, which is not durable yet; says in which directory.
    fn name(&self, mut temporary: Temporary, id: &ObjectId) -> Result<PathBuf> {
        let path = self.path(id);
        files::make_directory(&self.directory)?;
        files::make_directory(parent(&path))?;
        temporary.rename(path.clone())?;
        failpoint::hit("store_after_object_rename");
        // Others may count on it by now, so that it stays also where the sync fails; whoever finds
        // it syncs its name himself.
        temporary.keep();
        Ok(parent(&path).to_owned())
    }

    /// The directories above may be as new as the name.
    fn sync_names(&self, path: &Path) -> Result<()> {
        files::sync_directory(parent(path))?;
        files::sync_directory(&self.directory)?;
        files::sync_directory(parent(&self.directory))
    }

    /// Every object here, with the bytes that it takes.
    pub(super) fn all(&self) -> Result<Vec<(ObjectId, u64)>> {
        let mut all = Vec::new();
        for group in files::names(&self.directory)? {
            let directory = self.directory.join(group);
            for name in files::names(&directory)? {
                // Whatever else lies there is not ours to take away.
                let Some(id) = crate::id::from_hex(&name).map(ObjectId) else { continue };
                let path = directory.join(name);
                all.push((id, std::fs::metadata(&path).at("examine", &path)?.len()));
            }
        }
        Ok(all)
    }

    /// Moves the file of an object to another place on the same file system.
    pub(super) fn move_to(&self, id: &ObjectId, to: &Path) -> Result<()> {
        let path = self.path(id);
        rustix::fs::rename(&path, to).at("rename to", to)?;
        files::sync_directory(parent(&path))
    }

    pub(super) fn delete(&self, id: &ObjectId) -> Result<()> {
        let path = self.path(id);
        if !files::is_there(&path)? {
            return Ok(());
        }
        files::remove(&path)?;
        files::sync_directory(parent(&path))
    }

    pub(super) fn get(&self, id: &ObjectId) -> Result<Option<Vec<u8>>> {
        let Some(mut reader) = self.reader(id)? else { return Ok(None) };
        let mut bytes = Vec::new();
        match reader.read_to_end(&mut bytes) {
            Ok(_) => Ok(Some(bytes)),
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                Err(corrupt(id, error.to_string()))
            }
            Err(error) => Err(error).at("read", self.path(id)),
        }
    }

    /// A piece of a large object, wherever it lies; one that is in pieces itself would be no end.
    pub(super) fn piece(&self, id: &ObjectId) -> Result<Vec<u8>> {
        if let Some(bytes) = self.packs.look_up(id)? {
            return Ok(bytes);
        }
        match self.manifest(id)? {
            None => match self.get(id)? {
                Some(bytes) => Ok(bytes),
                None => self.tier.get(id),
            },
            Some(_) => Err(corrupt(id, "a piece is in pieces itself")),
        }
    }

    /// The pieces of an object, if it is kept in pieces.
    pub(super) fn manifest(&self, id: &ObjectId) -> Result<Option<ChunkManifest>> {
        let path = self.path(id);
        let Some(mut file) = files::open(&path)? else { return Ok(None) };
        match read_header(&mut file, id, &path)? {
            (CODEC_CHUNKS, length) => ChunkManifest::read(id, length, &mut file, &path).map(Some),
            _ => Ok(None),
        }
    }

    /// An object that was sealed, as it is stored.
    pub(super) fn sealed_form(&self, id: &ObjectId) -> Result<Option<Vec<u8>>> {
        let path = self.path(id);
        let Some(mut file) = files::open(&path)? else { return Ok(None) };
        let (codec, length) = read_header(&mut file, id, &path)?;
        if codec != CODEC_SEALED {
            return Ok(None);
        }
        let mut stored = header(codec, length).to_vec();
        file.read_to_end(&mut stored).at("read", &path)?;
        Ok(Some(stored))
    }

    /// The object as a stream that verifies itself; `None` if it is not here.
    pub(super) fn reader(&self, id: &ObjectId) -> Result<Option<Verifying>> {
        let path = self.path(id);
        match files::open(&path)? {
            Some(file) => Verifying::new(id, &path, file, self).map(Some),
            None => Ok(None),
        }
    }
}

/// Makes the bytes of many files durable at once: what waits together is written together.
fn sync_all(files: &[Temporary]) -> Result<()> {
    let share = files.len().div_ceil(WAITING).max(1);
    std::thread::scope(|scope| {
        let sync = |files: &[Temporary]| files.iter().try_for_each(Temporary::sync);
        let others = files.chunks(share).skip(1);
        let others: Vec<_> = others.map(|share| scope.spawn(move || sync(share))).collect();
        let own = files.chunks(share).next().map_or(Ok(()), sync);
        let joined = others.into_iter().map(|other| other.join().expect("BUG: a sync panicked"));
        joined.fold(own, Result::and)
    })
}

fn parent(path: &Path) -> &Path {
    path.parent().expect("BUG: every path of the store has a parent")
}

/// Writes the stored form of the source; its length is known, and filled in, only at the end.
fn compress(
    source: &mut dyn Read,
    temporary: &Temporary,
    room: Option<&Room>,
    key: Option<&SecretKey>,
) -> Result<(ObjectId, u64)> {
    let path = temporary.path();
    let mut file: &File = temporary.file();
    let codec = if key.is_some() { CODEC_SEALED } else { CODEC_ZSTD };
    file.write_all(&header(codec, 0)).at("write", path)?;
    let sink = Sink::new(file, key).at("write", path)?;
    let mut encoder = zstd::stream::write::Encoder::new(sink, LEVEL).at("compress", path)?;
    let mut hasher = key.map_or_else(blake3::Hasher::new, SecretKey::hasher);
    let mut length = 0;
    let mut piece = vec![0; PIECE];
    let mut written = 0;
    let mut take_room = |mut file: &File| -> Result<()> {
        let Some(room) = room else { return Ok(()) };
        let now = file.stream_position().at("write", path)?;
        room.take(now - written)?;
        written = now;
        Ok(())
    };
    loop {
        let count = match source.read(&mut piece) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            result => result.at("take in", super::SOURCE)?,
        };
        if count == 0 {
            break;
        }
        hasher.update(&piece[..count]);
        length += count as u64;
        encoder.write_all(&piece[..count]).at("write", path)?;
        take_room(file)?;
    }
    encoder.finish().and_then(Sink::finish).at("write", path)?;
    take_room(file)?;
    file.write_all_at(&header(codec, length), 0).at("write", path)?;
    Ok((ObjectId(*hasher.finalize().as_bytes()), length))
}

/// Where compressed bytes go: into the file, or through the seal.
enum Sink<'f> {
    Plain(&'f File),
    Sealed(Sealing<&'f File>),
}

impl<'f> Sink<'f> {
    fn new(file: &'f File, key: Option<&SecretKey>) -> io::Result<Self> {
        let Some(key) = key else { return Ok(Self::Plain(file)) };
        let mut sealing = Sealing::new(key, file)?;
        sealing.write_all(&[CODEC_ZSTD])?;
        Ok(Self::Sealed(sealing))
    }

    fn finish(self) -> io::Result<()> {
        match self {
            Self::Plain(_) => Ok(()),
            Self::Sealed(sealing) => sealing.finish().map(drop),
        }
    }
}

impl Write for Sink<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(file) => file.write(bytes),
            Self::Sealed(sealing) => sealing.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(file) => file.flush(),
            Self::Sealed(sealing) => sealing.flush(),
        }
    }
}

enum Payload {
    Raw(BufReader<File>),
    Zstd(zstd::stream::read::Decoder<'static, BufReader<File>>),
    Sealed(Box<dyn Read + Send>),
    Pieces(PiecesReader),
}

impl Read for Payload {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Raw(file) => file.read(buffer),
            Self::Zstd(decoder) => decoder.read(buffer),
            Self::Sealed(opened) => opened.read(buffer),
            Self::Pieces(pieces) => pieces.read(buffer),
        }
    }
}

/// Hashes what passes, and fails at the end if it was not the object.
pub(super) struct Verifying {
    id: ObjectId,
    payload: Payload,
    hasher: blake3::Hasher,
    /// Bytes of content still to come.
    left: u64,
    damaged: Option<&'static str>,
}

impl Verifying {
    fn new(id: &ObjectId, path: &Path, file: File, loose: &Loose) -> Result<Self> {
        let mut file = BufReader::with_capacity(PIECE, file);
        let (codec, left) = read_header(&mut file, id, path)?;
        let mut hasher = blake3::Hasher::new();
        let payload = match codec {
            CODEC_RAW => Payload::Raw(file),
            CODEC_ZSTD => Payload::Zstd(decoder(file).at("read", path)?),
            CODEC_SEALED => {
                let key = loose.secrets.key()?;
                hasher = key.hasher();
                Payload::Sealed(open_sealed(id, path, file, key)?)
            }
            CODEC_CHUNKS => {
                let manifest = ChunkManifest::read(id, left, &mut file, path)?;
                Payload::Pieces(PiecesReader::new(manifest, loose.clone()))
            }
            _ => return Err(corrupt(id, "its codec is not known")),
        };
        Ok(Self { id: *id, payload, hasher, left, damaged: None })
    }

    fn damage(&mut self, why: &'static str) -> io::Error {
        self.damaged = Some(why);
        io::Error::new(io::ErrorKind::InvalidData, why)
    }

    /// An error without a number of the operating system is the decoder's.
    fn failure(&mut self, error: io::Error) -> io::Error {
        match error.raw_os_error() {
            Some(_) => error,
            None => self.damage("its payload is damaged"),
        }
    }

    fn end(&mut self) -> io::Result<usize> {
        if self.left > 0 {
            return Err(self.damage("its length is wrong"));
        }
        if self.hasher.finalize().as_bytes() != self.id.as_bytes() {
            return Err(self.damage("its bytes have another hash"));
        }
        Ok(0)
    }
}

/// The content of a sealed file, as it is read.
fn open_sealed(
    id: &ObjectId,
    path: &Path,
    file: BufReader<File>,
    key: &SecretKey,
) -> Result<Box<dyn Read + Send>> {
    let mut opened = Unsealing::new(key, file).map_err(|why| refused(id, why))?;
    let mut codec = [0];
    opened.read_exact(&mut codec).map_err(|error| corrupt(id, error.to_string()))?;
    match codec {
        [CODEC_RAW] => Ok(Box::new(opened)),
        [CODEC_ZSTD] => Ok(Box::new(decoder(BufReader::new(opened)).at("read", path)?)),
        _ => Err(corrupt(id, "its codec is not known")),
    }
}

fn read_header(file: &mut impl Read, id: &ObjectId, path: &Path) -> Result<(u8, u64), Error> {
    let mut header = [0; HEADER];
    match file.read_exact(&mut header) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
            Err(corrupt(id, "it is cut off"))
        }
        result => result.map(|()| parse_header(header)).at("read", path),
    }
}

impl Read for Verifying {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if let Some(why) = self.damaged {
            return Err(self.damage(why));
        }
        if buffer.is_empty() {
            return Ok(0);
        }
        match self.payload.read(buffer) {
            Ok(0) => self.end(),
            Ok(count) if count as u64 > self.left => Err(self.damage("its length is wrong")),
            Ok(count) => {
                self.hasher.update(&buffer[..count]);
                self.left -= count as u64;
                Ok(count)
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Err(error),
            Err(error) => Err(self.failure(error)),
        }
    }
}
