// SPDX-License-Identifier: Apache-2.0
//! The texts that Go prints for errno values, and for signals.
//!
//! Runtimes and tests match on the Go plugins' messages, so every crate of this repository that ends a message with a
//! system error takes its text from here. Most are `nix`'s descriptions in lower case; those that Go's `syscall` package words
//! otherwise are listed. The C library, whose strings differ, is never consulted.

use std::borrow::Cow;
use std::io;

use nix::errno::Errno;

/// The text of `errno` as Go prints it: `2` is `no such file or directory`, an unknown number is `errno 524`.
pub fn text(errno: i32) -> Cow<'static, str> {
    if let Some((_, text)) = OTHERS.iter().find(|(other, _)| *other == errno) {
        return Cow::Borrowed(text);
    }
    let known = Errno::from_raw(errno);
    // Go's table ends before `EHWPOISON`.
    if matches!(known, Errno::UnknownErrno | Errno::EHWPOISON) {
        return Cow::Owned(format!("errno {errno}"));
    }
    let mut text = known.desc().to_owned();
    if let Some(first) = text.get_mut(..1) {
        first.make_ascii_lowercase();
    }
    Cow::Owned(text)
}

/// The text of an I/O error as Go prints it; errors without an errno keep their own text.
pub fn io_text(error: &io::Error) -> Cow<'static, str> {
    match error.raw_os_error() {
        Some(errno) => text(errno),
        None => Cow::Owned(error.to_string()),
    }
}

/// The text of a signal as Go prints it: `9` is `killed`, one without a name of its own `signal 31`.
pub fn signal_text(signal: i32) -> Cow<'static, str> {
    let name = usize::try_from(signal).ok().and_then(|at| SIGNALS.get(at.checked_sub(1)?));
    name.map_or_else(|| Cow::Owned(format!("signal {signal}")), |name| Cow::Borrowed(*name))
}

/// From number 1 on.
const SIGNALS: [&str; 15] = [
    "hangup",
    "interrupt",
    "quit",
    "illegal instruction",
    "trace/breakpoint trap",
    "aborted",
    "bus error",
    "floating point exception",
    "killed",
    "user defined signal 1",
    "segmentation fault",
    "user defined signal 2",
    "broken pipe",
    "alarm clock",
    "terminated",
];

