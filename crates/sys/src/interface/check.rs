// SPDX-License-Identifier: Apache-2.0
//! CHECK, as far as it is the same for every plugin with one interface in the container: IPAM, prevResult, sandbox,
//! kind, MAC, addresses, routes. The plugins' wordings are data.

use cnibox_netlink::Link;
use cnibox_spec::{CniResult, IfName, Interface, IpConfig, NetnsPath, Verb};

use crate::call::{Failure, Place, Sys};

/// How a plugin words what it finds; the default is that of most plugins, for links of whatever kind.
#[derive(Clone, Copy, Debug, Default)]
pub struct CheckWording {
    /// What stands before "Required prevResult missing".
    pub before_required: &'static str,
    /// What stands before "Interface …".
    pub before_interface: &'static str,
    /// Whether sentences start in lower case.
    pub lower_case: bool,
    /// The kernel's name of the kind of link, and the plugin's; `None` when any kind will do.
    pub kind: Option<(&'static str, &'static str)>,
}

impl CheckWording {
    /// The wording of most plugins, for links of one kind.
    #[must_use]
    pub const fn of_kind(kernel: &'static str, plugin: &'static str) -> Self {
        Self { before_required: "", before_interface: "", lower_case: false, kind: Some((kernel, plugin)) }
    }

    /// Whether `link` is of the kind, and has the MAC, that prevResult lists.
    ///
    /// # Errors
    /// When not.
    pub fn compare(&self, listed: &Interface, link: &Link) -> Result<(), Failure> {
        let Interface { name, mac, .. } = listed;
        if let Some((kernel, kind)) = self.kind
            && !link.is_kind(kernel)
        {
            let said = self.say("", "Error: Container");
            return Err(Failure::internal(format!("{said} interface {name} not of type {kind}")));
        }
        let found = link.mac_text();
        if !mac.is_empty() && *mac != found {
            let said = self.say(self.before_interface, "Interface");
            let msg = format!("{said} {name} Mac {mac} doesn't match container Mac: {found}");
            return Err(Failure::internal(msg));
        }
        Ok(())
    }

    fn say(&self, before: &str, text: &str) -> String {
        let mut said = format!("{before}{text}");
        if self.lower_case && before.is_empty() {
            said.get_mut(..1).into_iter().for_each(str::make_ascii_lowercase);
        }
        said
    }
}

/// What CHECK expects of the container's interface.
#[derive(Clone, Debug)]
pub struct Expected<'a> {
    /// The container's namespace.
    pub netns: &'a NetnsPath,
    /// The interface.
    pub ifname: &'a IfName,
    /// The IPAM plugin, which is asked first.
    pub ipam: Option<&'a str>,
    /// prevResult, looked at when the IPAM plugin is content.
    pub prev_result: Result<Option<CniResult>, Failure>,
    /// How to say it.
    pub wording: CheckWording,
}

impl Sys<'_> {
    /// Opens the container's namespace, asks the IPAM plugin, then looks for the interface in prevResult and in the
    /// container. Answers with prevResult, reduced to the interface's own addresses, and the link.
    ///
    /// # Errors
    /// The first thing that is not as expected.
    pub fn check_interface(&mut self, expected: Expected<'_>) -> Result<(CniResult, Link), Failure> {
        let (result, listed) = self.check_prev_result(&expected)?;
        let Expected { wording, .. } = expected;
        let name = &listed.name;
        let Some(link) = self.rtnl(Place::Pod)?.link_by_name_if_present(name)? else {
            let said = wording.say(wording.before_interface, "Container Interface name");
            return Err(Failure::internal(format!("{said} in prevResult: {name} not found")));
        };
        wording.compare(&listed, &link)?;
        Ok((result, link))
    }

    /// The part of [`Sys::check_interface`] that needs no interface: namespace, IPAM, prevResult and the sandbox in it.
    ///
    /// # Errors
    /// The first thing that is not as expected.
    pub fn check_prev_result(&mut self, expected: &Expected<'_>) -> Result<(CniResult, Interface), Failure> {
        let Expected { netns, ifname, wording, .. } = expected;
        self.open_pod_named(netns)?;
        self.ipam_forward(Verb::Check, expected.ipam)?;
        let required = || wording.say(wording.before_required, "Required prevResult missing");
        let result = expected.prev_result.clone()?.ok_or_else(|| Failure::invalid_config(required()))?;
        let mut named = result.interfaces.iter().rev().filter(|interface| interface.name == ifname.as_str());
        let Some(listed) = named.find(|interface| interface.sandbox == netns.as_str()).cloned() else {
            let said = wording.say("", "Sandbox");
            // The reference has nothing to print between the two spaces, either.
            let msg = format!("{said} in prevResult  doesn't match configured netns: {}", netns.as_str());
            return Err(Failure::internal(msg));
        };
        Ok((own_addresses(result, ifname.as_str(), netns.as_str()), listed))
    }

    /// The container's interface `link` has its addresses, and the container its routes.
    ///
    /// # Errors
    /// The first one that is gone.
    pub fn check_layer3(&mut self, link: &Link, result: &CniResult) -> Result<(), Failure> {
        self.check_addresses(link, &result.ips)?;
        self.check_routes(&result.routes)
    }
}

/// `result` with the addresses of this interface only, and those of none in particular; chained plugins may have added
/// others.
#[must_use]
pub fn own_addresses(result: CniResult, ifname: &str, sandbox: &str) -> CniResult {
    let is_own = |interface: &Interface| interface.name == ifname && interface.sandbox == sandbox;
    let ours = |ip: &&IpConfig| ip.interface.is_none() || result.interface_of(ip).is_some_and(is_own);
    let ips = result.ips.iter().filter(ours).cloned().collect();
    CniResult { ips, ..result }
}
