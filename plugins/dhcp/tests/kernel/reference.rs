// SPDX-License-Identifier: Apache-2.0
//! The reference's plugin with our daemon and our plugin with the reference's daemon. `CNIBOX_REFERENCE` names the
//! directory of the Go plugins.

use std::path::{Path, PathBuf};

use cnibox_testkit::{Container, Sandbox, sandbox, skip};
use serde_json::{Value, json};

use crate::world::{call, conf, daemon, daemon_of, dnsmasq, lan, leased, nothing_kept, pod, start_of};

fn reference() -> Option<PathBuf> {
    let dir = std::env::var_os("CNIBOX_REFERENCE").map(PathBuf::from);
    let program = dir.map(|dir| dir.join("dhcp")).filter(|program| program.exists());
    if program.is_none() {
        skip("CNIBOX_REFERENCE names no directory with the Go plugins");
    }
    program
}

fn go_call(net: &Sandbox, program: &Path, verb: &str, pod: &Container, ipam: &Value) -> (i32, Value) {
    let output = start_of(net, program, verb, pod, ipam).wait_with_output().unwrap();
    (output.status.code().unwrap_or(-1), serde_json::from_slice(&output.stdout).unwrap_or(Value::Null))
}

const SERVER: [&str; 2] =
    ["--dhcp-option=121,10.9.0.0/16,192.168.7.5,169.254.0.0/16,0.0.0.0", "--dhcp-option=6,192.168.7.1"];

fn ipam() -> Value {
    json!({"request": [{"option": "121"}], "priority": 9, "provide": [{"option": "host-name", "fromArg": "NAME"}]})
}

#[test]
fn the_references_plugin_with_our_daemon() {
    let Some(go) = reference() else { return };
    sandbox(|net| {
        lan(net);
        let Some(server) = dnsmasq(net, &SERVER) else { return };
        let daemon = daemon(net, &[]);
        let (one, other) = (pod(net), pod(net));
        let (status, theirs) = go_call(net, &go, "ADD", &one, &ipam());
        assert_eq!(status, 0, "{theirs}");
        server.says("client provides name: web-7", 1);
        // The same lease for our own plugin.
        assert_eq!(call(net, "ADD", &one, &ipam()).success(), theirs);
        assert_eq!(
            theirs["routes"][1],
            json!({"dst": "169.254.0.0/16", "gw": "0.0.0.0", "scope": 253, "priority": 9})
        );
        assert_eq!(go_call(net, &go, "CHECK", &one, &ipam()).0, 0);
        // Names are in the result if that is wanted.
        let (_, named) = go_call(net, &go, "ADD", &other, &json!({"useDNS": true}));
        assert_eq!(named["dns"]["nameservers"], json!(["192.168.7.1"]));
        for pod in [&one, &other] {
            assert_eq!(go_call(net, &go, "DEL", pod, &ipam()), (0, Value::Null));
        }
        leased(net, 0);
        nothing_kept(&daemon);
        let (status, error) =
            go_call(net, &go, "ADD", &one, &json!({"provide": [{"option": "bogus", "value": "x"}]}));
        let text = error["msg"].as_str().unwrap();
        assert!(
            status == 1 && text.starts_with("error calling DHCP.Allocate: Can not parse option \"bogus\""),
            "{text}"
        );
        // Ours says the same.
        let ours = call(net, "ADD", &one, &json!({"provide": [{"option": "bogus", "value": "x"}]}));
        assert_eq!(ours.failure().1, text);
    });
}

#[test]
fn our_plugin_with_the_references_daemon() {
    let Some(go) = reference() else { return };
    sandbox(|net| {
        lan(net);
        let Some(_server) = dnsmasq(net, &SERVER) else { return };
        let daemon = daemon_of(net, &go, &[]);
        let pod = pod(net);
        call(net, "STATUS", &pod, &json!({})).success();
        let ours = call(net, "ADD", &pod, &ipam()).success();
        let (_, theirs) = go_call(net, &go, "ADD", &pod, &ipam());
        assert_eq!(ours, theirs);
        assert_eq!(ours["ips"][0]["gateway"], "192.168.7.1");
        call(net, "CHECK", &pod, &ipam()).success();
        // It has no GC, which is no error.
        let mut gc = conf(&json!({}));
        gc["cni.dev/valid-attachments"] = json!([]);
        net.call("dhcp", "GC", &gc.to_string()).run().success();
        call(net, "DEL", &pod, &ipam()).success();
        daemon.says("releasing lease", 1);
        let lost = net.container();
        let text = call(net, "ADD", &lost, &json!({})).failure().1;
        assert_eq!(text, "error calling DHCP.Allocate: error looking up \"eth0\": Link not found");
    });
}