/// What Go prints otherwise than `nix`. (It prints `EOPNOTSUPP` and `ENOTSUP` alike, `EAGAIN` and `EWOULDBLOCK` too.)
const OTHERS: &[(i32, &str)] = &[
    (5, "input/output error"),
    (9, "bad file descriptor"),
    (11, "resource temporarily unavailable"),
    (12, "cannot allocate memory"),
    (18, "invalid cross-device link"),
    (23, "too many open files in system"),
    (25, "inappropriate ioctl for device"),
    (33, "numerical argument out of domain"),
    (34, "numerical result out of range"),
    (35, "resource deadlock avoided"),
    (37, "no locks available"),
    (40, "too many levels of symbolic links"),
    (73, "RFS specific error"),
    (74, "bad message"),
    (84, "invalid or incomplete multibyte or wide character"),
    (95, "operation not supported"),
    (102, "network dropped connection on reset"),
    (122, "disk quota exceeded"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_gos() {
        assert_eq!(text(2), "no such file or directory");
        assert_eq!(text(17), "file exists");
        assert_eq!(text(19), "no such device");
        assert_eq!(text(40), "too many levels of symbolic links");
        assert_eq!(text(95), "operation not supported");
        assert_eq!(text(524), "errno 524");
        assert_eq!(text(0), "errno 0");
        let signals: Vec<_> = [1, 9, 11, 15, 31, 0].into_iter().map(signal_text).collect();
        assert_eq!(
            signals,
            ["hangup", "killed", "segmentation fault", "terminated", "signal 31", "signal 0"]
        );
    }

    #[test]
    fn every_number_has_gos_text() {
        assert_eq!(GO.len(), 130);
        for errno in -1..=200 {
            let go = GO.iter().find(|(number, _)| *number == errno);
            let go = go.map_or_else(|| format!("errno {errno}"), |(_, text)| (*text).to_owned());
            assert_eq!(text(errno), go);
        }
    }

    #[test]
    fn io_errors_without_errno_keep_their_text() {
        assert_eq!(io_text(&io::Error::other("odd")), "odd");
        assert_eq!(io_text(&io::Error::from_raw_os_error(1)), "operation not permitted");
    }

    /// The table of Go's `syscall` package.
    const GO: &[(i32, &str)] = &[
        (1, "operation not permitted"),
        (2, "no such file or directory"),
        (3, "no such process"),
        (4, "interrupted system call"),
        (5, "input/output error"),
        (6, "no such device or address"),
        (7, "argument list too long"),
        (8, "exec format error"),
        (9, "bad file descriptor"),
        (10, "no child processes"),
        (11, "resource temporarily unavailable"),
        (12, "cannot allocate memory"),
        (13, "permission denied"),
        (14, "bad address"),
        (15, "block device required"),
        (16, "device or resource busy"),
        (17, "file exists"),
        (18, "invalid cross-device link"),
        (19, "no such device"),
        (20, "not a directory"),
        (21, "is a directory"),
        (22, "invalid argument"),
        (23, "too many open files in system"),
        (24, "too many open files"),
        (25, "inappropriate ioctl for device"),
        (26, "text file busy"),
        (27, "file too large"),
        (28, "no space left on device"),
        (29, "illegal seek"),
        (30, "read-only file system"),
        (31, "too many links"),
        (32, "broken pipe"),
        (33, "numerical argument out of domain"),
        (34, "numerical result out of range"),
        (35, "resource deadlock avoided"),
        (36, "file name too long"),
        (37, "no locks available"),
        (38, "function not implemented"),
        (39, "directory not empty"),
        (40, "too many levels of symbolic links"),
        (42, "no message of desired type"),
        (43, "identifier removed"),
        (44, "channel number out of range"),
        (45, "level 2 not synchronized"),
        (46, "level 3 halted"),
        (47, "level 3 reset"),
        (48, "link number out of range"),
        (49, "protocol driver not attached"),
        (50, "no CSI structure available"),
        (51, "level 2 halted"),
        (52, "invalid exchange"),
        (53, "invalid request descriptor"),
        (54, "exchange full"),
        (55, "no anode"),
        (56, "invalid request code"),
        (57, "invalid slot"),
        (59, "bad font file format"),
        (60, "device not a stream"),
        (61, "no data available"),
        (62, "timer expired"),
        (63, "out of streams resources"),
        (64, "machine is not on the network"),
        (65, "package not installed"),
        (66, "object is remote"),
        (67, "link has been severed"),
        (68, "advertise error"),
        (69, "srmount error"),
        (70, "communication error on send"),
        (71, "protocol error"),
        (72, "multihop attempted"),
        (73, "RFS specific error"),
        (74, "bad message"),
        (75, "value too large for defined data type"),
        (76, "name not unique on network"),
        (77, "file descriptor in bad state"),
        (78, "remote address changed"),
        (79, "can not access a needed shared library"),
        (80, "accessing a corrupted shared library"),
        (81, ".lib section in a.out corrupted"),
        (82, "attempting to link in too many shared libraries"),
        (83, "cannot exec a shared library directly"),
        (84, "invalid or incomplete multibyte or wide character"),
        (85, "interrupted system call should be restarted"),
        (86, "streams pipe error"),
        (87, "too many users"),
        (88, "socket operation on non-socket"),
        (89, "destination address required"),
        (90, "message too long"),
        (91, "protocol wrong type for socket"),
        (92, "protocol not available"),
        (93, "protocol not supported"),
        (94, "socket type not supported"),
        (95, "operation not supported"),
        (96, "protocol family not supported"),
        (97, "address family not supported by protocol"),
        (98, "address already in use"),
        (99, "cannot assign requested address"),
        (100, "network is down"),
        (101, "network is unreachable"),
        (102, "network dropped connection on reset"),
        (103, "software caused connection abort"),
        (104, "connection reset by peer"),
        (105, "no buffer space available"),
        (106, "transport endpoint is already connected"),
        (107, "transport endpoint is not connected"),
        (108, "cannot send after transport endpoint shutdown"),
        (109, "too many references: cannot splice"),
        (110, "connection timed out"),
        (111, "connection refused"),
        (112, "host is down"),
        (113, "no route to host"),
        (114, "operation already in progress"),
        (115, "operation now in progress"),
        (116, "stale file handle"),
        (117, "structure needs cleaning"),
        (118, "not a XENIX named type file"),
        (119, "no XENIX semaphores available"),
        (120, "is a named type file"),
        (121, "remote I/O error"),
        (122, "disk quota exceeded"),
        (123, "no medium found"),
        (124, "wrong medium type"),
        (125, "operation canceled"),
        (126, "required key not available"),
        (127, "key has expired"),
        (128, "key has been revoked"),
        (129, "key was rejected by service"),
        (130, "owner died"),
        (131, "state not recoverable"),
        (132, "operation not possible due to RF-kill"),
    ];
}
