// SPDX-License-Identifier: Apache-2.0
//! Packet forwarding of the host (reference: `pkg/ip/ipforward_linux.go`).

use cnibox_netns::sysctl;
use ipnetwork::IpNetwork;

use crate::call::Sys;

impl Sys<'_> {
    /// Lets the host forward packets of the families that `addresses` are of. Written only when it is off: writing it
    /// resets other settings of the namespace (kernel: `Documentation/networking/ip-sysctl.rst`, `ip_forward`). Shared, so
    /// never undone.
    ///
    /// # Errors
    /// When the sysctl cannot be read or written.
    pub fn forwarding_enable(&mut self, addresses: &[IpNetwork]) -> Result<(), sysctl::Error> {
        for (v4, name) in [(true, "net/ipv4/ip_forward"), (false, "net/ipv6/conf/all/forwarding")] {
            if addresses.iter().any(|address| address.is_ipv4() == v4) {
                sysctl::ensure(name, "1")?;
            }
        }
        Ok(())
    }
}
