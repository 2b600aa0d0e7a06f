// SPDX-License-Identifier: Apache-2.0
//! Which packet filter the host's `iptables` writes to.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use memchr::memmem;

/// The flavour of the host's `iptables`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flavour {
    /// `xtables-nft-multi`: rules live in nf_tables.
    NfTables,
    /// `xtables-legacy-multi`: rules live in ip_tables.
    Legacy,
    /// There is no `iptables`; nf_tables is used without it.
    Missing,
}

impl Flavour {
    /// Follows the symbolic links of the host's `iptables`; nothing is started.
    pub(crate) fn of(tool: Option<&Path>) -> Self {
        let Some(tool) = tool else { return Self::Missing };
        let program = target_of(tool);
        let name = program.file_name().unwrap_or_default().to_string_lossy();
        // before 1.8 there was one flavour, as xtables-multi or iptables itself
        if name.contains("nft") { Self::NfTables } else { Self::Legacy }
    }
}

/// Whether the program is certainly the legacy one: a script may call either.
pub(crate) fn is_legacy_program(tool: Option<&Path>) -> bool {
    let program = tool.map(target_of).unwrap_or_default();
    let name = program.file_name().unwrap_or_default().to_string_lossy();
    name.contains("legacy") || name == "xtables-multi"
}

/// The file at the end of the links. Only its name counts, so the folders on the way are not looked at, as
/// `canonicalize` does for every link anew.
fn target_of(tool: &Path) -> PathBuf {
    let mut file = tool.to_owned();
    for _ in 0..MOST_LINKS {
        let Ok(target) = std::fs::read_link(&file) else { break };
        file.pop();
        file.push(target);
    }
    file
}

/// `MAXSYMLINKS`, `include/linux/namei.h`
const MOST_LINKS: usize = 40;

/// Whether the host's `iptables` reads ports and marks as native expressions, as 1.8.8 and later do. The version is looked
/// for in the program file, which costs less than a tenth of starting it; a wrapper that does not tell may be older.
pub(crate) fn reads_native_matches(tool: Option<&Path>) -> bool {
    tool.is_none_or(|tool| version_of(tool).is_ok_and(|version| version >= Some((1, 8, 8))))
}

/// Reads the program piece by piece up to the version. Pieces overlap by more than the longest version.
fn version_of(tool: &Path) -> io::Result<Option<(u32, u32, u32)>> {
    const OVERLAP: usize = 32;
    let mut program = File::open(tool)?;
    let mut piece = [0; 16 * 1024];
    let mut kept = 0;
    loop {
        let read = program.read(piece.get_mut(kept..).unwrap_or_default())?;
        let filled = piece.get(..kept + read).unwrap_or_default();
        let version = version_in(filled);
        if version.is_some() || read == 0 {
            return Ok(version);
        }
        let again = filled.len().saturating_sub(OVERLAP);
        kept = filled.len() - again;
        piece.copy_within(again..again + kept, 0);
    }
}

/// The version in the strings of an `xtables-nft-multi`: one that starts with `1.8.9` or the like.
fn version_in(program: &[u8]) -> Option<(u32, u32, u32)> {
    const START: &[u8] = b"\x001.";
    let at = memmem::find(program, START)?;
    let rest = program.get(at + 1..)?;
    let end = rest.iter().position(|byte| !byte.is_ascii_digit() && *byte != b'.')?;
    let mut numbers = std::str::from_utf8(rest.get(..end)?).ok()?.split('.').map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?, numbers.next()?.ok()?))
}

/// The first executable file of that name in `path`.
pub(crate) fn find_tool(name: &str, path: &OsStr) -> Option<PathBuf> {
    std::env::split_paths(path).map(|folder| folder.join(name)).find(|file| is_executable(file))
}

fn is_executable(file: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    std::fs::metadata(file).is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use super::{Flavour, find_tool, is_legacy_program, reads_native_matches, version_in};
    use std::ffi::OsStr;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::path::PathBuf;

    /// A folder with `iptables` linked twice, as Debian's alternatives do, to a program of that name and content.
    fn host(name: &str, program: &str, content: &[u8]) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("cnibox-flavour-{}-{name}", std::process::id()));
        let (bin, lib) = (folder.join("bin"), folder.join("lib"));
        std::fs::create_dir_all(&bin).unwrap();
        std::fs::create_dir_all(&lib).unwrap();
        std::fs::write(lib.join(program), content).unwrap();
        std::fs::set_permissions(lib.join(program), std::fs::Permissions::from_mode(0o755)).unwrap();
        symlink(lib.join(program), lib.join("alternative")).unwrap();
        symlink(lib.join("alternative"), bin.join("iptables")).unwrap();
        folder
    }

    fn flavour(path: &OsStr) -> Flavour {
        Flavour::of(find_tool("iptables", path).as_deref())
    }

    fn is_native(path: &OsStr) -> bool {
        reads_native_matches(find_tool("iptables", path).as_deref())
    }

    #[test]
    fn flavour_is_that_of_the_link_target() {
        for (program, expected, is_legacy) in [
            ("xtables-nft-multi", Flavour::NfTables, false),
            ("xtables-legacy-multi", Flavour::Legacy, true),
            ("xtables-multi", Flavour::Legacy, true),
            ("wrapper.sh", Flavour::Legacy, false),
        ] {
            let folder = host(program, program, b"");
            let tool = find_tool("iptables", folder.join("bin").as_os_str());
            assert_eq!(Flavour::of(tool.as_deref()), expected);
            assert_eq!(is_legacy_program(tool.as_deref()), is_legacy, "{program}");
            std::fs::remove_dir_all(folder).unwrap();
        }
        assert_eq!(flavour("/nonexistent:/proc/self/fdinfo".as_ref()), Flavour::Missing);
    }

    #[test]
    fn the_version_tells_what_is_read() {
        for (content, expected) in [
            (b"ELF\0help\x001.8.9\0Usage".as_slice(), true),
            (b"\x001.8.13\0", true),
            (b"\x001.8.8 (nf_tables)\0", true),
            (b"help\x001.8.7\0Usage", false),
            (b"#!/bin/sh\nexec something\n", false),
        ] {
            let folder = host(&format!("form-{}", content.len()), "xtables-nft-multi", content);
            assert_eq!(is_native(folder.join("bin").as_os_str()), expected);
            std::fs::remove_dir_all(folder).unwrap();
        }
        assert!(is_native("/nonexistent".as_ref()));
    }

    #[test]
    fn the_version_is_found_wherever_it_is() {
        for at in [0, 16_300, 16_380, 16_384, 40_000] {
            let content = [vec![b'x'; at], b"\x001.8.9\0".to_vec(), vec![b'x'; 20_000]].concat();
            let folder = host(&format!("at-{at}"), "xtables-nft-multi", &content);
            assert!(is_native(folder.join("bin").as_os_str()), "{at}");
            std::fs::remove_dir_all(folder).unwrap();
        }
    }

    #[test]
    fn versions_are_compared_as_numbers() {
        assert_eq!(version_in(b"\x001.10.2\0"), Some((1, 10, 2)));
        assert!(version_in(b"\x001.8.10\0") > version_in(b"\x001.8.9\0"));
        assert_eq!(version_in(b"1.8.9"), None);
    }
}
