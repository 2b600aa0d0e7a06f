// SPDX-License-Identifier: Apache-2.0
//! The CNI execution protocol: environment and stdin in, one JSON document and an exit code out.
//!
//! Owns the order of checks, the version gates and everything that is printed (reference: `pkg/skel`). Must never
//! know what a plugin does. Invariant: stdout gets exactly one write, of one document, or none.
//!
//! # A plugin
//!
//! A plugin is a type that implements [`Plugin`]: a configuration that is checked before anything is touched, and one
//! function for each verb. [`run`] does the rest, and reads nothing from the process: a test gives it a [`Host`].
//!
//! ```
//! use cnibox_harness::{AddArgs, CheckArgs, DelArgs, GcArgs, Input, Plugin, Request, Role, run};
//! use cnibox_spec::{CniResult, Code};
//! use cnibox_sys::{Env, Failure, Host, Registry, Sys};
//!
//! /// Hands on what the plugins before it have made.
//! struct Onlooker;
//!
//! impl Plugin for Onlooker {
//!     const NAME: &'static str = "onlooker";
//!     const ROLE: Role = Role::Chained;
//!     type Config = CniResult;
//!
//!     fn config(input: &Input<'_>) -> Result<CniResult, Failure> {
//!         input.check_common("failed to load netconf")?;
//!         Ok(input.conf.prev_result()?.unwrap_or_default())
//!     }
//!
//!     fn add(request: &Request<'_, CniResult, AddArgs>, _: &mut Sys<'_>) -> Result<CniResult, Failure> {
//!         Ok(request.config.clone())
//!     }
//!
//!     fn status(_: &Request<'_, CniResult, ()>, _: &mut Sys<'_>) -> Result<(), Failure> {
//!         Err(Failure::new(Code::PLUGIN_NOT_AVAILABLE, "there is nothing to see"))
//!     }
//!     // del, check and gc
//! #   fn del(_: &Request<'_, CniResult, DelArgs>, _: &mut Sys<'_>) -> Result<(), Failure> { Ok(()) }
//! #   fn check(_: &Request<'_, CniResult, CheckArgs>, _: &mut Sys<'_>) -> Result<(), Failure> { Ok(()) }
//! #   fn gc(_: &Request<'_, CniResult, GcArgs>, _: &mut Sys<'_>) -> Result<(), Failure> { Ok(()) }
//! }
//!
//! let status = |version: &str| {
//!     let conf = format!(r#"{{"cniVersion": "{version}", "name": "net", "type": "onlooker"}}"#);
//!     let mut stdout = Vec::new();
//!     let exit = run::<Onlooker>(&mut Host {
//!         env: Env::default().with("CNI_COMMAND", "STATUS").with("CNI_PATH", "/opt/cni/bin"),
//!         stdin: &mut conf.as_bytes(),
//!         stdout: &mut stdout,
//!         stderr: &mut std::io::sink(),
//!         registry: Registry::default(),
//!         fail_at: None,
//!     });
//!     (exit, String::from_utf8(stdout).unwrap())
//! };
//! let (exit, document) = status("1.1.0");
//! assert!(exit == 1 && document.contains("there is nothing to see"));
//! // Not asked: there was no STATUS in this version.
//! let (exit, document) = status("1.0.0");
//! assert!(exit == 1 && document.contains("config version does not allow STATUS"));
//! ```
//!
//! [`Host`]: cnibox_sys::Host

mod environment;
mod plugin;
mod protocol;
mod request;

pub use plugin::{AddArgs, CheckArgs, DelArgs, GcArgs, Plugin, Request, Role};
pub use protocol::{BUILD_VERSION, builtin, run};
pub use request::{Input, MacShape, NetConf};
