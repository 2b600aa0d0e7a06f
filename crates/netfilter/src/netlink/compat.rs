// SPDX-License-Identifier: Apache-2.0
//! Whether the kernel has what rules in iptables' form need: nft_compat and the xt matches and targets that they name.
//! It is asked as `iptables` itself asks (kernel `net/netfilter/nft_compat.c`, `nfnl_compat_get_rcu`); a part that is a
//! module is loaded by the question.

use std::collections::BTreeSet;

use netlink_bindings::nftables::OpGetcompatDo;

use super::expr::Expr;
use super::message::{self, Messages};
use super::socket::Socket;
use super::xt::{self, Form};
use crate::error::Result;
use crate::nft::Family;
use crate::rule::{AnyRule, TableRef};

/// What extensions are reached through.
const NFT_COMPAT: &str = "nft_compat";
/// `NFNL_SUBSYS_NFT_COMPAT << 8 | NFNL_MSG_COMPAT_GET`
const COMPAT_GET: u16 = 11 << 8;

/// A match or target of x_tables.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Extension {
    name: String,
    rev: u32,
    is_target: bool,
}

impl Extension {
    /// The module that most kernels have it in.
    fn module(&self) -> String {
        match self.name.as_str() {
            // kernel net/netfilter/xt_nat.c, xt_tcpudp.c
            "DNAT" => "xt_nat".to_owned(),
            "tcp" | "udp" => "xt_tcpudp".to_owned(),
            name => format!("xt_{name}"),
        }
    }
}

/// The extensions that the rule is written with.
pub(crate) fn extensions(canon: &AnyRule, table: &TableRef, form: Form) -> BTreeSet<Extension> {
    let (AnyRule::Xt(rule), TableRef::Xt(family, _)) = (canon, table) else { return BTreeSet::new() };
    let extension = |expr| {
        let is_target = matches!(expr, Expr::Target { .. });
        let (Expr::Match { name, rev, .. } | Expr::Target { name, rev, .. }) = expr else { return None };
        Some(Extension { name: name.into_owned(), rev, is_target })
    };
    xt::encode(rule, *family, form).into_iter().filter_map(extension).collect()
}

/// Whether what these extensions need includes the module.
pub(crate) fn needs_module(extensions: &BTreeSet<Extension>, module: &str) -> bool {
    !extensions.is_empty() && module == NFT_COMPAT
        || extensions.iter().any(|extension| extension.module() == module)
}

impl Socket {
    /// The first of the kernel's parts that is missing for these extensions, by the name of its module.
    pub(crate) fn lacks(&mut self, extensions: &BTreeSet<Extension>) -> Result<Option<String>> {
        let count = u32::try_from(extensions.len()).unwrap_or(u32::MAX);
        let first = self.sequence(count);
        let mut messages = Messages::new(first);
        for extension in extensions {
            messages.push(COMPAT_GET, 0, |buffer| push_question(buffer, extension));
        }
        // What the answers say of other revisions does not matter.
        let Some(refusals) = self.transact(&messages.into_bytes(), |_| {})? else { return Ok(None) };
        let Some(refusal) = refusals.into_iter().min_by_key(|refusal| refusal.seq) else { return Ok(None) };
        // kernel net/netfilter/nfnetlink.c: nobody has registered for the messages
        if refusal.errno == libc::EINVAL {
            return Ok(Some(NFT_COMPAT.to_owned()));
        }
        let index = usize::try_from(refusal.seq.wrapping_sub(first)).unwrap_or(usize::MAX);
        match refusal.errno {
            libc::ENOENT | libc::EPROTONOSUPPORT => Ok(extensions.iter().nth(index).map(Extension::module)),
            _ => Err(refusal.into_error("ask for the extensions of x_tables".to_owned())),
        }
    }
}

/// Of IPv4; IPv6 has the same extensions.
fn push_question(buffer: &mut Vec<u8>, extension: &Extension) {
    let attrs = OpGetcompatDo::encode_request(buffer, &message::header(Family::Ip));
    let attrs = attrs.push_name_bytes(extension.name.as_bytes()).push_rev(extension.rev);
    attrs.push_type(extension.is_target.into());
}
