// SPDX-License-Identifier: Apache-2.0
//! `reclaimOnBoot`: reservations made before the host last booted belong to nobody.
//!
//! The boot that the state belongs to is noted in a file beside it. A reservation is stale when that note names
//! another boot *and* its file was last changed before this boot began: the first alone would also hit what the
//! reference reserved since, the second alone trusts a clock.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use cnibox_netns::sysctl;
use nix::fcntl::AtFlags;
use nix::sys::stat::fstatat;
use nix::time::{ClockId, clock_gettime};

use crate::error::FileError;
use crate::files::{StateDir, read_at};

/// The file's name.
pub(crate) const FILE: &str = "boot_id";

/// The kernel's name for this boot; empty when it has none to tell.
pub(crate) fn id() -> String {
    sysctl::read(sysctl::BOOT_ID).unwrap_or_default()
}

/// What the file says; the `=` keeps it from ever being a container's ID.
fn note() -> String {
    format!("boot={}\n", id())
}

/// Whether the state was noted to belong to another boot. State without a note is taken to belong to this one.
pub(crate) fn is_another(dir: &StateDir) -> bool {
    read_at(dir.fd(), FILE).is_ok_and(|noted| noted != note().as_bytes())
}

/// Notes that the state belongs to this boot, if that is not noted yet.
pub(crate) fn note_this(dir: &StateDir) -> Result<(), FileError> {
    let note = note();
    if read_at(dir.fd(), FILE).is_ok_and(|noted| noted == note.as_bytes()) {
        return Ok(());
    }
    dir.overwrite(FILE, &note)
}

/// Whether a file was last changed before this boot.
pub(crate) fn predates(dir: &StateDir, name: &str) -> bool {
    let Ok(stat) = fstatat(dir.fd(), name, AtFlags::AT_SYMLINK_NOFOLLOW) else { return false };
    let changed = UNIX_EPOCH + Duration::from_secs(u64::try_from(stat.st_ctime).unwrap_or_default());
    let Ok(up) = clock_gettime(ClockId::CLOCK_BOOTTIME).map(Duration::from) else { return false };
    SystemTime::now().checked_sub(up).is_some_and(|booted| changed < booted)
}
