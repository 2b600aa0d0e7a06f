// SPDX-License-Identifier: Apache-2.0
//! libcni's part: which networks there are, which attachments are remembered, and the verbs of a whole network.
//!
//! Reads what every runtime reads: configurations in `/etc/cni/net.d` ([`Networks`]) and libcni's cache ([`Cache`]). A
//! [`Runtime`] calls a network's plugins, each as a process of its own, and answers with data. Must never print, read the
//! process's environment, or know what a plugin does.
//!
//! ```
//! use cnibox_runtime::{Cache, Keep, Networks, Runtime, RuntimeConf};
//! use cnibox_spec::{Attachment, Json};
//! use cnibox_sys::Env;
//! # use std::{fs, os::unix::fs::PermissionsExt};
//! # let dir = tempfile::tempdir()?;
//! # let plugin = dir.path().join("greeter");
//! # fs::write(&plugin, "#!/bin/sh\n[ $CNI_COMMAND != ADD ] || echo '{\"cniVersion\": \"1.0.0\", \"dns\": {\"domain\": \"a\"}}'\n")?;
//! # fs::set_permissions(&plugin, fs::Permissions::from_mode(0o755))?;
//!
//! let network = r#"{ "cniVersion": "1.0.0", "name": "lan", "plugins": [ { "type": "greeter" } ] }"#;
//! fs::write(dir.path().join("lan.conflist"), network)?;
//! let mut runtime = Runtime {
//!     env: Env::default().with("CNI_PATH", dir.path()),
//!     networks: Networks::new(dir.path()),
//!     cache: Cache::new(dir.path().join("results")),
//!     notes: &mut std::io::stderr(),
//! };
//! let conf = RuntimeConf {
//!     attachment: Attachment::new("lan", "web", "eth0")?,
//!     netns: "/run/netns/web".to_owned(),
//!     args: Vec::new(),
//!     capabilities: Json::Null,
//! };
//! let result = runtime.add(&conf)?;
//! assert_eq!(result.to_string(), r#"{"cniVersion":"1.0.0","dns":{"domain":"a"}}"#);
//!
//! // What there is, without a call of any plugin.
//! for (file, network) in runtime.networks.all()? {
//!     println!("{}: {} plugins", file.display(), network?.plugins.len());
//! }
//! for remembered in runtime.cache.all()? {
//!     println!("{} lives: {}", remembered.conf.attachment, runtime.lives(&remembered.conf));
//! }
//!
//! // There is no such namespace, and nothing is known of its interface.
//! let lan = runtime.networks.find("lan")?;
//! assert_eq!(runtime.gc(&lan, Keep::Live, true)?, [conf.attachment.clone()]);
//! runtime.del(&conf)?;
//! assert!(runtime.cache.all()?.is_empty());
//! # Ok::<_, Box<dyn std::error::Error>>(())
//! ```

mod bounded;
mod cache;
mod call;
mod error;
mod network;
mod runtime;

pub use cache::{CACHE_DIR, Cache, Remembered};
pub use call::{PLUGINS_DIR, RuntimeConf};
pub use error::Error;
pub use network::{NETWORKS_DIR, Network, Networks, PluginConf};
pub use runtime::{Keep, Runtime};
