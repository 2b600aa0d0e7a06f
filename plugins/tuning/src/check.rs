// SPDX-License-Identifier: Apache-2.0
//! CHECK: sysctls and interface as configured.

use cnibox_harness::{CheckArgs, Request};
use cnibox_netlink::Link;
use cnibox_sys::{Coded, Failure, Place, Sys};
use thiserror::Error;

use crate::config::{Config, LinkPlan};
use crate::sysctls::SysctlName;

/// What is not as configured.
#[derive(Debug, PartialEq, Eq, Error)]
enum Drift {
    #[error("Error: Tuning configured value of {file} is {wanted}, current value is {found}")]
    Sysctl { file: String, wanted: String, found: String },
    #[error("Cannot find container link {0}")]
    NoLink(String),
    #[error("Error: Tuning configured Ethernet of {ifname} is {wanted}, current value is {found}")]
    Mac { ifname: String, wanted: String, found: String },
    #[error("Error: Tuning link {ifname} configured promisc is {wanted}, current value is {found}")]
    Promisc { ifname: String, wanted: bool, found: u32 },
    #[error("Error: Tuning configured MTU of {ifname} is {wanted}, current value is {found}")]
    Mtu { ifname: String, wanted: u32, found: u32 },
    #[error("Error: Tuning configured all-multicast mode of {ifname} is {wanted}, current value is {found}")]
    Allmulti { ifname: String, wanted: bool, found: bool },
    #[error(
        "Error: Tuning configured Transmit Queue Length of {ifname} is {wanted}, current value is {found}"
    )]
    QueueLength { ifname: String, wanted: u32, found: u32 },
}

impl Coded for Drift {}

/// CHECK.
pub(crate) fn check(request: &Request<'_, Config, CheckArgs>, sys: &mut Sys<'_>) -> Result<(), Failure> {
    let Request { config, args, .. } = request;
    let ifname = args.attachment.ifname.as_str();
    sys.open_pod(&args.netns)?;
    let as_wanted = |(key, wanted): &(String, String)| is_set(&SysctlName::new(key, ifname)?, wanted);
    // All of them in one stay in the namespace: entering it costs more than a sysctl does.
    sys.inside(Place::Pod, || config.sysctls.0.iter().try_for_each(as_wanted))??;
    let link = sys.rtnl(Place::Pod)?.link_by_name(ifname).map_err(|_| Drift::NoLink(ifname.to_owned()))?;
    Ok(drift(&config.link, &config.mac_text, &link).map_or(Ok(()), Err)?)
}

fn is_set(name: &SysctlName, wanted: &str) -> Result<(), Failure> {
    let found = name.read()?;
    if found == wanted {
        return Ok(());
    }
    let file = name.path().display().to_string();
    Err(Drift::Sysctl { file, wanted: wanted.to_owned(), found }.into())
}

fn drift(plan: &LinkPlan, mac_text: &str, link: &Link) -> Option<Drift> {
    let ifname = || link.name.clone();
    if plan.mac.is_some() && plan.mac != link.mac {
        return Some(Drift::Mac { ifname: ifname(), wanted: mac_text.to_owned(), found: link.mac_text() });
    }
    if plan.promisc != (link.promiscuity != 0) {
        return Some(Drift::Promisc { ifname: ifname(), wanted: plan.promisc, found: link.promiscuity });
    }
    if let Some(wanted) = plan.mtu.filter(|mtu| *mtu != link.mtu) {
        return Some(Drift::Mtu { ifname: ifname(), wanted, found: link.mtu });
    }
    if let Some(wanted) = plan.allmulti.filter(|on| *on != link.is_allmulti()) {
        return Some(Drift::Allmulti { ifname: ifname(), wanted, found: link.is_allmulti() });
    }
    let wanted = plan.txqlen.filter(|packets| *packets != link.txqlen)?;
    Some(Drift::QueueLength { ifname: ifname(), wanted, found: link.txqlen })
}
