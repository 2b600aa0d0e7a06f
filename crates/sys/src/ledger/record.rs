// SPDX-License-Identifier: Apache-2.0
//! What the ledger says of one attachment, and its form in a file: a JSON document on one line.
//!
//! Knows no file and no kernel. Members that are not understood are skipped, each for itself: a later version may have written
//! them.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;

use cnibox_spec::Attachment;
use serde::de::{DeserializeOwned, Error};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// One attachment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// Which one.
    #[serde(serialize_with = "write_names", deserialize_with = "read_names")]
    pub attachment: Attachment,
    /// How far its ADD came.
    #[serde(default, deserialize_with = "known")]
    pub progress: Progress,
    /// Where its interface was made.
    #[serde(default, deserialize_with = "known")]
    pub namespace: Option<Namespace>,
    /// The host's end of its interface, by the name that was noted before it was made.
    #[serde(default, deserialize_with = "known")]
    pub host_link: Option<String>,
    /// Its interface in the container, for those that have no end on the host.
    #[serde(default, deserialize_with = "known")]
    pub pod_link: Option<PodLink>,
    /// The addresses that it was given.
    #[serde(default, deserialize_with = "known")]
    pub addresses: Vec<IpAddr>,
    /// What each plugin of its chain has noted.
    #[serde(default, deserialize_with = "known")]
    pub shares: BTreeMap<String, Share>,
}

/// How far an attachment's ADD came.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Progress {
    /// A plugin's ADD has begun. While the file is locked it runs; else it was killed.
    Begun,
    /// Every plugin so far succeeded.
    Finished,
    /// A plugin's ADD failed.
    Failed,
    /// Its interface was not made by a plugin that keeps the ledger; only notes are here.
    #[default]
    #[serde(other)]
    Foreign,
}

/// A network namespace, so that it is known again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Namespace {
    /// Where it was found.
    pub path: String,
    /// Device and inode, which another one may have got since.
    pub inode: (u64, u64),
    /// The kernel's number for it, which no other gets before the next boot (`SO_NETNS_COOKIE`, Linux 5.14).
    pub cookie: Option<u64>,
}

/// A link of another namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PodLink {
    /// The host's number for the namespace, which another one may have got since (`ip netns list-id`).
    pub nsid: i32,
    /// The link's index there.
    pub index: u32,
    /// Its hardware address.
    pub mac: Option<[u8; 6]>,
}

/// What one plugin has noted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Share {
    /// Whether its ADD succeeded.
    pub finished: bool,
    /// Whether this is about an attempt that is dead and whose interface is gone: what the plugin did for it is still
    /// to be taken down, by the plugin itself.
    pub superseded: bool,
    /// Its own notes.
    pub notes: Vec<String>,
    /// Where its packet filter rules are.
    pub hints: Vec<String>,
}

impl Record {
    /// A record that says nothing but which attachment it is about.
    #[must_use]
    pub fn new(attachment: Attachment) -> Self {
        Self {
            attachment,
            progress: Progress::Foreign,
            namespace: None,
            host_link: None,
            pod_link: None,
            addresses: Vec::new(),
            shares: BTreeMap::new(),
        }
    }

    /// Whether nothing would be lost without it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.progress == Progress::Foreign && self.shares.is_empty()
    }

    /// What `plugin` has noted.
    #[must_use]
    pub fn notes(&self, plugin: &str) -> &[String] {
        self.shares.get(plugin).map(|share| share.notes.as_slice()).unwrap_or_default()
    }

    /// Whether this is the interface that was noted.
    pub(crate) fn made(&self, index: u32, namespace: &Namespace) -> bool {
        self.pod_link.is_some_and(|made| made.index == index)
            && self.namespace.as_ref().is_some_and(|made| made.is_same(namespace))
    }

    /// Whether its ADD has not come to its end, or failed.
    pub(crate) fn is_unfinished(&self) -> bool {
        matches!(self.progress, Progress::Begun | Progress::Failed)
    }

    /// What is not the interface's: the rest of an attempt whose interface is gone.
    pub(crate) fn clear_interface(&mut self) {
        let Self { attachment, shares, .. } = self;
        *self = Self { shares: std::mem::take(shares), ..Self::new(attachment.clone()) };
    }

    /// Reads what `Display` writes; `None` when it does not say what it is about, or makes no sense.
    #[must_use]
    pub fn read(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }

    pub(crate) fn share(&mut self, plugin: &str) -> &mut Share {
        self.shares.entry(plugin.to_owned()).or_default()
    }
}

