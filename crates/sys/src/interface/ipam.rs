// SPDX-License-Identifier: Apache-2.0
//! The IPAM plugin of an interface's attachment: asked for addresses, told to give them back, forwarded other verbs.
//!
//! Must never release an address that somebody may live with.

use std::net::IpAddr;

use cnibox_spec::{CniResult, Code, Verb};

use crate::call::{Failure, Sys, Txn, UndoStep};

impl Txn<'_, '_> {
    /// ADD to the IPAM plugin; an answer without addresses is a failure.
    ///
    /// # Errors
    /// The plugin's own; [`NO_ADDRESSES`].
    pub fn ipam_add(&mut self, plugin: &str, version: &str) -> Result<CniResult, Failure> {
        let undo = Released(plugin.to_owned());
        let result = self.step(undo, |sys| sys.ipam_add(plugin, version))?;
        if result.ips.is_empty() { Err(Failure::internal(NO_ADDRESSES)) } else { Ok(result) }
    }
}

/// DEL to the IPAM plugin of this name.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Released(String);

impl UndoStep for Released {
    fn undo(&self, sys: &mut Sys<'_>) -> Result<(), Failure> {
        sys.delegate(Verb::Del, &self.0).map(drop)
    }
}

impl Sys<'_> {
    /// ADD to an IPAM plugin, which is told DEL when it fails, as the specification asks (section "Delegated plugin
    /// execution"), unless the attachment may be a living one, whose addresses DEL would release. host-local refuses a
    /// second address for an attachment; when the first one is what a dead attempt had, it is released.
    fn ipam_add(&mut self, plugin: &str, version: &str) -> Result<CniResult, Failure> {
        self.attempt_announces();
        let mut answer = self.delegate_add(plugin, version);
        if let Some(address) = answer.as_ref().err().and_then(reserved_address)
            && self.may_release(address)?
        {
            self.delegate(Verb::Del, plugin)?;
            answer = self.delegate_add(plugin, version);
        }
        let result = answer.map_err(|failure| self.ipam_undo(plugin, failure))?;
        self.attempt_was_given(&result);
        Ok(result)
    }

    fn ipam_undo(&mut self, plugin: &str, mut failure: Failure) -> Failure {
        // What gave up waiting before it did anything would only wait as long again.
        let has_nothing =
            failure.object().code == Code::TRY_AGAIN_LATER || reserved_address(&failure).is_some();
        if has_nothing || self.another_may_live() {
            return failure;
        }
        // A configuration that the plugin cannot read fails ADD and DEL alike; once is enough.
        if let Err(error) = self.delegate(Verb::Del, plugin)
            && error != failure
        {
            failure.add_details(&format!("undo: {error}"));
        }
        failure
    }

    /// Calls the IPAM plugin, if there is one, with a verb that has no result. DEL is none of its business while the
    /// remains of a dead attempt are taken down: the addresses may be somebody's by now.
    ///
    /// # Errors
    /// The plugin's own.
    pub fn ipam_forward(&mut self, verb: Verb, ipam: Option<&str>) -> Result<(), Failure> {
        match ipam {
            Some(_) if verb == Verb::Del && self.remains().is_some() => Ok(()),
            Some(plugin) => self.delegate(verb, plugin).map(drop),
            None => Ok(()),
        }
    }
}

/// The address in host-local's "10.0.0.9 has been allocated to c1, duplicate allocation is not allowed".
fn reserved_address(failure: &Failure) -> Option<IpAddr> {
    let msg = &failure.object().msg;
    let duplicate = msg.ends_with(", duplicate allocation is not allowed");
    let words = msg.split_whitespace();
    duplicate.then(|| words.filter_map(|word| word.parse().ok()).next()).flatten()
}

/// What an ADD fails with whose IPAM plugin gave no address.
pub const NO_ADDRESSES: &str = "IPAM plugin returned missing IP config";
