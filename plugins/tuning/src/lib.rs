// SPDX-License-Identifier: Apache-2.0
//! The `tuning` plugin: sysctls of a container's namespace, and hardware address, MTU, modes and queue length of its
//! interface (reference: `plugins/meta/tuning`).
//!
//! What the interface had before is kept in a file of the reference's format, from which DEL by either implementation
//! restores it. Sysctls go with the namespace and are not restored.

mod allowlist;
mod apply;
mod backup;
mod check;
mod config;
mod detach;
mod sysctls;

use cnibox_harness::{AddArgs, CheckArgs, DelArgs, GcArgs, Input, Plugin, Request, Role};
use cnibox_spec::CniResult;
use cnibox_sys::{Failure, Sys};

pub use config::Config;

/// The plugin.
pub struct Tuning;

impl Plugin for Tuning {
    const NAME: &'static str = "tuning";
    const ROLE: Role = Role::Chained;
    type Config = Config;

    fn config(input: &Input<'_>) -> Result<Config, Failure> {
        Config::new(input)
    }

    fn add(request: &Request<'_, Config, AddArgs>, sys: &mut Sys<'_>) -> Result<CniResult, Failure> {
        apply::add(request, sys)?;
        Ok(apply::result(request))
    }

    fn del(request: &Request<'_, Config, DelArgs>, sys: &mut Sys<'_>) -> Result<(), Failure> {
        detach::del(request, sys)
    }

    fn check(request: &Request<'_, Config, CheckArgs>, sys: &mut Sys<'_>) -> Result<(), Failure> {
        check::check(request, sys)
    }

    fn status(_: &Request<'_, Config, ()>, sys: &mut Sys<'_>) -> Result<(), Failure> {
        sys.require_net_admin()
    }

    fn gc(request: &Request<'_, Config, GcArgs>, _: &mut Sys<'_>) -> Result<(), Failure> {
        detach::gc(request)
    }
}
