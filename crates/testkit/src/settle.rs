// SPDX-License-Identifier: Apache-2.0
//! Waits until the kernel has done what follows from a change of links: it hears of carriers on a work queue, and only
//! then gives a link its multicast route, its link-local address and that address's prefix.

use std::time::{Duration, Instant};

use cnibox_netlink::{Error, Link, Monitor, Multicast, OperState, Rtnl};
use cnibox_netns::NetNs;

/// Returns when no link of the namespace has a carrier that the kernel has yet to act upon, or when that takes longer
/// than anybody would wait for; what is compared then shows why.
pub(crate) fn settle(netns: &NetNs) {
    netns.run(await_carriers).expect("enter the namespace").expect("follow the namespace's links");
}

fn await_carriers() -> Result<(), Error> {
    let deadline = Instant::now() + PATIENCE;
    let mut rtnl = Rtnl::open()?;
    if !rtnl.links()?.iter().any(is_unheard) {
        return Ok(());
    }
    // Subscribed before the next look, so that nothing is missed.
    let mut monitor = Monitor::of(Multicast::Link)?;
    while rtnl.links()?.iter().any(is_unheard) && monitor.wait_any(deadline)? {}
    Ok(())
}

/// The kernel sets the operational state in the moment that it tells everybody of the carrier. Only for links that never
/// tell of one it stays unknown; veths do, even if of its loss at first.
fn is_unheard(link: &Link) -> bool {
    if link.flags & READY != READY {
        return false;
    }
    match link.operstate {
        OperState::Down | OperState::LowerLayerDown => true,
        OperState::Unknown => link.kind.as_deref() == Some("veth"),
        OperState::NotPresent | OperState::Testing | OperState::Dormant | OperState::Up => false,
    }
}

/// `IFF_UP` and `IFF_LOWER_UP` of `linux/if.h`: up, and with a carrier.
const READY: u32 = 0x1_0001;

const PATIENCE: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn routes_of_carriers_are_there_after_the_wait() {
        crate::sandbox(|net| {
            for turn in 0..20 {
                let (one, other) = (format!("a{turn}"), format!("b{turn}"));
                net.run("ip", &["link", "add", &one, "type", "veth", "peer", "name", &other]);
                net.run("ip", &["link", "set", &one, "up"]);
                net.run("ip", &["link", "set", &other, "up"]);
                settle(net.netns());
                let routes = net.run("ip", &["-6", "route", "show", "table", "local"]);
                for link in [one, other] {
                    let wanted = format!("ff00::/8 dev {link} ");
                    assert!(routes.contains(&wanted), "{turn}: no {wanted:?} in:\n{routes}");
                }
            }
        });
    }
}
