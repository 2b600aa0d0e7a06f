// SPDX-License-Identifier: Apache-2.0
//! Finding the host's device: by interface, or in sysfs.

use std::fs;
use std::path::{Path, PathBuf};

use cnibox_netlink::{Link, Rtnl, errno, parse_hardware_address};
use cnibox_sys::{Failure, Sys};

use crate::bus::{AUXILIARY, PCI, on_bus};
use crate::config::Wanted;

/// The host's link of the device.
pub(crate) fn link(sys: &mut Sys<'_>, wanted: &Wanted) -> Result<Link, Failure> {
    let found = find(sys.host()?, wanted);
    found.map_err(|failure| failure.prefixed("failed to find host device: "))
}

fn find(host: &mut Rtnl, wanted: &Wanted) -> Result<Link, Failure> {
    let name = match wanted {
        Wanted::Name(name) => name.clone(),
        Wanted::HardwareAddress(text) => return by_address(host, text),
        Wanted::KernelPath(path) => first_interface(&kernel_path(path)?)?,
        Wanted::Pci(address) => first_interface(&pci_interfaces(address)?)?,
        Wanted::Auxiliary(name) => first_interface(&on_bus(AUXILIARY, name).join(NET))?,
    };
    Ok(host.link_by_name(&name)?)
}

fn by_address(host: &mut Rtnl, text: &str) -> Result<Link, Failure> {
    let wanted = parse_hardware_address(text)
        .map_err(|error| Failure::invalid_config(format!("failed to parse MAC address {text:?}: {error}")))?;
    let found = host.links()?.into_iter().find(|link| link.hardware_address == wanted);
    found.ok_or_else(|| Failure::internal("failed to find physical interface"))
}

fn kernel_path(path: &str) -> Result<PathBuf, Failure> {
    if path.starts_with("/sys/devices/") {
        return Ok(Path::new(path).join(NET));
    }
    let text = format!("kernel device path {path:?} must be absolute and begin with /sys/devices/");
    Err(Failure::invalid_config(text))
}

/// The device's interfaces, or those of a virtio device that it is.
fn pci_interfaces(address: &str) -> Result<PathBuf, Failure> {
    let device = on_bus(PCI, address);
    let own = device.join(NET);
    if own.symlink_metadata().is_ok() {
        return Ok(own);
    }
    let names = sorted_names(&device).unwrap_or_default();
    let mut virtio =
        names.iter().filter(|name| name.starts_with("virtio")).map(|name| device.join(name).join(NET));
    let found = virtio.find(|path| path.exists());
    found.ok_or_else(|| Failure::internal(format!("no net directory under pci device {address}")))
}

fn first_interface(directory: &Path) -> Result<String, Failure> {
    let path = directory.display();
    let names = sorted_names(directory).map_err(|error| {
        let reason = format!("open {path}: {}", errno::io_text(&error));
        Failure::internal(format!("failed to read directory {path}: {reason:?}"))
    })?;
    let first = names.into_iter().next();
    first.ok_or_else(|| Failure::internal(format!("failed to find network device in path {path}")))
}

fn sorted_names(directory: &Path) -> std::io::Result<Vec<String>> {
    let entries = fs::read_dir(directory)?.collect::<Result<Vec<_>, _>>()?;
    let mut names: Vec<_> =
        entries.iter().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    Ok(names)
}

const NET: &str = "net";
