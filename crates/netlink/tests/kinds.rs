// SPDX-License-Identifier: Apache-2.0
//! The other kinds of links, and traffic shaping. Kernels without a kind skip its test.

#![expect(clippy::unwrap_used, reason = "the helpers of tests may panic")]

use std::os::fd::AsFd;

use cnibox_netlink::{
    Error, IpVlanMode, LinkChange, LinkData, MacVlanMode, ParentSpec, Rtnl, TapSpec, Tbf, VethSpec,
    link_add_tap,
};
use cnibox_testkit::{Sandbox, lacks, sandbox};

/// False, after saying so, if the kernel lacks the kind.
fn supported(kind: &str, made: Result<(), Error>) -> bool {
    match made {
        Ok(()) => true,
        Err(error) if error.is_unsupported() => {
            lacks(kind);
            false
        }
        Err(error) => panic!("{kind}: {error}"),
    }
}

fn parent(rtnl: &mut Rtnl) -> u32 {
    let spec = VethSpec { name: "up0", mac: None, peer_name: "down0", peer_netns: None, mtu: Some(1450) };
    rtnl.link_add_veth(&spec).unwrap();
    let index = rtnl.link_by_name("up0").unwrap().index;
    rtnl.link_set_up(index).unwrap();
    index
}

/// A pod's socket, and a link to make in it on a parent of the host's.
fn in_pod(net: &Sandbox, name: &'static str) -> (Rtnl, ParentSpec<'static>) {
    let parent = parent(&mut Rtnl::open().unwrap());
    let mut inside = net.container().netns.run(Rtnl::open).unwrap().unwrap();
    let nsid = inside.ensure_nsid(net.netns().as_fd()).unwrap();
    assert_eq!(inside.ensure_nsid(net.netns().as_fd()).unwrap(), nsid);
    (inside, ParentSpec { name, parent, parent_nsid: Some(nsid), mtu: None })
}

#[test]
fn macvlans_are_created_in_the_pod() {
    sandbox(|net| {
        let (mut inside, spec) = in_pod(net, "mv0");
        let spec = ParentSpec { mtu: Some(1400), ..spec };
        let mac = "02:00:00:00:00:99".parse().unwrap();
        let made = inside.link_add_macvlan(&spec, MacVlanMode::Private, Some(mac), Some(2000));
        if supported("macvlan", made) {
            let link = inside.link_by_name("mv0").unwrap();
            assert_eq!((link.mac, link.mtu, link.peer_index), (Some(mac), 1400, Some(spec.parent)));
            assert!(link.is_kind("macvlan"));
            assert_eq!(link.data, LinkData::MacVlan { mode: MacVlanMode::Private });
        }
    });
}

/// The name is looked up where the socket is: a host with an `eth0` of its own must not be in the way of the pod's
/// (kernels before 6.15 look in both, if the request is made from the host).
#[test]
fn parents_may_be_in_another_namespace() {
    sandbox(|net| {
        let (mut inside, spec) = in_pod(net, "up0");
        if supported("macvlan", inside.link_add_macvlan(&spec, MacVlanMode::Bridge, None, None)) {
            let link = inside.link_by_name("up0").unwrap();
            assert_eq!((link.mtu, link.peer_index), (1450, Some(spec.parent)));
            assert_eq!(link.peer_netns_id, spec.parent_nsid);
        }
    });
}

#[test]
fn ipvlans_are_created_in_the_pod() {
    sandbox(|net| {
        let (mut inside, spec) = in_pod(net, "iv0");
        if supported("ipvlan", inside.link_add_ipvlan(&spec, IpVlanMode::L3S)) {
            let link = inside.link_by_name("iv0").unwrap();
            assert_eq!((link.mtu, link.peer_index), (1450, Some(spec.parent)));
            assert!(link.is_kind("ipvlan"));
            assert_eq!(link.data, LinkData::IpVlan { mode: IpVlanMode::L3S });
        }
    });
}

