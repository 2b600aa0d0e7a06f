// SPDX-License-Identifier: Apache-2.0
//! Links, bridge ports and waiting for them, in the running kernel.

#![expect(clippy::unwrap_used, reason = "the helpers of tests may panic")]

use std::cell::{Cell, RefCell};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use cnibox_netlink::{
    BridgePort, BridgeVlan, Error, LinkChange, Mac, Monitor, Multicast, OperState, Rtnl, VethSpec, Waited,
};
use cnibox_testkit::{Container, Sandbox, lacks, sandbox};

const VETH: VethSpec<'static> =
    VethSpec { name: "eth0", mac: None, peer_name: "veth0", peer_netns: None, mtu: None };

fn rtnl_of(pod: &Container) -> Rtnl {
    pod.netns.run(Rtnl::open).unwrap().unwrap()
}

/// A pod's end and its socket, and the host's end and socket.
fn veth(net: &Sandbox, pod: &Container) -> (Rtnl, u32, Rtnl, u32) {
    let (mut host, mut inside) = (Rtnl::open().unwrap(), rtnl_of(pod));
    let spec = VethSpec { peer_netns: Some(net.netns().as_fd()), ..VETH };
    inside.link_add_veth(&spec).unwrap();
    let (eth0, veth0) =
        (inside.link_by_name("eth0").unwrap().index, host.link_by_name("veth0").unwrap().index);
    (inside, eth0, host, veth0)
}

#[test]
fn veth_pairs_have_all_their_properties_from_the_start() {
    sandbox(|net| {
        let pod = net.container();
        let (mut host, mut inside) = (Rtnl::open().unwrap(), rtnl_of(&pod));
        let mac = Mac([2, 0, 0, 0, 0, 0x2a]);
        let peer_netns = Some(net.netns().as_fd());
        let spec = VethSpec { mac: Some(mac), peer_netns, mtu: Some(1400), ..VETH };
        inside.link_add_veth(&spec).unwrap();
        let (eth0, veth0) = (inside.link_by_name("eth0").unwrap(), host.link_by_name("veth0").unwrap());
        assert_eq!((eth0.mac, eth0.mtu, eth0.txqlen), (Some(mac), 1400, 1000));
        assert_eq!((veth0.mtu, veth0.txqlen), (1400, 0));
        assert!(eth0.is_kind("veth") && veth0.is_kind("veth"));
        assert_eq!((eth0.peer_index, veth0.peer_index), (Some(veth0.index), Some(eth0.index)));
        assert!(eth0.peer_netns_id.is_some());
        let again = inside.link_add_veth(&VethSpec { peer_name: "veth1", ..spec }).unwrap_err();
        assert!(again.is_exists());
        assert_eq!(again.to_string(), "file exists");
    });
}

#[test]
fn a_number_leads_nowhere_once_nobody_holds_the_namespace() {
    sandbox(|net| {
        let pod = net.container();
        let (inside, _, mut host, veth0) = veth(net, &pod);
        let nsid = host.link_by_index(veth0).unwrap().peer_netns_id.unwrap();
        assert!(host.nsid_is_held(nsid).unwrap());
        net.run("ip", &["netns", "del", &pod.id]);
        drop(inside);
        assert!(host.nsid_is_held(nsid).unwrap(), "it is open");
        let (mut news, deadline) =
            (Monitor::of(Multicast::Nsid).unwrap(), Instant::now() + Duration::from_secs(10));
        drop(pod);
        while host.nsid_is_held(nsid).unwrap() {
            assert!(news.wait_any(deadline).unwrap(), "nobody holds it, and it answers");
        }
        let link = host.link_by_index_if_present(veth0).unwrap();
        assert!(link.is_none_or(|link| [Some(nsid), Some(-1)].contains(&link.peer_netns_id)));
    });
}

