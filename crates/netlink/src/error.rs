// SPDX-License-Identifier: Apache-2.0
//! Errors of netlink requests: the errno, Go's text for it, and the kernel's own explanation.

use std::io;

use cnibox_netns::errno;

/// Why a request failed. `Display` is what the Go plugins print for it, so that messages built around it stay theirs;
/// the kernel's extended acknowledgement is [`Error::kernel_text`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The kernel refused the request.
    #[error("{}", errno::text(*errno))]
    Refused {
        /// The errno, positive.
        errno: i32,
        /// `NLMSGERR_ATTR_MSG`, where the kernel gave one.
        kernel_text: Option<String>,
    },
    /// There is no such link (`ENODEV` when asking for one). The text is the reference's library's.
    #[error("Link not found")]
    LinkNotFound,
    /// A socket operation failed.
    #[error("netlink {operation}: {}", errno::io_text(source))]
    Socket {
        /// The system call, for example `bind`.
        operation: &'static str,
        /// The system's answer.
        source: io::Error,
    },
    /// A dump was interrupted by changes again and again (`NLM_F_DUMP_INTR`).
    #[error("results may be incomplete or inconsistent")]
    DumpInterrupted,
    /// A message could not be decoded.
    #[error("decode netlink message: {reason}")]
    Decode {
        /// What the decoder said.
        reason: String,
    },
    /// The kernel ended a request without the answer that was asked for.
    #[error("netlink request without an answer")]
    NoAnswer,
}

impl Error {
    /// The errno behind the error, if there is one.
    pub fn errno(&self) -> Option<i32> {
        match self {
            Self::Refused { errno, .. } => Some(*errno),
            Self::LinkNotFound => Some(libc::ENODEV),
            Self::Socket { source, .. } => source.raw_os_error(),
            Self::DumpInterrupted | Self::Decode { .. } | Self::NoAnswer => None,
        }
    }

    /// The kernel's explanation (extended acknowledgement), for example
    /// `Can not enslave a bridge to a bridge`.
    pub fn kernel_text(&self) -> Option<&str> {
        if let Self::Refused { kernel_text, .. } = self { kernel_text.as_deref() } else { None }
    }

    /// The link, route or rule does not exist (`ENODEV`, `ENOENT`, `ESRCH`).
    pub fn is_not_found(&self) -> bool {
        matches!(self.errno(), Some(libc::ENODEV | libc::ENOENT | libc::ESRCH))
    }

    /// A link was asked for that does not exist.
    pub(crate) fn is_link_not_found(&self) -> bool {
        matches!(self, Self::LinkNotFound)
    }

    /// The address to delete does not exist (`EADDRNOTAVAIL`).
    pub fn is_addr_not_found(&self) -> bool {
        self.errno() == Some(libc::EADDRNOTAVAIL)
    }

    /// It exists already (`EEXIST`).
    pub fn is_exists(&self) -> bool {
        self.errno() == Some(libc::EEXIST)
    }

    /// The kernel lacks it (`EOPNOTSUPP`).
    pub fn is_unsupported(&self) -> bool {
        self.errno() == Some(libc::EOPNOTSUPP)
    }

    /// The kernel knows what was asked for and does not allow it like that (`EINVAL`).
    pub(crate) fn is_invalid(&self) -> bool {
        self.errno() == Some(libc::EINVAL)
    }

    /// Where a link was asked for, `ENODEV` means that it does not exist.
    pub(crate) fn for_link(self) -> Self {
        if matches!(self, Self::Refused { errno: libc::ENODEV, .. }) { Self::LinkNotFound } else { self }
    }

    pub(crate) fn socket(operation: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Socket { operation, source }
    }

    pub(crate) fn decode(reason: impl std::fmt::Display) -> Self {
        Self::Decode { reason: reason.to_string() }
    }
}

/// `None` for an error that is as good as an answer: what was asked about is not there, what was to be made is.
///
/// # Errors
/// Any other error of `answer`.
pub fn unless<T>(
    answer: Result<T, Error>,
    is_harmless: impl FnOnce(&Error) -> bool,
) -> Result<Option<T>, Error> {
    match answer {
        Err(error) if is_harmless(&error) => Ok(None),
        answer => answer.map(Some),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn display_is_the_errno_text_and_the_kernels_stays_apart() {
        let error = Error::Refused { errno: libc::ELOOP, kernel_text: Some("Can not".to_owned()) };
        assert_eq!(error.to_string(), "too many levels of symbolic links");
        assert_eq!(error.kernel_text(), Some("Can not"));
    }

    #[test]
    fn missing_links_have_the_references_text() {
        let error = Error::Refused { errno: libc::ENODEV, kernel_text: None }.for_link();
        assert_eq!(error.to_string(), "Link not found");
        assert!(error.is_not_found());
        let other = Error::Refused { errno: libc::EPERM, kernel_text: None }.for_link();
        assert_eq!(other.errno(), Some(libc::EPERM));
    }
}
