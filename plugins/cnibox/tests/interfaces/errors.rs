// SPDX-License-Identifier: Apache-2.0
//! What is wrong with a configuration is said in the reference's words, and only by the verbs that use it.

use cnibox_testkit::sandbox;
use serde_json::{Value, json};

use crate::world::{call, conf, supported};

const NOWHERE: (&str, &str) = ("c1", "/nonexistent/netns");

fn error(verb: &str, plugin: &str, fields: Value) -> (u64, String) {
    let error = call(verb, NOWHERE, &conf(plugin, fields, None), None).unwrap_err();
    (error["code"].as_u64().unwrap(), error["msg"].as_str().unwrap().to_owned())
}

#[test]
fn wrong_configurations_have_the_reference_texts() {
    let cases = [
        ("macvlan", json!({"mode": "x"}), 7, "unknown macvlan mode: \"x\""),
        ("macvlan", json!({"mode": "source"}), 7, "unknown macvlan mode: \"source\""),
        ("macvlan", json!({"mac": "x"}), 7, "invalid args x for MAC addr: address x: invalid MAC address"),
        (
            "macvlan",
            json!({"mtu": "x"}),
            6,
            "failed to load netconf: json: cannot unmarshal string into Go struct field NetConf.mtu of type int",
        ),
        ("ipvlan", json!({"mode": "x"}), 7, "unknown ipvlan mode: \"x\""),
        (
            "vlan",
            json!({}),
            7,
            "\"master\" field is required. It specifies the host interface name to create the VLAN for",
        ),
        (
            "vlan",
            json!({"master": "m", "vlanId": 4095}),
            7,
            "invalid VLAN ID 4095 (must be between 0 and 4094 inclusive)",
        ),
        ("dummy", json!({}), 7, "dummy interface requires an IPAM configuration"),
        (
            "host-device",
            json!({}),
            7,
            "specify either \"device\", \"hwaddr\", \"kernelpath\" or \"pciBusID\"",
        ),
        (
            "host-device",
            json!({"runtimeConfig": {"deviceID": "../x"}}),
            7,
            "runtime config DeviceID ../x not found or unsupported",
        ),
        ("tap", json!({"mac": "x"}), 7, "invalid args x for MAC addr: address x: invalid MAC address"),
        ("ptp", json!({"ipMasq": true, "ipMasqBackend": "x"}), 7, "unknown ipmasq backend \"x\""),
    ];
    for (plugin, fields, code, text) in cases {
        assert_eq!(error("ADD", plugin, fields.clone()), (code, text.to_owned()));
        // DEL does not stumble over what only ADD uses.
        if code != 6 {
            let del = call("DEL", NOWHERE, &conf(plugin, fields, None), None);
            assert!(del.is_ok(), "{plugin}: {del:?}");
        }
    }
}

#[test]
fn values_of_the_wrong_type_have_the_reference_texts() {
    let cases = [
        ("ADD", "bandwidth", "failed to parse network configuration: "),
        ("ADD", "bridge", "failed to load netconf: "),
        ("ADD", "dhcp", "error obtaining socketPath: error parsing socket path conf: "),
        ("ADD", "dummy", "failed to parse network config: "),
        ("DEL", "dummy", "failed to parse network config: "),
        ("STATUS", "dummy", "failed to load netconf: "),
        ("ADD", "firewall", "failed to load netconf: "),
        ("ADD", "host-device", "failed to load netconf: "),
        ("ADD", "host-local", ""),
        ("ADD", "ipvlan", "failed to load netconf: "),
        ("ADD", "loopback", "failed to parse network config: "),
        ("ADD", "macvlan", "failed to load netconf: "),
        ("DEL", "macvlan", "failed to load netConf: "),
        ("ADD", "portmap", "failed to parse config: failed to parse network configuration: "),
        ("CHECK", "portmap", "failed to parse network configuration: "),
        ("ADD", "ptp", "failed to load netconf: "),
        ("ADD", "sbr", "failed to parse network configuration: "),
        ("ADD", "static", ""),
        ("ADD", "tap", "failed to load netconf: "),
        ("ADD", "tuning", "failed to load netconf: "),
        ("DEL", "tuning", "failed to load netconf: "),
        ("ADD", "vlan", "failed to load netconf: "),
        ("ADD", "vrf", "failed to load netconf: "),
    ];
    for (verb, plugin, failed) in cases {
        let (code, message) = error(verb, plugin, json!({"ipam": 1, "dataDir": 1}));
        assert_eq!(code, 6, "{verb} {plugin}: {message}");
        let text = format!("{failed}json: cannot unmarshal number into Go struct field ");
        assert!(message.starts_with(&text), "{verb} {plugin}: {message}");
    }
}

#[test]
fn results_that_cannot_be_read_have_the_reference_texts() {
    let once = "could not parse prevResult: ";
    let twice = "could not parse prevResult: could not parse prevResult: ";
    let cases = [
        ("bandwidth", twice),
        ("firewall", twice),
        ("ipvlan", twice),
        ("loopback", "failed to parse prevResult: could not parse prevResult: "),
        ("portmap", "failed to parse config: could not parse prevResult: could not parse prevResult: "),
        ("sbr", once),
        ("tuning", once),
        ("vrf", twice),
    ];
    for (plugin, failed) in cases {
        let fields = json!({"vrfname": "v", "prevResult": {"cniVersion": "1.1.0", "ips": 1}});
        let (code, message) = error("ADD", plugin, fields);
        assert_eq!(code, 7, "{plugin}: {message}");
        let rest = message.strip_prefix(failed).unwrap_or_else(|| panic!("{plugin}: {message}"));
        assert!(rest.starts_with("json: "), "{plugin}: {message}");
    }
}

#[test]
fn missing_namespaces_are_named() {
    let text = "failed to open netns \"/nonexistent/netns\": failed to Statfs \"/nonexistent/netns\": \
        no such file or directory";
    for (plugin, fields) in [
        ("ptp", json!({})),
        ("macvlan", json!({"master": "lo"})),
        ("ipvlan", json!({"master": "lo"})),
        ("vlan", json!({"master": "lo"})),
        ("host-device", json!({"device": "lo"})),
        ("tap", json!({})),
        ("dummy", json!({"ipam": {"type": "x"}})),
    ] {
        assert_eq!(error("ADD", plugin, fields), (999, text.to_owned()), "{plugin}");
    }
}

#[test]
fn status_says_what_add_would() {
    sandbox(|net| {
        for plugin in ["ptp", "vlan", "dummy"] {
            // Where the kernel has no such links, that is what it says.
            if plugin == "ptp" || supported(net, plugin) {
                let (_, message) = error("STATUS", plugin, json!({"master": "lo"}));
                assert_eq!(message, "no plugin name provided", "{plugin}");
            }
        }
    });
}
