// SPDX-License-Identifier: Apache-2.0
//! The `dummy` plugin: an interface in the container that leads nowhere and carries addresses.
//!
//! Everything of an attachment is in the container's namespace and ends with it, but for the IPAM plugin's reservation.

use cnibox_harness::{AddArgs, CheckArgs, DelArgs, GcArgs, Input, Plugin, Request, Role};
use cnibox_spec::{CniResult, Verb};
use cnibox_sys::{CheckWording, Failure, Place, PodPlan, Sys, Txn};

/// The plugin.
pub struct Dummy;

impl Plugin for Dummy {
    const NAME: &'static str = "dummy";
    const ROLE: Role = Role::Interface;
    type Config = ();

    fn config(input: &Input<'_>) -> Result<(), Failure> {
        let failed = match input.verb {
            Verb::Status => "failed to load netconf",
            Verb::Add | Verb::Del | Verb::Check | Verb::Gc => "failed to parse network config",
        };
        input.check_common(failed)?;
        if input.conf.ipam().is_none() && matches!(input.verb, Verb::Add | Verb::Check) {
            let text = "dummy interface requires an IPAM configuration";
            return Err(Failure::invalid_config(text));
        }
        Ok(())
    }

    fn add(request: &Request<'_, (), AddArgs>, sys: &mut Sys<'_>) -> Result<CniResult, Failure> {
        let Request { conf, args, .. } = request;
        sys.open_pod_named(&args.netns)?;
        let plan = PodPlan { dns: None, ..request.pod_plan(None) };
        Txn::run(sys, |tx| {
            let create =
                |sys: &mut Sys<'_>| Ok(sys.rtnl(Place::Pod)?.link_add_dummy(args.attachment.ifname.as_str()));
            let link = tx.pod_link_add(Self::NAME, &args.attachment.ifname, create)?;
            let ipam = tx.ipam_add(conf.required_ipam(), &conf.version_text)?;
            tx.pod_configure(&link, Some(ipam), &plan)
        })
    }

    fn del(request: &Request<'_, (), DelArgs>, sys: &mut Sys<'_>) -> Result<(), Failure> {
        let DelArgs { attachment, netns } = &request.args;
        sys.detach(netns.as_ref(), &attachment.ifname, request.conf.ipam())
    }

    fn check(request: &Request<'_, (), CheckArgs>, sys: &mut Sys<'_>) -> Result<(), Failure> {
        let (result, link) = sys.check_interface(request.expected(request.conf.ipam(), WORDING))?;
        if !link.is_up() {
            return Err(Failure::internal(format!("Interface {} is down", link.name)));
        }
        sys.check_layer3(&link, &result)
    }

    fn status(request: &Request<'_, (), ()>, sys: &mut Sys<'_>) -> Result<(), Failure> {
        sys.ipam_forward(Verb::Status, Some(request.conf.required_ipam()))?;
        sys.require_kind("dummy")
    }

    fn gc(request: &Request<'_, (), GcArgs>, sys: &mut Sys<'_>) -> Result<(), Failure> {
        sys.collect(&request.conf.network, &request.args.valid, request.conf.ipam())
    }
}

const WORDING: CheckWording =
    CheckWording { before_required: "dummy: ", ..CheckWording::of_kind("dummy", "dummy") };
