// SPDX-License-Identifier: Apache-2.0
//! Reading files that somebody else wrote: regular ones of a limited size, so that nobody waits for a pipe or fills memory
//! from a device.

use std::fs::{self, DirEntry, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use crate::Error;

/// The whole of a regular file.
///
/// # Errors
/// Those of the system; one that it is no regular file, or that it is larger than [`LIMIT`].
pub(crate) fn read(path: &Path) -> io::Result<Vec<u8>> {
    // Without waiting for whoever would write to a pipe.
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("not a regular file"));
    }
    let mut bytes = Vec::new();
    file.take(LIMIT + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > LIMIT {
        return Err(io::Error::other(format!("larger than {LIMIT} bytes")));
    }
    Ok(bytes)
}

/// What is in a directory, by name; nothing when there is no such directory.
pub(crate) fn entries(dir: &Path) -> Result<Vec<DirEntry>, Error> {
    let unread = |error| Error::Unread(dir.to_owned(), error);
    let listing = match fs::read_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        listing => listing.map_err(unread)?,
    };
    let mut entries = listing.collect::<io::Result<Vec<_>>>().map_err(unread)?;
    entries.sort_by_key(DirEntry::file_name);
    Ok(entries)
}

/// Four times what a plugin reads, in bytes: the cache has a configuration in base64, and results.
const LIMIT: u64 = 8 << 20;
