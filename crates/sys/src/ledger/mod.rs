// SPDX-License-Identifier: Apache-2.0
//! The ledger of attachments: what was made for whom, how far it came, and whether it may be taken away.
//!
//! One record for each attachment, written by the plugins of its chain in turn ([`Record`], [`Ledger`]); the mark of its
//! links on the host ([`Mark`]); what the call that is running may write; and notes that spare questions: where rules are, how
//! long chains are, what the kernel lacks. Knows files and no kernel; must never know a plugin by name. Who lives is found
//! out in the room `attempt`. Losing the ledger loses no
//! correctness: everything works without it, with attachments that the Go plugins made, and where `/run` cannot be
//! written; then less is proved, so less is taken away.
//!
//! An attachment's progress, with what the mark of its host link says:
//!
//! | progress | written by | mark | means |
//! | --- | --- | --- | --- |
//! | no record | | none, `ready` | nothing is known: living, if its interface is there |
//! | no record | a later plugin failed where no record could be kept | `failed` | dead |
//! | begun, held | ADD before its first step | none, `ready` | an ADD runs |
//! | begun | the same, killed | none, `ready` | dead |
//! | finished | ADD's last step | `ready` | living as long as its link is there |
//! | failed | ADD that could not take everything back; a later plugin's ADD that failed | `failed` | dead |
//! | foreign | a plugin behind one that keeps no ledger | none | only notes |

mod book;
mod hints;
mod mark;
mod private_dir;
mod record;
mod turn;

pub use book::Ledger;
pub(crate) use hints::{HINTS, Inventories, missed, note_missed};
pub(crate) use mark::is_of_network;
pub use mark::{Mark, Stage};
pub use private_dir::PrivateDir;
pub use record::{Namespace, PodLink, Progress, Record, Share};
pub use turn::Remains;
pub(crate) use turn::{Part, Turn};
