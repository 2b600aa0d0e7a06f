// SPDX-License-Identifier: Apache-2.0
//! The plugin in the running kernel: what it makes, that DEL leaves nothing, and that an ADD that fails at any step
//! leaves nothing either.

#![expect(clippy::unwrap_used, reason = "the helpers of tests may panic")]

use cnibox_netlink::Rtnl;

use cnibox_harness::run;
use cnibox_testkit::{Container, InProcess, Sandbox, lacks, sandbox};
use serde_json::{Value, json};

const VRF: InProcess = InProcess(run::<cnibox_vrf::Vrf>);

/// A pod with `eth0` and addresses, the other end `host0` on the host.
fn connected(net: &Sandbox) -> Container {
    let pod = net.connected(&[
        "address add 10.0.0.2/24 dev eth0",
        "address add 2001:db8::2/64 dev eth0 nodad",
        "address add 2001:db8:2::2/64 dev eth0 nodad noprefixroute valid_lft 600 preferred_lft 500",
        "route add 10.10.10.0/24 via 10.0.0.1 dev eth0",
        "-6 route add 2001:db8:1::/64 via 2001:db8::1 dev eth0",
    ]);
    net.await_local_route(&pod, "2001:db8::2 ");
    pod
}

fn conf(pod: &Container, table: u32) -> Value {
    json!({"cniVersion": "1.1.0", "name": "n", "type": "vrf", "vrfname": "blue", "table": table, "prevResult": {
        "cniVersion": "1.1.0",
        "interfaces": [{"name": "host0"}, {"name": "eth0", "sandbox": pod.path}],
        "ips": [{"interface": 1, "address": "10.0.0.2/24", "gateway": "10.0.0.1"}]}})
}

/// Runs a test where the kernel has VRFs.
fn with_vrf(test: impl FnOnce(&Sandbox) + Send) {
    sandbox(|net| {
        let mut rtnl = Rtnl::open().unwrap();
        match rtnl.link_add_vrf("probe", 7777) {
            Err(error) if error.is_unsupported() => return lacks("vrf"),
            made => made.unwrap(),
        }
        net.run("ip", &["link", "del", "probe"]);
        // Where the kernel keeps the addresses, nothing need be restored.
        test(net);
    });
}

fn routes(net: &Sandbox, pod: &Container, family: &str, table: &str) -> String {
    net.run_in(pod, "sh", &["-c", &format!("ip {family} route show table {table} 2>/dev/null || :")])
}

#[test]
fn the_interface_keeps_addresses_and_routes_in_the_vrf() {
    with_vrf(|net| {
        let pod = connected(net);
        VRF.success("ADD", &pod, &conf(&pod, 1001));
        VRF.success("CHECK", &pod, &conf(&pod, 1001));
        let v4 = routes(net, &pod, "-4", "1001");
        assert!(v4.contains("10.10.10.0/24 via 10.0.0.1") && v4.contains("10.0.0.0/24 dev eth0"), "{v4}");
        let v6 = routes(net, &pod, "-6", "1001");
        assert!(v6.contains("2001:db8:1::/64 via 2001:db8::1") && v6.contains("local 2001:db8::2"), "{v6}");
        let addresses = net.run_in(&pod, "ip", &["-6", "address", "show", "eth0"]);
        assert!(addresses.contains("2001:db8::2/64"), "{addresses}");
        let limited = addresses.split("inet6 ").find(|text| text.starts_with("2001:db8:2::2/64")).unwrap();
        assert!(limited.contains("noprefixroute") && !limited.contains("forever"), "{addresses}");
        assert!(!v6.contains("2001:db8:2::/64"), "{v6}");
        let other = VRF.failure("ADD", &pod, &conf(&pod, 1002));
        assert_eq!(other, "cmdAdd failed: VRF blue already exist with different routing table 1001");
        let again = VRF.failure("ADD", &pod, &conf(&pod, 0));
        assert_eq!(again, "cmdAdd failed: interface eth0 has already a master set: blue");
        VRF.success("DEL", &pod, &conf(&pod, 1001));
        assert_eq!(net.snapshot_of(&pod).lines("blue"), [""; 0]);
        VRF.success("DEL", &pod, &conf(&pod, 1001));
    });
}

/// A gateway that only a route of link scope reaches: the kernel made none such, and the VRF's table gets none.
#[test]
fn a_route_that_does_not_fit_the_table_is_named_as_the_reference_names_it() {
    with_vrf(|net| {
        let pod = connected(net);
        net.run_in(&pod, "ip", &["route", "add", "10.0.5.1", "dev", "eth0"]);
        net.run_in(
            &pod,
            "ip",
            &["route", "add", "192.0.2.0/24", "via", "10.0.5.1", "dev", "eth0", "src", "10.0.0.2"],
        );
        let link = net.run_in(&pod, "ip", &["-o", "link", "show", "eth0"]);
        let expected = format!(
            "cmdAdd failed: could not add route '{{Ifindex: {} Dst: 192.0.2.0/24 Src: 10.0.0.2 Gw: 10.0.5.1 Flags: [] \
             Table: 1001 Realm: 0}}': network is unreachable",
            link.split(':').next().unwrap()
        );
        assert_eq!(VRF.failure("ADD", &pod, &conf(&pod, 1001)), expected);
        assert!(routes(net, &pod, "-4", "main").contains("192.0.2.0/24 via 10.0.5.1"));
    });
}

#[test]
fn an_add_that_fails_at_any_step_leaves_nothing() {
    with_vrf(|net| {
        let pod = connected(net);
        // The kernel adds the rule for all VRFs with the first one, and keeps it.
        let steady = || net.snapshot_of(&pod).without("ff00::/8").without("l3mdev");
        let before = steady();
        let mut step = 1;
        while VRF.call("ADD", &pod, &conf(&pod, 1001), Some(step)).0 != 0 {
            before.assert_same(&steady());
            step += 1;
        }
        assert_eq!(step, 6, "vrf, up, master, addresses, routes");
    });
}

#[test]
fn a_vrf_goes_with_its_last_interface_and_takes_a_free_table() {
    with_vrf(|net| {
        let pod = connected(net);
        net.run_in(&pod, "ip", &["link", "add", "other", "type", "vrf", "table", "1"]);
        VRF.success("ADD", &pod, &conf(&pod, 0));
        let vrf = net.run_in(&pod, "ip", &["-d", "link", "show", "blue"]);
        assert!(vrf.contains("vrf table 2"), "{vrf}");
        net.run_in(&pod, "ip", &["link", "add", "second", "type", "veth", "peer", "name", "third"]);
        net.run_in(&pod, "ip", &["link", "set", "second", "master", "blue"]);
        VRF.success("DEL", &pod, &conf(&pod, 0));
        net.run_in(&pod, "ip", &["link", "show", "blue"]);
        assert_eq!(VRF.failure("CHECK", &pod, &conf(&pod, 0)), "failed to find eth0 associated to vrf blue");
        net.run_in(&pod, "ip", &["link", "set", "second", "nomaster"]);
        net.run("ip", &["link", "del", "host0"]);
        VRF.success("DEL", &pod, &conf(&pod, 0));
        assert_eq!(net.snapshot_of(&pod).lines("blue"), [""; 0]);
        assert_eq!(VRF.failure("CHECK", &pod, &conf(&pod, 0)), "Link not found");
    });
}

#[test]
fn del_without_namespace_succeeds() {
    sandbox(|net| {
        let pod = connected(net);
        net.run("ip", &["netns", "del", &pod.id]);
        VRF.success("DEL", &pod, &conf(&pod, 1001));
        net.run("ip", &["link", "del", "host0"]);
    });
}
