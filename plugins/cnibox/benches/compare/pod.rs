// SPDX-License-Identifier: Apache-2.0
//! Containers.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use cnibox_testkit::create_at;
use serde_json::{Value, json};

/// The address that ports are published on.
pub(crate) const HOST_ADDRESS: &str = "192.0.2.1";
const FIRST_PORT: usize = 2000;

/// A pod: unlike the test kit's, of the same name on every side, and without an open descriptor for each of thousands.
#[derive(Debug)]
pub(crate) struct Pod {
    /// Counts from zero.
    pub(crate) number: usize,
    /// Container ID, as long as Nomad's.
    pub(crate) id: String,
    /// The bound namespace.
    pub(crate) path: PathBuf,
    /// `portMappings` of the runtime.
    pub(crate) ports: Value,
}

impl Pod {
    /// Makes the namespace of the pod of this number; it lives as long as the sandbox, because tearing namespaces down
    /// would disturb the next measurement. The runtime asks for `ports` ports, for TCP and UDP each.
    pub(crate) fn new(number: usize, ports: usize) -> Result<Self> {
        let id = format!("6f1b0c5e-8a5c-4a1e-9d3a-{number:012}");
        let path = Path::new("/run/netns").join(&id);
        create_at(&path).context("create a pod's namespace")?;
        Ok(Self { number, id, path, ports: mappings(number, ports) })
    }
}

fn mappings(pod: usize, ports: usize) -> Value {
    // Ports are used again by pods far apart, which are never there at the same time.
    let first = FIRST_PORT + pod * ports % 60_000;
    let both = (first..first + ports).flat_map(|port| ["tcp", "udp"].map(|protocol| (port, protocol)));
    both.map(|(port, protocol)| {
        json!({"hostPort": port, "containerPort": port, "protocol": protocol, "hostIP": HOST_ADDRESS})
    })
    .collect()
}