#[test]
fn vlans_are_created_in_the_pod() {
    sandbox(|net| {
        let (mut inside, spec) = in_pod(net, "vl0");
        let spec = ParentSpec { mtu: Some(1300), ..spec };
        if supported("vlan", inside.link_add_vlan(&spec, 4001)) {
            let link = inside.link_by_name("vl0").unwrap();
            assert_eq!((link.mtu, link.peer_index), (1300, Some(spec.parent)));
            assert_eq!(link.data, LinkData::Vlan { id: 4001 });
        }
    });
}

#[test]
fn the_kernel_is_asked_for_a_kind_without_making_a_link() {
    sandbox(|net| {
        let mut rtnl = Rtnl::open().unwrap();
        let before = net.snapshot();
        assert!(rtnl.link_kind_is_known("bridge").unwrap());
        assert!(!rtnl.link_kind_is_known("cnibox-no-such").unwrap());
        for kind in ["veth", "macvlan", "ipvlan", "vlan", "dummy", "vrf", "ifb"] {
            let (known, name) = (rtnl.link_kind_is_known(kind).unwrap(), format!("probe-{kind}"));
            let made =
                std::process::Command::new("ip").args(["link", "add", &name, "type", kind]).output().unwrap();
            let said = String::from_utf8_lossy(&made.stderr).into_owned();
            assert_eq!(known, !said.contains("Unknown device type"), "{kind}: {said}");
            if made.status.success() {
                net.run("ip", &["link", "del", &name]);
            }
        }
        before.assert_same(&net.snapshot());
    });
}

#[test]
fn dummies_are_dummies() {
    sandbox(|_| {
        let mut rtnl = Rtnl::open().unwrap();
        if supported("dummy", rtnl.link_add_dummy("d0")) {
            assert!(rtnl.link_by_name("d0").unwrap().is_kind("dummy"));
            assert!(rtnl.link_add_dummy("d0").unwrap_err().is_exists());
        }
    });
}

#[test]
fn vrfs_have_their_table_and_ports() {
    sandbox(|_| {
        let mut rtnl = Rtnl::open().unwrap();
        if supported("vrf", rtnl.link_add_vrf("v0", 1234)) {
            let port = parent(&mut rtnl);
            let vrf = rtnl.link_by_name("v0").unwrap();
            assert_eq!(vrf.data, LinkData::Vrf { table: 1234 });
            rtnl.link_set(LinkChange::new(port).master(vrf.index)).unwrap();
            assert_eq!(rtnl.links_of_master(vrf.index).unwrap().len(), 1);
            assert_eq!(rtnl.link_by_index(port).unwrap().bridge_port, None);
        }
    });
}

#[test]
fn tap_devices_persist_in_the_current_namespace() {
    sandbox(|net| {
        if !std::path::Path::new("/dev/net/tun").exists() {
            return lacks("/dev/net/tun");
        }
        let pod = net.container();
        let (mut rtnl, mut inside) = (Rtnl::open().unwrap(), pod.netns.run(Rtnl::open).unwrap().unwrap());
        let spec = TapSpec {
            name: "tap0",
            multi_queue: true,
            vnet_hdr: false,
            no_pi: true,
            owner: Some(54321),
            group: Some(54322),
        };
        pod.netns.run(|| link_add_tap(&spec)).unwrap().unwrap();
        assert!(inside.link_by_name("tap0").unwrap().is_kind("tun"));
        assert!(rtnl.link_by_name("tap0").is_err());
        let shown = net.run_in(&pod, "ip", &["-d", "link", "show", "tap0"]);
        for want in
            ["type tap pi off", "vnet_hdr off", "multi_queue", "persist on", "user 54321", "group 54322"]
        {
            assert!(shown.contains(want), "{want} is missing: {shown}");
        }
        let long = TapSpec { name: "0123456789abcdef", ..spec };
        assert_eq!(link_add_tap(&long).unwrap_err().errno(), Some(22));
        let bridge = TapSpec { name: "br0", ..spec };
        rtnl.link_add_bridge("br0", None, None, false).unwrap();
        assert!(link_add_tap(&bridge).unwrap_err().is_exists());
        let again = pod.netns.run(|| link_add_tap(&spec)).unwrap();
        assert!(again.unwrap_err().is_exists(), "an existing device is not opened");
    });
}

