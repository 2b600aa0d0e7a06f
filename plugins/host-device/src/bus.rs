// SPDX-License-Identifier: Apache-2.0
//! Devices on the host's buses, by sysfs.

use std::path::{Path, PathBuf};

use cnibox_netlink::errno;
use cnibox_sys::Failure;

/// Whether the PCI device is a userspace program's and no network interface.
pub(crate) fn has_userspace_driver(address: &str) -> Result<bool, Failure> {
    let followed = |path: PathBuf| {
        path.canonicalize().map_err(|error| {
            let (path, error) = (path.display(), errno::io_text(&error));
            Failure::internal(format!("error with host device: lstat {path}: {error}"))
        })
    };
    let device = followed(on_bus(PCI, address))?;
    let driver = followed(device.join("driver"))?;
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
