// SPDX-License-Identifier: Apache-2.0
//! The same rules natively, for hosts whose kernel cannot hold them in iptables' form and for `backend: "nftables"`.
//!
//! They stand in the tables `ip cni_firewall` and `ip6 cni_firewall`, where the admin chain and the ingress policy are as
//! good as in iptables' own. An accept is not: it ends one base chain of the hook and no other, so that a FORWARD chain of
//! iptables' tables that drops would drop all the same. Where there is one, the accepts stand in it, too: in iptables' form
//! if the kernel can hold that, so that `iptables` can list the chain, and else natively. firewalld's own chains are
//! nobody's to write: where it runs, it is asked for its zone.

use std::net::IpAddr;

use cnibox_netfilter::nft::{Chain, ChainType, Hook, HookPoint};
use cnibox_netfilter::xt::Table;
use cnibox_netfilter::{Batch, Error, Family, Result, Step, TableRef, if_any};
use cnibox_sys::Sys;

use crate::plan::{self, Desired, FORWARD_CHAIN};

/// The changes that make the plan true, with the accepts beside it in the form that the kernel can hold.
pub(crate) fn install(desired: &[Desired], sys: &mut Sys<'_>) -> Result<Batch> {
    let mut batch = own(desired);
    let accepts = accepts_beside(desired, sys)?;
    let cannot_hold = sys.cannot_hold(&accepts)?;
    batch.extend(if cannot_hold { natively(&accepts, FILTER_TABLE) } else { accepts });
    Ok(batch)
}

/// What of the plan is missing: in iptables' table the accepts may be in either form.
pub(crate) fn missing(desired: &[Desired], sys: &mut Sys<'_>) -> Result<Option<Step>> {
    let accepts = accepts_beside(desired, sys)?;
    let mut first_of = |batch: &Batch| {
        let needed = sys.engine()?.needed(batch)?;
        Ok::<_, Error>(needed.into_iter().next())
    };
    if let Some(step) = first_of(&own(desired))? {
        return Ok(Some(step));
    }
    match first_of(&natively(&accepts, FILTER_TABLE))? {
        Some(step) => Ok(first_of(&accepts)?.map(|_| step)),
        None => Ok(None),
    }
}

/// What goes into the plugin's own tables: all of it.
fn own(desired: &[Desired]) -> Batch {
    let mut batch = Batch::new();
    for family in desired {
        let base = Hook::new(ChainType::Filter, HookPoint::Forward, FILTER);
        batch
            .nft(table(family.family).family(), OWN)
            .ensure_table(Some("CNI firewall plugin"))
            .ensure_chain(Chain::base(FORWARD, base));
        let mut rules = Batch::new();
        family.install(&mut rules);
        batch.extend(natively(&rules, OWN));
    }
    batch
}

/// What goes into iptables' tables, too, in their form.
fn accepts_beside(desired: &[Desired], sys: &mut Sys<'_>) -> Result<Batch> {
    let mut accepts = Batch::new();
    for family in desired.iter().filter(|family| !family.addresses.is_empty()) {
        // Whether anybody has filled the table.
        let table = TableRef::Xt(family.family, Table::Filter);
        if if_any(sys.engine()?.chain_exists(&table, FORWARD))? {
            family.install_accepts(&mut accepts);
        }
    }
    Ok(accepts)
}

/// Removes the rules of these addresses, of one family. Without the plugin's own table there are none.
pub(crate) fn remove(family: Family, addresses: &[IpAddr], sys: &mut Sys<'_>) -> Result<()> {
    let engine = sys.engine()?;
    if !if_any(engine.chain_exists(&table(family), FORWARD_CHAIN))? {
        return Ok(());
    }
    let rules = plan::remove(addresses.iter().copied());
    let mut batch = natively(&rules, OWN);
    batch.extend(natively(&rules, FILTER_TABLE));
    engine.clear(&batch)
}

/// Every rule of the plan has a native form.
fn natively(rules: &Batch, table: &str) -> Batch {
    rules.native(table).unwrap_or_default()
}

/// The plugin's own table.
pub(crate) fn table(family: Family) -> TableRef {
    TableRef::Nft(family.into(), OWN.to_owned())
}

const OWN: &str = "cni_firewall";
/// iptables' table.
const FILTER_TABLE: &str = "filter";
const FORWARD: &str = "FORWARD";
/// `filter` of `nft(8)`.
const FILTER: i32 = 0;
