// SPDX-License-Identifier: Apache-2.0
//! What the ledger says of one attachment, and its form in a file: lines of a word and what it is about.
//!
//! Knows no file and no kernel. Lines that are not understood are skipped: a later version may have written them.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;

use cnibox_netlink::Mac;
use cnibox_spec::Attachment;

/// One attachment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Which one.
    pub attachment: Attachment,
    /// How far its ADD came.
    pub progress: Progress,
    /// Where its interface was made.
    pub namespace: Option<Namespace>,
    /// The host's end of its interface, by the name that was noted before it was made.
    pub host_link: Option<String>,
    /// Its interface in the container, for those that have no end on the host.
    pub pod_link: Option<PodLink>,
    /// The addresses that it was given.
    pub addresses: Vec<IpAddr>,
    /// What each plugin of its chain has noted.
    pub shares: BTreeMap<String, Share>,
}

/// How far an attachment's ADD came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// A plugin's ADD has begun. While the file is locked it runs; else it was killed.
    Begun,
    /// Every plugin so far succeeded.
    Finished,
    /// A plugin's ADD failed.
    Failed,
    /// Its interface was not made by a plugin that keeps the ledger; only notes are here.
    Foreign,
}

impl Progress {
    const ALL: [Self; 4] = [Self::Begun, Self::Finished, Self::Failed, Self::Foreign];

    const fn as_str(self) -> &'static str {
        match self {
            Self::Begun => "begun",
            Self::Finished => "finished",
            Self::Failed => "failed",
            Self::Foreign => "foreign",
        }
    }
}

/// A network namespace, so that it is known again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Namespace {
    /// Where it was found.
    pub path: String,
    /// Device and inode, which another one may have got since.
    pub inode: (u64, u64),
    /// The kernel's number for it, which no other gets before the next boot (`SO_NETNS_COOKIE`, Linux 5.14).
    pub cookie: Option<u64>,
}

/// A link of another namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PodLink {
    /// The host's number for the namespace, which another one may have got since (`ip netns list-id`).
    pub nsid: i32,
    /// The link's index there.
    pub index: u32,
    /// Its hardware address.
    pub mac: Option<Mac>,
}

/// What one plugin has noted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Share {
    /// Whether its ADD succeeded.
    pub finished: bool,
    /// Whether this is about an attempt that is dead and whose interface is gone: what the plugin did for it is still
    /// to be taken down, by the plugin itself.
    pub superseded: bool,
    /// Its own notes, a line each.
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

    /// Reads what `Display` writes; `None` when it does not say what it is about.
    #[must_use]
    pub fn read(text: &str) -> Option<Self> {
        let (first, rest) = text.split_once('\n').unwrap_or((text, ""));
        let mut names = first.strip_prefix("attachment ")?.split(' ');
        let attachment = Attachment::new(names.next()?, names.next()?, names.next()?).ok()?;
        let mut record = Self::new(attachment);
        for line in rest.lines() {
            let (word, value) = line.split_once(' ').unwrap_or((line, ""));
            let _ = record.read_line(word, value);
        }
        Some(record)
    }

    fn read_line(&mut self, word: &str, value: &str) -> Option<()> {
        match word {
            "progress" => {
                self.progress = Progress::ALL.into_iter().find(|known| known.as_str() == value)?;
            }
            "namespace" => self.namespace = Some(Namespace::read(value)?),
            "host-link" => self.host_link = Some(value.to_owned()),
            "pod-link" => self.pod_link = Some(PodLink::read(value)?),
            "address" => self.addresses.push(value.parse().ok()?),
            "finished" => self.share(value).finished = true,
            "superseded" => self.share(value).superseded = true,
            "notes" => drop(self.share(value)),
            "note" => {
                let (plugin, note) = value.split_once(' ').unwrap_or((value, ""));
                self.share(plugin).notes.push(note.to_owned());
            }
            "rule" => {
                let (plugin, hint) = value.split_once(' ')?;
                self.share(plugin).hints.push(hint.to_owned());
            }
            _ => {}
        }
        Some(())
    }

    pub(crate) fn share(&mut self, plugin: &str) -> &mut Share {
        self.shares.entry(plugin.to_owned()).or_default()
    }
}

