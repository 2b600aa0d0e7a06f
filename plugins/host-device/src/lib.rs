// SPDX-License-Identifier: Apache-2.0
//! The `host-device` plugin: lends a network device of the host to a container, and takes it back.
//!
//! Which device it was is noted in the ledger, and its name on the host is in its `ifalias` meanwhile. A device that a
//! userspace driver (DPDK) has is no network interface, and only its addresses are managed.

mod bus;
mod config;
mod device;
mod find;
mod loan;

use cnibox_harness::{AddArgs, CheckArgs, DelArgs, GcArgs, Input, Plugin, Request, Role};
use cnibox_spec::{CniResult, IfName, Interface, Verb, check_expressible};
use cnibox_sys::{CheckWording, Failure, Ledger, PodPlan, Record, Sys, Txn};

pub use config::Config;

/// The plugin.
pub struct HostDevice;

impl Plugin for HostDevice {
    const NAME: &'static str = "host-device";
    const ROLE: Role = Role::Interface;
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
        let ipam = conf.ipam();
        let plan = request.pod_plan(None);
        // Without addresses the reference reports nothing but the interface.
        let plan = PodPlan { dns: plan.dns.filter(|_| ipam.is_some()), ..plan };
        // A device without an interface has nothing else that would begin.
        sys.attempt_begins()?;
        Txn::run(sys, |tx| {
            let lent = link.as_ref().map(|link| loan::lend(tx, link, &args.attachment.ifname)).transpose()?;
            let ipam = ipam.map(|plugin| tx.ipam_add(plugin, &conf.version_text)).transpose()?;
            match lent {
                Some(lent) => tx.pod_configure(&lent, ipam, &plan),
                None => report(ipam.unwrap_or_default(), &args.attachment.ifname, plan),
            }
        })
    }

    fn del(request: &Request<'_, Config, DelArgs>, sys: &mut Sys<'_>) -> Result<(), Failure> {
        let Request { conf, config, args } = request;
        let released = sys.ipam_forward(Verb::Del, conf.ipam());
        let returned = if config.dpdk {
            Ok(())
        } else {
            loan::take_back(sys, args.netns.as_ref(), &args.attachment, config.device.as_ref())
        };
        Failure::combine([released, returned].into_iter().filter_map(Result::err))
    }

    fn check(request: &Request<'_, Config, CheckArgs>, sys: &mut Sys<'_>) -> Result<(), Failure> {
        let expected = request.expected(request.conf.ipam(), CheckWording::default());
        if request.config.dpdk {
            return sys.check_prev_result(&expected).map(drop);
        }
        let (result, link) = sys.check_interface(expected)?;
        sys.check_layer3(&link, &result)
    }

    fn status(request: &Request<'_, Config, ()>, sys: &mut Sys<'_>) -> Result<(), Failure> {
        sys.require_net_admin()?;
        sys.ipam_forward(Verb::Status, request.conf.ipam())
    }

    fn gc(request: &Request<'_, Config, GcArgs>, sys: &mut Sys<'_>) -> Result<(), Failure> {
        let mut stale = Ledger::of_host().stale(&request.conf.network, &request.args.valid);
        stale.retain(|record| record.shares.contains_key(Self::NAME));
        let mut failures = Vec::new();
        for Record { attachment, .. } in stale {
            sys.turn_begins(Self::NAME, &attachment);
            let returned = sys
                .del_begins(None)
                .and_then(|netns| loan::take_back(sys, netns.as_ref(), &attachment, None));
            failures.extend(returned.err());
        }
        failures.extend(sys.ipam_forward(Verb::Gc, request.conf.ipam()).err());
        Failure::combine(failures)
    }
}

/// What is reported of a device without an interface.
fn report(mut result: CniResult, ifname: &IfName, plan: PodPlan<'_>) -> Result<CniResult, Failure> {
    let (name, sandbox) = (ifname.to_string(), plan.netns.as_str().to_owned());
    result.interfaces = vec![Interface { name, sandbox, ..Interface::default() }];
    result.ips.iter_mut().for_each(|ip| ip.interface = Some(0));
    if let Some(dns) = plan.dns {
        result.dns = dns;
    }
    check_expressible(plan.version, &result)?;
    Ok(result)
}
