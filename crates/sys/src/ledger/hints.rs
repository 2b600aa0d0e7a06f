// SPDX-License-Identifier: Apache-2.0
//! What spares later calls a question. Where ADD put an attachment's packet filter rules, so that CHECK and DEL find them
//! without a listing of everybody else's: on a full node that costs more than all the rest. What the longest chains hold at
//! most, so that ADD need not list them to know that its rules are not there. And which part of the kernel was missed since
//! it was started: it would start `modprobe` for each question.

use cnibox_netfilter::{Engine, Inventory, Shelf};
use cnibox_netns::sysctl;

use super::private_dir::PrivateDir;

/// The part of the kernel that a call missed since the kernel was started.
pub(crate) fn missed() -> Option<String> {
    let note = PrivateDir::of_host("").read(KERNEL, 256).ok().flatten()?;
    let (boot, module) = note.trim_end().split_once(' ')?;
    (boot == sysctl::read(sysctl::BOOT_ID).ok()?).then(|| module.to_owned())
}

/// Notes what this call missed.
pub(crate) fn note_missed(engine: &Engine) {
    if let (Some(module), Ok(boot)) = (engine.missed(), sysctl::read(sysctl::BOOT_ID)) {
        // Without the note the next call asks again.
        let _ = PrivateDir::of_host("").replace(KERNEL, format!("{boot} {module}\n").as_bytes());
    }
}

/// What the packet filter's long chains hold at most, in the namespace with this cookie: a file whose name says of which
/// generation of the ruleset it is, so that a call that only takes rules away renames it and need not read it. An upgraded
/// program may put rules in other words.
pub(crate) struct Inventories {
    cookie: u64,
}

impl Inventories {
    /// Those of the namespace with this cookie.
    pub(crate) fn of(cookie: u64) -> Self {
        Self { cookie }
    }

    fn name(&self, generation: u32) -> String {
        format!("{INVENTORY}-{}-{}-{generation}", env!("CARGO_PKG_VERSION"), self.cookie)
    }
}

/// What fails costs the next call a listing.
impl Shelf for Inventories {
    fn inventory(&self, generation: u32) -> Option<Inventory> {
        let dir = PrivateDir::of_host("");
        dir.read(&self.name(generation), INVENTORY_LIMIT).ok().flatten()?.parse().ok()
    }

    fn keep(&self, generation: u32, inventory: &Inventory) {
        let (dir, name) = (PrivateDir::of_host(""), self.name(generation));
        for other in dir.names().iter().filter(|other| other.starts_with(INVENTORY) && **other != name) {
            let _ = dir.remove_if_present(other);
        }
        // What a killed process was writing had another name.
        dir.sweep_all();
        if inventory.is_empty() {
            dir.remove_if_empty();
        } else {
            let _ = dir.replace(&name, inventory.to_string().as_bytes());
        }
    }

    fn advance(&self, was: u32, now: u32) {
        let _ = PrivateDir::of_host("").rename(&self.name(was), &self.name(now));
    }
}

const INVENTORY: &str = "inventory";
/// Above what an inventory of the longest chains has, in bytes.
const INVENTORY_LIMIT: u64 = 2 << 20;
const KERNEL: &str = "kernel";
/// How many are kept. ADDs that are repeated without DEL add to them; of many, older ones are stale.
pub(crate) const HINTS: usize = 64;
