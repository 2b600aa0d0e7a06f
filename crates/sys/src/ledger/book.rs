// SPDX-License-Identifier: Apache-2.0
//! Where the ledger's records are: one file for each attachment below `/run/cnibox/attachments`, and one for each
//! address that an attachment was given below `/run/cnibox/addresses`.
//!
//! Knows no kernel and no plugin. It ends with the boot, as interfaces and packet filter rules do. Everything works
//! without it, so that nothing in here is an error to anybody.

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::net::IpAddr;

use cnibox_spec::{
    Attachment, ContainerId, LiveAttachment, NetworkName, is_shortened, sha512_prefix, shortened,
};

use super::private_dir::{PrivateDir, read};
use super::record::Record;

/// The ledger of the host's attachments.
#[derive(Clone, Debug)]
pub struct Ledger {
    root: PrivateDir,
}

impl Ledger {
    /// That of this host.
    #[must_use]
    pub fn of_host() -> Self {
        Self { root: PrivateDir::of_host("") }
    }

    /// The record of an attachment.
    #[must_use]
    pub fn read(&self, attachment: &Attachment) -> Option<Record> {
        self.read_or_fail(attachment).ok().flatten()
    }

    /// The same, where it matters whether there is none.
    pub(crate) fn read_or_fail(&self, attachment: &Attachment) -> io::Result<Option<Record>> {
        let text = self.shelf(&attachment.container).read(&name(attachment), SIZE_LIMIT)?;
        let record = text.as_deref().and_then(Record::read);
        Ok(record.filter(|record| record.attachment == *attachment))
    }

    /// Whether a process that lives is at the attachment's ADD.
    #[must_use]
    pub fn is_held(&self, attachment: &Attachment) -> bool {
        self.shelf(&attachment.container).is_held(&name(attachment))
    }

    /// Writes a record in place of the attachment's older one. It is held as long as the answer is kept; `None` when it
    /// could not be written.
    #[must_use]
    pub fn write(&self, record: &Record) -> Option<File> {
        let Attachment { container, .. } = &record.attachment;
        let text = record.to_string();
        (text.len() as u64 <= SIZE_LIMIT)
            .then(|| self.shelf(container).replace(&name(&record.attachment), text.as_bytes()).ok())?
    }

    /// Removes the attachment's record, and what a killed call has left in its place.
    pub fn forget(&self, attachment: &Attachment) {
        let shelf = self.shelf(&attachment.container);
        let _ = shelf.remove_if_present(&name(attachment));
        shelf.remove_if_empty();
    }

    /// The records of a container's attachments.
    #[must_use]
    pub fn of_container(&self, container: &ContainerId) -> Vec<Record> {
        let start = format!("{container}:");
        let mut records =
            on_shelf(&self.shelf(container), |file| file.starts_with(&start) || is_shortened(file));
        records.retain(|record| record.attachment.container == *container);
        records
    }

    /// The records that lie beside the attachment's: a share of all that stays small.
    pub(crate) fn beside(&self, attachment: &Attachment) -> Vec<Record> {
        on_shelf(&self.shelf(&attachment.container), |file| file != name(attachment))
    }

    /// Every record.
    #[must_use]
    pub fn all(&self) -> Vec<Record> {
        let shelves = self.root.below(ATTACHMENTS);
        shelves.names().iter().flat_map(|shelf| on_shelf(&shelves.below(shelf), |_| true)).collect()
    }

    /// The records of the network's attachments that are not among the `living` and whose ADD does not run.
    #[must_use]
    pub fn stale(&self, network: &NetworkName, living: &[LiveAttachment]) -> Vec<Record> {
        let mut records = self.all();
        records.retain(|Record { attachment, .. }| {
            attachment.network == *network && !attachment.is_among(living) && !self.is_held(attachment)
        });
        records
    }

    /// Whether no ADD has begun since the record was read.
    pub(crate) fn is_as_read(&self, record: &Record) -> bool {
        !self.is_held(&record.attachment) && self.read(&record.attachment).as_ref() == Some(record)
    }