#[test]
fn settings_of_addresses_are_those_below_proc_sys() {
    sandbox(|net| {
        let pod = net.container();
        let (mut inside, eth0, mut host, _) = veth(net, &pod);
        let conf = |family: &str, link: &str, key: &str| format!("/proc/sys/net/{family}/conf/{link}/{key}");
        let arp_notify = || {
            let path = conf("ipv4", "eth0", "arp_notify");
            pod.netns.run(|| std::fs::read_to_string(path).unwrap()).unwrap()
        };
        assert_eq!(arp_notify(), "0\n");
        inside.link_set(LinkChange::new(eth0).arp_notify()).unwrap();
        assert_eq!(arp_notify(), "1\n");
        let ipv6 =
            |host: &mut Rtnl| host.link_by_name("veth0").unwrap().ipv6.map(|it| (it.accept_ra, it.disabled));
        assert_eq!(ipv6(&mut host), Some((1, false)));
        std::fs::write(conf("ipv6", "veth0", "accept_ra"), "0").unwrap();
        std::fs::write(conf("ipv6", "veth0", "disable_ipv6"), "1").unwrap();
        assert_eq!(ipv6(&mut host), Some((0, true)));
    });
}

#[test]
fn missing_links_are_told_apart_from_errors() {
    sandbox(|_| {
        let mut rtnl = Rtnl::open().unwrap();
        assert!(matches!(rtnl.link_by_name("nope"), Err(Error::LinkNotFound)));
        assert!(matches!(rtnl.link_by_index(4711), Err(Error::LinkNotFound)));
        assert_eq!(rtnl.link_by_name_if_present("nope").unwrap(), None);
        assert!(!rtnl.link_del_by_name_if_present("nope").unwrap());
        assert_eq!(rtnl.link_by_name("a-name-too-long-for-links").unwrap_err().to_string(), "Link not found");
    });
}

#[test]
fn every_change_of_a_link_arrives() {
    sandbox(|net| {
        let pod = net.container();
        let (_, _, mut host, veth0) = veth(net, &pod);
        let mac = "02:00:00:00:00:07".parse().unwrap();
        let changes = LinkChange::new(veth0).mac(mac).mtu(1280).alias("net/pod/eth0").txqlen(7).promisc(true);
        host.link_set(changes.allmulti(true).name("other").up()).unwrap();
        let link = host.link_by_index(veth0).unwrap();
        assert_eq!((link.mac, link.mtu, link.txqlen, link.name.as_str()), (Some(mac), 1280, 7, "other"));
        assert_eq!(link.alias.as_deref(), Some("net/pod/eth0"));
        assert!(link.is_promisc() && link.is_allmulti() && link.is_up());
        assert_eq!(link.promiscuity, 1);
        host.link_set(LinkChange::new(veth0).alias("")).unwrap();
        host.link_set(LinkChange::new(veth0).promisc(false)).unwrap();
        host.link_set_down(veth0).unwrap();
        let link = host.link_by_name("other").unwrap();
        assert_eq!((link.alias.as_ref(), link.is_promisc(), link.is_up()), (None, false, false));
        assert!(link.is_allmulti());
    });
}

#[test]
fn links_move_between_namespaces_and_go_away_in_pairs() {
    sandbox(|net| {
        let pod = net.container();
        let mut host = Rtnl::open().unwrap();
        host.link_add_veth(&VETH).unwrap();
        let index = host.link_by_name("eth0").unwrap().index;
        host.link_set(LinkChange::new(index).netns(pod.netns.as_fd())).unwrap();
        assert!(host.link_by_name("eth0").unwrap_err().is_not_found());
        let mut inside = rtnl_of(&pod);
        assert!(inside.link_del_by_name_if_present("eth0").unwrap());
        assert_eq!(host.link_by_name_if_present("veth0").unwrap(), None);
        assert_eq!(host.links().unwrap().len(), net.run("ip", &["-o", "link"]).lines().count());
    });
}

