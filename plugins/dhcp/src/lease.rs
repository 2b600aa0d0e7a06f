// SPDX-License-Identifier: Apache-2.0
//! A lease: what a server granted, for how long, and the result that ADD makes of it.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use cnibox_spec::{CniResult, Dns, IpConfig, Route, everywhere};
use dhcproto::v4::DhcpOption;
use ipnetwork::{IpNetwork, Ipv4Network};
use nix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

/// What a server granted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Lease {
    /// The address.
    pub(crate) address: Ipv4Addr,
    mask: Option<Ipv4Addr>,
    routers: Vec<Ipv4Addr>,
    /// Option 121: destination, prefix length, router.
    classless: Vec<(Ipv4Addr, u8, Ipv4Addr)>,
    /// Option 33: destination, router.
    classful: Vec<(Ipv4Addr, Ipv4Addr)>,
    name_servers: Vec<Ipv4Addr>,
    domain: String,
    search: Vec<String>,
    /// The server, for renewals and for the release.
    pub(crate) server: Option<Ipv4Addr>,
    /// The hardware address that its answer came from: the server's, or that of the way there.
    pub(crate) hop: Option<[u8; 6]>,
    /// When it was granted, in milliseconds since the boot. In a file that has the wall clock's instead it is taken for
    /// new, which is only until the server is asked, first thing after a restart.
    #[serde(rename = "granted_since_boot", default = "boot_millis")]
    granted: u64,
    /// How long it lasts, when it is to be renewed and when from any server, in seconds.
    lasts: u64,
    renew: u64,
    rebind: u64,
}

impl Lease {
    /// The lease of this address that is granted now, in an answer with these options.
    pub(crate) fn granted(address: Ipv4Addr, hop: Option<[u8; 6]>, options: &[DhcpOption]) -> Self {
        let mut lease = Self {
            address,
            mask: None,
            routers: Vec::new(),
            classless: Vec::new(),
            classful: Vec::new(),
            name_servers: Vec::new(),
            domain: String::new(),
            search: Vec::new(),
            server: None,
            hop,
            granted: boot_millis(),
            lasts: 0,
            renew: 0,
            rebind: 0,
        };
        options.iter().for_each(|option| lease.take(option));
        let seconds = |kind: fn(&DhcpOption) -> Option<u32>| options.iter().find_map(kind).map(u64::from);
        let lasts =
            seconds(|option| if let DhcpOption::AddressLeaseTime(n) = option { Some(*n) } else { None });
        let renew = seconds(|option| if let DhcpOption::Renewal(n) = option { Some(*n) } else { None });
        let rebind = seconds(|option| if let DhcpOption::Rebinding(n) = option { Some(*n) } else { None });
        // Times that make no sense are as good as none, and no server makes us ask without a pause.
        lease.lasts = lasts.unwrap_or(DEFAULT_LEASE).max(1);
        lease.rebind = rebind.filter(|at| *at <= lease.lasts).unwrap_or(lease.lasts * 85 / 100).max(1);
        lease.renew = renew.filter(|at| *at <= lease.rebind).unwrap_or(lease.lasts / 2).max(1);
        lease
    }

