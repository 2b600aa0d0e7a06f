// SPDX-License-Identifier: Apache-2.0
//! What a plugin talks to besides the kernel.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use cnibox_testkit::{Process, Sandbox};

/// Processes that a plugin needs on its host.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Service {
    /// dnsmasq on the far end of the uplink, and the plugin's own daemon.
    Dhcp,
    /// firewalld's part of the bus, the conformance lab's: it notes every call and answers at once.
    Firewalld,
}

/// Where [`Service::Firewalld`] listens, for the plugin's environment.
pub(crate) const BUS: (&str, &str) = ("DBUS_SYSTEM_BUS_ADDRESS", "unix:path=/run/bus");

impl Service {
    /// Starts the processes in the sandbox that the calling thread is in, and waits until they answer; `bin` is the
    /// directory of the plugins that will use them, `far` the far end of the uplink.
    pub(crate) fn start(self, net: &Sandbox, bin: &Path, far: &str) -> Result<Vec<Process>> {
        match self {
            Self::Dhcp => {
                net.run("ip", &["address", "add", "10.7.0.1/16", "dev", far]);
                let mut server = Command::new("dnsmasq");
                server
                    .args([
                        "--keep-in-foreground",
                        "--port=0",
                        "--conf-file=/dev/null",
                        "--no-ping",
                        "--pid-file=",
                    ])
                    .args(["--dhcp-authoritative", "--dhcp-range=10.7.1.0,10.7.200.0,3600"])
                    .args([&format!("--interface={far}"), "--dhcp-leasefile=/run/leases"]);
                let mut daemon = Command::new(bin.join("dhcp"));
                daemon.arg("daemon");
                Ok(vec![start(server)?, start(daemon)?.listening("/run/cni/dhcp.sock")])
            }
            Self::Firewalld => {
                let mut bus = Command::new("python3");
                bus.args(["-m", "conformance.side_by_side.firewalld", "/run/bus"]);
                bus.current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
                Ok(vec![start(bus)?.listening("/run/bus")])
            }
        }
    }
}

fn start(mut command: Command) -> Result<Process> {
    Process::start(&mut command).with_context(|| format!("start {:?}", command.get_program()))
}
