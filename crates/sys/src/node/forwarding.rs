// SPDX-License-Identifier: Apache-2.0
//! Packet forwarding of the host (reference: `pkg/ip/ipforward_linux.go`).

use cnibox_netns::sysctl;

use crate::call::Sys;

impl Sys<'_> {
    /// Lets the host forward packets of one family. Written only when it is off: writing it resets other settings of
    /// the namespace (kernel: `Documentation/networking/ip-sysctl.rst`, `ip_forward`). Shared, so never undone.
    ///
    /// # Errors
    /// When the sysctl cannot be read or written.
    pub fn forwarding_enable(&mut self, v4: bool) -> Result<(), sysctl::Error> {
        let name = if v4 { "net/ipv4/ip_forward" } else { "net/ipv6/conf/all/forwarding" };
        sysctl::ensure(name, "1").map(drop)
    }
}
