// SPDX-License-Identifier: Apache-2.0
//! `resolv.conf`: whatever it says, ADD answers with JSON.

use std::fs;
use std::process::ExitCode;

use cnibox_harness::run;
use cnibox_plugins_fuzz::{call, scratch};

fn main() -> ExitCode {
    cnibox_spec_fuzz::fuzz(target)
}

fn target(input: &[u8]) {
    let dir = scratch();
    fs::create_dir_all(&dir).expect("a scratch directory");
    let file = dir.join("resolv.conf");
    fs::write(&file, input).expect("a scratch file");
    let conf = format!(
        r#"{{"cniVersion":"1.0.0","name":"net","ipam":{{"type":"host-local","subnet":"10.1.0.0/24","dataDir":"{}","resolvConf":"{}"}}}}"#,
        dir.display(),
        file.display()
    );
    let host_local = run::<cnibox_host_local::HostLocal>;
    let (exit, stdout) = call(host_local, "ADD", "/nowhere", conf.as_bytes());
    assert_eq!(exit, 0, "{}", String::from_utf8_lossy(&stdout));
    call(host_local, "DEL", "/nowhere", conf.as_bytes());
}
