// SPDX-License-Identifier: Apache-2.0
//! Attempts at an attachment: whether an earlier one is dead (`life`), what ADD notes (`add`, `notes`), what DEL and GC
//! forget (`del`). The ledger says what was; this room looks at the kernel as well. Must never know what a plugin makes.

mod add;
mod del;
mod life;
mod notes;
