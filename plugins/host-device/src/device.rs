// SPDX-License-Identifier: Apache-2.0
//! What distinguishes a lent device from every link that a container could put in its place, and its form in the ledger.

use cnibox_netlink::{Link, parse_hardware_address};

/// A link of the host, to be known again wherever it is. A container chooses names, aliases, addresses and even indexes
/// of the links that it makes, but no permanent address, and nothing outside of it to stand on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Device {
    /// Its name on the host.
    pub(crate) host_name: String,
    /// Its permanent address, as the driver told it; that of a virtual one is empty.
    permanent: Vec<u8>,
    /// Its kind; `None` for a physical one.
    kind: Option<String>,
    /// The link that it stands on or leads to, which moves with nobody.
    beyond: Option<u32>,
}

impl Device {
    pub(crate) fn of(link: &Link) -> Self {
        Self {
            host_name: link.name.clone(),
            permanent: link.permanent_address.clone(),
            kind: link.kind.clone(),
            beyond: link.peer_index,
        }
    }

    /// Whether `link` is this device.
    pub(crate) fn is(&self, link: &Link) -> bool {
        let Self { permanent, kind, beyond, .. } = Self::of(link);
        (permanent, kind, beyond) == (self.permanent.clone(), self.kind.clone(), self.beyond)
    }

    /// Whether it is one that can be deleted.
    pub(crate) fn is_virtual(&self) -> bool {
        self.kind.is_some()
    }

    /// The lines that [`Device::noted`] reads.
    pub(crate) fn notes(&self) -> Vec<String> {
        let permanent: Vec<_> = self.permanent.iter().map(|byte| format!("{byte:02x}")).collect();
        let mut notes =
            vec![format!("{NAME}{}", self.host_name), format!("{PERMANENT}{}", permanent.join(":"))];
        notes.extend(self.kind.iter().map(|kind| format!("{KIND}{kind}")));
        notes.extend(self.beyond.iter().map(|index| format!("{BEYOND}{index}")));
        notes
    }

    /// The device that was noted when it was lent; `None` for one that the reference lent.
    pub(crate) fn noted(notes: &[String]) -> Option<Self> {
        let value = |word| notes.iter().find_map(|note| note.strip_prefix(word));
        Some(Self {
            host_name: value(NAME)?.to_owned(),
            permanent: parse_hardware_address(value(PERMANENT)?).unwrap_or_default(),
            kind: value(KIND).map(str::to_owned),
            beyond: value(BEYOND).and_then(|index| index.parse().ok()),
        })
    }
}

const NAME: &str = "device ";
const PERMANENT: &str = "permanent-address ";
const KIND: &str = "kind ";
const BEYOND: &str = "beyond ";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_survives_being_written_down() {
        let physical = Device {
            host_name: "eth1".to_owned(),
            permanent: vec![2, 0, 0, 0, 0, 1],
            kind: None,
            beyond: None,
        };
        assert_eq!(Device::noted(&physical.notes()), Some(physical));
        let virtual_one = Device {
            host_name: "veth1".to_owned(),
            permanent: Vec::new(),
            kind: Some("veth".to_owned()),
            beyond: Some(7),
        };
        assert_eq!(Device::noted(&virtual_one.notes()), Some(virtual_one));
        assert_eq!(Device::noted(&[]), None);
    }
}