#[test]
fn token_buckets_are_read_as_they_were_written() {
    sandbox(|_| {
        let mut rtnl = Rtnl::open().unwrap();
        let index = parent(&mut rtnl);
        assert_eq!(rtnl.qdisc_root_tbf(index).unwrap(), None);
        let tbf = Tbf { rate: 125_000, limit: 35_000, buffer: 1_250_000 };
        match rtnl.qdisc_add_tbf(index, tbf) {
            Err(error) if error.is_not_found() => return lacks("tbf"),
            made => made.unwrap(),
        }
        assert_eq!(rtnl.qdisc_root_tbf(index).unwrap(), Some(tbf));
        let again = rtnl.qdisc_add_tbf(index, tbf).unwrap_err();
        assert_eq!(again.to_string(), "file exists");
    });
}

#[test]
fn fast_token_buckets_need_64_bits() {
    sandbox(|net| {
        let mut rtnl = Rtnl::open().unwrap();
        let index = parent(&mut rtnl);
        let tbf = Tbf { rate: 5_000_000_000, limit: 4_000_000, buffer: 100_000 };
        match rtnl.qdisc_add_tbf(index, tbf) {
            Err(error) if error.is_not_found() => return lacks("tbf"),
            made => made.unwrap(),
        }
        assert_eq!(rtnl.qdisc_root_tbf(index).unwrap(), Some(tbf));
        assert!(net.run("tc", &["qdisc", "show", "dev", "up0"]).contains("rate 40Gbit"));
    });
}

#[test]
fn what_comes_in_is_redirected() {
    sandbox(|net| {
        let mut rtnl = Rtnl::open().unwrap();
        let index = parent(&mut rtnl);
        if !supported("ifb", rtnl.link_add_ifb("ifb-test", 1400)) {
            return;
        }
        let ifb = rtnl.link_by_name("ifb-test").unwrap();
        assert!(ifb.is_up() && ifb.is_kind("ifb"));
        assert_eq!((ifb.mtu, ifb.txqlen), (1400, 0));
        match rtnl.qdisc_add_ingress(index) {
            Err(error) if error.is_not_found() => return lacks("ingress qdisc"),
            made => made.unwrap(),
        }
        match rtnl.filter_add_redirect(index, ifb.index) {
            Err(error) if error.is_not_found() => {
                return lacks("u32 filter or mirred action");
            }
            made => made.unwrap(),
        }
        let shown = net.run("tc", &["filter", "show", "dev", "up0", "parent", "ffff:"]);
        for want in [
            "protocol all pref 1 u32",
            "flowid 1:1",
            "match 00000000/00000000 at 0",
            "Egress Redirect to device ifb-test",
        ] {
            assert!(shown.contains(want), "{want} is missing: {shown}");
        }
        let down0 = rtnl.link_by_name("down0").unwrap().index;
        rtnl.link_set_up(down0).unwrap();
        net.run("ip", &["address", "add", "10.5.0.1/24", "dev", "down0"]);
        std::net::UdpSocket::bind("10.5.0.1:0").unwrap().send_to(b"?", "10.5.0.255:9").unwrap_or(0);
        net.run("ip", &["neigh", "add", "10.5.0.2", "lladdr", "02:00:00:00:00:01", "dev", "down0"]);
        std::net::UdpSocket::bind("10.5.0.1:0").unwrap().send_to(b"?", "10.5.0.2:9").unwrap();
        let counted = net.run("ip", &["-s", "-j", "link", "show", "ifb-test"]);
        assert!(!counted.contains(r#""tx":{"bytes":0,"packets":0"#), "{counted}");
    });
}
