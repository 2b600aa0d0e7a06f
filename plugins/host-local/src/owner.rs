// SPDX-License-Identifier: Apache-2.0
//! Whose a reservation is.

use std::fmt;

use cnibox_spec::{Attachment, ContainerId, IfName, LiveAttachment};

/// Whose a reservation is, as its file says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Owner(String);

impl Owner {
    /// An attachment, as written into new files: `<container>\r\n<interface>`.
    pub(crate) fn of(attachment: &Attachment) -> Self {
        Self(format!("{}\r\n{}", attachment.container, attachment.ifname))
    }

    /// The container alone, as releases wrote it that did not store the interface.
    pub(crate) fn bare(&self) -> Self {
        Self(self.container().to_owned())
    }

    /// What a file says, surrounding blanks removed. `None` for what no plugin and no person would have written
    /// and only a crash leaves behind: nothing at all, control characters, no text.
    pub(crate) fn read(content: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(content).ok()?.trim();
        let damaged = |c: char| c.is_control() && !c.is_whitespace();
        (!text.is_empty() && !text.contains(damaged)).then(|| Self(text.to_owned()))
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// The container's part.
    pub(crate) fn container(&self) -> &str {
        self.0.split_once("\r\n").map_or(self.as_str(), |(container, _)| container)
    }

    /// The interface's part, when there is one.
    pub(crate) fn ifname(&self) -> Option<&str> {
        self.0.split_once("\r\n").map(|(_, ifname)| ifname)
    }

    /// Whether it is one of these attachments; without an interface, whether one of them is its container's.
    pub(crate) fn is_among(&self, attachments: &[LiveAttachment]) -> bool {
        let mut of_container = attachments.iter().filter(|live| live.container_id == self.container());
        of_container.any(|live| self.ifname().is_none_or(|ifname| ifname == live.ifname))
    }

    /// Whether this is what a plugin writes; a person's note is not.
    pub(crate) fn is_attachment(&self) -> bool {
        ContainerId::new(self.container()).is_ok()
            && self.ifname().is_none_or(|name| IfName::new(name).is_ok())
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.ifname() {
            _ if !self.is_attachment() => write!(f, "{:?}", self.0),
            Some(ifname) => write!(f, "container {} interface {ifname}", self.container()),
            None => write!(f, "container {}", self.container()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner(text: &str) -> Option<String> {
        Owner::read(text.as_bytes()).map(|owner| owner.to_string())
    }

    #[test]
    fn owners_are_read_with_blanks_around_them() {
        assert_eq!(owner(" c1\r\neth0\n"), Some("container c1 interface eth0".into()));
        assert_eq!(owner("c1"), Some("container c1".into()));
        assert_eq!(owner("for the printer"), Some("\"for the printer\"".into()));
        for debris in ["", "\r\n", "\0\0\0", "c1\r\n\0"] {
            assert_eq!(owner(debris), None, "{debris:?}");
        }
        assert_eq!(Owner::read(b"\xff\xfe"), None);
    }
}
