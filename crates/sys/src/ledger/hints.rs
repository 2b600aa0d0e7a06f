// SPDX-License-Identifier: Apache-2.0
//! What spares later calls a question. Where ADD put an attachment's packet filter rules, so that CHECK and DEL find them
//! without a listing of everybody else's: on a full node that costs more than all the rest. What the longest chains hold at
//! most, so that ADD need not list them to know that its rules are not there. And which part of the kernel was missed since
//! it was started: it would start `modprobe` for each question.

use cnibox_netfilter::{Engine, Inventory};
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

/// What the packet filter's long chains hold at most, in the namespace with this cookie. An upgraded program may put rules
/// in other words.
pub(crate) fn inventory_of(cookie: impl FnOnce() -> Option<u64>) -> Option<Inventory> {
    let note = PrivateDir::of_host("").read(INVENTORY, INVENTORY_LIMIT).ok().flatten()?;
    let (head, inventory) = note.split_once('\n')?;
    (head == inventory_head(cookie()?)).then(|| inventory.parse().ok())?
}

/// Notes what a call knows when its last change is done. Without the note the next call lists rules.
pub(crate) fn note_inventory(inventory: &Inventory, cookie: u64) {
    let dir = PrivateDir::of_host("");
    if inventory.is_empty() {
        let _ = dir.remove_if_present(INVENTORY);
        dir.remove_if_empty();
        return;
    }
    let note = format!("{}\n{inventory}", inventory_head(cookie));
    let _ = dir.replace(INVENTORY, note.as_bytes());
}

fn inventory_head(cookie: u64) -> String {
    format!("{} {cookie}", env!("CARGO_PKG_VERSION"))
}

const INVENTORY: &str = "inventory";
/// Above what an inventory of the longest chains has, in bytes.
const INVENTORY_LIMIT: u64 = 2 << 20;
const KERNEL: &str = "kernel";
/// How many are kept. ADDs that are repeated without DEL add to them; of many, older ones are stale.
pub(crate) const HINTS: usize = 64;
