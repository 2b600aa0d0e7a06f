// SPDX-License-Identifier: Apache-2.0
//! What distinguishes a lent device from every link that a container could put in its place, in its form in the ledger.

use cnibox_netlink::Link;

/// A link of the host, to be known again wherever it is. A container chooses names, aliases, addresses and even indexes
/// of the links that it makes, but no permanent address, and nothing outside of it to stand on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Device {
    /// Its name on the host.
    pub(crate) host_name: String,
    /// What else is noted of it: its permanent address, as the driver told it (that of a virtual one is empty); the kind
    /// of a virtual one; the link that it stands on or leads to, which moves with nobody.
    traits: Vec<String>,
}

impl Device {
    pub(crate) fn of(link: &Link) -> Self {
        let permanent: Vec<_> = link.permanent_address.iter().map(|byte| format!("{byte:02x}")).collect();
        let mut traits = vec![format!("permanent-address {}", permanent.join(":"))];
        traits.extend(link.kind.iter().map(|kind| format!("{KIND}{kind}")));
        traits.extend(link.peer_index.iter().map(|index| format!("beyond {index}")));
        Self { host_name: link.name.clone(), traits }
    }

    /// Whether `link` is this device.
    pub(crate) fn is(&self, link: &Link) -> bool {
        Self::of(link).traits == self.traits
    }

    /// Whether it is one that can be deleted.
    pub(crate) fn is_virtual(&self) -> bool {
        self.traits.iter().any(|line| line.starts_with(KIND))
    }

    /// The lines that [`Device::noted`] reads.
    pub(crate) fn notes(&self) -> Vec<String> {
        let mut notes = vec![format!("{NAME}{}", self.host_name)];
        notes.extend_from_slice(&self.traits);
        notes
    }

    /// The device that was noted when it was lent; `None` for one that the reference lent.
    pub(crate) fn noted(notes: &[String]) -> Option<Self> {
        let (name, traits) = notes.split_first()?;
        Some(Self { host_name: name.strip_prefix(NAME)?.to_owned(), traits: traits.to_vec() })
    }
}

const NAME: &str = "device ";
const KIND: &str = "kind ";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_survives_being_written_down() {
        let physical =
            Link { name: "eth1".to_owned(), permanent_address: vec![2, 0, 0, 0, 0, 1], ..Link::default() };
        let virtual_one = Link {
            name: "veth1".to_owned(),
            kind: Some("veth".to_owned()),
            peer_index: Some(7),
            ..Link::default()
        };
        let cases: [(_, &[&str]); 2] = [
            (&physical, &["device eth1", "permanent-address 02:00:00:00:00:01"]),
            (&virtual_one, &["device veth1", "permanent-address ", "kind veth", "beyond 7"]),
        ];
        for (link, notes) in cases {
            let device = Device::of(link);
            // Records are read that another build has written.
            assert_eq!(device.notes(), notes);
            assert_eq!(Device::noted(&device.notes()), Some(device.clone()));
            assert!(device.is(&Link { name: "renamed".to_owned(), ..link.clone() }));
            assert_eq!(device.is_virtual(), link.kind.is_some());
        }
        assert!(!Device::of(&virtual_one).is(&physical));
        assert_eq!(Device::noted(&[]), None);
    }
}
