// SPDX-License-Identifier: Apache-2.0
//! What is sent to the server, asked of it, and made of its answer.

use cnibox_testkit::sandbox;
use serde_json::json;

use crate::world::{call, conf, daemon, dnsmasq, lan, pod};

#[test]
fn options_are_provided_by_value_and_from_arguments() {
    sandbox(|net| {
        lan(net);
        let Some(server) = dnsmasq(net, &[]) else { return };
        let _daemon = daemon(net, &[]);
        let pod = pod(net);
        let conf = conf(&json!({"provide": [
            {"option": "host-name", "fromArg": "K8S_POD_NAME"},
            {"option": "60", "value": "cnibox-test"},
            {"option": "user-class", "fromArg": "ABSENT"}]}));
        let args = "IgnoreUnknown=1;K8S_POD_NAME=web-7";
        net.call("dhcp", "ADD", &conf.to_string()).pod(&pod).env("CNI_ARGS", args).run().success();
        let log = server.log();
        assert!(log.contains("client provides name: web-7"), "{log}");
        assert!(log.contains("vendor class: cnibox-test"), "{log}");
        assert!(!log.contains("user class:"), "{log}");
    });
}

#[test]
fn options_are_requested_besides_or_instead_of_the_usual() {
    sandbox(|net| {
        lan(net);
        let Some(server) = dnsmasq(net, &[]) else { return };
        let _daemon = daemon(net, &[]);
        for (request, want) in [
            (json!([]), "requested options: 3:router, 1:netmask"),
            (json!([{"option": "26"}]), "requested options: 26:mtu, 3:router, 1:netmask"),
            (json!([{"option": "subnet-mask", "skipDefault": true}]), "requested options: 1:netmask\n"),
        ] {
            let pod = pod(net);
            let before = server.log().len();
            call(net, "ADD", &pod, &json!({"request": request})).success();
            let log = server.log()[before..].to_owned();
            assert!(log.contains(want), "{want}: {log}");
        }
    });
}

#[test]
fn routes_and_names_come_from_the_lease() {
    sandbox(|net| {
        lan(net);
        let options = [
            "--dhcp-option-force=33,10.0.0.0,192.168.7.3,172.16.0.0,192.168.7.4",
            "--dhcp-option=121,10.9.0.0/16,192.168.7.5,169.254.0.0/16,0.0.0.0",
            "--dhcp-option=6,192.168.7.1,192.168.7.2",
            "--dhcp-option=15,example.org",
            "--dhcp-option=119,a.example.org,b.example.org",
        ];
        let Some(_server) = dnsmasq(net, &options) else { return };
        let _daemon = daemon(net, &[]);
        let (first, second) = (pod(net), pod(net));
        let result = call(net, "ADD", &first, &json!({"priority": 50})).success();
        let route = |dst: &str, gw: &str| json!({"dst": dst, "gw": gw, "priority": 50});
        let want = json!([
            route("10.0.0.0/8", "192.168.7.3"),
            route("172.16.0.0/16", "192.168.7.4"),
            route("0.0.0.0/0", "192.168.7.1"),
        ]);
        assert_eq!(result["routes"], want);
        assert!(result["dns"].is_null());

        let ipam = json!({"request": [{"option": "121"}], "useDNS": true});
        let result = call(net, "ADD", &second, &ipam).success();
        let want = json!([
            {"dst": "10.9.0.0/16", "gw": "192.168.7.5"},
            {"dst": "169.254.0.0/16", "gw": "0.0.0.0", "scope": 253},
        ]);
        assert_eq!(result["routes"], want);
        let want = json!({"nameservers": ["192.168.7.1", "192.168.7.2"], "domain": "example.org",
            "search": ["a.example.org", "b.example.org"]});
        assert_eq!(result["dns"], want);
    });
}
