// SPDX-License-Identifier: Apache-2.0
//! The configuration: its shape on the wire, and what remains of it once it has been checked.

use cnibox_harness::Input;
use cnibox_spec::Verb;
use cnibox_sys::Failure;
use serde::Deserialize;

use crate::bus;

/// A checked configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Which device; ADD and CHECK have one.
    pub(crate) device: Option<Wanted>,
    /// Whether a userspace driver has it, so that there is no interface.
    pub(crate) dpdk: bool,
}

/// How a device is named, in order of precedence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// By the interface's name.
    Name(String),
    /// By its hardware address.
    HardwareAddress(String),
    /// By the device's directory below `/sys/devices`.
    KernelPath(String),
    /// By its address on the PCI bus.
    Pci(String),
    /// By its name on the auxiliary bus.
    Auxiliary(String),
}

#[derive(Default, Deserialize)]
#[serde(rename = "NetConf", default)]
struct Shape {
    device: String,
    hwaddr: String,
    #[serde(rename = "DPDKMode")]
    dpdk: bool,
    kernelpath: String,
    #[serde(rename = "pciBusID")]
    pci: String,
    #[serde(rename = "runtimeConfig")]
    runtime: RuntimeShape,
}

#[derive(Default, Deserialize)]
#[serde(rename = "struct { DeviceID string \"json:\\\"deviceID,omitempty\\\"\" }", default)]
struct RuntimeShape {
    #[serde(rename = "deviceID")]
    device_id: String,
}

impl Config {
    /// Checks the configuration. DEL finds the device in the container, so it does not stumble over one that the host
    /// has lost.
    pub(crate) fn new(input: &Input<'_>) -> Result<Self, Failure> {
        let shape: Shape = input.decode("failed to load netconf")?;
        let used = matches!(input.verb, Verb::Add | Verb::Check);
        let of_id = match device_of_id(&shape.runtime.device_id) {
            Err(unknown) if used => return Err(unknown),
            of_id => of_id.ok().flatten(),
        };
        let on_bus = of_id.unwrap_or(Wanted::Pci(shape.pci));
        let mut dpdk = shape.dpdk;
        if let Wanted::Pci(address) = &on_bus
            && !address.is_empty()
        {
            dpdk = match bus::has_userspace_driver(address) {
                Err(unknown) if used => return Err(unknown),
                found => found.unwrap_or(dpdk),
            };
        }
        let candidates = [
            Wanted::Name(shape.device),
            Wanted::HardwareAddress(shape.hwaddr),
            Wanted::KernelPath(shape.kernelpath),
            on_bus,
        ];
        let device = candidates.into_iter().find(|device| !device.text().is_empty());
        if used && device.is_none() {
            let text = r#"specify either "device", "hwaddr", "kernelpath" or "pciBusID""#;
            return Err(Failure::invalid_config(text));
        }
        Ok(Self { device, dpdk })
    }
}

impl Wanted {
    fn text(&self) -> &str {
        match self {
            Self::Name(text)
            | Self::HardwareAddress(text)
            | Self::KernelPath(text)
            | Self::Pci(text)
            | Self::Auxiliary(text) => text,
        }
    }
}

/// What the runtime's device ID names. It is a name, never a path.
fn device_of_id(id: &str) -> Result<Option<Wanted>, Failure> {
    if id.is_empty() {
        return Ok(None);
    }
    let is_on = |bus: &str| !id.contains('/') && !id.starts_with('.') && bus::on_bus(bus, id).exists();
    if is_on(bus::PCI) {
        Ok(Some(Wanted::Pci(id.to_owned())))
    } else if is_on(bus::AUXILIARY) {
        Ok(Some(Wanted::Auxiliary(id.to_owned())))
    } else {
        let text = format!("runtime config DeviceID {id} not found or unsupported");
        Err(Failure::invalid_config(text))
    }
}
