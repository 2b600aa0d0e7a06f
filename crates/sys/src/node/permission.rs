// SPDX-License-Identifier: Apache-2.0
//! Whether ADD could work at all, for STATUS and for people: privileges, and what the kernel has.

use cnibox_netfilter::xt::{Family, Table};
use cnibox_netfilter::{Flavour, TableRef};
use cnibox_netns::errno::io_text;
use cnibox_spec::Code;

use crate::call::{Failure, Place, Sys};
use crate::node::{Backend, Masquerade};

impl Sys<'_> {
    /// Finds out whether this process has `CAP_NET_ADMIN` (`capabilities(7)`), without trying anything.
    ///
    /// # Errors
    /// Code 50 when it has not.
    pub fn require_net_admin(&self) -> Result<(), Failure> {
        let status = std::fs::read_to_string("/proc/self/status")
            .map_err(|error| unavailable(format!("cannot read /proc/self/status: {}", io_text(&error))))?;
        let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
        let mask = effective.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or_default();
        if mask & CAP_NET_ADMIN == 0 {
            return Err(unavailable("no permission to configure networks: CAP_NET_ADMIN is not effective"));
        }
        Ok(())
    }

    /// Finds out whether this process may make links of this kind, and the kernel can.
    ///
    /// # Errors
    /// Code 50 when not.
    pub fn require_kind(&mut self, kind: &'static str) -> Result<(), Failure> {
        self.require_net_admin()?;
        if self.host()?.link_kind_is_known(kind)? {
            return Ok(());
        }
        Err(unavailable(format!("the kernel has no links of kind {kind:?}")))
    }

    /// Finds out whether the host has the link that interfaces of this network stand on. Without it those that were on it
    /// are gone, too.
    ///
    /// # Errors
    /// Code 51 when not.
    pub fn require_parent(&mut self, place: Place, master: Option<&str>) -> Result<(), Failure> {
        let Some(name) = master.filter(|_| place == Place::Host) else { return Ok(()) };
        if self.host()?.link_by_name_if_present(name)?.is_some() {
            return Ok(());
        }
        let text = format!("the link {name:?} that the containers' interfaces stand on is missing");
        Err(Failure::new(Code::LIMITED_CONNECTIVITY, text))
    }

    /// Finds out whether TAP devices can be made.
    ///
    /// # Errors
    /// Code 50 when not.
    pub fn require_tun(&mut self) -> Result<(), Failure> {
        self.require_net_admin()?;
        let opened = std::fs::OpenOptions::new().read(true).write(true).open(TUN);
        let closed = |error| unavailable(format!("no TAP devices: open {TUN}: {}", io_text(&error)));
        opened.map(drop).map_err(closed)
    }

    /// Finds out whether addresses can be masqueraded with the backend that is asked for.
    ///
    /// # Errors
    /// Code 50 when not, with the part of the kernel that is missing.
    pub fn require_masquerade(&mut self, asked: Option<Backend>) -> Result<(), Failure> {
        self.require_net_admin()?;
        let engine = self.engine()?;
        let found = match asked {
            Some(Backend::Iptables) => {
                engine.require(&Masquerade::sample(), "masquerade in iptables' tables")
            }
            // The tool is not started for a question.
            None if engine.uses_tool() => Ok(()),
            Some(Backend::Nftables) | None => engine.has_table(&Masquerade::native_table()).map(drop),
        };
        found.map_err(|error| {
            Failure::caused(Code::PLUGIN_NOT_AVAILABLE, format!("no masquerade: {error}"), &error)
        })
    }

    /// Finds out by one question per family whether iptables rules can be read, and says how they are written.
    ///
    /// # Errors
    /// What the kernel or the tool says.
    pub fn packet_filter(&mut self) -> Result<&'static str, Failure> {
        let engine = self.engine()?;
        for family in [Family::Ipv4, Family::Ipv6] {
            engine.chain_exists(&TableRef::Xt(family, Table::Filter), "FORWARD")?;
        }
        if self.cannot_hold(&Masquerade::sample())? {
            return Ok("natively, as the kernel cannot hold them in iptables' form");
        }
        let engine = self.engine()?;
        Ok(match (engine.uses_tool(), engine.flavour()) {
            (true, Flavour::Legacy) => "by iptables-restore, as the host's iptables is the legacy one",
            (true, _) => "by iptables-restore, as CNIBOX_NETFILTER says",
            (false, Flavour::NfTables) => "in nf_tables over netlink, as the host's iptables writes them",
            (false, Flavour::Legacy) => "in nf_tables over netlink, as CNIBOX_NETFILTER says",
            (false, Flavour::Missing) => "in nf_tables over netlink; the host has no iptables",
        })
    }
}

/// Why ADD could not work whatever the configuration.
fn unavailable(msg: impl Into<String>) -> Failure {
    Failure::new(Code::PLUGIN_NOT_AVAILABLE, msg)
}

/// Where TAP devices come from.
const TUN: &str = "/dev/net/tun";
/// Bit 12, `linux/capability.h`.
const CAP_NET_ADMIN: u64 = 1 << 12;
