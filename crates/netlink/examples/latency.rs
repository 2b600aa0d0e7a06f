// SPDX-License-Identifier: Apache-2.0
//! How long the requests of one container take, as medians: `unshare -n latency [rounds]`.
//!
//! Needs an empty network namespace of its own; makes and removes veth pairs in it.

#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a measurement for people")]

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use cnibox_netlink::{Addr, RouteSpec, Rtnl, VethSpec};
use cnibox_netns::NetNs;

fn main() {
    let rounds = std::env::args().nth(1).map_or(200, |text| text.parse().unwrap());
    let mut samples: Vec<(&str, Vec<Duration>)> = Vec::new();
    for _ in 0..rounds {
        round(&mut |what, took| match samples.iter_mut().find(|(known, _)| *known == what) {
            Some((_, all)) => all.push(took),
            None => samples.push((what, vec![took])),
        });
    }
    for (what, mut all) in samples {
        all.sort();
        println!("{what:20} {:?}", all.get(all.len() / 2).unwrap());
    }
}

fn round(record: &mut impl FnMut(&'static str, Duration)) {
    let mut timed = |what, work: &mut dyn FnMut()| {
        let start = Instant::now();
        work();
        record(what, start.elapsed());
    };
    let host = NetNs::current().unwrap();
    let pod = cnibox_testkit::anonymous();
    let spec =
        VethSpec { name: "eth0", mac: None, peer_name: "veth0", peer_netns: Some(host.as_fd()), mtu: None };
    let route = |oif| RouteSpec {
        gw: Some([10, 22, 0, 1].into()),
        oif: Some(oif),
        ..RouteSpec::new("0.0.0.0/0".parse().unwrap())
    };
    let (mut rtnl, mut index) = (None, 0);
    timed("enter and open", &mut || rtnl = Some(pod.run(Rtnl::open).unwrap().unwrap()));
    let mut rtnl = rtnl.unwrap();
    timed("link_add_veth", &mut || rtnl.link_add_veth(&spec).unwrap());
    timed("link_by_name", &mut || index = rtnl.link_by_name("eth0").unwrap().index);
    timed("link_set_up", &mut || rtnl.link_set_up(index).unwrap());
    let addr = Addr::new(index, "10.22.0.2/16".parse().unwrap());
    timed("addr_add", &mut || rtnl.addr_add(&addr).unwrap());
    timed("route_add", &mut || rtnl.route_add(&route(index)).unwrap());
    timed("link_del", &mut || assert!(rtnl.link_del_by_name_if_present("eth0").unwrap()));
}
