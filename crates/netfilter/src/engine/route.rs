// SPDX-License-Identifier: Apache-2.0
//! Which transport a change takes: the one that is asked for, unless a rule needs the tool. It must never know whether the
//! host has it.

use std::collections::{BTreeMap, HashSet};

use crate::batch::{Batch, Change};
use crate::error::{Error, Result};
use crate::rule::TableRef;
use crate::xt;

/// How rules of the iptables dialect are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Choice {
    /// As the host's `iptables` would: netlink for its nf_tables flavour, `iptables-restore` for the legacy one.
    #[default]
    Auto,
    /// Always over nf_tables netlink, but for rules that only the tool understands.
    Netlink,
    /// Always with `iptables-restore`.
    Exec,
}

impl std::str::FromStr for Choice {
    type Err = Error;

    /// `auto` (or nothing), `netlink`, `exec`.
    fn from_str(text: &str) -> Result<Self> {
        match text {
            "" | "auto" => Ok(Self::Auto),
            "netlink" => Ok(Self::Netlink),
            "exec" => Ok(Self::Exec),
            _ => Err(Error::InvalidText { kind: "packet filter transport", value: text.to_owned() }),
        }
    }
}

/// Which transport a change takes, in the order in which they are taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Route {
    Netlink,
    Tool(xt::Family),
    Nft,
}

/// The changes by their routes. One rule that needs the tool takes all changes of its family
/// or native table with it, so that their order is kept. `uses_tool` is asked only if there are rules of the iptables dialect.
pub(super) fn routed(batch: &Batch, uses_tool: impl FnOnce() -> bool) -> BTreeMap<Route, Vec<&Change>> {
    let changes = batch.changes();
    let has_xt = changes.iter().any(|change| matches!(change.table, TableRef::Xt(..)));
    let tool = has_xt && uses_tool();
    let needs_tool = |change: &&Change| change.op.rule().is_some_and(|rule| rule.needs_tool());
    let needy: HashSet<_> = changes.iter().filter(needs_tool).map(|change| by_tool(&change.table)).collect();
    let route = |change: &Change| match by_tool(&change.table) {
        ByTool::Family(family) if tool || needy.contains(&ByTool::Family(family)) => Route::Tool(family),
        table @ ByTool::Native(_) if needy.contains(&table) => Route::Nft,
        ByTool::Family(_) | ByTool::Native(_) => Route::Netlink,
    };
    let mut routed: BTreeMap<_, Vec<_>> = BTreeMap::new();
    changes.iter().for_each(|change| routed.entry(route(change)).or_default().push(change));
    routed
}

/// What one call of a tool serves.
#[derive(PartialEq, Eq, Hash)]
enum ByTool<'t> {
    Family(xt::Family),
    Native(&'t TableRef),
}

fn by_tool(table: &TableRef) -> ByTool<'_> {
    match table {
        TableRef::Xt(family, _) => ByTool::Family(*family),
        TableRef::Nft(..) => ByTool::Native(table),
    }
}
