// SPDX-License-Identifier: Apache-2.0
//! The ledger's record of an attachment and the alias of a link, as nobody can have written them, then DEL and GC of every
//! plugin that believes in notes.

use std::fs;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::Path;
use std::process::ExitCode;

use cnibox_harness::run;
use cnibox_netfilter::Hint;
use cnibox_netlink::Link;
use cnibox_plugins_fuzz::call;
use cnibox_spec::{Attachment, sha512_prefix};
use cnibox_sys::{Entry, Mark, Record};

fn main() -> ExitCode {
    cnibox_spec_fuzz::fuzz(target)
}

fn target(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    if let Some(record) = Record::read(&text) {
        assert_eq!(
            Record::read(&record.to_string()).as_ref(),
            Some(&record),
            "a record comes back as it was"
        );
    }
    let attachment = Attachment::new("net", "c1", "eth0").expect("plain names");
    for line in text.lines() {
        let _ = line.parse::<Hint>();
        let link = marked(line);
        let mark = Mark::of(&attachment);
        assert!(mark.stage_of(&link).is_none() || !mark.is_another(&link), "a mark is one's or another's");
    }
    for (entry, conf) in plugins() {
        note(input);
        call(entry, "DEL", "/nowhere", conf.as_bytes());
        note(input);
        call(entry, "GC", "", conf.as_bytes());
    }
}

/// A link with this alias.
fn marked(alias: &str) -> Link {
    Link {
        index: 2,
        name: "veth0".to_owned(),
        mtu: 1500,
        kind: Some("veth".to_owned()),
        alias: Some(alias.to_owned()),
        ..Link::default()
    }
}

/// Writes the record where the ledger has it.
fn note(text: &[u8]) {
    let shelf = format!("/run/cnibox/attachments/{}", sha512_prefix(&["c1"], 2));
    fs::DirBuilder::new().recursive(true).mode(0o700).create(&shelf).expect("make a directory");
    let file = Path::new(&shelf).join("c1:net:eth0");
    fs::write(&file, text).expect("write a record");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).expect("make it private");
}

fn plugins() -> Vec<(Entry, String)> {
    let conf =
        |own: &str| format!(r#"{{"cniVersion":"1.1.0","name":"net","cni.dev/valid-attachments":[],{own}}}"#);
    vec![
        (run::<cnibox_portmap::Portmap>, conf(r#""type":"portmap""#)),
        (run::<cnibox_firewall::Firewall>, conf(r#""type":"firewall","backend":"iptables""#)),
        (run::<cnibox_bridge::Bridge>, conf(r#""type":"bridge","bridge":"br0""#)),
        (run::<cnibox_ptp::Ptp>, conf(r#""type":"ptp","ipam":{}"#)),
        (run::<cnibox_host_device::HostDevice>, conf(r#""type":"host-device","device":"no0""#)),
        (run::<cnibox_tuning::Tuning>, conf(r#""type":"tuning""#)),
        (run::<cnibox_sbr::Sbr>, conf(r#""type":"sbr""#)),
        (run::<cnibox_vrf::Vrf>, conf(r#""type":"vrf","vrfname":"red""#)),
        (run::<cnibox_bandwidth::Bandwidth>, conf(r#""type":"bandwidth""#)),
    ]
}
