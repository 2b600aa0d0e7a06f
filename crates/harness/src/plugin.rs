// SPDX-License-Identifier: Apache-2.0
//! What a plugin is, as the protocol sees it.

use cnibox_spec::{Attachment, CniResult, CniVersion, LiveAttachment, NetnsPath};
use cnibox_sys::{Announce, CheckWording, Expected, Failure, PodPlan, Sys};

use crate::{Input, NetConf};

/// A CNI plugin. A verb gets a checked configuration and the system, and answers; it neither prints nor exits.
pub trait Plugin {
    /// The plugin's name, as in `argv[0]` and in a configuration's `type`.
    const NAME: &'static str;
    /// The protocol versions it accepts.
    const VERSIONS: &'static [CniVersion] = CniVersion::ALL;
    /// Its part in an attachment.
    const ROLE: Role;
    /// Its configuration, checked.
    type Config;

    /// Decodes and checks the configuration for one verb.
    ///
    /// # Errors
    /// Whatever is wrong with it; nothing has been touched then.
    fn config(input: &Input<'_>) -> Result<Self::Config, Failure>;

    /// Attaches the container.
    ///
    /// # Errors
    /// The attachment failed and was taken back.
    fn add(request: &Request<'_, Self::Config, AddArgs>, sys: &mut Sys<'_>) -> Result<CniResult, Failure>;

    /// Detaches the container, whatever is left of it. What is missing is no error, and a second DEL succeeds.
    ///
    /// # Errors
    /// What could not be removed; everything else was.
    fn del(request: &Request<'_, Self::Config, DelArgs>, sys: &mut Sys<'_>) -> Result<(), Failure>;

    /// Finds out whether everything that ADD made is still there.
    ///
    /// # Errors
    /// The first thing that is not.
    fn check(request: &Request<'_, Self::Config, CheckArgs>, sys: &mut Sys<'_>) -> Result<(), Failure>;

    /// Finds out whether ADD could work.
    ///
    /// # Errors
    /// Code 50 or 51 and why.
    fn status(request: &Request<'_, Self::Config, ()>, sys: &mut Sys<'_>) -> Result<(), Failure>;

    /// Removes what belongs to attachments of this network that are not in the list.
    ///
    /// # Errors
    /// What could not be removed; everything else was.
    fn gc(request: &Request<'_, Self::Config, GcArgs>, sys: &mut Sys<'_>) -> Result<(), Failure>;
}

/// A plugin's part in an attachment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Its ADD makes the container's interface, and its DEL removes it.
    Interface,
    /// It works on what earlier plugins of the chain have made.
    Chained,
    /// It hands out addresses, called by a plugin that makes an interface.
    Ipam {
        /// Whether it asks the network for them, by that interface, which must be attached by then.
        asks_network: bool,
    },
}

impl Role {
    /// Whether it hands out addresses.
    #[must_use]
    pub const fn is_ipam(self) -> bool {
        matches!(self, Self::Ipam { .. })
    }
}

/// One call of a verb.
pub struct Request<'a, C, A> {
    /// What every configuration has: name, version, prevResult.
    pub conf: &'a NetConf,
    /// The plugin's own configuration.
    pub config: C,
    /// The verb's arguments.
    pub args: A,
}

impl<C> Request<'_, C, AddArgs> {
    /// How the container's interface is configured and reported.
    #[must_use]
    pub fn pod_plan(&self, announce: Option<Announce>) -> PodPlan<'_> {
        let (dns, version) = (self.conf.dns_instead(), self.conf.version);
        PodPlan { netns: &self.args.netns, dns, announce, version }
    }

    /// What CHECK expects of the container's interface.
    #[must_use]
    pub fn expected<'a>(&'a self, ipam: Option<&'a str>, wording: CheckWording) -> Expected<'a> {
        let AddArgs { attachment, netns } = &self.args;
        Expected { netns, ifname: &attachment.ifname, ipam, prev_result: self.conf.prev_result(), wording }
    }
}

/// Arguments of ADD.
#[derive(Clone, Debug)]
pub struct AddArgs {
    /// The network, `CNI_CONTAINERID` and `CNI_IFNAME`.
    pub attachment: Attachment,
    /// `CNI_NETNS`.
    pub netns: NetnsPath,
}

/// Arguments of CHECK: those of ADD.
pub type CheckArgs = AddArgs;

/// Arguments of DEL.
#[derive(Clone, Debug)]
pub struct DelArgs {
    /// The network, `CNI_CONTAINERID` and `CNI_IFNAME`.
    pub attachment: Attachment,
    /// `CNI_NETNS`; a runtime that has lost the namespace leaves it empty.
    pub netns: Option<NetnsPath>,
}

/// Arguments of GC.
#[derive(Clone, Debug)]
pub struct GcArgs {
    /// The attachments that live: those of `cni.dev/valid-attachments`, and those whose ADD runs. An absent list never gets
    /// here.
    pub valid: Vec<LiveAttachment>,
}
