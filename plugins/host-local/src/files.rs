// SPDX-License-Identifier: Apache-2.0
//! The state directory `<dataDir>/<network>` and its files, bit for bit the reference's: one file per address that
//! says whose it is, `last_reserved_ip.<set>`, `lock`.
//!
//! Every file is opened relative to the directory's descriptor and without following symbolic links; links above the
//! directory are the operator's and are followed. Invariant: a reservation's file appears with its whole content or
//! not at all. The content is written to a file without a name, its write-back is started (so that a journalling file
//! system commits the data before the name), and only then does it get its name, which fails when that exists.

use std::fs::{self, DirBuilder, File};
use std::io::{self, ErrorKind, Read, Write};
use std::net::IpAddr;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use nix::errno::Errno;
use nix::fcntl::{self, AtFlags, OFlag, PosixFadviseAdvice, posix_fadvise};
use nix::sys::stat::{FileStat, Mode, fstat};
use nix::unistd::{UnlinkatFlags, linkat, unlinkat};

use crate::error::FileError;
use crate::owner::Owner;

/// The file that is locked.
pub(crate) const LOCK: &str = "lock";
/// What `last_reserved_ip.<set>` begins with.
pub(crate) const LAST_RESERVED: &str = "last_reserved_ip.";
/// A reservation under way, on file systems without nameless files.
pub(crate) const RESERVING: &str = ".reserving";

/// The most that is read of a state file, in bytes.
const CONTENT_LIMIT: u64 = 64 << 10;

/// What stands at an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Holder {
    /// Nothing.
    Nobody,
    /// A file that a crash left empty or damaged.
    Debris,
    /// A reservation of this owner, or something that cannot be read as a file: by whom it is taken is not known.
    Taken(Option<Owner>),
}

/// An open state directory.
#[derive(Debug)]
pub(crate) struct StateDir {
    fd: Rc<File>,
    path: PathBuf,
}

impl StateDir {
    /// Opens the directory; `None` when there is none.
    pub(crate) fn open_if_present(path: &Path) -> Result<Option<Self>, FileError> {
        let flags = libc::O_DIRECTORY | libc::O_NOFOLLOW;
        match fs::OpenOptions::new().read(true).custom_flags(flags).open(path) {
            Ok(fd) => Ok(Some(Self { fd: Rc::new(fd), path: path.to_owned() })),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(FileError::new("open", path, error)),
        }
    }

