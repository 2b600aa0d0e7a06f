// SPDX-License-Identifier: Apache-2.0
//! Which packet filter the host's `iptables` writes to.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

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
    /// Follows the symbolic links of the first `iptables` in `path` (the value of `PATH`); nothing is started.
    #[must_use]
    pub fn of_host(path: &OsStr) -> Self {
        let Some(tool) = find_tool("iptables", path) else { return Self::Missing };
        let program = std::fs::canonicalize(&tool).unwrap_or(tool);
        let name = program.file_name().unwrap_or_default().to_string_lossy();
        // before 1.8 there was one flavour, as xtables-multi or iptables itself
        if name.contains("nft") { Self::NfTables } else { Self::Legacy }
    }
}

/// The first executable file of that name in `path`.
pub(crate) fn find_tool(name: &str, path: &OsStr) -> Option<PathBuf> {
    std::env::split_paths(path).map(|folder| folder.join(name)).find(|file| is_executable(file))
}

fn is_executable(file: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    std::fs::metadata(file).is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}
