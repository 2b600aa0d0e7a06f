// SPDX-License-Identifier: Apache-2.0
//! host-local's state: names and contents that nobody can have written, then every verb.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::process::ExitCode;

use cnibox_harness::run;
use cnibox_plugins_fuzz::{call, scratch};

fn main() -> ExitCode {
    cnibox_spec_fuzz::fuzz(target)
}

/// The input is a list of files: name, line end, content, and a line of dashes behind each.
fn target(input: &[u8]) {
    let dir = scratch();
    let _ = fs::remove_dir_all(&dir);
    let network = dir.join("net");
    fs::create_dir_all(&network).expect("a scratch directory");
    for file in input.split(|byte| *byte == b'-') {
        let (name, content) =
            file.split_at(file.iter().position(|byte| *byte == b'\n').unwrap_or(file.len()));
        let name = std::ffi::OsStr::from_bytes(name);
        if name.as_bytes().contains(&b'/') || name == ".." || name == "." || name.is_empty() {
            continue;
        }
        let _ = fs::write(network.join(name), content.get(1..).unwrap_or_default());
    }
    let conf = format!(
        r#"{{"cniVersion":"1.1.0","name":"net","cni.dev/valid-attachments":[{{"containerID":"c2","ifname":"eth0"}}],
            "ipam":{{"type":"host-local","dataDir":"{}","sticky":true,"reclaimOnBoot":true,
            "ranges":[[{{"subnet":"10.1.0.0/28"}}],[{{"subnet":"fd00::/124"}}]]}}}}"#,
        dir.display()
    );
    let host_local = run::<cnibox_host_local::HostLocal>;
    for verb in ["STATUS", "CHECK", "ADD", "CHECK", "ADD", "DEL", "GC", "DEL"] {
        call(host_local, verb, "/nowhere", conf.as_bytes());
    }
    assert_eq!(call(host_local, "CHECK", "/nowhere", conf.as_bytes()).0, 1, "DEL leaves nothing");
}
