// SPDX-License-Identifier: Apache-2.0
//! Sysctls of the calling thread's namespace, by the reference's path rules (`pkg/utils/sysctl`).
//!
//! Names come from configurations: a name can never leave `/proc/sys`, whatever it contains.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::errno::io_text;

/// A sysctl could not be read or written. `Display` is Go's text, for example
/// `open /proc/sys/net/ipv4/x: no such file or directory`.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The system call `operation` on `path` failed.
    #[error("{operation} {}: {}", path.display(), io_text(source))]
    Io {
        /// `open`, `read` or `write`.
        operation: &'static str,
        /// The file below `/proc/sys`.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// The name has a component (`..`) that would lead out of its directory.
    #[error("invalid sysctl name \"{name}\"")]
    Name {
        /// The name as given.
        name: String,
    },
}

impl Error {
    /// The sysctl does not exist, because of the kernel's configuration or because the interface is gone.
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::Io { source, .. } if source.raw_os_error() == Some(libc::ENOENT))
    }
}

/// The kernel's name for this boot.
pub const BOOT_ID: &str = "kernel/random/boot_id";

/// The value of a sysctl without the newline at its end (`sysctl -n NAME`). Lines stay lines.
///
/// # Errors
/// [`Error`]; unknown names are `Io` with `ENOENT`.
pub fn read(name: &str) -> Result<String, Error> {
    let path = path_of(name)?;
    let file = unlinked().read(true).open(&path).map_err(failed("open", &path))?;
    value_of(&file, &path)
}

fn value_of(mut file: &File, path: &Path) -> Result<String, Error> {
    let mut raw = Vec::new();
    file.read_to_end(&mut raw).map_err(failed("read", path))?;
    Ok(String::from_utf8_lossy(raw.strip_suffix(b"\n").unwrap_or(&raw)).into_owned())
}

/// Writes a sysctl, in one `write` without a newline (`sysctl -w NAME=VALUE`). The reference reads it back; opening a
/// file below `/proc/sys/net` costs more the more network namespaces there are, so this does not.
///
/// # Errors
/// [`Error`]; nothing is ever created.
pub fn write(name: &str, value: &str) -> Result<(), Error> {
    let path = path_of(name)?;
    let mut file = unlinked().write(true).truncate(true).open(&path).map_err(failed("open", &path))?;
    file.write_all(value.as_bytes()).map_err(failed("write", &path))
}

/// Writes a sysctl in one piece, and says what it was if that can be read (some sysctls are actions: `net.ipv4.route.flush`).
/// The file is opened once, which is most of the cost, and not read back.
///
/// # Errors
/// [`Error`]; nothing is ever created.
pub fn replace(name: &str, value: &str) -> Result<Option<String>, Error> {
    let path = path_of(name)?;
    let file = match unlinked().read(true).write(true).open(&path) {
        Ok(file) => file,
        // Not even root opens what nobody may read: `test_perm` in fs/proc/proc_sysctl.c.
        Err(_) => unlinked().write(true).open(&path).map_err(failed("open", &path))?,
    };
    let before = value_of(&file, &path).ok();
    // From the beginning: sysctls take nothing that begins elsewhere (`sysctl_writes_strict` in
    // Documentation/admin-guide/sysctl/kernel.rst).
    file.write_all_at(value.as_bytes(), 0).map_err(failed("write", &path))?;
    Ok(before)
}

/// Writes a sysctl only if it has another value (saves the side effects of writing forwarding switches).
/// Returns whether it was written.
///
/// # Errors
/// As [`read`] and [`write()`].
pub fn ensure(name: &str, value: &str) -> Result<bool, Error> {
    if read(name)? == value {
        return Ok(false);
    }
    write(name, value).map(|()| true)
}

/// The sysctl `net/<family>/conf/<interface>/<key>`; safe for interface names with dots. `family` is `ipv4` or `ipv6`.
pub fn conf(family: &str, interface: &str, key: &str) -> String {
    format!("net/{family}/conf/{interface}/{key}")
}

/// The file of a sysctl: below `/proc/sys`; if the first separator in the name is a dot, dots and slashes change places.
///
/// # Errors
/// [`Error::Name`] for names with a `..` component or a NUL byte.
pub fn path_of(name: &str) -> Result<PathBuf, Error> {
    let dotted = name.chars().find(|c| matches!(c, '.' | '/')) == Some('.');
    let normal = if dotted { name.chars().map(swap_separator).collect() } else { name.to_owned() };
    let mut path = PathBuf::from("/proc/sys");
    for component in normal.split('/') {
        match component {
            "" | "." => {}
            ".." => return Err(Error::Name { name: name.to_owned() }),
            _ if component.contains('\0') => return Err(Error::Name { name: name.to_owned() }),
            _ => path.push(component),
        }
    }
    Ok(path)
}

fn swap_separator(c: char) -> char {
    match c {
        '.' => '/',
        '/' => '.',
        other => other,
    }
}

/// Ways to open a file itself, and none that a link leads to.
fn unlinked() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.custom_flags(libc::O_NOFOLLOW);
    options
}

fn failed(operation: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Error {
    let path = path.to_path_buf();
    move |source| Error::Io { operation, path, source }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(name: &str) -> String {
        path_of(name).unwrap().display().to_string()
    }

    #[test]
    fn first_separator_decides() {
        assert_eq!(path("net.ipv4.ip_forward"), "/proc/sys/net/ipv4/ip_forward");
        assert_eq!(path("net/ipv4/conf/eth0.100/arp_notify"), "/proc/sys/net/ipv4/conf/eth0.100/arp_notify");
        assert_eq!(path("net.ipv4.conf.eth0/100.arp_notify"), "/proc/sys/net/ipv4/conf/eth0.100/arp_notify");
        assert_eq!(path("kernel"), "/proc/sys/kernel");
        assert_eq!(path("/net//ipv4/ip_forward"), "/proc/sys/net/ipv4/ip_forward");
    }

    #[test]
    fn names_cannot_leave_proc_sys() {
        assert!(matches!(path_of("net/../../version"), Err(Error::Name { .. })));
        assert!(matches!(path_of("net.//.x"), Err(Error::Name { .. })));
        assert!(matches!(path_of("net/a\0b"), Err(Error::Name { .. })));
    }

    #[test]
    fn reading_strips_one_character_and_unknown_names_have_gos_text() {
        let value = read("kernel.ostype").unwrap();
        assert_eq!(value, "Linux");
        let error = read("net/ipv4/nonsense").unwrap_err();
        assert!(error.is_not_found());
        assert_eq!(error.to_string(), "open /proc/sys/net/ipv4/nonsense: no such file or directory");
    }

    #[test]
    fn writing_never_creates() {
        let error = write("net/ipv4/nonsense", "1").unwrap_err();
        assert_eq!(error.to_string(), "open /proc/sys/net/ipv4/nonsense: no such file or directory");
        let error = replace("net/ipv4/nonsense", "1").unwrap_err();
        assert_eq!(error.to_string(), "open /proc/sys/net/ipv4/nonsense: no such file or directory");
        let error = write("net/ipv4/conf/nonsense/forwarding", "1").unwrap_err();
        assert!(error.is_not_found());
    }
}
