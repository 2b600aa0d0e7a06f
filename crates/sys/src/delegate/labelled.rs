// SPDX-License-Identifier: Apache-2.0
//! Calling a plugin of this executable as a process with another SELinux context: what the kernel labels by the process
//! that makes it can get its label in no other way.

use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use cnibox_netns::errno::io_text;
use cnibox_spec::Verb;
use serde::Serialize;

use super::invoke::{error_object, talk};
use crate::call::{Failure, Place, Sys};

impl Sys<'_> {
    /// Runs ADD of `plugin`, one of this executable's, in the container's namespace with `context` as its process's
    /// SELinux context. Its result is not looked at.
    ///
    /// # Errors
    /// When the context is refused (`invalid argument` without SELinux), or the plugin's own.
    pub fn execute_labelled(
        &mut self,
        context: &str,
        plugin: &'static str,
        config: &impl Serialize,
    ) -> Result<(), Failure> {
        let failed =
            |what: String, error: io::Error| Failure::internal(format!("{what}: {}", io_text(&error)));
        let start = |error| failed(format!("{plugin} cannot be started with an SELinux context"), error);
        let config = serde_json::to_vec(config).map_err(|error| start(error.into()))?;
        let env = self.env.clone().with("CNI_COMMAND", Verb::Add.as_str());
        let env = env.with("CNI_NETNS", OWN_NETNS).with("CNI_NETNS_OVERRIDE", "1").with("CNI_ARGS", "");
        let mut command = Command::new("/proc/self/exe");
        command.arg0(plugin).env_clear().envs(env.iter());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        // The label is of this thread, and so is the namespace; the process inherits both.
        let child = self.inside(Place::Pod, || {
            let label_failed =
                |what| move |error| failed(format!("failed set socket label: {what} {EXEC_LABEL}"), error);
            // Opened once, so that it can be taken back even when no more files can be opened.
            let label = OpenOptions::new().write(true).open(EXEC_LABEL).map_err(label_failed("open"))?;
            label.write_all_at(context.as_bytes(), 0).map_err(label_failed("write"))?;
            let child = command.spawn().map_err(start);
            if let Err(error) = label.write_all_at(NO_LABEL, 0) {
                // Nobody would listen to it or wait for its end.
                let _ = child.map(|mut child| child.kill().and_then(|()| child.wait()));
                return Err(label_failed("write")(error));
            }
            child
        })??;
        let answer = talk(child, &config).map_err(start)?;
        if answer.exit == 0 { Ok(()) } else { Err(error_object(&answer).into()) }
    }
}

/// `proc_pid_attr(5)`: the context of the next `execve(2)`.
const EXEC_LABEL: &str = "/proc/thread-self/attr/exec";
/// Takes the label back (`selinux_lsm_setattr` of the kernel).
const NO_LABEL: &[u8] = b"\n";
/// The new process is in the container's namespace already.
const OWN_NETNS: &str = "/proc/self/ns/net";