    /// Removes what killed calls were writing, of records and of claims. Nothing else names a record that was to be the
    /// attachment's first: only a DEL of just that attachment would come upon it.
    pub(crate) fn sweep(&self) {
        for kind in [ATTACHMENTS, ADDRESSES] {
            let dirs = self.root.below(kind);
            dirs.names().iter().for_each(|name| dirs.below(name).sweep_all());
        }
    }

    /// Notes whose an address is.
    pub(crate) fn claim(&self, address: IpAddr, owner: &Attachment) {
        let Attachment { network, container, ifname } = owner;
        let _ = self
            .addresses(network)
            .replace(&address.to_string(), format!("{container} {ifname}\n").as_bytes());
    }

    /// Whose an address of the network is, as far as that is noted.
    pub(crate) fn claimant(&self, network: &NetworkName, address: IpAddr) -> Option<Attachment> {
        let text = self.addresses(network).read(&address.to_string(), SIZE_LIMIT).ok().flatten()?;
        let (container, ifname) = text.trim_end().split_once(' ')?;
        Attachment::new(network.as_str(), container, ifname).ok()
    }

    /// The records of those who were given one of the addresses, in whatever network.
    pub(crate) fn claimants(&self, addresses: &BTreeSet<IpAddr>) -> Vec<(IpAddr, Record)> {
        let networks = self.root.below(ADDRESSES);
        let mut found = Vec::new();
        for network in networks.names() {
            let claims = networks.below(&network);
            for &address in addresses {
                let text = claims.read(&address.to_string(), SIZE_LIMIT).ok().flatten().unwrap_or_default();
                let Some((container, ifname)) = text.trim_end().split_once(' ') else { continue };
                let Ok(container) = ContainerId::new(container) else { continue };
                let mut records = self.of_container(&container);
                records.retain(|record| {
                    record.attachment.ifname.as_str() == ifname && record.addresses.contains(&address)
                });
                found.extend(records.into_iter().map(|record| (address, record)));
            }
        }
        found
    }

    /// Forgets whose an address is, if it is the attachment's.
    pub(crate) fn disclaim(&self, address: IpAddr, owner: &Attachment) {
        let addresses = self.addresses(&owner.network);
        if self.claimant(&owner.network, address).as_ref() == Some(owner) {
            let _ = addresses.remove_if_present(&address.to_string());
        } else {
            // An ADD may have been killed while it wrote its claim.
            addresses.sweep(&address.to_string());
        }
        addresses.remove_if_empty();
    }

    /// Records are spread by container, so that the few of one container, and a few others, can be listed cheaply.
    fn shelf(&self, container: &ContainerId) -> PrivateDir {
        self.root.below(ATTACHMENTS).below(&sha512_prefix(&[container.as_str()], SHELF_DIGITS))
    }

    fn addresses(&self, network: &NetworkName) -> PrivateDir {
        self.root.below(ADDRESSES).below(&shortened(network.as_str(), NAME_LIMIT))
    }
}

/// The records in files with a `wanted` name.
fn on_shelf(shelf: &PrivateDir, wanted: impl Fn(&str) -> bool) -> Vec<Record> {
    let read = |file: &String| Record::read(&read(&shelf.open(file).ok()?, SIZE_LIMIT).ok()?);
    shelf.names().iter().filter(|file| wanted(file)).filter_map(read).collect()
}

/// No name has a colon.
fn name(attachment: &Attachment) -> String {
    let Attachment { network, container, ifname } = attachment;
    shortened(&format!("{container}:{network}:{ifname}"), NAME_LIMIT)
}