    /// This lease as the extension of `previous`: some servers leave out what they have said before.
    pub(crate) fn after(mut self, previous: &Self) -> Self {
        self.mask = self.mask.or(previous.mask);
        self.server = self.server.or(previous.server);
        self.hop = self.hop.or(previous.hop);
        for (list, before) in
            [(&mut self.routers, &previous.routers), (&mut self.name_servers, &previous.name_servers)]
        {
            if list.is_empty() {
                list.clone_from(before);
            }
        }
        if self.classless.is_empty() && self.classful.is_empty() {
            self.classless.clone_from(&previous.classless);
            self.classful.clone_from(&previous.classful);
        }
        if self.domain.is_empty() && self.search.is_empty() {
            self.domain.clone_from(&previous.domain);
            self.search.clone_from(&previous.search);
        }
        self
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "there are many options")]
    fn take(&mut self, option: &DhcpOption) {
        match option {
            DhcpOption::ServerIdentifier(server) => self.server = Some(*server),
            DhcpOption::SubnetMask(mask) => self.mask = Some(*mask),
            DhcpOption::Router(routers) => self.routers.clone_from(routers),
            DhcpOption::ClasslessStaticRoute(routes) => {
                self.classless =
                    routes.iter().map(|(net, router)| (net.addr(), net.prefix_len(), *router)).collect();
            }
            DhcpOption::StaticRoutingTable(routes) => self.classful.clone_from(routes),
            DhcpOption::DomainNameServer(servers) => self.name_servers.clone_from(servers),
            DhcpOption::DomainName(name) => name.trim_end_matches('\0').clone_into(&mut self.domain),
            DhcpOption::DomainSearch(names) => {
                let text = |name: String| name.trim_end_matches('.').to_owned();
                self.search = names.iter().map(|name| text(name.to_string())).collect();
            }
            _ => {}
        }
    }

    /// How long until it is to be renewed.
    pub(crate) fn until_renewal(&self) -> Duration {
        self.until(self.renew)
    }

    /// How long until it is to be renewed from any server.
    pub(crate) fn until_rebinding(&self) -> Duration {
        self.until(self.rebind)
    }

    /// How long until it ends; zero when it has.
    pub(crate) fn until_expiry(&self) -> Duration {
        self.until(self.lasts)
    }

    fn until(&self, seconds: u64) -> Duration {
        let end = self.granted.saturating_add(seconds.saturating_mul(1000));
        Duration::from_millis(end.saturating_sub(boot_millis()))
    }

    /// The address with its network.
    ///
    /// # Errors
    /// Without a mask nobody knows how large the network is.
    pub(crate) fn network(&self) -> Result<IpNetwork, String> {
        let mask = self.mask.ok_or("DHCP option Subnet Mask not found in DHCPACK")?;
        let network = Ipv4Network::with_netmask(self.address, mask)
            .map_err(|_| format!("DHCP option Subnet Mask {mask} is no mask"))?;
        Ok(IpNetwork::V4(network))
    }

    /// What ADD answers. `priority` is the metric of all routes, 0 for none.
    pub(crate) fn result(&self, priority: i64, use_dns: bool) -> Result<CniResult, String> {
        let gateway = self.routers.first().copied().map(IpAddr::V4);
        let mut routes = self.routes();
        for route in &mut routes {
            route.priority = priority;
        }
        Ok(CniResult {
            interfaces: Vec::new(),
            ips: vec![IpConfig { interface: None, address: self.network()?, gateway }],
            routes,
            dns: if use_dns { self.dns() } else { Dns::default() },
        })
    }

    /// RFC 3442: classless routes, where there are any, replace all others and the router.
    fn routes(&self) -> Vec<Route> {
        if !self.classless.is_empty() {
            return self.classless.iter().filter_map(classless).collect();
        }
        let mut routes: Vec<_> = self.classful.iter().filter_map(classful).collect();
        let by_router = |router: &Ipv4Addr| Route::new(everywhere(true), Some(IpAddr::V4(*router)));
        routes.extend(self.routers.first().map(by_router));
        routes
    }

    fn dns(&self) -> Dns {
        Dns {
            nameservers: self.name_servers.iter().map(ToString::to_string).collect(),
            domain: Some(&self.domain).filter(|name| is_domain(name)).cloned().unwrap_or_default(),
            search: self.search.iter().filter(|name| is_domain(name)).cloned().collect(),
            options: Vec::new(),
        }
    }
}

/// Whether a server's text is the name of a domain. It ends up in a container's `resolv.conf`, where a line break would
/// begin another setting.
fn is_domain(name: &str) -> bool {
    let is_label = |label: &str| {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
        (1..=63).contains(&label.len()) && label.bytes().all(plain)
    };
    let name = name.strip_suffix('.').unwrap_or(name);
    name.len() <= 253 && name.split('.').all(is_label)
}

fn classless((destination, prefix, router): &(Ipv4Addr, u8, Ipv4Addr)) -> Option<Route> {
    let destination = IpNetwork::new(IpAddr::V4(*destination), *prefix).ok()?;
    let scope = router.is_unspecified().then_some(SCOPE_LINK);
    Some(Route { scope, ..Route::new(destination, Some(IpAddr::V4(*router))) })
}

/// The prefix length is that of the address's class. Addresses above class C have none.
fn classful((destination, router): &(Ipv4Addr, Ipv4Addr)) -> Option<Route> {
    let prefix = match destination.octets()[0] {
        0..128 => 8,
        128..192 => 16,
        192..224 => 24,
        224.. => return None,
    };
    let destination = IpNetwork::new(IpAddr::V4(*destination), prefix).ok()?;
    Some(Route::new(destination, Some(IpAddr::V4(*router))))
}

/// The wall clock may be set at any time, as when a host without a clock of its own first hears of the time: a step would
/// end leases. This one goes on while the host sleeps, as the server's does.
fn boot_millis() -> u64 {
    let since = clock_gettime(ClockId::CLOCK_BOOTTIME).map(Duration::from).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// A server that does not say how long means an hour, in seconds.
const DEFAULT_LEASE: u64 = 3600;
/// `RT_SCOPE_LINK`: the destination is on the link.
const SCOPE_LINK: i64 = 253;

#[cfg(test)]
mod tests;
