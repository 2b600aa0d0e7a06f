// SPDX-License-Identifier: Apache-2.0
//! The `host-device` plugin: lends a network device of the host to a container, and takes it back.
//!
//! The device's name on the host is in its `ifalias` meanwhile. A device that a userspace driver (DPDK) has is no
//! network interface, and only its addresses are managed.

mod bus;
mod config;
mod find;

use cnibox_harness::{AddArgs, CheckArgs, DelArgs, GcArgs, Input, Plugin, Request};
use cnibox_spec::{CniResult, IfName, Interface, NetnsPath};
use cnibox_sys::{CheckWording, Expected, Failure, PodPlan, Sys, Txn, Verb, ensure_printable};

pub use config::Config;

/// The plugin.
pub struct HostDevice;

impl Plugin for HostDevice {
    const NAME: &'static str = "host-device";
    const REMEMBERED: bool = true;
    type Config = Config;

    fn config(input: &Input<'_>) -> Result<Config, Failure> {
        Config::new(input)
    }

    fn add(request: &Request<'_, Config, AddArgs>, sys: &mut Sys<'_>) -> Result<CniResult, Failure> {
        let Request { conf, config, args } = request;
        sys.open_pod_named(&args.netns)?;
        let link = match &config.device {
            Some(device) if !config.dpdk => Some(find::link(sys, device)?),
            _ => None,
        };
        let plan = PodPlan {
            netns: &args.netns,
            ifname: &args.ifname,
            // Without addresses the reference reports nothing but the interface.
            dns: config.ipam.as_ref().and(config.dns.as_ref()),
            announce: None,
            version: conf.version,
        };
        Txn::run(sys, |tx| {
            let lent = link.as_ref().map(|link| tx.link_lend(link, &args.ifname)).transpose()?;
            let ipam = config.ipam.as_deref().map(|plugin| match lent {
                Some(_) => tx.ipam_add(plugin, &conf.version_text),
                None => tx.ipam_add_without_interface(plugin, &conf.version_text),
            });
            let ipam = ipam.transpose()?;
            match lent {
                Some(lent) => tx.pod_configure(&lent, ipam, &plan),
                None => report_without_interface(ipam.unwrap_or_default(), &plan),
            }
        })
    }

    fn del(request: &Request<'_, Config, DelArgs>, sys: &mut Sys<'_>) -> Result<(), Failure> {
        let Request { config, args, .. } = request;
        let released = sys.ipam_forward(Verb::Del, config.ipam.as_deref());
        let returned = if config.dpdk { Ok(()) } else { take_back(sys, args.netns.as_ref(), &args.ifname) };
        Failure::collect([released, returned].into_iter().filter_map(Result::err))
    }

    fn check(request: &Request<'_, Config, CheckArgs>, sys: &mut Sys<'_>) -> Result<(), Failure> {
        let Request { conf, config, args } = request;
        sys.open_pod_named(&args.netns)?;
        let expected = Expected {
            netns: &args.netns,
            ifname: &args.ifname,
            ipam: config.ipam.as_deref(),
            prev_result: conf.prev_result(),
            wording: CheckWording::of_any_kind(),
        };
        if config.dpdk {
            return sys.check_prev_result(&expected).map(drop);
        }
        let (result, _) = sys.check_interface(expected)?;
        sys.check_layer3(&args.ifname, &result)
    }

    fn status(request: &Request<'_, Config, ()>, sys: &mut Sys<'_>) -> Result<(), Failure> {
        sys.require_net_admin()?;
        sys.ipam_forward(Verb::Status, request.config.ipam.as_deref())
    }

    fn gc(request: &Request<'_, Config, GcArgs>, sys: &mut Sys<'_>) -> Result<(), Failure> {
        sys.ipam_forward(Verb::Gc, request.config.ipam.as_deref())
    }
}

fn report_without_interface(mut result: CniResult, plan: &PodPlan<'_>) -> Result<CniResult, Failure> {
    let (name, sandbox) = (plan.ifname.to_string(), plan.netns.as_str().to_owned());
    result.interfaces = vec![Interface { name, sandbox, ..Interface::default() }];
    result.ips.iter_mut().for_each(|ip| ip.interface = Some(0));
    if let Some(dns) = plan.dns {
        result.dns = dns.clone();
    }
    ensure_printable(plan.version, &result)?;
    Ok(result)
}

/// With the namespace gone the kernel has already given the device back.
fn take_back(sys: &mut Sys<'_>, netns: Option<&NetnsPath>, ifname: &IfName) -> Result<(), Failure> {
    let Some(netns) = netns else { return Ok(()) };
    match sys.open_pod_named_if_present(netns)? {
        Some(_) => sys.link_return(ifname).map(drop),
        None => Ok(()),
    }
}
