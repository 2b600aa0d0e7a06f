// SPDX-License-Identifier: Apache-2.0
//! The `loopback` plugin: brings `lo` up in a container and reports its addresses. The kernel itself gives
//! 127.0.0.1/8 and ::1/128 to a `lo` that comes up, so no address is added here. `CNI_IFNAME` is required by the
//! protocol and ignored by the plugin.

use cnibox_harness::{AddArgs, CheckArgs, DelArgs, GcArgs, Input, Plugin, Request, Role};
use cnibox_spec::{CniResult, Interface, IpConfig, NetnsPath, Verb};
use cnibox_sys::{Failure, Pod, Sys};

/// The plugin.
pub struct Loopback;

/// Nothing of the configuration concerns this plugin but an earlier plugin's result, which ADD passes on.
type Config = Option<CniResult>;

impl Plugin for Loopback {
    const NAME: &'static str = "loopback";
    const ROLE: Role = Role::Chained;
    type Config = Config;

    fn config(input: &Input<'_>) -> Result<Config, Failure> {
        // DEL and CHECK work whatever an earlier plugin has said.
        if input.verb != Verb::Add {
            return Ok(None);
        }
        input.check_common("failed to parse network config")?;
        input.conf.prev_result().map_err(|failure| failure.prefixed("failed to parse prevResult: "))
    }

    fn add(request: &Request<'_, Config, AddArgs>, sys: &mut Sys<'_>) -> Result<CniResult, Failure> {
        let pod = sys.open_pod(&request.args.netns)?;
        let lo = pod.rtnl.link_by_name(LO)?;
        pod.rtnl.link_set_up(lo.index)?;
        let ips = loopback_addresses(pod, lo.index)?;
        Ok(request.config.clone().unwrap_or_else(|| report(&request.args.netns, ips)))
    }

    fn del(request: &Request<'_, Config, DelArgs>, sys: &mut Sys<'_>) -> Result<(), Failure> {
        let Some(netns) = &request.args.netns else { return Ok(()) };
        let Some(pod) = sys.open_pod_if_present(netns)? else { return Ok(()) };
        // The container may have given it another name. The reference fails then, for as long as the container likes.
        let Some(lo) = pod.rtnl.link_by_name_if_present(LO)? else { return Ok(()) };
        Ok(pod.rtnl.link_set_down(lo.index)?)
    }

    fn check(request: &Request<'_, Config, CheckArgs>, sys: &mut Sys<'_>) -> Result<(), Failure> {
        let pod = sys.open_pod(&request.args.netns)?;
        let is_up = pod.rtnl.link_by_name(LO)?.is_up();
        if is_up { Ok(()) } else { Err(Failure::internal("loopback interface is down")) }
    }

    fn status(_: &Request<'_, Config, ()>, _: &mut Sys<'_>) -> Result<(), Failure> {
        Ok(())
    }

    /// Nothing outlives the container's namespace.
    fn gc(_: &Request<'_, Config, GcArgs>, _: &mut Sys<'_>) -> Result<(), Failure> {
        Ok(())
    }
}

/// The only interface that this plugin knows.
const LO: &str = "lo";

/// The first address of each family, IPv4 first. IPv6 may be switched off.
fn loopback_addresses(pod: &mut Pod, index: u32) -> Result<Vec<IpConfig>, Failure> {
    let mut addresses: Vec<_> = pod.rtnl.addrs(index, None)?.into_iter().map(|addr| addr.net).collect();
    if let Some(foreign) = addresses.iter().find(|address| !address.ip().is_loopback()) {
        let text = format!("loopback interface found with non-loopback address \"{}\"", foreign.ip());
        return Err(Failure::internal(text));
    }
    addresses.sort_by_key(|address| address.is_ipv6());
    addresses.dedup_by_key(|address| address.is_ipv6());
    Ok(addresses.into_iter().map(|address| IpConfig { interface: Some(0), address, gateway: None }).collect())
}

fn report(netns: &NetnsPath, ips: Vec<IpConfig>) -> CniResult {
    let lo = Interface {
        name: LO.to_owned(),
        mac: "00:00:00:00:00:00".to_owned(),
        sandbox: netns.as_str().to_owned(),
        ..Interface::default()
    };
    CniResult { interfaces: vec![lo], ips, ..CniResult::default() }
}
