// SPDX-License-Identifier: Apache-2.0
//! Devices on the host's buses, by sysfs.

use std::path::{Path, PathBuf};

use cnibox_netlink::errno;
use cnibox_sys::Coded;
use thiserror::Error;

/// Why a device's driver cannot be found out.
#[derive(Debug, Error)]
#[error("error with host device: lstat {}: {}", .path.display(), errno::io_text(.source))]
pub(crate) struct DriverError {
    path: PathBuf,
    source: std::io::Error,
}

impl Coded for DriverError {}

/// Whether the PCI device is a userspace program's and no network interface.
pub(crate) fn has_userspace_driver(address: &str) -> Result<bool, DriverError> {
    let device = on_bus(PCI, address);
    let failed = |path: &Path| {
        let path = path.to_owned();
        |source| DriverError { path, source }
    };
    let device = device.canonicalize().map_err(failed(&device))?;
    let link = device.join("driver");
    let driver = link.canonicalize().map_err(failed(&link))?;
    let name = driver.file_name().unwrap_or_default();
    Ok(USERSPACE_DRIVERS.iter().any(|known| name == *known))
}

/// The directory of a bus's device.
pub(crate) fn on_bus(bus: &str, device: &str) -> PathBuf {
    Path::new(bus).join(device.trim_start_matches('/'))
}

/// The devices of the PCI bus.
pub(crate) const PCI: &str = "/sys/bus/pci/devices";
/// The devices of the auxiliary bus.
pub(crate) const AUXILIARY: &str = "/sys/bus/auxiliary/devices";
/// Drivers that hand a device to a userspace program.
const USERSPACE_DRIVERS: &[&str] = &["vfio-pci", "uio_pci_generic", "igb_uio"];