impl fmt::Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Attachment { network, container, ifname } = &self.attachment;
        writeln!(f, "attachment {network} {container} {ifname}")?;
        writeln!(f, "progress {}", self.progress.as_str())?;
        if let Some(Namespace { path, inode: (device, inode), cookie }) = &self.namespace {
            let cookie = cookie.map_or_else(|| UNKNOWN.to_owned(), |cookie| cookie.to_string());
            writeln!(f, "namespace {device} {inode} {cookie} {}", one_line(path))?;
        }
        if let Some(name) = &self.host_link {
            writeln!(f, "host-link {name}")?;
        }
        if let Some(PodLink { nsid, index, mac }) = &self.pod_link {
            let mac = mac.map_or_else(|| UNKNOWN.to_owned(), |mac| mac.to_string());
            writeln!(f, "pod-link {nsid} {index} {mac}")?;
        }
        for address in &self.addresses {
            writeln!(f, "address {address}")?;
        }
        for (plugin, share) in &self.shares {
            writeln!(f, "notes {plugin}")?;
            if share.finished {
                writeln!(f, "finished {plugin}")?;
            }
            if share.superseded {
                writeln!(f, "superseded {plugin}")?;
            }
            for note in &share.notes {
                writeln!(f, "note {plugin} {}", one_line(note))?;
            }
            for hint in &share.hints {
                writeln!(f, "rule {plugin} {}", one_line(hint))?;
            }
        }
        Ok(())
    }
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

    fn read(value: &str) -> Option<Self> {
        let mut words = value.splitn(4, ' ');
        let inode = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
        let cookie = words.next()?.parse().ok();
        Some(Self { inode, cookie, path: words.next()?.to_owned() })
    }
}

impl PodLink {
    fn read(value: &str) -> Option<Self> {
        let mut words = value.split(' ');
        let (nsid, index) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
        Some(Self { nsid, index, mac: words.next()?.parse().ok() })
    }
}

/// A line end in a path or a note would begin a line of its own.
fn one_line(text: &str) -> String {
    text.replace(['\n', '\r'], " ")
}

const UNKNOWN: &str = "-";

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
        record.pod_link = Some(PodLink { nsid: 3, index: 2, mac: Some(Mac([2, 0, 0, 0, 0, 1])) });
        record.addresses = vec!["10.0.0.2".parse().unwrap(), "fd00::2".parse().unwrap()];
        record.share("portmap").notes = vec![String::new(), "iptables".to_owned()];
        record.share("firewall").finished = true;
        record.share("bridge").superseded = true;
        record.share("bridge").hints = vec!["ip nat 17 POSTROUTING".to_owned()];
        assert_eq!(Record::read(&record.to_string()), Some(record));
    }

    #[test]
    fn what_is_not_understood_is_skipped() {
        let text =
            "attachment net c1 eth0\nprogress sideways\nfuture 1 2 3\npod-link x\naddress nowhere\n\u{0}";
        assert_eq!(Record::read(text), Some(Record::new(Attachment::new("net", "c1", "eth0").unwrap())));
        for text in ["", "attachment", "attachment a b", "attachment a/b c d", "note x y"] {
            assert_eq!(Record::read(text), None, "{text:?}");
        }
    }

    #[test]
    fn a_note_is_one_line_whatever_it_says() {
        let mut record = Record::new(Attachment::new("net", "c1", "eth0").unwrap());
        record.share("tuning").notes = vec!["/a\nprogress failed".to_owned()];
        let read = Record::read(&record.to_string()).unwrap();
        assert_eq!(read.progress, Progress::Foreign);
        assert_eq!(read.notes("tuning"), ["/a progress failed"]);
    }
}
