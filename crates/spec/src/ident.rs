// SPDX-License-Identifier: Apache-2.0
//! Names that arrive from outside and end up in paths, rules and comments, checked once
//! (reference: `pkg/utils/utils.go` of the CNI library).

use serde::Deserialize;
use thiserror::Error;

use crate::{Code, ErrorObject};

/// Why a name was refused.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum IdentError {
    /// A container ID outside `[a-zA-Z0-9][a-zA-Z0-9_.-]*`.
    #[error("invalid characters in containerID")]
    ContainerId(String),
    /// The network name is absent or empty.
    #[error("missing network name")]
    MissingNetworkName,
    /// A network name outside `[a-zA-Z0-9][a-zA-Z0-9_.-]*`.
    #[error("invalid characters found in network name")]
    NetworkName(String),
    /// The interface name is empty.
    #[error("interface name is empty")]
    IfNameEmpty,
    /// The interface name has more than 15 bytes (`IFNAMSIZ` without its NUL).
    #[error("interface name is too long")]
    IfNameTooLong,
    /// The interface name is `.` or `..`.
    #[error("interface name is . or ..")]
    IfNameDots,
    /// The interface name has a character that the kernel refuses.
    #[error("interface name contains / or : or whitespace characters")]
    IfNameCharacters,
}

impl From<IdentError> for ErrorObject {
    fn from(error: IdentError) -> Self {
        let msg = error.to_string();
        let (code, details) = match error {
            IdentError::ContainerId(id) => (Code::INVALID_ENVIRONMENT, id),
            IdentError::MissingNetworkName => (Code::INVALID_CONFIG, String::new()),
            IdentError::NetworkName(name) => (Code::INVALID_CONFIG, name),
            IdentError::IfNameTooLong => {
                (Code::INVALID_ENVIRONMENT, "interface name should be less than 16 characters".to_owned())
            }
            IdentError::IfNameEmpty | IdentError::IfNameDots | IdentError::IfNameCharacters => {
                (Code::INVALID_ENVIRONMENT, String::new())
            }
        };
        Self { code, msg, details }
    }
}

/// `CNI_CONTAINERID`: never empty, safe as a path component and in a rule's comment.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ContainerId(String);

impl ContainerId {
    /// Checks a container ID.
    ///
    /// # Errors
    /// [`IdentError::ContainerId`], also for an empty one.
    pub fn new(id: &str) -> Result<Self, IdentError> {
        if is_plain_name(id) { Ok(Self(id.to_owned())) } else { Err(IdentError::ContainerId(id.to_owned())) }
    }

    /// The ID as given.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// A network's `name`: never empty, safe as a path component.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NetworkName(String);

impl NetworkName {
    /// Checks a network name.
    ///
    /// # Errors
    /// [`IdentError::MissingNetworkName`], [`IdentError::NetworkName`].
    pub fn new(name: &str) -> Result<Self, IdentError> {
        if name.is_empty() {
            return Err(IdentError::MissingNetworkName);
        }
        if is_plain_name(name) {
            Ok(Self(name.to_owned()))
        } else {
            Err(IdentError::NetworkName(name.to_owned()))
        }
    }

    /// The name as given.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// `CNI_IFNAME`, or any interface name that the kernel's `dev_valid_name` accepts
/// (`net/core/dev.c`; one difference: `%` is accepted, as by the reference).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IfName(String);

impl IfName {
    /// Checks an interface name.
    ///
    /// # Errors
    /// The `IfName…` variants of [`IdentError`].
    pub fn new(name: &str) -> Result<Self, IdentError> {
        if name.is_empty() {
            return Err(IdentError::IfNameEmpty);
        }
        if name.len() > 15 {
            return Err(IdentError::IfNameTooLong);
        }
        if name == "." || name == ".." {
            return Err(IdentError::IfNameDots);
        }
        if name.chars().any(|c| c == '/' || c == ':' || c.is_whitespace()) {
            return Err(IdentError::IfNameCharacters);
        }
        Ok(Self(name.to_owned()))
    }

    /// The name as given.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// `CNI_NETNS`: where the container's network namespace is, exactly as the runtime wrote it; never empty. Whether
/// there is a namespace at that path is found out when it is opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NetnsPath(String);

impl NetnsPath {
    /// `None` for an empty path.
    #[must_use]
    pub fn new(path: &str) -> Option<Self> {
        (!path.is_empty()).then(|| Self(path.to_owned()))
    }

    /// The path as given.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl AsRef<str> for IfName {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Display for IfName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::fmt::Display for ContainerId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::fmt::Display for NetworkName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// One attachment: an interface of a container on a network. What CNI calls the same attachment has the same three
/// names (CNI spec, section "Attachment parameters").
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Attachment {
    /// The network's name.
    pub network: NetworkName,
    /// The container's ID.
    pub container: ContainerId,
    /// The interface's name in the container.
    pub ifname: IfName,
}

impl Attachment {
    /// Checks the three names.
    ///
    /// # Errors
    /// The first [`IdentError`].
    pub fn new(network: &str, container: &str, ifname: &str) -> Result<Self, IdentError> {
        Ok(Self {
            network: NetworkName::new(network)?,
            container: ContainerId::new(container)?,
            ifname: IfName::new(ifname)?,
        })
    }

    /// Whether the other one is the same interface of the same container, in a network of whatever name.
    #[must_use]
    pub fn is_same_interface(&self, other: &Attachment) -> bool {
        (&self.container, &self.ifname) == (&other.container, &other.ifname)
    }

    /// Whether a list of the network's living attachments has this one.
    #[must_use]
    pub fn is_among(&self, living: &[LiveAttachment]) -> bool {
        let names = (self.container.as_str(), self.ifname.as_str());
        living.iter().any(|live| (live.container_id.as_str(), live.ifname.as_str()) == names)
    }
}

/// `<network>/<container>/<interface>`: no name has a slash.
impl std::fmt::Display for Attachment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}/{}", self.network, self.container, self.ifname)
    }
}

/// One live attachment of a network, as GC is told of them in `cni.dev/valid-attachments` (CNI spec, section "GC").
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
#[serde(rename = "GCAttachment", default)]
pub struct LiveAttachment {
    /// The container's ID.
    #[serde(rename = "containerID")]
    pub container_id: String,
    /// The interface's name inside the container.
    pub ifname: String,
}

impl From<&Attachment> for LiveAttachment {
    fn from(attachment: &Attachment) -> Self {
        Self { container_id: attachment.container.to_string(), ifname: attachment.ifname.to_string() }
    }
}

/// `^[a-zA-Z0-9][a-zA-Z0-9_.\-]*$`
fn is_plain_name(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphanumeric())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn container_ids_follow_the_reference_pattern() {
        assert!(ContainerId::new("a_b.c-d").is_ok());
        for bad in ["", "-a", "a b", "a/b", "é", "a\n"] {
            assert!(ContainerId::new(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn interface_names_follow_the_kernel() {
        assert!(IfName::new("eth0.5%").is_ok());
        assert_eq!(IfName::new("a234567890123456"), Err(IdentError::IfNameTooLong));
        assert_eq!(IfName::new(".."), Err(IdentError::IfNameDots));
        assert_eq!(IfName::new("a\u{a0}b"), Err(IdentError::IfNameCharacters));
    }

    #[test]
    fn a_bad_name_becomes_the_reference_error() {
        let object: ErrorObject = IdentError::NetworkName("a/b".into()).into();
        assert_eq!((object.code, object.details.as_str()), (Code::INVALID_CONFIG, "a/b"));
    }
}
