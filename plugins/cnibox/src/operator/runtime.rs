// SPDX-License-Identifier: Apache-2.0
//! A runtime with cnitool's command line: runs a network's chain as libcni does (`libcni/api.go`), and does two things
//! that libcni leaves to its callers: DEL and CHECK use what ADD used, and a failed ADD is undone.

use std::io::Write;
use std::path::PathBuf;

use anyhow::{Context, Error, Result, anyhow, bail};
use cnibox_netns::{Error as NetnsError, NetNs};
use cnibox_spec::{self as spec, CniVersion, Json, LiveAttachment as Live, NetworkName, Verb, quoted};
use cnibox_sys::{Env, Host, Registry, Sys};

use super::attachment::Attachment;
use super::cache::{Cache, Entry};
use super::call;
use super::conflist::{self, Network, PluginConf};

/// Where plugins are looked for when `CNI_PATH` is not set.
pub(crate) const DEFAULT_PATH: &str = "/opt/cni/bin";
/// Where networks are looked for when `NETCONFPATH` is not set.
pub(crate) const DEFAULT_CONF_DIR: &str = "/etc/cni/net.d";

/// The surroundings of one command.
pub(crate) struct Runtime<'a> {
    env: Env,
    conf_dir: PathBuf,
    cache: Cache,
    notes: &'a mut dyn Write,
}

impl<'a> Runtime<'a> {
    /// A runtime that reads `env` and `cache`; `notes` is where what plugins say on stderr goes.
    pub(crate) fn new(env: Env, cache: Cache, notes: &'a mut dyn Write) -> Self {
        let conf_dir = match env.var("NETCONFPATH") {
            dir if dir.is_empty() => DEFAULT_CONF_DIR.into(),
            dir => PathBuf::from(&*dir),
        };
        let env = if env.var("CNI_PATH").is_empty() { env.with("CNI_PATH", DEFAULT_PATH) } else { env };
        Self { env, conf_dir, cache, notes }
    }

    /// ADD: runs the chain, remembers the attachment, answers with the last plugin's result. When it fails, the
    /// plugins that ran are run again with DEL.
    ///
    /// # Errors
    /// What the failing plugin answered, and what could not be undone.
    pub(crate) fn add(&mut self, name: &str, attachment: &Attachment) -> Result<Json> {
        let network = conflist::find(&self.conf_dir, name)?;
        NetworkName::new(&network.name)?;
        let known = !matches!(self.cache.read(attachment.key(&network.name)), Ok(None));
        let mut progress = Progress { started: 0, result: Json::Null };
        match self.run_chain(&network, attachment, &mut progress) {
            Ok(()) => Ok(progress.result),
            Err(error) if known => Err(anyhow!("{error:#}; {KNOWN}")),
            Err(error) => Err(self.undo(&network, attachment, &progress, error)),
        }
    }

    fn run_chain(
        &mut self,
        network: &Network,
        attachment: &Attachment,
        progress: &mut Progress,
    ) -> Result<()> {
        for plugin in &network.plugins {
            progress.started += 1;
            let config = call::config(network, plugin, attachment, &progress.result);
            let result = self
                .execute(Verb::Add, plugin, &config, attachment)
                .and_then(|stdout| call::result(network, &stdout))
                .with_context(|| format!("plugin {} failed (add)", described(plugin)))?;
            progress.result = result;
        }
        self.cache.write(&remember(network, attachment, &progress.result))
    }

    /// DEL for every plugin that was started, the failing one included, newest first. What fails is added to `error`;
    /// nothing keeps the others from being undone.
    fn undo(
        &mut self,
        network: &Network,
        attachment: &Attachment,
        progress: &Progress,
        error: Error,
    ) -> Error {
        let chained = network.speaks(CniVersion::V0_4_0).unwrap_or(false);
        let prev = if chained { &progress.result } else { &Json::Null };
        let mut failures = String::new();
        for plugin in network.plugins[..progress.started].iter().rev() {
            if let Err(failure) = self.del_one(network, plugin, attachment, prev) {
                failures.push_str(&format!("; undo: {failure:#}"));
            }
        }
        self.cache.forget(attachment.key(&network.name));
        if failures.is_empty() { error } else { anyhow!("{error:#}{failures}") }
    }

    /// DEL in reverse order. What one plugin cannot do keeps the others from nothing; what is remembered stays then, so
    /// that DEL can be tried again.
    ///
    /// # Errors
    /// What the failing plugins answered.
    pub(crate) fn del(&mut self, name: &str, mut attachment: Attachment) -> Result<()> {
        let (network, entry) = self.recall(name, &attachment)?;
        if let Some(entry) = &entry {
            attachment.complete_from(entry);
        }
        self.detach(&network, &attachment, entry)
    }