const ATTACHMENTS: &str = "attachments";
const ADDRESSES: &str = "addresses";
/// 256 shelves.
const SHELF_DIGITS: usize = 2;
/// Below `NAME_MAX`, 255 bytes.
const NAME_LIMIT: usize = 200;
/// Far more than any attachment's plugins note, in bytes.
const SIZE_LIMIT: u64 = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::Progress;

    fn scratch(name: &str) -> Ledger {
        let path = std::env::temp_dir().join(format!("cnibox-ledger-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        Ledger { root: PrivateDir::new(path) }
    }

    fn record(network: &str, container: &str, ifname: &str) -> Record {
        let mut record = Record::new(Attachment::new(network, container, ifname).unwrap());
        record.share("portmap").notes = vec!["one".into()];
        record
    }

    #[test]
    fn attachments_are_remembered_apart_and_forgotten_without_a_trace() {
        let ledger = scratch("apart");
        let (one, other) = (record("n", "c", "eth0"), record("n", "c", "eth1"));
        let held = ledger.write(&one);
        drop(ledger.write(&other));
        assert!(held.is_some() && ledger.is_held(&one.attachment) && !ledger.is_held(&other.attachment));
        assert_eq!(ledger.read(&one.attachment), Some(one.clone()));
        let container = |id| ContainerId::new(id).unwrap();
        assert_eq!(
            (ledger.of_container(&container("c")).len(), ledger.of_container(&container("d")).len()),
            (2, 0)
        );
        assert_eq!(ledger.beside(&one.attachment), std::slice::from_ref(&other));
        ledger.forget(&one.attachment);
        ledger.forget(&one.attachment);
        assert_eq!(ledger.all(), std::slice::from_ref(&other));
        let network = NetworkName::new("n").unwrap();
        assert_eq!(ledger.stale(&network, &[]), std::slice::from_ref(&other));
        let running = ledger.write(&other);
        assert_eq!(ledger.stale(&network, &[]), []);
        drop(running);
        let living = LiveAttachment { container_id: "c".into(), ifname: "eth1".into() };
        assert_eq!(ledger.stale(&network, &[living]), []);
        ledger.forget(&other.attachment);
        assert!(!ledger.root.path().exists());
    }

    #[test]
    fn a_record_is_another_once_an_add_has_begun_or_is_done() {
        let ledger = scratch("again");
        let mut record = record("n", "c", "eth0");
        drop(ledger.write(&record));
        let read = ledger.read(&record.attachment).unwrap();
        assert!(ledger.is_as_read(&read));
        let held = ledger.write(&record);
        assert!(!ledger.is_as_read(&read));
        drop(held);
        assert!(ledger.is_as_read(&read));
        record.progress = Progress::Finished;
        drop(ledger.write(&record));
        assert!(!ledger.is_as_read(&read));
        ledger.forget(&record.attachment);
        assert!(!ledger.is_as_read(&read));
    }

    #[test]
    fn what_a_killed_call_was_writing_goes_and_what_a_living_one_writes_stays() {
        let ledger = scratch("sweep");
        let Attachment { network, container, .. } = record("n", "c", "eth0").attachment;
        let half = [
            ledger.shelf(&container).path().join(".new-c:n:eth0"),
            ledger.addresses(&network).path().join(".new-10.0.0.1"),
        ];
        for path in &half {
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "").unwrap();
        }
        let writer = File::open(&half[0]).unwrap();
        writer.try_lock().unwrap();
        ledger.sweep();
        assert!(half[0].exists() && !half[1].exists());
        drop(writer);
        ledger.sweep();
        assert!(!ledger.root.path().exists());
    }

    #[test]
    fn names_of_any_length_have_a_file() {
        let ledger = scratch("long");
        let long = record(&"n".repeat(300), &"c".repeat(300), "eth0");
        assert!(ledger.write(&long).is_some());
        assert_eq!(ledger.read(&long.attachment), Some(long.clone()));
        assert_eq!(ledger.of_container(&long.attachment.container), std::slice::from_ref(&long));
        assert_eq!(ledger.beside(&long.attachment), []);
        ledger.claim("10.0.0.1".parse().unwrap(), &long.attachment);
        ledger.disclaim("10.0.0.1".parse().unwrap(), &long.attachment);
        ledger.forget(&long.attachment);
        assert!(!ledger.root.path().exists());
    }

    #[test]
    fn an_address_is_disclaimed_by_its_owner_only() {
        let ledger = scratch("claims");
        let (one, other) = (record("n", "c", "eth0").attachment, record("n", "d", "eth0").attachment);
        let address: IpAddr = "fd00::2".parse().unwrap();
        ledger.claim(address, &one);
        ledger.disclaim(address, &other);
        assert_eq!(ledger.claimant(&one.network, address), Some(one.clone()));
        ledger.disclaim(address, &one);
        assert_eq!(ledger.claimant(&one.network, address), None);
        assert!(!ledger.root.path().exists());
    }
}
