// SPDX-License-Identifier: Apache-2.0
//! ADD: filters and the IFB device, taken back when something fails.

use cnibox_harness::{AddArgs, Request};
use cnibox_netlink::{Error, Link, LinkChange, Tbf};
use cnibox_spec::{CniResult, Interface};
use cnibox_sys::{Failure, Mark, OrSay, Place, Stage, Sys, Txn, Undo, UndoStep};

use crate::config::Config;
use crate::{host_link, plan};

/// ADD with at least one limit.
pub(crate) fn add(
    request: &Request<'_, Config, AddArgs>,
    previous: &CniResult,
    sys: &mut Sys<'_>,
) -> Result<CniResult, Failure> {
    let attachment = &request.args.attachment;
    let host = host_link(sys, &request.args, &previous.interfaces)?;
    let mut result = previous.clone();
    Txn::run(sys, |tx| {
        if let Some(tbf) = request.config.ingress {
            // With its first discipline a link without a queue gets one (`qdisc_create` of the kernel).
            let undo = Undo::Settings { place: Place::Host, link: Box::new(host.clone()) };
            tx.risky_step(undo, |_| Ok::<_, Failure>(()))?;
            root_tbf(tx, host.index, tbf, "")?;
        }
        if let Some(tbf) = request.config.egress {
            let name = plan::ifb_name(attachment.network.as_str(), attachment.container.as_str());
            let ifb = ifb(tx, &name, host.mtu, &Mark::of(attachment))?;
            redirect(tx, host.index, ifb.index)?;
            root_tbf(tx, ifb.index, tbf, "create ifb qdisc: ")?;
            result.interfaces.push(Interface { mac: ifb.mac_text(), name, ..Interface::default() });
        }
        Ok(result)
    })
}

fn root_tbf(tx: &mut Txn<'_, '_>, link: u32, tbf: Tbf, whose: &str) -> Result<(), Failure> {
    tx.step(Discipline { link, ingress: false }, |sys| {
        sys.host()?.qdisc_add_tbf(link, tbf).or_say(|error| format!("{whose}create qdisc: {error}"))
    })
}

/// Makes the IFB device, in place of one that an ADD of the same attachment left when it was killed. Until the device
/// bears its owner's mark, the ledger tells whose it is.
fn ifb(tx: &mut Txn<'_, '_>, name: &str, mtu: u32, mark: &Mark) -> Result<Link, Failure> {
    let announced = tx.sys().notes().iter().any(|note| note == name) && !tx.sys().has_finished();
    tx.note(vec![name.to_owned()])?;
    tx.step(Undo::Link { place: Place::Host, name: name.to_owned() }, |sys| {
        let rtnl = sys.host()?;
        let mut made = rtnl.link_add_ifb(name, mtu);
        if announced
            && made.as_ref().is_err_and(Error::is_exists)
            && rtnl.link_by_name_if_present(name)?.is_some_and(|link| is_left(&link, mark))
        {
            rtnl.link_del_by_name_if_present(name)?;
            made = rtnl.link_add_ifb(name, mtu);
        }
        made.or_say(|error| format!("adding link: {error}"))
    })?;
    tx.shared(|sys| {
        let rtnl = sys.host()?;
        let link = rtnl.link_by_name(name)?;
        rtnl.link_set(LinkChange::new(link.index).alias(&mark.alias(Stage::Ready)))?;
        Ok::<_, Failure>(link)
    })
}

fn is_left(link: &Link, mark: &Mark) -> bool {
    link.is_kind("ifb")
        && (mark.stage_of(link).is_some() || link.alias.as_deref().unwrap_or_default().is_empty())
}

/// Everything that comes in by `host` goes out by `ifb`, and from there back to where it was going. The reference
/// installs the action twice, of which the kernel runs only the first.
fn redirect(tx: &mut Txn<'_, '_>, host: u32, ifb: u32) -> Result<(), Failure> {
    tx.step(Discipline { link: host, ingress: true }, |sys| {
        sys.host()?.qdisc_add_ingress(host).or_say(|error| format!("create ingress qdisc: {error}"))
    })?;
    tx.shared(|sys| sys.host()?.filter_add_redirect(host, ifb).or_say(|error| format!("add filter: {error}")))
}

/// Removes a queueing discipline that was added to a link of the host.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Discipline {
    /// The link's index.
    link: u32,
    /// Whether it is the ingress discipline, with its filters, or the root.
    ingress: bool,
}

impl UndoStep for Discipline {
    fn undo(&self, sys: &mut Sys<'_>) -> Result<(), Failure> {
        Ok(sys.host()?.qdisc_del_if_present(self.link, self.ingress)?)
    }
}
