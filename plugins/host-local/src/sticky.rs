// SPDX-License-Identifier: Apache-2.0
//! The memory behind `sticky`: which address an attachment had last.
//!
//! One file of fixed size beside the reservations, so that it outlives a reboot as the containers' names do, and goes
//! when the operator removes the network's state. It is a table with one entry per hash value: a newer attachment
//! may push out an older one, which then gets any address. The reference reads the file on its walks, never finds
//! an attachment's text in it, and leaves it alone. Losing or damaging it costs nothing but the preference.

use std::net::IpAddr;
use std::os::unix::fs::FileExt;

use nix::fcntl::OFlag;
use nix::sys::stat::Mode;

use crate::error::FileError;
use crate::files::{OWNER_ONLY, StateDir};
use crate::fnv;
use crate::owner::Owner;
use crate::range::{from_bits, to_bits};

/// The file's name.
pub(crate) const FILE: &str = "sticky";

/// Entries; the file is sparse and at most 2 MiB long.
const ENTRIES: u64 = 1 << 16;
/// Bytes of an entry: the attachment's hash, the address's number.
const ENTRY: usize = 24;

/// The address that `owner` had last from range set `set`, of the family of `like`.
pub(crate) fn recall(dir: &StateDir, owner: &Owner, set: usize, like: IpAddr) -> Option<IpAddr> {
    let file = dir.open_file(FILE, OFlag::O_RDONLY, Mode::empty()).ok()?;
    let key = key(owner, set);
    let mut entry = [0; ENTRY];
    file.read_exact_at(&mut entry, offset(key)).ok()?;
    let (found, bits) = entry.split_at(8);
    (found == key.to_le_bytes()).then_some(())?;
    from_bits(u128::from_le_bytes(bits.try_into().ok()?), like)
}

/// Remembers an address.
pub(crate) fn remember(dir: &StateDir, owner: &Owner, set: usize, ip: IpAddr) -> Result<(), FileError> {
    let file = dir.open_file(FILE, OFlag::O_CREAT | OFlag::O_WRONLY, OWNER_ONLY)?;
    let key = key(owner, set);
    let entry = [&key.to_le_bytes()[..], &to_bits(ip).to_le_bytes()].concat();
    file.write_all_at(&entry, offset(key)).map_err(|error| FileError::new("write", &dir.path_of(FILE), error))
}

fn key(owner: &Owner, set: usize) -> u64 {
    fnv::hash(&[owner.as_str().as_bytes(), b"\n", &set.to_le_bytes()])
}

fn offset(key: u64) -> u64 {
    key % ENTRIES * ENTRY as u64
}