impl fmt::Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", serde_json::to_string(self).map_err(|_| fmt::Error)?)
    }
}

fn write_names<S: Serializer>(attachment: &Attachment, serializer: S) -> Result<S::Ok, S::Error> {
    let Attachment { network, container, ifname } = attachment;
    [network.as_str(), container.as_str(), ifname.as_str()].serialize(serializer)
}

/// A member, or nothing where it is not understood.
fn known<'de, D: Deserializer<'de>, T: DeserializeOwned + Default>(deserializer: D) -> Result<T, D::Error> {
    Ok(serde_json::from_value(serde_json::Value::deserialize(deserializer)?).unwrap_or_default())
}

fn read_names<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Attachment, D::Error> {
    let [network, container, ifname] = <[String; 3]>::deserialize(deserializer)?;
    Attachment::new(&network, &container, &ifname).map_err(Error::custom)
}

impl Namespace {
    /// Whether both are about one namespace.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        match (self.cookie, other.cookie) {
            (Some(one), Some(other)) => one == other,
            _ => self.inode == other.inode,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_survives_being_written_down() {
        let mut record = Record::new(Attachment::new("net", "c1", "eth0").unwrap());
        assert_eq!(Record::read(&record.to_string()).as_ref(), Some(&record));
        record.progress = Progress::Begun;
        record.namespace =
            Some(Namespace { path: "/run/netns/a b".to_owned(), inode: (4, 4_026_532_000), cookie: Some(7) });
        record.host_link = Some("veth0123abcd".to_owned());
        record.pod_link = Some(PodLink { nsid: 3, index: 2, mac: Some([2, 0, 0, 0, 0, 1]) });
        record.addresses = vec!["10.0.0.2".parse().unwrap(), "fd00::2".parse().unwrap()];
        record.share("portmap").notes = vec![String::new(), "iptables".to_owned()];
        record.share("firewall").finished = true;
        record.share("bridge").superseded = true;
        record.share("bridge").hints = vec!["ip nat 17 POSTROUTING".to_owned()];
        assert_eq!(Record::read(&record.to_string()), Some(record));
    }

    #[test]
    fn what_is_not_understood_is_skipped() {
        let text = r#"{"attachment":["net","c1","eth0"],"progress":["begun"],"namespace":7,"pod_link":{"nsid":"x"},
            "addresses":["nowhere"],"host_link":"veth0","future":[1,{"a":2}]}"#;
        let record = Record::new(Attachment::new("net", "c1", "eth0").unwrap());
        assert_eq!(Record::read(text), Some(Record { host_link: Some("veth0".to_owned()), ..record }));
        let text = r#"{"attachment":["net","c1","eth0"],"progress":"sideways"}"#;
        assert_eq!(Record::read(text).map(|record| record.progress), Some(Progress::Foreign));
    }

    #[test]
    fn what_makes_no_sense_is_no_record() {
        for text in [
            "",
            "{}",
            r#"{"attachment":["a","b"]}"#,
            r#"{"attachment":["a/b","c","d"]}"#,
            r#"{"attachment":["a","b","c"]} {"#,
            "attachment a b c\nprogress begun\n",
        ] {
            assert_eq!(Record::read(text), None, "{text:?}");
        }
    }

    #[test]
    fn a_record_is_one_line_whatever_a_note_says() {
        let mut record = Record::new(Attachment::new("net", "c1", "eth0").unwrap());
        record.share("tuning").notes = vec!["/a\n\"progress\":\"failed\"".to_owned()];
        let text = record.to_string();
        assert_eq!((text.lines().count(), Record::read(&text)), (1, Some(record)));
    }
}
