// SPDX-License-Identifier: Apache-2.0
//! Whose a link of the host is, kept in its `ifalias`: it goes with the link, needs no file, and `ip link` shows it.

use cnibox_netlink::Link;
use cnibox_spec::{Attachment, NetworkName, shortened};

/// The mark of an attachment's links.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mark {
    key: String,
}

/// What a mark says of its attachment's ADD.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Nothing but whose the link is.
    Ready,
    /// A plugin of the chain failed its ADD, so that the attachment is none.
    Failed,
}

impl Mark {
    /// The attachment's.
    #[must_use]
    pub fn of(attachment: &Attachment) -> Self {
        let Attachment { network, container, ifname } = attachment;
        Self {
            key: format!(
                "{}:{}:{ifname}",
                shortened(network.as_str(), NAME_LIMIT),
                shortened(container.as_str(), NAME_LIMIT)
            ),
        }
    }

    /// The text for a link's `ifalias`, which holds at most 255 bytes (`IFALIASZ` of `linux/if.h`).
    #[must_use]
    pub fn alias(&self, stage: Stage) -> String {
        let stage = match stage {
            Stage::Ready => "ready",
            Stage::Failed => FAILED,
        };
        format!("{WHOSE}:{stage}:{}", self.key)
    }

    /// What the mark of `link` says; `None` when it is not this one.
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

/// Whether `link` is marked as an attachment's of `network`.
pub(crate) fn is_of_network(link: &Link, network: &NetworkName) -> bool {
    let of_network = |key: &str| {
        key.strip_prefix(&shortened(network.as_str(), NAME_LIMIT)).is_some_and(|rest| rest.starts_with(':'))
    };
    parse(link).is_some_and(|(_, key)| of_network(key))
}

/// A device that the host has lent a container comes back with the alias that the container gave it: only links that end
/// with the container's namespace can bear a mark.
fn parse(link: &Link) -> Option<(Stage, &str)> {
    MARKED_KINDS.iter().any(|kind| link.is_kind(kind)).then_some(())?;
    let (stage, key) = link.alias.as_deref()?.strip_prefix(WHOSE)?.strip_prefix(':')?.split_once(':')?;
    // Other versions may have other words.
    let stage = if stage == FAILED { Stage::Failed } else { Stage::Ready };
    (key.split(':').count() == 3).then_some((stage, key))
}

const WHOSE: &str = "cnibox";
const FAILED: &str = "failed";
const MARKED_KINDS: [&str; 2] = ["veth", "ifb"];
/// Two of them, an interface name, program and stage stay below 255 bytes.
const NAME_LIMIT: usize = 100;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aliases_fit_the_kernel_and_tell_attachments_apart() {
        let attachment = |ifname| Attachment::new(&"n".repeat(300), &"c".repeat(300), ifname).unwrap();
        let (one, other) = (Mark::of(&attachment("eth0")), Mark::of(&attachment("net1")));
        assert!(one.alias(Stage::Failed).len() <= 255);
        assert_ne!(one.alias(Stage::Ready), other.alias(Stage::Ready));
    }
}
