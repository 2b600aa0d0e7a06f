// SPDX-License-Identifier: Apache-2.0
//! TAP devices. The kernel creates them by ioctl only (`linux/if_tun.h`), not by rtnetlink.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;

use libc::{IFF_MULTI_QUEUE, IFF_NO_PI, IFF_TAP, IFF_TUN_EXCL, IFF_VNET_HDR};

use crate::Error;

/// A TAP device to create.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TapSpec<'a> {
    /// Its name, at most 15 bytes.
    pub name: &'a str,
    /// Several queues (`IFF_MULTI_QUEUE`).
    pub multi_queue: bool,
    /// Packets carry a virtio header (`IFF_VNET_HDR`).
    pub vnet_hdr: bool,
    /// Packets carry no protocol number (`IFF_NO_PI`), as `ip tuntap` makes them.
    pub no_pi: bool,
    /// User that may open it; `None` is everyone with the capability.
    pub owner: Option<u32>,
    /// Group that may open it.
    pub group: Option<u32>,
}

/// `ip tuntap add mode tap name NAME [multi_queue] [user U] [group G]`: a persistent device in the calling thread's
/// **current** namespace, which is the only one the kernel offers.
///
/// # Errors
/// [`Error::is_exists`] if the name is taken; [`Error::Socket`] with `no such file or directory` without
/// `/dev/net/tun`, with `invalid argument` if the name is none.
pub fn link_add_tap(spec: &TapSpec<'_>) -> Result<(), Error> {
    let tun = OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/net/tun")
        .map_err(Error::socket("open /dev/net/tun"))?;
    set_interface(&tun, spec)?;
    for (request, value) in [(libc::TUNSETOWNER, spec.owner), (libc::TUNSETGROUP, spec.group)] {
        if let Some(value) = value {
            set_number(&tun, request, value).map_err(Error::socket("set owner of TAP device"))?;
        }
    }
    set_number(&tun, libc::TUNSETPERSIST, 1).map_err(Error::socket("ioctl TUNSETPERSIST"))
}

fn set_interface(tun: &File, spec: &TapSpec<'_>) -> Result<(), Error> {
    // SAFETY: `ifreq` is plain old data for which all zeroes are valid.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    // One byte less than there is room for: the name ends with a zero.
    if spec.name.is_empty() || spec.name.len() >= request.ifr_name.len() {
        let source = io::Error::from_raw_os_error(libc::EINVAL);
        return Err(Error::Socket { operation: "ioctl TUNSETIFF", source });
    }
    for (place, byte) in request.ifr_name.iter_mut().zip(spec.name.bytes()) {
        *place = libc::c_char::from_ne_bytes([byte]);
    }
    request.ifr_ifru.ifru_flags = spec.flags();
    // SAFETY: the descriptor is open, and TUNSETIFF reads and writes one `ifreq`, which `request` is.
    let done = unsafe { libc::ioctl(tun.as_raw_fd(), libc::TUNSETIFF, &raw mut request) };
    match succeeded(done) {
        // What `IFF_TUN_EXCL` makes of a name that any link has.
        Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {
            Err(Error::Refused { errno: libc::EEXIST, kernel_text: None })
        }
        done => done.map_err(Error::socket("ioctl TUNSETIFF")),
    }
}

impl TapSpec<'_> {
    fn flags(&self) -> libc::c_short {
        let optional =
            [(self.multi_queue, IFF_MULTI_QUEUE), (self.vnet_hdr, IFF_VNET_HDR), (self.no_pi, IFF_NO_PI)];
        let optional = optional.into_iter().filter(|(wanted, _)| *wanted).map(|(_, flag)| flag);
        // Create, never attach to a device that exists: `IFF_TUN_EXCL`, the sign bit of the field.
        optional.fold(IFF_TAP | IFF_TUN_EXCL, |flags, flag| flags | flag) as libc::c_short
    }
}

fn set_number(tun: &File, request: libc::Ioctl, value: u32) -> io::Result<()> {
    // SAFETY: the descriptor is open, and these requests take a number, no pointer.
    succeeded(unsafe { libc::ioctl(tun.as_raw_fd(), request, libc::c_ulong::from(value)) })
}

fn succeeded(result: libc::c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_ors_of_what_is_wanted() {
        let plain = TapSpec {
            name: "t",
            multi_queue: false,
            vnet_hdr: false,
            no_pi: false,
            owner: None,
            group: None,
        };
        let flags = |spec: TapSpec<'_>| spec.flags().cast_unsigned();
        assert_eq!(flags(plain), 0x8002);
        assert_eq!(flags(TapSpec { multi_queue: true, no_pi: true, ..plain }), 0x9102);
        assert_eq!(flags(TapSpec { vnet_hdr: true, ..plain }), 0xc002);
    }
}
