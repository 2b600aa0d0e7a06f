// SPDX-License-Identifier: Apache-2.0
//! The verbs of a whole network: runs its chain as libcni does (`libcni/api.go`), and does two things that libcni leaves
//! to its callers: DEL and CHECK use what ADD used, and a failed ADD is undone.

use std::io::Write;

use cnibox_netns::{Error as NetnsError, NetNs};
use cnibox_spec::{Attachment, CniVersion, Json, LiveAttachment, NetworkName, Verb, quoted};
use cnibox_sys::{Env, Failure, Sys};

use crate::Error;
use crate::cache::{Cache, Remembered};
use crate::call::{self, RuntimeConf};
use crate::network::{Network, Networks, PluginConf};

/// A runtime: its surroundings, its networks and its memory.
pub struct Runtime<'a> {
    /// What plugins see of the environment; plugins are looked for in its `CNI_PATH`.
    pub env: Env,
    /// The networks there are.
    pub networks: Networks,
    /// The attachments that are remembered.
    pub cache: Cache,
    /// Where what plugins say on stderr goes.
    pub notes: &'a mut dyn Write,
}

impl Runtime<'_> {
    /// ADD: runs the chain, remembers the attachment, answers with the last plugin's result. When it fails, the
    /// plugins that ran are run again with DEL.
    ///
    /// # Errors
    /// What the failing plugin answered, and what could not be undone.
    pub fn add(&mut self, conf: &RuntimeConf) -> Result<Json, Error> {
        let network = self.networks.find(conf.attachment.network.as_str())?;
        let known = !matches!(self.cache.read(&conf.attachment), Ok(None));
        let mut results = Vec::new();
        match self.run_chain(&network, conf, &mut results) {
            Ok(()) => Ok(results.pop().unwrap_or_default()),
            Err(error) if known => Err(Error::Known(Box::new(error))),
            Err(error) => Err(self.undo(&network, conf, &results, error)),
        }
    }

    fn run_chain(
        &mut self,
        network: &Network,
        conf: &RuntimeConf,
        results: &mut Vec<Json>,
    ) -> Result<(), Error> {
        for plugin in &network.plugins {
            let config = call::config(network, plugin, conf, results.last().unwrap_or(&Json::Null));
            let result = self
                .execute(Verb::Add, plugin, &config, Some(conf))
                .and_then(|stdout| call::result(network, &stdout));
            results.push(result.map_err(|error| failed(plugin, "add", error))?);
        }
        let (conf, network) = (conf.clone(), network.bytes.clone());
        let result = results.last().cloned().unwrap_or_default();
        self.cache.write(&Remembered { conf, network, result })
    }

    /// DEL for every plugin that was started, the failing one included, newest first. What fails is added to `error`;
    /// nothing keeps the others from being undone.
    fn undo(&mut self, network: &Network, conf: &RuntimeConf, results: &[Json], error: Error) -> Error {
        let chained = network.speaks(CniVersion::V0_4_0).unwrap_or(false);
        let prev = results.last().filter(|_| chained).unwrap_or(&Json::Null);
        let started = network.plugins.len().min(results.len() + 1);
        let failures = self.del_all(network, &network.plugins[..started], conf, prev);
        self.cache.forget(&conf.attachment);
        if failures.is_empty() { error } else { Error::NotUndone(Box::new(error), failures) }
    }

    /// DEL in reverse order. What one plugin cannot do keeps the others from nothing; what is remembered stays then, so
    /// that DEL can be tried again.
    ///
    /// # Errors
    /// What the failing plugins answered.
    pub fn del(&mut self, conf: &RuntimeConf) -> Result<(), Error> {
        let (network, conf, result) = self.recall(conf)?;
        self.detach(&network, &conf, &result)
    }

    fn detach(&mut self, network: &Network, conf: &RuntimeConf, result: &Json) -> Result<(), Error> {
        // DEL has a prevResult since 0.4.0.
        let chained = network.speaks(CniVersion::V0_4_0)?;
        // A result that cannot be used is as good as none: plugins must manage without.
        let prev =
            if chained { call::in_version_of(network, result).unwrap_or_default() } else { Json::Null };
        let failures = self.del_all(network, &network.plugins, conf, &prev);
        if failures.is_empty() {
            self.cache.forget(&conf.attachment);
            return Ok(());
        }
        Err(Error::Several(failures))
    }

    fn del_all(
        &mut self,
        network: &Network,
        plugins: &[PluginConf],
        conf: &RuntimeConf,
        prev: &Json,
    ) -> Vec<Error> {
        let del = |plugin: &PluginConf| {
            let config = call::config(network, plugin, conf, prev);
            let error = self.execute(Verb::Del, plugin, &config, Some(conf)).err()?;
            Some(failed(plugin, "delete", error))
        };
        plugins.iter().rev().filter_map(del).collect()
    }

    /// CHECK, with the chain's final result for every plugin.
    ///
    /// # Errors
    /// When the network's version has no CHECK; what the first plugin answered that finds something missing.
    pub fn check(&mut self, conf: &RuntimeConf) -> Result<(), Error> {
        let (network, conf, result) = self.recall(conf)?;
        if !network.speaks(CniVersion::V0_4_0)? {
            return Err(Error::NoCheck(network.version));
        }
        if network.disable_check {
            return Ok(());
        }
        let prev = call::in_version_of(&network, &result)
            .map_err(|error| Error::Result(network.name.clone(), network.version.clone(), error))?;
        for plugin in &network.plugins {
            let config = call::config(&network, plugin, &conf, &prev);
            self.execute(Verb::Check, plugin, &config, Some(&conf))?;
        }
        Ok(())
    }

    /// STATUS of every plugin, up to the first that cannot work. `false`: the network is older than 1.1.0, and has none.
    ///
    /// # Errors
    /// What that plugin answered.
    pub fn status(&mut self, network: &Network) -> Result<bool, Error> {
        if !network.speaks(CniVersion::V1_1_0)? {
            return Ok(false);
        }
        for plugin in &network.plugins {
            self.execute(Verb::Status, plugin, &call::plain_config(network, plugin), None)?;
        }
        Ok(true)
    }

    /// GC: detaches what was attached to the network and not detached, but what `keep` keeps; answers with what that
    /// was. `dry_run` only answers.
    ///
    /// # Errors
    /// All of them, after everything else was detached.
    pub fn gc(&mut self, network: &Network, keep: Keep, dry_run: bool) -> Result<Vec<Attachment>, Error> {
        if network.disable_gc {
            return Ok(Vec::new());
        }
        let (live, stale) = self.sorted(network, keep)?;
        let names = stale.iter().map(|remembered| remembered.conf.attachment.clone()).collect();
        if dry_run {
            return Ok(names);
        }
        let mut failures = self.detach_stale(network, stale);
        if network.speaks(CniVersion::V1_1_0)? {
            let live: Vec<_> = live.iter().map(|live| LiveAttachment::from(&live.conf.attachment)).collect();
            failures.extend(self.gc_plugins(network, (keep == Keep::Live).then_some(&live)));
        }
        if failures.is_empty() { Ok(names) } else { Err(Error::Left(failures)) }
    }

    /// The network's attachments: those to be kept, and the others.
    fn sorted(&mut self, network: &Network, keep: Keep) -> Result<(Vec<Remembered>, Vec<Remembered>), Error> {
        let name = NetworkName::new(&network.name)?;
        if keep == Keep::Live {
            self.cache.expect_whole(&name)?;
        }
        let all = self.cache.of_network(&name)?;
        Ok(all.into_iter().partition(|remembered| keep == Keep::Live && self.lives(&remembered.conf)))
    }

    /// Whether the attachment's namespace is still there, or its interface, wherever that is. What cannot be found out
    /// lives.
    pub fn lives(&mut self, conf: &RuntimeConf) -> bool {
        match NetNs::open(&conf.netns) {
            Err(error) if error.is_gone() || matches!(error, NetnsError::NotANamespace { .. }) => {}
            _ => return true,
        }
        Sys::outside(&self.env, self.notes, &[]).has_interface(&conf.attachment).unwrap_or(true)
    }

    fn detach_stale(&mut self, network: &Network, stale: Vec<Remembered>) -> Vec<Error> {
        let mut failures = Vec::new();
        for Remembered { conf, network: used, result } in stale {
            let used = self.used(&conf, &used).unwrap_or_else(|| network.clone());
            if let Err(error) = self.detach(&used, &conf, &result) {
                failures.push(Error::Stale(conf.attachment, Box::new(error)));
            }
        }
        failures
    }

    fn gc_plugins(&mut self, network: &Network, live: Option<&[LiveAttachment]>) -> Vec<Error> {
        let gc = |plugin: &PluginConf| {
            let config = match live {
                Some(live) => call::gc_config(network, plugin, live),
                None => call::plain_config(network, plugin),
            };
            let error = self.execute(Verb::Gc, plugin, &config, None).err()?;
            Some(Error::Gc(plugin.kind.clone(), error))
        };
        network.plugins.iter().filter_map(gc).collect()
    }

    /// The network as ADD used it when that is remembered, else as it is written now; the call with what ADD said and this
    /// one does not; ADD's result.
    fn recall(&self, conf: &RuntimeConf) -> Result<(Network, RuntimeConf, Json), Error> {
        let remembered = self.cache.read(&conf.attachment).unwrap_or_default();
        let used = remembered.as_ref().and_then(|remembered| self.used(conf, &remembered.network));
        let find = || self.networks.find(conf.attachment.network.as_str());
        let network = used.map_or_else(find, Ok)?;
        Ok(match remembered {
            Some(remembered) => (network, conf.completed_from(&remembered.conf), remembered.result),
            None => (network, conf.clone(), Json::Null),
        })
    }

    fn used(&self, conf: &RuntimeConf, network: &[u8]) -> Option<Network> {
        let network = self.networks.remembered(network).ok()?;
        (network.name == conf.attachment.network.as_str()).then_some(network)
    }

    fn execute(
        &mut self,
        verb: Verb,
        plugin: &PluginConf,
        config: &Json,
        conf: Option<&RuntimeConf>,
    ) -> Result<Vec<u8>, Failure> {
        let (env, stdin) = (call::environment(&self.env, conf), config.to_string());
        Sys::outside(&env, self.notes, stdin.as_bytes()).delegate(verb, &plugin.kind)
    }
}

/// Which remembered attachments GC leaves alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// None, and plugins get no list: cnitool's way.
    Nothing,
    /// Those that live; plugins get their list.
    Live,
}

fn failed(plugin: &PluginConf, verb: &'static str, error: Failure) -> Error {
    let name = if plugin.name.is_empty() { String::new() } else { format!(" name={}", quoted(&plugin.name)) };
    Error::Plugin(format!("type={}{name}", quoted(&plugin.kind)), verb, error)
}

#[cfg(test)]
mod tests;