    fn detach(&mut self, network: &Network, attachment: &Attachment, entry: Option<Entry>) -> Result<()> {
        // DEL has a prevResult since 0.4.0.
        let chained = network.speaks(CniVersion::V0_4_0)?;
        let remembered = entry.filter(|_| chained).map(|entry| entry.result);
        // A result that cannot be used is as good as none: plugins must manage without.
        let prev =
            remembered.and_then(|result| call::in_version_of(network, &result).ok()).unwrap_or_default();
        let mut failures = Vec::new();
        for plugin in network.plugins.iter().rev() {
            failures.extend(self.del_one(network, plugin, attachment, &prev).err());
        }
        if !failures.is_empty() {
            let failures: Vec<_> = failures.iter().map(|failure| format!("{failure:#}")).collect();
            bail!(failures.join("; "));
        }
        self.cache.forget(attachment.key(&network.name));
        Ok(())
    }

    fn del_one(
        &mut self,
        network: &Network,
        plugin: &PluginConf,
        attachment: &Attachment,
        prev: &Json,
    ) -> Result<()> {
        let config = call::config(network, plugin, attachment, prev);
        self.execute(Verb::Del, plugin, &config, attachment)
            .with_context(|| format!("plugin {} failed (delete)", described(plugin)))?;
        Ok(())
    }

    /// CHECK, with the chain's final result for every plugin.
    ///
    /// # Errors
    /// When the network's version has no CHECK; what the first plugin answered that finds something missing.
    pub(crate) fn check(&mut self, name: &str, mut attachment: Attachment) -> Result<()> {
        let (network, entry) = self.recall(name, &attachment)?;
        if !network.speaks(CniVersion::V0_4_0)? {
            bail!("configuration version {} does not support the CHECK command", quoted(&network.version));
        }
        if network.disable_check {
            return Ok(());
        }
        if let Some(entry) = &entry {
            attachment.complete_from(entry);
        }
        let result = entry.map(|entry| entry.result).unwrap_or_default();
        let prev = call::in_version_of(&network, &result)
            .with_context(|| format!("failed to get network {} cached result", quoted(&network.name)))?;
        for plugin in &network.plugins {
            let config = call::config(&network, plugin, &attachment, &prev);
            self.execute(Verb::Check, plugin, &config, &attachment)?;
        }
        Ok(())
    }

    /// STATUS of every plugin, up to the first that cannot work. Networks older than 1.1.0 have no STATUS.
    ///
    /// # Errors
    /// What that plugin answered.
    pub(crate) fn status(&mut self, name: &str) -> Result<()> {
        self.status_of(&conflist::find(&self.conf_dir, name)?).map(drop)
    }

    /// STATUS of every network there is, by file: whether it has one.
    ///
    /// # Errors
    /// When the directory of networks cannot be read.
    pub(crate) fn statuses(&mut self) -> Result<Vec<(PathBuf, Result<bool>)>> {
        let networks = conflist::all(&self.conf_dir)?;
        let status =
            |(file, network): (_, Result<Network>)| (file, network.and_then(|it| self.status_of(&it)));
        Ok(networks.into_iter().map(status).collect())
    }

    fn status_of(&mut self, network: &Network) -> Result<bool> {
        if !network.speaks(CniVersion::V1_1_0)? {
            return Ok(false);
        }
        for plugin in &network.plugins {
            let config = call::plain_config(network, plugin);
            self.execute(Verb::Status, plugin, &config, &Attachment::default())?;
        }
        Ok(true)
    }

    /// GC: detaches what was attached to the network and not detached, but what `keep` keeps; answers with what that
    /// was. With `dry_run` nothing is done, and the answer is what would be.
    ///
    /// # Errors
    /// All of them, after everything else was detached.
    pub(crate) fn gc(&mut self, name: &str, keep: Keep, dry_run: bool) -> Result<Vec<String>> {
        let network = conflist::find(&self.conf_dir, name)?;
        if network.disable_gc {
            return Ok(Vec::new());
        }
        let (mut live, mut stale) = (Vec::new(), Vec::new());
        for entry in self.cache.attachments(&network.name)? {
            let list = if keep == Keep::Live && self.lives(&entry) { &mut live } else { &mut stale };
            list.push(entry);
        }
        let names = stale.iter().map(|entry| format!("{} {}", entry.container, entry.ifname)).collect();
        if dry_run {
            return Ok(names);
        }
        let mut failures = self.delete_stale(&network, stale);
        if network.speaks(CniVersion::V1_1_0)? {
            let live = (keep == Keep::Live).then(|| live.iter().map(live_attachment).collect::<Vec<_>>());
            failures.extend(self.gc_plugins(&network, live.as_deref()));
        }
        if failures.is_empty() { Ok(names) } else { bail!(failures.join("\n")) }
    }