    /// Opens the directory and makes it first, with its parents, where it is missing.
    pub(crate) fn ensure(path: &Path) -> Result<Self, FileError> {
        if let Ok(Some(dir)) = Self::open_if_present(path) {
            return Ok(dir);
        }
        make_dirs(path)?;
        Self::open_if_present(path)?.ok_or_else(|| FileError::new("open", path, ErrorKind::NotFound))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn fd(&self) -> &Rc<File> {
        &self.fd
    }

    /// The path of a file in here, for messages.
    pub(crate) fn path_of(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    fn error(&self, operation: &'static str, name: &str, source: impl Into<io::Error>) -> FileError {
        FileError::new(operation, &self.path_of(name), source)
    }

    pub(crate) fn stat(&self) -> Result<FileStat, FileError> {
        fstat(&self.fd).map_err(|errno| FileError::new("stat", &self.path, errno))
    }

    /// Opens or makes a file of this name.
    pub(crate) fn open_file(&self, name: &str, flags: OFlag, mode: Mode) -> Result<File, FileError> {
        let flags = flags | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC | OFlag::O_NONBLOCK;
        fcntl::openat(&self.fd, name, flags, mode)
            .map(File::from)
            .map_err(|errno| self.error("open", name, errno))
    }

    /// Who holds an address.
    pub(crate) fn holder(&self, ip: IpAddr) -> Holder {
        match read_at(&self.fd, &ip.to_string()) {
            Ok(content) => Owner::read(&content).map_or(Holder::Debris, |owner| Holder::Taken(Some(owner))),
            Err(error) if error.kind() == ErrorKind::NotFound => Holder::Nobody,
            Err(_) => Holder::Taken(None),
        }
    }

    /// Makes the file of an address. `false`: there is one already, nothing was done.
    pub(crate) fn create(&self, ip: IpAddr, owner: &Owner) -> Result<bool, FileError> {
        let name = ip.to_string();
        let nameless = OFlag::O_TMPFILE | OFlag::O_WRONLY | OFlag::O_CLOEXEC;
        let file = match fcntl::openat(&self.fd, ".", nameless, OWNER_ONLY) {
            Ok(fd) => File::from(fd),
            // No such thing on this file system (EISDIR: a kernel that has never heard of it).
            Err(Errno::EOPNOTSUPP | Errno::EISDIR) => return self.create_by_name(&name, owner),
            Err(errno) => return Err(self.error("open", &name, errno)),
        };
        fill(&file, owner).map_err(|error| self.error("write", &name, error))?;
        let source = format!("/proc/self/fd/{}", file.as_raw_fd());
        match self.link(&source, &name, AtFlags::AT_SYMLINK_FOLLOW) {
            // No /proc here.
            Err(Errno::ENOENT) => self.create_by_name(&name, owner),
            linked => linked.map_err(|errno| self.error("open", &name, errno)),
        }
    }

    /// The same by a second name, which is removed in any case.
    fn create_by_name(&self, name: &str, owner: &Owner) -> Result<bool, FileError> {
        self.remove_if_present(RESERVING)?;
        let flags = OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_WRONLY;
        let file = self.open_file(RESERVING, flags, OWNER_ONLY)?;
        let linked = fill(&file, owner).map_err(|error| self.error("write", name, error)).and_then(|()| {
            self.link(RESERVING, name, AtFlags::empty()).map_err(|errno| self.error("open", name, errno))
        });
        self.remove_if_present(RESERVING)?;
        linked
    }

    /// Gives a file another name. `false`: something has it already.
    fn link(&self, file: &str, name: &str, flags: AtFlags) -> Result<bool, Errno> {
        match linkat(&self.fd, file, &self.fd, name, flags) {
            Ok(()) => Ok(true),
            Err(Errno::EEXIST) => Ok(false),
            Err(errno) => Err(errno),
        }
    }

    /// Removes a file. `false`: there was none.
    pub(crate) fn remove_if_present(&self, name: &str) -> Result<bool, FileError> {
        match unlinkat(&self.fd, name, UnlinkatFlags::NoRemoveDir) {
            Ok(()) => Ok(true),
            Err(Errno::ENOENT) => Ok(false),
            Err(errno) => Err(self.error("remove", name, errno)),
        }
    }

    /// The address that was handed out last from a range set. Like the reference's, this memory is only a hint.
    pub(crate) fn last_reserved(&self, set: usize) -> Option<IpAddr> {
        let content = read_at(&self.fd, &format!("{LAST_RESERVED}{set}")).ok()?;
        cnibox_spec::parse_ip(std::str::from_utf8(&content).ok()?).ok()
    }

    /// Remembers the address that was handed out last.
    pub(crate) fn set_last_reserved(&self, set: usize, ip: IpAddr) -> Result<(), FileError> {
        self.overwrite(&format!("{LAST_RESERVED}{set}"), &ip.to_string())
    }

    /// Writes a file in place: neither a full disk nor a crash can lose the old content without the new one being
    /// there, and nothing is left beside it.
    pub(crate) fn overwrite(&self, name: &str, content: &str) -> Result<(), FileError> {
        let file = self.open_file(name, OFlag::O_CREAT | OFlag::O_WRONLY, OWNER_ONLY)?;
        file.write_all_at(content.as_bytes(), 0)
            .and_then(|()| file.set_len(content.len() as u64))
            .map_err(|error| self.error("write", name, error))
    }
}

/// Mode of every file but the lock.
pub(crate) const OWNER_ONLY: Mode = Mode::from_bits_truncate(0o600);

/// Writes the owner and starts the write-back of what was written. On ext4 waiting for it (`fdatasync`) takes 200 us
/// on a fast disk and milliseconds on others; starting it takes 40 us and gives the same order, data before name.
fn fill(mut file: &File, owner: &Owner) -> io::Result<()> {
    file.write_all(owner.as_str().as_bytes())?;
    // Only an order is asked for: a file system that does not care has nothing to say about the reservation.
    let _ = posix_fadvise(file, 0, 0, PosixFadviseAdvice::POSIX_FADV_DONTNEED);
    Ok(())
}

/// Reads a regular file below `dir`; anything else is an error, and no symbolic link is followed.
pub(crate) fn read_at(dir: &File, name: &str) -> io::Result<Vec<u8>> {
    let flags = OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC | OFlag::O_NONBLOCK;
    let file = File::from(fcntl::openat(dir, name, flags, Mode::empty())?);
    let mut content = Vec::with_capacity(128);
    file.take(CONTENT_LIMIT).read_to_end(&mut content)?;
    Ok(content)
}

/// Go's `os.MkdirAll` with mode 0755: names the component that could not be made.
fn make_dirs(path: &Path) -> Result<(), FileError> {
    let failed = |source| FileError::new("mkdir", path, source);
    match fs::metadata(path) {
        Ok(found) if found.is_dir() => return Ok(()),
        Ok(_) => return Err(failed(Errno::ENOTDIR.into())),
        Err(_) => {}
    }
    if let Some(parent) = path.parent().filter(|parent| *parent != Path::new("")) {
        make_dirs(parent)?;
    }
    match DirBuilder::new().mode(0o755).create(path) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
        made => made.map_err(failed),
    }
}
