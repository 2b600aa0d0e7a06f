// SPDX-License-Identifier: Apache-2.0
//! [`Sys`]: the handles of one plugin call, opened when first needed.

use std::fmt::Display;
use std::io::Write;
use std::net::IpAddr;

use cnibox_netfilter::{Batch, Engine};
use cnibox_netlink::Rtnl;
use cnibox_netns::NetNs;
use cnibox_spec::NetnsPath;

use crate::call::{Env, Failure, Host, Registry};
use crate::ledger::{Inventories, Remains, Turn, missed, note_missed};

/// In which of the two namespaces of a call something is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// The namespace the plugin was started in.
    Host,
    /// The container's namespace, `CNI_NETNS`.
    Pod,
}

/// The container's namespace, open, with its own netlink socket.
pub struct Pod {
    /// The path as the runtime wrote it.
    pub path: NetnsPath,
    /// The namespace.
    pub netns: NetNs,
    /// A socket inside the namespace.
    pub rtnl: Rtnl,
}

/// Everything that a plugin may touch.
pub struct Sys<'h> {
    pub(crate) env: &'h Env,
    pub(crate) stdin: &'h [u8],
    pub(crate) stderr: &'h mut dyn Write,
    pub(crate) registry: Registry,
    pub(crate) fail_at: Option<usize>,
    pub(crate) steps: usize,
    pub(crate) turn: Option<Turn>,
    /// Whether what the plugin has noted stays although it takes everything down.
    pub(crate) keeps_notes: bool,
    host: Option<Rtnl>,
    pod: Option<Pod>,
    pub(crate) engine: Option<Engine>,
}

impl<'h> Sys<'h> {
    /// A system for one call. `stdin` is what the plugin was given, for its delegates.
    pub fn new(host: &'h mut Host<'_>, stdin: &'h [u8]) -> Self {
        let Host { registry, fail_at, .. } = *host;
        Self { registry, fail_at, ..Self::outside(&host.env, &mut *host.stderr, stdin) }
    }

    /// A system for who is no plugin: each of its delegates is a process, as under any other runtime.
    pub fn outside(env: &'h Env, stderr: &'h mut dyn Write, stdin: &'h [u8]) -> Self {
        Self {
            env,
            stdin,
            stderr,
            registry: Registry::default(),
            fail_at: None,
            steps: 0,
            turn: None,
            keeps_notes: false,
            host: None,
            pod: None,
            engine: None,
        }
    }

    /// The call's environment.
    #[must_use]
    pub fn env(&self) -> &Env {
        self.env
    }

    /// The configuration as the plugin was given it.
    #[must_use]
    pub fn stdin(&self) -> &[u8] {
        self.stdin
    }

    /// Tells people something that is no error. Nobody hears it when stderr is closed.
    pub fn warn(&mut self, note: impl Display) {
        let _ = writeln!(self.stderr, "{note}");
    }

    /// The netlink socket of the host's namespace.
    ///
    /// # Errors
    /// When no socket can be opened.
    pub fn host(&mut self) -> Result<&mut Rtnl, cnibox_netlink::Error> {
        let rtnl = match self.host.take() {
            Some(rtnl) => rtnl,
            None => Rtnl::open()?,
        };
        Ok(self.host.insert(rtnl))
    }

    /// Opens the container's namespace.
    ///
    /// # Errors
    /// Those of [`NetNs::open`], and of opening a socket inside.
    pub fn open_pod(&mut self, path: &NetnsPath) -> Result<&mut Pod, Failure> {
        match self.pod.take().filter(|pod| pod.path == *path) {
            // One look: what is at the path may be another by now.
            Some(open) => Ok(self.pod.insert(open)),
            None => self.insert_pod(path, NetNs::open(path.as_str())?),
        }
    }

    /// Opens the container's namespace for DEL; `None` when its path is gone, and the namespace with it.
    ///
    /// # Errors
    /// Those of [`Sys::open_pod`] except a missing path.
    pub fn open_pod_if_present(&mut self, path: &NetnsPath) -> Result<Option<&mut Pod>, Failure> {
        match self.pod.take_if(|pod| pod.path == *path) {
            // One look, as for [`Sys::open_pod`].
            Some(open) => Ok(Some(self.pod.insert(open))),
            None => match NetNs::open(path.as_str()) {
                Err(error) if error.is_gone() => Ok(None),
                Err(error) => Err(error.into()),
                Ok(netns) => self.insert_pod(path, netns).map(Some),
            },
        }
    }

    fn insert_pod(&mut self, path: &NetnsPath, netns: NetNs) -> Result<&mut Pod, Failure> {
        let rtnl = netns.run(Rtnl::open_foreign)??;
        Ok(self.pod.insert(Pod { path: path.clone(), netns, rtnl }))
    }

