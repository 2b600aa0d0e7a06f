// SPDX-License-Identifier: Apache-2.0
//! CHECK: sysctls and interface as configured.

use std::fmt::Display;

use cnibox_harness::{CheckArgs, Request};
use cnibox_netlink::Link;
use cnibox_netns::sysctl;
use cnibox_sys::{Failure, Place, Sys};

use crate::config::{Config, LinkPlan};
use crate::sysctls::sysctl_name;

/// CHECK.
pub(crate) fn check(request: &Request<'_, Config, CheckArgs>, sys: &mut Sys<'_>) -> Result<(), Failure> {
    let Request { config, args, .. } = request;
    let ifname = args.attachment.ifname.as_str();
    sys.open_pod(&args.netns)?;
    let as_wanted = |(key, wanted): &(String, String)| is_set(&sysctl_name(key, ifname)?, wanted);
    // All of them in one stay in the namespace: entering it costs more than a sysctl does.
    sys.inside(Place::Pod, || config.sysctls.0.iter().try_for_each(as_wanted))??;
    let link = sys.rtnl(Place::Pod)?.link_by_name(ifname);
    let link = link.map_err(|_| Failure::internal(format!("Cannot find container link {ifname}")))?;
    drift(&config.link, &config.mac_text, &link).map_or(Ok(()), Err)
}

fn is_set(name: &str, wanted: &str) -> Result<(), Failure> {
    let found = sysctl::read(name)?;
    if found == wanted {
        return Ok(());
    }
    let file = sysctl::path_of(name)?;
    Err(differs(format_args!("configured value of {}", file.display()), wanted, found))
}

/// What is not as configured.
fn differs(what: impl Display, wanted: impl Display, found: impl Display) -> Failure {
    Failure::internal(format!("Error: Tuning {what} is {wanted}, current value is {found}"))
}

fn drift(plan: &LinkPlan, mac_text: &str, link: &Link) -> Option<Failure> {
    let name = &link.name;
    if plan.mac.is_some() && plan.mac != link.mac {
        return Some(differs(format_args!("configured Ethernet of {name}"), mac_text, link.mac_text()));
    }
    if plan.promisc != (link.promiscuity != 0) {
        let what = format_args!("link {name} configured promisc");
        return Some(differs(what, plan.promisc, link.promiscuity));
    }
    if let Some(wanted) = plan.mtu.filter(|mtu| *mtu != link.mtu) {
        return Some(differs(format_args!("configured MTU of {name}"), wanted, link.mtu));
    }
    if let Some(wanted) = plan.allmulti.filter(|on| *on != link.is_allmulti()) {
        let what = format_args!("configured all-multicast mode of {name}");
        return Some(differs(what, wanted, link.is_allmulti()));
    }
    let wanted = plan.txqlen.filter(|packets| *packets != link.txqlen)?;
    Some(differs(format_args!("configured Transmit Queue Length of {name}"), wanted, link.txqlen))
}