#[test]
fn bridge_ports_are_found_by_their_master_and_have_flags() {
    sandbox(|net| {
        let pod = net.container();
        let (_, _, mut host, veth0) = veth(net, &pod);
        host.link_add_bridge("br0", Some(1450), None, false).unwrap();
        let br0 = host.link_by_name("br0").unwrap();
        assert_eq!(br0.mtu, 1450);
        assert!(net.run("ip", &["-d", "link", "show", "br0"]).contains("vlan_filtering 0"));
        assert!(host.links_of_master(br0.index).unwrap().is_empty());
        host.link_set(LinkChange::new(veth0).master(br0.index)).unwrap();
        let ports = host.links_of_master(br0.index).unwrap();
        assert_eq!(ports.iter().map(|port| port.index).collect::<Vec<_>>(), [veth0]);
        for flags in
            [BridgePort { hairpin: true, isolated: true }, BridgePort { hairpin: false, isolated: true }]
        {
            host.bridge_port_set(veth0, flags).unwrap();
            assert_eq!(host.link_by_index(veth0).unwrap().bridge_port, Some(flags));
        }
        host.link_set(LinkChange::new(veth0).nomaster()).unwrap();
        let free = host.link_by_index(veth0).unwrap();
        assert_eq!((free.master, free.bridge_port), (None, None));
    });
}

#[test]
fn the_kernels_own_words_are_kept() {
    sandbox(|_| {
        let mut rtnl = Rtnl::open().unwrap();
        rtnl.link_add_bridge("br0", None, None, false).unwrap();
        rtnl.link_add_bridge("br1", None, None, false).unwrap();
        let (br0, br1) = (rtnl.link_by_name("br0").unwrap(), rtnl.link_by_name("br1").unwrap());
        let error = rtnl.link_set(LinkChange::new(br1.index).master(br0.index)).unwrap_err();
        assert_eq!(error.to_string(), "too many levels of symbolic links");
        assert_eq!(error.kernel_text(), Some("Can not enslave a bridge to a bridge"));
    });
}

#[test]
fn bridge_vlans_are_added_listed_and_deleted() {
    sandbox(|net| {
        let pod = net.container();
        let (_, _, mut host, veth0) = veth(net, &pod);
        match host.link_add_bridge("br0", None, None, true) {
            Ok(()) => {}
            Err(error) if error.is_unsupported() => return lacks("bridge VLAN filtering"),
            Err(error) => panic!("{error}"),
        }
        let br0 = host.link_by_name("br0").unwrap();
        assert!(net.run("ip", &["-d", "link", "show", "br0"]).contains("vlan_filtering 1"));
        host.link_set(LinkChange::new(veth0).master(br0.index)).unwrap();
        let default = BridgeVlan { id: 1, pvid: true, untagged: true };
        assert_eq!(host.bridge_vlans(veth0).unwrap(), [default]);
        host.bridge_vlan_del(veth0, default).unwrap();
        assert_eq!(host.bridge_vlans(veth0).unwrap(), []);
        let access = BridgeVlan { id: 100, pvid: true, untagged: true };
        let tagged = |id| BridgeVlan { id, pvid: false, untagged: false };
        for vlan in [access, tagged(200), tagged(201), tagged(202), tagged(4094)] {
            host.bridge_vlan_add(veth0, vlan).unwrap();
        }
        let want = [access, tagged(200), tagged(201), tagged(202), tagged(4094)];
        assert_eq!(host.bridge_vlans(veth0).unwrap(), want);
        assert_eq!(host.bridge_vlans_by_links(veth0).unwrap(), want);
    });
}