    /// The container's namespace; `None` before [`Sys::open_pod`].
    pub fn pod(&mut self) -> Option<&mut Pod> {
        self.pod.as_mut()
    }

    /// The container's namespace, where it must be open.
    ///
    /// # Errors
    /// Before [`Sys::open_pod`], which is a mistake in the plugin.
    pub fn opened_pod(&mut self) -> Result<&mut Pod, Failure> {
        let pod = self.pod.as_mut();
        pod.ok_or_else(|| Failure::internal("the container's network namespace is not open"))
    }

    /// The netlink socket of either namespace.
    ///
    /// # Errors
    /// When no socket can be opened; those of [`Sys::opened_pod`].
    pub fn rtnl(&mut self, place: Place) -> Result<&mut Rtnl, Failure> {
        match place {
            Place::Host => Ok(self.host()?),
            Place::Pod => Ok(&mut self.opened_pod()?.rtnl),
        }
    }

    /// Every address that the container has on interfaces with such a name, those of loopback aside.
    ///
    /// # Errors
    /// When the kernel refuses; those of [`Sys::opened_pod`].
    pub(crate) fn pod_addresses(&mut self, on: impl Fn(&str) -> bool) -> Result<Vec<IpAddr>, Failure> {
        let rtnl = self.rtnl(Place::Pod)?;
        let mut addresses = Vec::new();
        for link in rtnl.links()?.into_iter().filter(|link| on(&link.name)) {
            match rtnl.addrs(link.index, None) {
                Ok(found) => addresses.extend(found.into_iter().map(|addr| addr.net.ip())),
                // Gone since it was listed, and its addresses with it.
                Err(error) if error.is_not_found() => {}
                Err(error) => return Err(error.into()),
            }
        }
        addresses.retain(|address| !address.is_loopback());
        Ok(addresses)
    }

    /// What is left of a dead attempt is being taken down by DEL of this plugin: nothing but what it was given.
    pub(crate) fn remains(&self) -> Option<&Remains> {
        self.turn.as_ref().and_then(|turn| turn.remains.as_ref())
    }

    /// Something could not be taken back.
    pub(crate) fn left_something(&mut self) {
        self.turn.iter_mut().for_each(|turn| turn.left_something = true);
    }

    /// Runs `work` in either namespace, for what has no socket: files below `/proc/sys/net`.
    ///
    /// # Errors
    /// When the namespace cannot be entered; those of [`Sys::opened_pod`].
    pub fn inside<T: Send>(&mut self, place: Place, work: impl FnOnce() -> T + Send) -> Result<T, Failure> {
        match place {
            Place::Host => Ok(work()),
            Place::Pod => Ok(self.opened_pod()?.netns.run(work)?),
        }
    }

    /// The packet filter of the host's namespace. `CNIBOX_NETFILTER` may force a transport.
    ///
    /// # Errors
    /// When the variable names no transport.
    pub fn engine(&mut self) -> Result<&mut Engine, cnibox_netfilter::Error> {
        let engine = match self.engine.take() {
            Some(engine) => engine,
            None => {
                let choice = self.env.var("CNIBOX_NETFILTER").parse()?;
                let mut engine = Engine::open(choice, self.env.var_os("PATH").unwrap_or_default());
                engine.expect(self.turn.iter().flat_map(Turn::hints));
                if let Some(cookie) = self.host().ok().and_then(|rtnl| rtnl.netns_cookie()) {
                    engine.keep_inventory(Inventories::of(cookie));
                }
                engine
            }
        };
        Ok(self.engine.insert(engine))
    }

    /// Whether rules that could be written either way go into native tables, see [`Sys::backend`].
    pub(crate) fn wants_native(&mut self, rules: &Batch) -> Result<bool, cnibox_netfilter::Error> {
        self.remembering_what_is_missed(|engine| engine.wants_native(rules))
    }

    /// Whether the kernel cannot hold `rules`, of the iptables dialect, or could not earlier since it was started.
    ///
    /// # Errors
    /// When the kernel does not tell; see [`Sys::engine`].
    pub fn cannot_hold(&mut self, rules: &Batch) -> Result<bool, cnibox_netfilter::Error> {
        self.remembering_what_is_missed(|engine| engine.cannot_hold(rules))
    }

    fn remembering_what_is_missed<T>(
        &mut self,
        ask: impl FnOnce(&mut Engine) -> Result<T, cnibox_netfilter::Error>,
    ) -> Result<T, cnibox_netfilter::Error> {
        let known = missed();
        let engine = self.engine()?;
        known.iter().for_each(|module| engine.expect_missing(module));
        let answer = ask(engine)?;
        if engine.missed() != known.as_deref() {
            note_missed(engine);
        }
        Ok(answer)
    }
}
