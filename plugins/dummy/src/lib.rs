// SPDX-License-Identifier: Apache-2.0
//! The `dummy` plugin: an interface in the container that leads nowhere and carries addresses.
//!
//! Everything of an attachment is in the container's namespace and ends with it, but for the IPAM plugin's reservation.

use cnibox_harness::{AddArgs, CheckArgs, DelArgs, GcArgs, Input, Plugin, Request, Role};
use cnibox_spec::{CniResult, Code, Verb, decode};
use cnibox_sys::{CheckWording, Coded, Failure, IpamShape, Place, Sys, Txn};
use serde::Deserialize;
use thiserror::Error;

/// The plugin.
pub struct Dummy;

/// A checked configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The IPAM plugin; ADD and CHECK have one.
    ipam: Option<String>,
}

/// What is wrong with a configuration or with an interface.
#[derive(Debug, Error)]
enum DummyError {
    #[error("dummy interface requires an IPAM configuration")]
    NoIpam,
    #[error("Interface {0} is down")]
    Down(String),
}

impl Coded for DummyError {
    fn code(&self) -> Code {
        match self {
            Self::NoIpam => Code::INVALID_CONFIG,
            Self::Down(_) => Code::INTERNAL,
        }
    }
}

#[derive(Default, Deserialize)]
#[serde(rename = "NetConf", default)]
struct Shape {
    ipam: IpamShape,
}

impl Plugin for Dummy {
    const NAME: &'static str = "dummy";
    const ROLE: Role = Role::Interface;
    type Config = Config;

    fn config(input: &Input<'_>) -> Result<Config, Failure> {
        let is_status = input.verb == Verb::Status;
        input.check_common(if is_status {
            "failed to load netconf"
        } else {
            "failed to parse network config"
        })?;
        let shape: Shape = decode(&input.conf.json)?;
        let ipam = shape.ipam.into_plugin();
        if ipam.is_none() && matches!(input.verb, Verb::Add | Verb::Check) {
            return Err(DummyError::NoIpam.into());
        }
        Ok(Config { ipam })
    }

    fn add(request: &Request<'_, Config, AddArgs>, sys: &mut Sys<'_>) -> Result<CniResult, Failure> {
        let Request { conf, config, args } = request;
        sys.open_pod_named(&args.netns)?;
        let plan = request.pod_plan(None, None);
        Txn::run(sys, |tx| {
            let create =
                |sys: &mut Sys<'_>| Ok(sys.rtnl(Place::Pod)?.link_add_dummy(args.attachment.ifname.as_str()));
            let link = tx.pod_link_add(Self::NAME, &args.attachment.ifname, create)?;
            let ipam = tx.ipam_add(config.ipam_name(), &conf.version_text)?;
            tx.pod_configure(&link, Some(ipam), &plan)
        })
    }

    fn del(request: &Request<'_, Config, DelArgs>, sys: &mut Sys<'_>) -> Result<(), Failure> {
        let DelArgs { attachment, netns } = &request.args;
        sys.detach(netns.as_ref(), &attachment.ifname, request.config.ipam.as_deref())
    }

    fn check(request: &Request<'_, Config, CheckArgs>, sys: &mut Sys<'_>) -> Result<(), Failure> {
        let Request { config, args, .. } = request;
        let (result, link) = sys.check_interface(request.expected(config.ipam.as_deref(), WORDING))?;
        if !link.is_up() {
            return Err(DummyError::Down(link.name).into());
        }
        sys.check_layer3(&args.attachment.ifname, &result)
    }

    fn status(request: &Request<'_, Config, ()>, sys: &mut Sys<'_>) -> Result<(), Failure> {
        sys.ipam_forward(Verb::Status, Some(request.config.ipam_name()))?;
        sys.require_kind("dummy")
    }

    fn gc(request: &Request<'_, Config, GcArgs>, sys: &mut Sys<'_>) -> Result<(), Failure> {
        sys.collect(&request.conf.network, &request.args.valid, request.config.ipam.as_deref())
    }
}

impl Config {
    /// The IPAM plugin's name; an empty one makes the call fail with the reference's text.
    fn ipam_name(&self) -> &str {
        self.ipam.as_deref().unwrap_or_default()
    }
}

const WORDING: CheckWording =
    CheckWording { before_required: "dummy: ", ..CheckWording::of_kind("dummy", "dummy") };
