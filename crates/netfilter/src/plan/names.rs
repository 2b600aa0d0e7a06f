// SPDX-License-Identifier: Apache-2.0
//! Names that tables know by themselves, and names and comments that cannot be written.

use crate::error::{Error, Result};
use crate::nft::{ChainType, Hook, HookPoint};
use crate::rule::TableRef;
use crate::xt::Table;

/// The built-in chain of that name, as iptables-nft creates it when it is first used (iptables `iptables/nft.c`,
/// `xtables_ipv4`).
pub(super) fn builtin(table: &TableRef, chain: &str) -> Option<Hook> {
    let TableRef::Xt(_, table) = table else { return None };
    let (point, nat_priority) = match chain {
        "PREROUTING" => (HookPoint::Prerouting, Some(-100)),
        "INPUT" => (HookPoint::Input, Some(100)),
        "FORWARD" => (HookPoint::Forward, None),
        "OUTPUT" => (HookPoint::Output, Some(-100)),
        "POSTROUTING" => (HookPoint::Postrouting, Some(100)),
        _ => return None,
    };
    match (table, point) {
        (Table::Nat, _) => nat_priority.map(|priority| Hook::accept(ChainType::Nat, point, priority)),
        (Table::Filter, HookPoint::Input | HookPoint::Forward | HookPoint::Output) => {
            Some(Hook::accept(ChainType::Filter, point, 0))
        }
        (Table::Filter, HookPoint::Prerouting | HookPoint::Postrouting) => None,
    }
}

/// iptables' limit is `XT_EXTENSION_MAXNAMELEN` - 1, nf_tables' `NFT_NAME_MAXLEN` - 1.
pub(super) fn check_chain(table: &TableRef, name: &str) -> Result<()> {
    let longest = match table {
        TableRef::Xt(..) => 28,
        TableRef::Nft(..) => 255,
    };
    let usable = |name: &str| !name.is_empty() && name.len() <= longest && !name.contains(char::is_control);
    if usable(name) {
        return Ok(());
    }
    Err(Error::InvalidText { kind: "chain name", value: name.to_owned() })
}

/// iptables' limit is `XT_MAX_COMMENT_LEN`, and the kernel's for user data `NFT_USERDATA_MAXLEN`, in which type, length and
/// a zero byte stand beside the text; no control characters, which rule files cannot hold.
pub(super) fn check_comment(table: &TableRef, comment: Option<&str>) -> Result<()> {
    let longest = match table {
        TableRef::Xt(..) => 255,
        TableRef::Nft(..) => 253,
    };
    match comment {
        Some(text) if text.len() > longest || text.contains(char::is_control) => {
            Err(Error::InvalidText { kind: "comment", value: text.to_owned() })
        }
        Some(_) | None => Ok(()),
    }
}
