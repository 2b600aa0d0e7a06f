// SPDX-License-Identifier: Apache-2.0
//! Creating the device, with or without an SELinux context, and its settings.

use cnibox_harness::{NetConf, Plugin};
use cnibox_netlink::{Error, Link, LinkChange, TapSpec, link_add_tap};
use cnibox_spec::IfName;
use cnibox_sys::{Failure, OrSay, Place, Sys};
use serde_json::json;

use crate::Tap;
use crate::config::Config;

/// Creates the device in the container.
pub(crate) fn device(
    sys: &mut Sys<'_>,
    conf: &NetConf,
    config: &Config,
    ifname: &IfName,
) -> Result<Result<(), Error>, Failure> {
    if let Some(context) = &config.selinux_context {
        // The kernel gives a device the context of the process that makes it (`selinux_tun_dev_alloc_security`), and a
        // process gets another context by being executed.
        sys.execute_labelled(context, Tap::NAME, &own_call(conf, config))?;
        return Ok(Ok(()));
    }
    sys.inside(Place::Pod, || link_add_tap(&spec(config, ifname)))
}

/// The reference makes devices by `ip tuntap`, or itself when both owner and group are given, and then with other
/// flags. Whoever opens the device must know them, so they are the same here.
fn spec<'a>(config: &Config, ifname: &'a IfName) -> TapSpec<'a> {
    let by_ip = config.labelled || config.owner.is_none() || config.group.is_none();
    TapSpec {
        name: ifname.as_str(),
        multi_queue: config.multi_queue,
        vnet_hdr: !by_ip,
        no_pi: by_ip || config.multi_queue,
        owner: config.owner,
        group: config.group,
    }
}

/// The configuration for calling this plugin as a process of its own: just the device.
fn own_call(conf: &NetConf, config: &Config) -> serde_json::Value {
    json!({
        "cniVersion": conf.version.as_str(),
        "name": conf.network.as_str(),
        "type": Tap::NAME,
        "cnibox.labelled": true,
        "multiQueue": config.multi_queue,
        "owner": config.owner,
        "group": config.group,
    })
}

/// MTU, MAC and bridge; brings the device up and answers with it as it is then.
pub(crate) fn configure(sys: &mut Sys<'_>, config: &Config, link: Link) -> Result<Link, Failure> {
    let rtnl = sys.rtnl(Place::Pod)?;
    if config.mtu.is_some() || config.mac.is_some() {
        let change =
            LinkChange::new(link.index).given(config.mtu, LinkChange::mtu).given(config.mac, LinkChange::mac);
        rtnl.link_set(change).or_say(|error| format!("failed to create tap: {error}"))?;
    }
    if let Some(name) = &config.bridge {
        let bridge =
            rtnl.link_by_name(name).or_say(|error| format!("failed to get bridge {name}: {error}"))?;
        let done = rtnl.link_set(LinkChange::new(link.index).master(bridge.index));
        done.or_say(|error| format!("failed to set tap {} as a port of bridge {name}: {error}", link.name))?;
    }
    rtnl.link_set_up(link.index).or_say(|error| format!("failed to set tap interface up: {error}"))?;
    Ok(rtnl.link_by_index(link.index)?)
}
