// SPDX-License-Identifier: Apache-2.0
//! Names that arrive from outside and end up in paths, rules and comments, checked once
//! (reference: `pkg/utils/utils.go` of the CNI library).

use serde::Deserialize;
use thiserror::Error;

use crate::{Code, ErrorObject};

/// Why a name was refused. Its text is the message alone.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{}", .0.msg)]
pub struct IdentError(ErrorObject);

impl IdentError {
    fn new(code: Code, msg: &str, details: &str) -> Self {
        Self(ErrorObject { code, msg: msg.to_owned(), details: details.to_owned() })
    }
}

impl From<IdentError> for ErrorObject {
    fn from(IdentError(object): IdentError) -> Self {
        object
    }
}

/// `CNI_CONTAINERID`: never empty, safe as a path component and in a rule's comment.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ContainerId(String);

impl ContainerId {
    /// Checks a container ID.
    ///
    /// # Errors
    /// It is empty or has characters outside `[a-zA-Z0-9][a-zA-Z0-9_.-]*`.
    pub fn new(id: &str) -> Result<Self, IdentError> {
        if is_plain_name(id) {
            return Ok(Self(id.to_owned()));
        }
        Err(IdentError::new(Code::INVALID_ENVIRONMENT, "invalid characters in containerID", id))
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
    /// It is empty or has characters outside `[a-zA-Z0-9][a-zA-Z0-9_.-]*`.
    pub fn new(name: &str) -> Result<Self, IdentError> {
        let refused = |msg| Err(IdentError::new(Code::INVALID_CONFIG, msg, name));
        match name {
            "" => refused("missing network name"),
            name if is_plain_name(name) => Ok(Self(name.to_owned())),
            _ => refused("invalid characters found in network name"),
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
    /// The most bytes that it has: the kernel's `IFNAMSIZ` without its NUL.
    pub const LIMIT: usize = 15;

    /// Checks an interface name.
    ///
    /// # Errors
    /// It is empty, longer than [`IfName::LIMIT`], a dot or two, or has a character that the kernel refuses.
    pub fn new(name: &str) -> Result<Self, IdentError> {
        let refused = |msg, details| Err(IdentError::new(Code::INVALID_ENVIRONMENT, msg, details));
        match name {
            "" => refused("interface name is empty", ""),
            long if long.len() > Self::LIMIT => {
                refused("interface name is too long", "interface name should be less than 16 characters")
            }
            "." | ".." => refused("interface name is . or ..", ""),
            name if name.chars().any(|c| c == '/' || c == ':' || c.is_whitespace()) => {
                refused("interface name contains / or : or whitespace characters", "")
            }
            name => Ok(Self(name.to_owned())),
        }
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
        let refused = |name| IfName::new(name).unwrap_err().to_string();
        assert_eq!(refused(""), "interface name is empty");
        assert_eq!(refused("a234567890123456"), "interface name is too long");
        assert_eq!(refused(".."), "interface name is . or ..");
        assert_eq!(refused("a\u{a0}b"), "interface name contains / or : or whitespace characters");
    }

    #[test]
    fn a_bad_name_becomes_the_reference_error() {
        let object = ErrorObject::from(NetworkName::new("a/b").unwrap_err());
        assert_eq!((object.code, object.details.as_str()), (Code::INVALID_CONFIG, "a/b"));
        let object = ErrorObject::from(IfName::new("a234567890123456").unwrap_err());
        let details = "interface name should be less than 16 characters";
        assert_eq!((object.code, object.details.as_str()), (Code::INVALID_ENVIRONMENT, details));
    }
}
