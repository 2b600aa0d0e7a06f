// SPDX-License-Identifier: Apache-2.0
//! What can go wrong, with the kernel's errno and text kept.

use std::io;

use cnibox_netns::errno::{self, io_text};

/// Shorthand for results of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// A failed packet filter or conntrack operation.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The kernel refused a request.
    #[error("{operation}: {}", kernel_message(*errno, text.as_deref()))]
    Kernel {
        /// What was asked for, with the object's name.
        operation: String,
        /// Positive errno value.
        errno: i32,
        /// The kernel's extended acknowledgement text, if it gave one.
        text: Option<String>,
    },
    /// The netlink socket failed.
    #[error("{operation}: {}", io_text(source))]
    Socket {
        /// What was being done.
        operation: &'static str,
        /// The system's error.
        source: io::Error,
    },
    /// An answer of the kernel does not parse.
    #[error("malformed netlink answer while {during}")]
    Malformed {
        /// What was being read.
        during: &'static str,
    },
    /// The kernel has no nf_tables.
    #[error("{operation}: the kernel has no nf_tables")]
    NoNfTables {
        /// What was asked for.
        operation: &'static str,
    },
    /// The kernel does not have what rules in iptables' form need.
    #[error(
        "{operation}: the kernel has no {module}, which rules in iptables' form need; load or install that module, or \
         leave the choice of the backend open or set it to nftables"
    )]
    NoExtension {
        /// What was asked for.
        operation: String,
        /// The module's name.
        module: String,
    },
    /// The kernel has nf_tables, and no tables of this family: `inet` needs a kernel with IPv6 (`NF_TABLES_INET` in
    /// net/netfilter/Kconfig).
    #[error("{operation}: the kernel has no nf_tables family {family}")]
    NoFamily {
        /// What was asked for.
        operation: String,
        /// As `nft` calls it.
        family: &'static str,
    },
    /// Somebody else kept changing the ruleset, however often the batch was tried.
    #[error("ruleset changed during each of {attempts} attempts")]
    Contended {
        /// Number of attempts.
        attempts: u32,
    },
    /// A tool is not installed. The text is that of the Go plugins.
    #[error("exec: \"{program}\": executable file not found in $PATH")]
    ToolMissing {
        /// Name of the tool.
        program: String,
    },
    /// A tool could not be started or talked to.
    #[error("run \"{program}\": {source}")]
    Spawn {
        /// Name of the tool.
        program: String,
        /// The system's error.
        source: io::Error,
    },
    /// A tool failed. The text is that of the Go plugins.
    #[error("running [{}]: exit status {status}: {stderr}", argv.join(" "))]
    Tool {
        /// The command line.
        argv: Vec<String>,
        /// Exit status, -1 if it was killed.
        status: i32,
        /// Everything it wrote to standard error.
        stderr: String,
    },
    /// A name or text that the packet filter cannot hold or that is not safe to write into a rule file.
    #[error("invalid {kind} {value:?}")]
    InvalidText {
        /// What it was meant to be.
        kind: &'static str,
        /// The text.
        value: String,
    },
}

impl Error {
    /// The errno of the kernel or system, if there is one.
    #[must_use]
    pub fn errno(&self) -> Option<i32> {
        match self {
            Self::Kernel { errno, .. } => Some(*errno),
            Self::Socket { source, .. } | Self::Spawn { source, .. } => source.raw_os_error(),
            Self::Malformed { .. }
            | Self::NoNfTables { .. }
            | Self::NoExtension { .. }
            | Self::NoFamily { .. }
            | Self::Contended { .. }
            | Self::ToolMissing { .. }
            | Self::Tool { .. }
            | Self::InvalidText { .. } => None,
        }
    }

    /// The kernel's own explanation (extended acknowledgement).
    #[must_use]
    pub fn kernel_text(&self) -> Option<&str> {
        if let Self::Kernel { text, .. } = self { text.as_deref() } else { None }
    }

    /// True if the host has no such packet filter, in the kernel or as a tool: nothing can be in it.
    #[must_use]
    pub fn is_absence(&self) -> bool {
        match self {
            Self::NoNfTables { .. } | Self::ToolMissing { .. } => true,
            Self::Tool { status, stderr, .. } => {
                *status == VERSION_PROBLEM && NO_TABLES.iter().any(|text| stderr.contains(text))
            }
            Self::Kernel { .. }
            | Self::Socket { .. }
            | Self::NoExtension { .. }
            | Self::NoFamily { .. }
            | Self::Malformed { .. }
            | Self::Contended { .. }
            | Self::Spawn { .. }
            | Self::InvalidText { .. } => false,
        }
    }

    /// True if trying again later may help.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Contended { .. })
    }
}

/// What legacy iptables ends with when the kernel has no such tables (`xtables.h`), and what it says
/// (`libiptc/libiptc.c`): without the table, without all of them, and `ip6tables` without IPv6.
const VERSION_PROBLEM: i32 = 3;
const NO_TABLES: [&str; 4] = [
    "Table does not exist",
    "who? (do you need to insmod?)",
    "Protocol not available",
    "Address family not supported by protocol",
];

fn kernel_message(errno: i32, text: Option<&str>) -> String {
    match text {
        Some(text) => format!("{}: {text}", errno::text(errno)),
        None => errno::text(errno).into_owned(),
    }
}
