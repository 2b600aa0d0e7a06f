// SPDX-License-Identifier: Apache-2.0
//! Finding the host's device: by interface, or in sysfs.

use std::fs;
use std::path::{Path, PathBuf};

use cnibox_netlink::{InvalidMac, Link, errno, parse_hardware_address};
use cnibox_spec::Code;
use cnibox_sys::{Coded, Failure, Sys};
use thiserror::Error;

use crate::bus::{AUXILIARY, PCI, on_bus};
use crate::config::Wanted;

/// Why there is no device.
#[derive(Debug, Error)]
pub(crate) enum FindError {
    #[error("failed to find host device: {0}")]
    Link(#[from] cnibox_netlink::Error),
    #[error("failed to find host device: failed to parse MAC address {text:?}: {0}", text = .0.text)]
    HardwareAddress(#[from] InvalidMac),
    #[error("failed to find host device: failed to find physical interface")]
    NoSuchAddress,
    #[error(
        "failed to find host device: kernel device path {0:?} must be absolute and begin with /sys/devices/"
    )]
    KernelPath(String),
    #[error("failed to find host device: no net directory under pci device {0}")]
    NoNetDirectory(String),
    #[error("failed to find host device: failed to read directory {}: {:?}", .path.display(),
        format!("open {}: {}", .path.display(), errno::io_text(.source)))]
    Unreadable { path: PathBuf, source: std::io::Error },
    #[error("failed to find host device: failed to find network device in path {}", .0.display())]
    Empty(PathBuf),
}

impl Coded for FindError {
    fn code(&self) -> Code {
        match self {
            Self::HardwareAddress(_) | Self::KernelPath(_) => Code::INVALID_CONFIG,
            Self::Link(_)
            | Self::NoSuchAddress
            | Self::NoNetDirectory(_)
            | Self::Unreadable { .. }
            | Self::Empty(_) => Code::INTERNAL,
        }
    }
}

/// The host's link of the device.
pub(crate) fn link(sys: &mut Sys<'_>, wanted: &Wanted) -> Result<Link, Failure> {
    let name = match wanted {
        Wanted::Name(name) => name.clone(),
        Wanted::HardwareAddress(text) => return by_address(sys, text),
        Wanted::KernelPath(path) => first_interface(&kernel_path(path)?)?,
        Wanted::Pci(address) => first_interface(&pci_interfaces(address)?)?,
        Wanted::Auxiliary(name) => first_interface(&on_bus(AUXILIARY, name).join(NET))?,
    };
    Ok(sys.host()?.link_by_name(&name).map_err(FindError::Link)?)
}

fn by_address(sys: &mut Sys<'_>, text: &str) -> Result<Link, Failure> {
    let wanted = parse_hardware_address(text).map_err(FindError::HardwareAddress)?;
    let mut links = sys.host()?.links().map_err(FindError::Link)?.into_iter();
    Ok(links.find(|link| link.hardware_address == wanted).ok_or(FindError::NoSuchAddress)?)
}

fn kernel_path(path: &str) -> Result<PathBuf, FindError> {
    if path.starts_with("/sys/devices/") {
        Ok(Path::new(path).join(NET))
    } else {
        Err(FindError::KernelPath(path.to_owned()))
    }
}

/// The device's interfaces, or those of a virtio device that it is.
fn pci_interfaces(address: &str) -> Result<PathBuf, FindError> {
    let device = on_bus(PCI, address);
    let own = device.join(NET);
    if own.symlink_metadata().is_ok() {
        return Ok(own);
    }
    let names = sorted_names(&device).unwrap_or_default();
    let mut virtio =
        names.iter().filter(|name| name.starts_with("virtio")).map(|name| device.join(name).join(NET));
    virtio.find(|path| path.exists()).ok_or_else(|| FindError::NoNetDirectory(address.to_owned()))
}

fn first_interface(directory: &Path) -> Result<String, FindError> {
    let unreadable = |source| FindError::Unreadable { path: directory.to_owned(), source };
    let names = sorted_names(directory).map_err(unreadable)?;
    names.into_iter().next().ok_or_else(|| FindError::Empty(directory.to_owned()))
}

fn sorted_names(directory: &Path) -> std::io::Result<Vec<String>> {
    let entries = fs::read_dir(directory)?.collect::<Result<Vec<_>, _>>()?;
    let mut names: Vec<_> =
        entries.iter().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    Ok(names)
}

const NET: &str = "net";
