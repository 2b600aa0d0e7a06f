// SPDX-License-Identifier: Apache-2.0
//! ADD: filters and the IFB device, taken back when something fails.

use cnibox_harness::{AddArgs, Plugin, Request};
use cnibox_netlink::{Error, Link, Tbf};
use cnibox_spec::{CniResult, Interface};
use cnibox_sys::{Coded, Failure, Memo, Memory, Owner, Place, Stage, Sys, Txn, Undo};
use thiserror::Error as ThisError;

use crate::config::Config;
use crate::{Bandwidth, host_link, plan};

/// What the kernel refused.
#[derive(Debug, ThisError)]
enum ApplyError {
    #[error("create qdisc: {0}")]
    Ingress(#[source] Error),
    #[error("adding link: {0}")]
    AddIfb(#[source] Error),
    #[error("create ingress qdisc: {0}")]
    IngressQdisc(#[source] Error),
    #[error("add filter: {0}")]
    Filter(#[source] Error),
    #[error("create ifb qdisc: create qdisc: {0}")]
    Egress(#[source] Error),
}

impl Coded for ApplyError {}

/// ADD with at least one limit.
pub(crate) fn add(
    request: &Request<'_, Config, AddArgs>,
    previous: &CniResult,
    sys: &mut Sys<'_>,
) -> Result<CniResult, Failure> {
    let AddArgs { container, ifname, .. } = &request.args;
    let host = host_link(sys, &request.args, &previous.interfaces)?;
    let owner = Owner::new(&request.conf.network, container, ifname);
    let attachment = Memo::new(&request.conf.network, container, ifname);
    let mut result = previous.clone();
    Txn::run(sys, |tx| {
        if let Some(limit) = request.config.ingress {
            // With its first discipline a link without a queue gets one (`qdisc_create` of the kernel).
            let undo = Undo::Settings { place: Place::Host, link: Box::new(host.clone()) };
            tx.attempt(undo, |_| Ok::<_, Failure>(()))?;
            root_tbf(tx, host.index, limit.tbf(), ApplyError::Ingress)?;
        }
        if let Some(limit) = request.config.egress {
            let name = plan::ifb_name(request.conf.network.as_str(), container.as_str());
            let ifb = ifb(tx, &name, host.mtu, &owner, attachment)?;
            redirect(tx, host.index, ifb.index)?;
            root_tbf(tx, ifb.index, limit.tbf(), ApplyError::Egress)?;
            let alias = owner.alias(Stage::Ready);
            tx.shared(|sys| Ok::<_, Failure>(sys.host()?.link_set_alias(ifb.index, &alias)?))?;
            result.interfaces.push(Interface { mac: ifb.mac_text(), name, ..Interface::default() });
        }
        Ok(result)
    })
}

fn root_tbf(
    tx: &mut Txn<'_, '_>,
    link: u32,
    tbf: Tbf,
    refused: fn(Error) -> ApplyError,
) -> Result<(), Failure> {
    tx.step(Undo::Discipline { link, ingress: false }, |sys| {
        sys.host()?.qdisc_add_tbf(link, tbf).map_err(|error| Failure::from(refused(error)))
    })
}

/// Makes the IFB device, in place of one that an ADD of the same attachment left unfinished. Until it bears its owner's
/// mark, the memory tells whose it is.
fn ifb(
    tx: &mut Txn<'_, '_>,
    name: &str,
    mtu: u32,
    owner: &Owner,
    mut attachment: Memo,
) -> Result<Link, Failure> {
    let memory = Memory::of(Bandwidth::NAME);
    let earlier = memory.recall(&attachment);
    attachment.notes = vec![name.to_owned()];
    memory.note(&attachment);
    let made = make_ifb(tx, name, mtu, owner, earlier.as_ref());
    memory.forget(&attachment);
    made
}

fn make_ifb(
    tx: &mut Txn<'_, '_>,
    name: &str,
    mtu: u32,
    owner: &Owner,
    earlier: Option<&Memo>,
) -> Result<Link, Failure> {
    tx.step(Undo::Link { place: Place::Host, name: name.to_owned() }, |sys| {
        let rtnl = sys.host()?;
        let mut made = rtnl.link_add_ifb(name, mtu);
        if made.as_ref().is_err_and(Error::is_exists)
            && is_unfinished(rtnl.link_by_name_if_present(name)?, owner, earlier)
        {
            rtnl.link_del_by_name_if_present(name)?;
            made = rtnl.link_add_ifb(name, mtu);
        }
        made.map_err(|error| Failure::from(ApplyError::AddIfb(error)))
    })?;
    tx.shared(|sys| {
        let rtnl = sys.host()?;
        let link = rtnl.link_by_name(name)?;
        rtnl.link_set_alias(link.index, &owner.alias(Stage::Pending))?;
        Ok::<_, Failure>(link)
    })
}

fn is_unfinished(found: Option<Link>, owner: &Owner, earlier: Option<&Memo>) -> bool {
    found.is_some_and(|link| match owner.stage_of(&link) {
        Some(Stage::Pending | Stage::Failed) => true,
        Some(Stage::Ready) => false,
        None => earlier.is_some_and(|memo| memo.announces(&link)),
    })
}

/// Everything that comes in by `host` goes out by `ifb`, and from there back to where it was going. The reference
/// installs the action twice, of which the kernel runs only the first.
fn redirect(tx: &mut Txn<'_, '_>, host: u32, ifb: u32) -> Result<(), Failure> {
    tx.step(Undo::Discipline { link: host, ingress: true }, |sys| {
        sys.host()?.qdisc_add_ingress(host).map_err(|error| Failure::from(ApplyError::IngressQdisc(error)))
    })?;
    tx.shared(|sys| {
        sys.host()?.filter_add_redirect(host, ifb).map_err(|error| Failure::from(ApplyError::Filter(error)))
    })
}