#[test]
fn waiting_for_a_port_ends_when_it_is_up() {
    sandbox(|net| {
        let pod = net.container();
        let (mut inside, eth0, mut host, veth0) = veth(net, &pod);
        let mut monitor = Monitor::of(Multicast::Link).unwrap();
        host.link_set_up(veth0).unwrap();
        assert_ne!(host.link_by_index(veth0).unwrap().operstate, OperState::Up);
        let other_end = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(50));
            inside.link_set_up(eth0).unwrap();
        });
        let deadline = Instant::now() + Duration::from_secs(5);
        let up = |link: &cnibox_netlink::Link| link.operstate == OperState::Up;
        let waited = monitor.wait_link(&mut host, veth0, deadline, up).unwrap();
        other_end.join().unwrap();
        assert!(
            matches!(waited, Waited::Reached(link) if link.operstate == OperState::Up && link.name == "veth0")
        );
        assert!(Instant::now() < deadline);
    });
}

#[test]
fn waiting_for_a_port_ends_at_the_deadline_with_its_state() {
    sandbox(|net| {
        let pod = net.container();
        let (_, _, mut host, veth0) = veth(net, &pod);
        host.link_set_up(veth0).unwrap();
        let start = Instant::now();
        let deadline = start + Duration::from_millis(100);
        let up = |link: &cnibox_netlink::Link| link.operstate == OperState::Up;
        let waited = Monitor::of(Multicast::Link).unwrap().wait_link(&mut host, veth0, deadline, up).unwrap();
        // Which depends on the kernel: newer ones cannot see the carrier of a peer elsewhere, slow ones have not looked yet.
        let dead = [OperState::Down, OperState::LowerLayerDown, OperState::Unknown];
        assert!(matches!(waited, Waited::TimedOut(link) if dead.contains(&link.operstate)));
        let took = start.elapsed();
        assert!(took >= Duration::from_millis(100) && took < Duration::from_secs(2), "{took:?}");
    });
}

#[test]
fn waiting_for_a_port_that_disappears_is_an_error() {
    sandbox(|net| {
        let pod = net.container();
        let (mut inside, _, mut host, veth0) = veth(net, &pod);
        let mut monitor = Monitor::of(Multicast::Link).unwrap();
        let other_end = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(50));
            inside.link_del_by_name_if_present("eth0").unwrap();
        });
        let deadline = Instant::now() + Duration::from_secs(30);
        let waited = monitor.wait_link(&mut host, veth0, deadline, |_| false);
        other_end.join().unwrap();
        assert!(matches!(waited, Err(Error::LinkNotFound)));
    });
}

#[test]
fn lost_notifications_are_made_up_for() {
    sandbox(|net| {
        let pod = net.container();
        let (inside, eth0, mut host, veth0) = veth(net, &pod);
        let mut monitor = Monitor::of(Multicast::Link).unwrap();
        host.link_set_up(veth0).unwrap();
        // Many times what fits the socket's queue.
        for number in 0..2000 {
            host.link_set(LinkChange::new(veth0).alias(&format!("flood {number}"))).unwrap();
        }
        let looks = Cell::new(0);
        let inside = RefCell::new(inside);
        let up = |link: &cnibox_netlink::Link| {
            looks.set(looks.get() + 1);
            // Between the look that makes up for what was lost and the next notification.
            if looks.get() == 2 {
                inside.borrow_mut().link_set_up(eth0).unwrap();
            }
            link.operstate == OperState::Up
        };
        let deadline = Instant::now() + Duration::from_secs(30);
        let waited = monitor.wait_link(&mut host, veth0, deadline, up).unwrap();
        assert!(matches!(waited, Waited::Reached(link) if link.alias.as_deref() == Some("flood 1999")));
    });
}

#[test]
fn sockets_stay_in_their_namespace() {
    sandbox(|net| {
        let pod = net.container();
        let mut inside = rtnl_of(&pod);
        inside.link_add_bridge("inside", None, None, false).unwrap();
        assert!(Rtnl::open().unwrap().link_by_name("inside").is_err());
        assert!(net.run_in(&pod, "ip", &["link", "show", "inside"]).contains("inside"));
    });
}
