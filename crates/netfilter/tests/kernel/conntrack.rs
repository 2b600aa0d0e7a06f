// SPDX-License-Identifier: Apache-2.0
//! Conntrack entries made by real datagrams over `lo`.

use std::net::UdpSocket;

use cnibox_netfilter::Family;
use cnibox_netfilter::conntrack::{Flow, flush};
use cnibox_netfilter::nft::Protocol;

use crate::common::{in_netns, run};

/// The original destination ports of all entries of a family, sorted.
fn ports(family: u8) -> Vec<u16> {
    let mut ports: Vec<u16> = crate::dump::conntrack(family);
    ports.sort_unstable();
    ports
}

fn flow(family: Family, port: u16, address: Option<&str>) -> Flow {
    let address = address.map(|ip| ip.parse().unwrap());
    Flow { family, protocol: Protocol::Udp, port, address, answered_by: None }
}

/// Those that were forwarded to this address.
fn answered_by(address: &str, flow: Flow) -> Flow {
    Flow { answered_by: Some(address.parse().unwrap()), ..flow }
}

#[test]
fn only_the_named_flows_go() {
    only_the_named_go(vec![]);
}

/// So many that the kernel is asked for a listing.
#[test]
fn only_the_named_flows_of_many_go() {
    only_the_named_go((6000..6040).map(|port| flow(Family::Ipv4, port, None)).collect());
}

/// `others` are flows without entries, flushed together with those that have some.
fn only_the_named_go(others: Vec<Flow>) {
    in_netns(move || {
        let flush = |flows: &[Flow]| flush(&[flows, &others].concat());
        run("ip", &["link", "set", "lo", "up"]);
        // connection tracking only runs where a rule asks for it
        run("iptables", &["-A", "OUTPUT", "-m", "conntrack", "--ctstate", "NEW"]);
        run("ip6tables", &["-A", "OUTPUT", "-m", "conntrack", "--ctstate", "NEW"]);
        for (from, to) in [("127.0.0.1:0", "127.0.0.1"), ("127.0.0.1:0", "127.0.0.9"), ("[::1]:0", "[::1]")] {
            let socket = UdpSocket::bind(from).unwrap();
            for port in [5001, 5002, 5003] {
                // nobody listens; a refusal reported for an earlier datagram is of no interest
                let _refused = socket.send_to(b"x", format!("{to}:{port}"));
            }
        }
        assert_eq!(ports(2), [5001, 5001, 5002, 5002, 5003, 5003]);
        assert_eq!(ports(10), [5001, 5002, 5003]);

        flush(&[flow(Family::Ipv4, 5001, Some("127.0.0.9"))]).unwrap();
        assert_eq!(ports(2), [5001, 5002, 5002, 5003, 5003]);
        let three =
            [flow(Family::Ipv4, 5001, None), flow(Family::Ipv4, 5002, None), flow(Family::Ipv6, 5003, None)];
        flush(&three).unwrap();
        assert_eq!(ports(2), [5003, 5003]);
        assert_eq!(ports(10), [5001, 5002]);
        flush(&three).unwrap();
        let tcp = Flow { protocol: Protocol::Tcp, ..flow(Family::Ipv4, 5003, None) };
        flush(&[tcp]).unwrap();
        assert_eq!(ports(2), [5003, 5003]);
        flush(&[answered_by("127.0.0.2", flow(Family::Ipv4, 5003, None))]).unwrap();
        flush(&[answered_by("::2", flow(Family::Ipv6, 5001, None))]).unwrap();
        flush(&[flow(Family::Ipv6, 5001, Some("::2"))]).unwrap();
        assert_eq!((ports(2), ports(10)), (vec![5003, 5003], vec![5001, 5002]));
        flush(&[answered_by("127.0.0.9", flow(Family::Ipv4, 5003, None))]).unwrap();
        flush(&[answered_by("::1", flow(Family::Ipv6, 5001, None))]).unwrap();
        assert_eq!((ports(2), ports(10)), (vec![5003], vec![5002]));
    });
}
