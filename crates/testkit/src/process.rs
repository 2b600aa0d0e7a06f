// SPDX-License-Identifier: Apache-2.0
//! Processes that tests need beside the plugins: servers, daemons, busy neighbours.

use std::ffi::{c_char, c_int};
use std::io;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::libc;

use crate::Container;

/// Linked into every test, where the standard library looks for it before it starts a command in another directory. A
/// static executable has only what it names; without this, it forks, which takes milliseconds in a process that has had
/// gigabytes of configurations (glibc's `sysdeps/unix/sysv/linux/spawni.c` shares the memory instead).
#[used]
static CHANGE_DIRECTORY: unsafe extern "C" fn(*mut libc::posix_spawn_file_actions_t, *const c_char) -> c_int =
    libc::posix_spawn_file_actions_addchdir_np;

/// A process that ends with this.
#[derive(Debug)]
pub struct Process(Child);

impl Process {
    /// Starts a command in the calling thread's namespaces. Nobody hears what it says.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn start(command: &mut Command) -> io::Result<Self> {
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().map(Self)
    }

    /// Starts a command in a pod's network.
    ///
    /// # Errors
    /// If it cannot be started.
    ///
    /// # Panics
    /// If the pod's network cannot be entered.
    pub fn start_in(pod: &Container, command: &mut Command) -> io::Result<Self> {
        pod.netns.run(|| Self::start(command)).expect("enter the pod")
    }

    /// Waits until somebody listens on the Unix socket at `path`.
    ///
    /// # Panics
    /// If nobody does after ten seconds.
    #[must_use]
    pub fn listening(self, path: &str) -> Self {
        let patience = Instant::now() + Duration::from_secs(10);
        while UnixStream::connect(path).is_err() {
            assert!(Instant::now() < patience, "nobody listens on {path}");
            std::thread::sleep(Duration::from_millis(10));
        }
        self
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
