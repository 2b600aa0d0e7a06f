// SPDX-License-Identifier: Apache-2.0
//! The `tap` plugin: a persistent TAP device in the container, for a virtual machine in there, optionally a port of a
//! bridge in there.
//!
//! Everything of an attachment is in the container's namespace and ends with it, but for the IPAM plugin's reservation.

mod config;
mod create;

use cnibox_harness::{AddArgs, CheckArgs, DelArgs, GcArgs, Input, Plugin, Request, Role};
use cnibox_spec::{CniResult, Verb};
use cnibox_sys::{Announce, CheckWording, Failure, Sys, Txn};

pub use config::Config;

/// The plugin.
pub struct Tap;

impl Plugin for Tap {
    const NAME: &'static str = "tap";
    const ROLE: Role = Role::Interface;
    type Config = Config;

    fn config(input: &Input<'_>) -> Result<Config, Failure> {
        Config::new(input)
    }

    fn add(request: &Request<'_, Config, AddArgs>, sys: &mut Sys<'_>) -> Result<CniResult, Failure> {
        let Request { conf, config, args } = request;
        sys.open_pod_named(&args.netns)?;
        let plan = request.pod_plan(Some(Announce::Arp));
        Txn::run(sys, |tx| {
            let link = tx.pod_link_add(Self::NAME, &args.attachment.ifname, |sys| {
                create::device(sys, conf, config, &args.attachment.ifname)
            })?;
            let link = tx.shared(|sys| create::configure(sys, config, link))?;
            let ipam = conf.ipam().map(|plugin| tx.ipam_add(plugin, &conf.version_text)).transpose()?;
            tx.pod_configure(&link, ipam, &plan)
        })
    }

    fn del(request: &Request<'_, Config, DelArgs>, sys: &mut Sys<'_>) -> Result<(), Failure> {
        let DelArgs { attachment, netns } = &request.args;
        sys.detach(netns.as_ref(), &attachment.ifname, request.conf.ipam())
    }

    fn check(request: &Request<'_, Config, CheckArgs>, sys: &mut Sys<'_>) -> Result<(), Failure> {
        let expected = request.expected(request.conf.ipam(), CheckWording::of_kind("tun", "tap"));
        let (result, link) = sys.check_interface(expected)?;
        sys.check_layer3(&link, &result)
    }

    fn status(request: &Request<'_, Config, ()>, sys: &mut Sys<'_>) -> Result<(), Failure> {
        sys.require_tun()?;
        sys.ipam_forward(Verb::Status, request.conf.ipam())
    }

    fn gc(request: &Request<'_, Config, GcArgs>, sys: &mut Sys<'_>) -> Result<(), Failure> {
        sys.collect(&request.conf.network, &request.args.valid, request.conf.ipam())
    }
}
