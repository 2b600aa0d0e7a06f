// SPDX-License-Identifier: Apache-2.0
//! What spares later calls a question. Where ADD put an attachment's packet filter rules, so that CHECK and DEL find them
//! without a listing of everybody else's: on a full node that costs more than all the rest. And which part of the kernel
//! was missed since it was started: it would start `modprobe` for each question.

use cnibox_netfilter::{Engine, Hint};

use super::private_dir::PrivateDir;
use super::turn::Turn;

/// The part of the kernel that a call missed since the kernel was started.
pub(crate) fn missed() -> Option<String> {
    let note = PrivateDir::of_host("").read(KERNEL, 256).ok().flatten()?;
    let (boot, module) = note.trim_end().split_once(' ')?;
    (boot == boot_id()?).then(|| module.to_owned())
}

/// Notes what this call missed.
pub(crate) fn note_missed(engine: &Engine) {
    if let (Some(module), Some(boot)) = (engine.missed(), boot_id()) {
        // Without the note the next call asks again.
        let _ = PrivateDir::of_host("").replace(KERNEL, format!("{boot} {module}\n").as_bytes());
    }
}

fn boot_id() -> Option<String> {
    Some(std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?.trim_end().to_owned())
}

/// What an earlier call noted. Lines that say nothing are left out.
pub(crate) fn recall(turn: &Turn) -> Vec<Hint> {
    turn.hints().iter().filter_map(|line| line.parse().ok()).collect()
}

/// Where this call put rules, a line each.
pub(crate) fn hint_lines(engine: &Engine) -> Vec<String> {
    engine.added().iter().map(Hint::to_string).collect()
}

const KERNEL: &str = "kernel";
/// How many are kept. ADDs that are repeated without DEL add to them; of many, older ones are stale.
pub(crate) const HINTS: usize = 64;
