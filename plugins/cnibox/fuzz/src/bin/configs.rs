// SPDX-License-Identifier: Apache-2.0
//! The configuration of every plugin. The container's namespace is the plugin's own, which every plugin refuses once it
//! has read its configuration, so nothing is ever done.

use std::process::ExitCode;

use cnibox_harness::run;
use cnibox_plugins_fuzz::call;
use cnibox_sys::Entry;

const PLUGINS: &[Entry] = &[
    run::<cnibox_bandwidth::Bandwidth>,
    run::<cnibox_bridge::Bridge>,
    run::<cnibox_dhcp::Dhcp>,
    run::<cnibox_dummy::Dummy>,
    run::<cnibox_firewall::Firewall>,
    run::<cnibox_host_device::HostDevice>,
    run::<cnibox_host_local::HostLocal>,
    run::<cnibox_ipvlan::Ipvlan>,
    run::<cnibox_loopback::Loopback>,
    run::<cnibox_macvlan::Macvlan>,
    run::<cnibox_portmap::Portmap>,
    run::<cnibox_ptp::Ptp>,
    run::<cnibox_sbr::Sbr>,
    run::<cnibox_static::Static>,
    run::<cnibox_tap::Tap>,
    run::<cnibox_tuning::Tuning>,
    run::<cnibox_vlan::Vlan>,
    run::<cnibox_vrf::Vrf>,
];

fn main() -> ExitCode {
    cnibox_spec_fuzz::fuzz(target)
}

fn target(input: &[u8]) {
    for entry in PLUGINS {
        for verb in ["ADD", "DEL"] {
            let (exit, _) = call(*entry, verb, "/proc/thread-self/ns/net", input);
            assert_eq!(exit, 1, "{verb} in the plugin's own namespace");
        }
    }
}