    /// Whether the attachment's namespace is still there, or its interface, wherever that is. What cannot be found out
    /// lives.
    fn lives(&mut self, entry: &Entry) -> bool {
        match NetNs::open(&entry.netns) {
            Err(error) if error.is_gone() || matches!(error, NetnsError::NotANamespace { .. }) => {}
            _ => return true,
        }
        let Ok(attachment) = spec::Attachment::new(&entry.network, &entry.container, &entry.ifname) else {
            return false;
        };
        let (mut nothing, mut nowhere) = (std::io::empty(), std::io::sink());
        let mut host = Host {
            env: self.env.clone(),
            stdin: &mut nothing,
            stdout: &mut nowhere,
            stderr: &mut *self.notes,
            registry: Registry::default(),
            fail_at: None,
        };
        Sys::new(&mut host, &[]).has_interface(&attachment).unwrap_or(true)
    }

    fn delete_stale(&mut self, network: &Network, stale: Vec<Entry>) -> Vec<String> {
        let mut failures = Vec::new();
        for entry in stale {
            let used = self.used_by(&entry).unwrap_or_else(|| network.clone());
            let attachment = Attachment::from(entry.clone());
            if let Err(error) = self.detach(&used, &attachment, Some(entry)) {
                let Attachment { container, ifname, .. } = &attachment;
                failures.push(format!("failed to delete stale attachment {container} {ifname}: {error:#}"));
            }
        }
        failures
    }

    fn gc_plugins(&mut self, network: &Network, live: Option<&[Live]>) -> Vec<String> {
        let mut failures = Vec::new();
        for plugin in &network.plugins {
            let config = match live {
                Some(live) => call::gc_config(network, plugin, live),
                None => call::plain_config(network, plugin),
            };
            if let Err(error) = self.execute(Verb::Gc, plugin, &config, &Attachment::default()) {
                failures.push(format!("failed to GC plugin {}: {error:#}", plugin.kind));
            }
        }
        failures
    }

    /// The network as ADD used it when that is remembered, else as it is written now.
    fn recall(&self, name: &str, attachment: &Attachment) -> Result<(Network, Option<Entry>)> {
        let entry = match NetworkName::new(name) {
            Ok(_) => self.cache.read(attachment.key(name)).unwrap_or_default(),
            Err(_) => None,
        };
        let used = entry.as_ref().and_then(|entry| self.used_by(entry));
        let network = used.map_or_else(|| conflist::find(&self.conf_dir, name), Ok)?;
        Ok((network, entry))
    }

    fn used_by(&self, entry: &Entry) -> Option<Network> {
        let network = conflist::remembered(&entry.config()?, &self.conf_dir).ok()?;
        (network.name == entry.network).then_some(network)
    }

    fn execute(
        &mut self,
        verb: Verb,
        plugin: &PluginConf,
        config: &Json,
        attachment: &Attachment,
    ) -> Result<Vec<u8>> {
        call::execute(verb, plugin, config, call::environment(&self.env, attachment), self.notes)
    }
}

/// How far ADD came.
struct Progress {
    /// How many plugins were started, the failing one included.
    started: usize,
    /// The last result, null before the first.
    result: Json,
}

/// Which remembered attachments GC leaves alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keep {
    /// None, and plugins get no list: cnitool's way.
    Nothing,
    /// Those that live; plugins get their list.
    Live,
}

/// An ADD that fails beside an existing attachment must not take that one down.
const KNOWN: &str =
    "this attachment is remembered from an earlier add and was left as it is (del removes it)";

fn remember(network: &Network, attachment: &Attachment, result: &Json) -> Entry {
    let entry = Entry {
        container: attachment.container.clone(),
        ifname: attachment.ifname.clone(),
        network: network.name.clone(),
        netns: attachment.netns.clone(),
        args: attachment.args.clone(),
        capabilities: attachment.capabilities.clone(),
        result: result.clone(),
        ..Entry::default()
    };
    entry.with_config(&network.bytes)
}

fn live_attachment(entry: &Entry) -> Live {
    Live { container_id: entry.container.clone(), ifname: entry.ifname.clone() }
}

fn described(plugin: &PluginConf) -> String {
    let name = if plugin.name.is_empty() { String::new() } else { format!(" name={}", quoted(&plugin.name)) };
    format!("type={}{name}", quoted(&plugin.kind))
}

#[cfg(test)]
mod tests;
