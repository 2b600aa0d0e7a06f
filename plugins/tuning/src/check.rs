// SPDX-License-Identifier: Apache-2.0
//! CHECK: sysctls and interface as configured.

use cnibox_harness::{CheckArgs, Request};
use cnibox_netlink::Link;
use cnibox_netns::sysctl;
use cnibox_sys::{Coded, Failure, Place, Sys};
use thiserror::Error;

use crate::config::{Config, LinkPlan};
use crate::sysctls::sysctl_name;

/// What is not as configured.
#[derive(Debug, PartialEq, Eq, Error)]
enum Drift {
    #[error("Error: Tuning {what} is {wanted}, current value is {found}")]
    Value { what: String, wanted: String, found: String },
    #[error("Cannot find container link {0}")]
    NoLink(String),
}

impl Drift {
    fn of(what: String, wanted: impl ToString, found: impl ToString) -> Self {
        Self::Value { what, wanted: wanted.to_string(), found: found.to_string() }
    }
}

impl Coded for Drift {}

/// CHECK.
pub(crate) fn check(request: &Request<'_, Config, CheckArgs>, sys: &mut Sys<'_>) -> Result<(), Failure> {
    let Request { config, args, .. } = request;
    let ifname = args.attachment.ifname.as_str();
    sys.open_pod(&args.netns)?;
    let as_wanted = |(key, wanted): &(String, String)| is_set(&sysctl_name(key, ifname)?, wanted);
    // All of them in one stay in the namespace: entering it costs more than a sysctl does.
    sys.inside(Place::Pod, || config.sysctls.0.iter().try_for_each(as_wanted))??;
    let link = sys.rtnl(Place::Pod)?.link_by_name(ifname).map_err(|_| Drift::NoLink(ifname.to_owned()))?;
    Ok(drift(&config.link, &config.mac_text, &link).map_or(Ok(()), Err)?)
}

fn is_set(name: &str, wanted: &str) -> Result<(), Failure> {
    let found = sysctl::read(name)?;
    if found == wanted {
        return Ok(());
    }
    let file = sysctl::path_of(name)?;
    Err(Drift::of(format!("configured value of {}", file.display()), wanted, found).into())
}

fn drift(plan: &LinkPlan, mac_text: &str, link: &Link) -> Option<Drift> {
    let name = &link.name;
    if plan.mac.is_some() && plan.mac != link.mac {
        return Some(Drift::of(format!("configured Ethernet of {name}"), mac_text, link.mac_text()));
    }
    if plan.promisc != (link.promiscuity != 0) {
        return Some(Drift::of(format!("link {name} configured promisc"), plan.promisc, link.promiscuity));
    }
    if let Some(wanted) = plan.mtu.filter(|mtu| *mtu != link.mtu) {
        return Some(Drift::of(format!("configured MTU of {name}"), wanted, link.mtu));
    }
    if let Some(wanted) = plan.allmulti.filter(|on| *on != link.is_allmulti()) {
        let what = format!("configured all-multicast mode of {name}");
        return Some(Drift::of(what, wanted, link.is_allmulti()));
    }
    let wanted = plan.txqlen.filter(|packets| *packets != link.txqlen)?;
    Some(Drift::of(format!("configured Transmit Queue Length of {name}"), wanted, link.txqlen))
}
