// SPDX-License-Identifier: Apache-2.0
//! Whose a host veth is and how far its ADD got, kept in the link's `ifalias`: it goes with the link, needs no
//! file, and `ip link` shows it.

use cnibox_netlink::Link;
use cnibox_spec::{Attachment, ContainerId, IfName, NetworkName, sha512_prefix};

use crate::Memo;

/// The owner of a link: an attachment of one network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    key: String,
}

/// How far an attachment got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// The ADD of a plugin of its chain is running, or was killed, and nothing but the alias could say so.
    Pending,
    /// Every plugin so far succeeded, unless the memory says otherwise (`Sys::attempt`, `Sys::chained_add_begins`).
    Ready,
    /// A later plugin of the chain failed its ADD.
    Failed,
}

impl Stage {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Ready => "ready",
            Self::Failed => "failed",
        }
    }
}

impl Owner {
    /// The attachment `ifname` of `container` to `network`.
    #[must_use]
    pub fn new(network: &NetworkName, container: &ContainerId, ifname: &IfName) -> Self {
        Self::of_names(network.as_str(), container.as_str(), ifname.as_str())
    }

    fn of_names(network: &str, container: &str, ifname: &str) -> Self {
        Self { key: format!("{}:{}:{ifname}", shortened(network), shortened(container)) }
    }

    /// The text for a link's `ifalias`, which holds at most 255 bytes (`IFALIASZ` of `linux/if.h`).
    #[must_use]
    pub fn alias(&self, stage: Stage) -> String {
        format!("{MARK}:{}:{}", stage.as_str(), self.key)
    }

    /// How far this owner's ADD got with `link`; `None` when the link is not its own.
    #[must_use]
    pub fn stage_of(&self, link: &Link) -> Option<Stage> {
        let (stage, key) = parse(link)?;
        (key == self.key).then_some(stage)
    }

    /// Whether `link` is marked as another attachment's.
    #[must_use]
    pub fn is_another(&self, link: &Link) -> bool {
        parse(link).is_some_and(|(_, key)| key != self.key)
    }
}

/// Whether `link` belongs to an attachment of `network` that is not among `valid`.
#[must_use]
pub fn is_stale(link: &Link, network: &NetworkName, valid: &[Attachment]) -> bool {
    let Some((_, key)) = parse(link) else { return false };
    let of_network = key.strip_prefix(&shortened(network.as_str())).is_some_and(|rest| rest.starts_with(':'));
    of_network
        && !valid
            .iter()
            .any(|live| Owner::of_names(network.as_str(), &live.container_id, &live.ifname).key == key)
}

fn parse(link: &Link) -> Option<(Stage, &str)> {
    let (stage, key) = link.alias.as_deref()?.strip_prefix(MARK)?.strip_prefix(':')?.split_once(':')?;
    let stage =
        [Stage::Pending, Stage::Ready, Stage::Failed].into_iter().find(|known| known.as_str() == stage)?;
    Some((stage, key))
}

/// Names have no upper length; one that is too long for an alias is there by its hash.
fn shortened(name: &str) -> String {
    if name.len() <= NAME_LIMIT { name.to_owned() } else { format!("+{}", sha512_prefix(&[name], 64)) }
}

const MARK: &str = "cnibox";
/// Two of them, an interface name, mark and stage stay below 255 bytes.
const NAME_LIMIT: usize = 100;

impl Memo {
    pub(crate) fn owner(&self) -> Owner {
        Owner::of_names(&self.network, &self.container, &self.ifname)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aliases_fit_the_kernel_and_tell_owners_apart() {
        let network = NetworkName::new(&"n".repeat(300)).unwrap();
        let container = ContainerId::new(&"c".repeat(300)).unwrap();
        let one = Owner::new(&network, &container, &IfName::new("eth0").unwrap());
        let other = Owner::new(&network, &container, &IfName::new("net1").unwrap());
        assert!(one.alias(Stage::Pending).len() <= 255);
        assert_ne!(one.alias(Stage::Ready), other.alias(Stage::Ready));
    }
}
