// SPDX-License-Identifier: Apache-2.0
//! What happens as time goes by: renewal, rebinding, expiry, and servers that say no or nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use cnibox_testkit::{Container, Sandbox, sandbox};
use dhcproto::v4::{DhcpOption, MessageType, OptionCode};
use nix::sys::signal::Signal;
use serde_json::json;

use crate::scripted::{FIRST, Heard, Reply, SECOND, serve, terms};
use crate::world::{attach, call, daemon, dnsmasq, eventually, lan, nothing_kept, pod, remembered};

/// Offers and grants the first address on these terms.
fn grant(heard: &Heard, options: Vec<DhcpOption>) -> Option<Reply> {
    let answers = [(MessageType::Discover, MessageType::Offer), (MessageType::Request, MessageType::Ack)];
    let (_, kind) = answers.into_iter().find(|(asked, _)| *asked == heard.kind)?;
    Some((kind, FIRST, options))
}

fn is_up(net: &Sandbox, pod: &Container) -> bool {
    net.run_in(pod, "ip", &["-o", "link", "show", "eth0"]).contains(",UP")
}

#[test]
fn leases_are_renewed_at_dnsmasq() {
    sandbox(|net| {
        lan(net);
        let Some(server) = dnsmasq(net, &["--dhcp-option=option:T1,3", "--dhcp-option=option:T2,60"]) else {
            return;
        };
        let daemon = daemon(net, &[]);
        let pod = pod(net);
        attach(net, &pod);
        daemon.says("lease renewed", 2);
        let log = server.log();
        assert_eq!(log.matches("DHCPDISCOVER").count(), 1, "{log}");
        assert!(log.matches("DHCPACK").count() >= 3, "{log}");
    });
}

#[test]
fn a_renewal_goes_straight_to_the_server_from_the_address() {
    sandbox(|net| {
        lan(net);
        let server = serve(net, |heard| grant(heard, terms(60, 1, 30)));
        let _daemon = daemon(net, &[]);
        let pod = pod(net);
        attach(net, &pod);
        let select = server.hears(MessageType::Request);
        assert!(select.source.is_unspecified() && select.has(OptionCode::ServerIdentifier));
        let renewal = server.hears(MessageType::Request);
        assert_eq!((renewal.source, renewal.message.ciaddr()), (FIRST, FIRST));
        assert!(!renewal.has(OptionCode::ServerIdentifier) && !renewal.has(OptionCode::RequestedIpAddress));
        // Without the address it is a broadcast.
        net.run_in(&pod, "ip", &["addr", "flush", "dev", "eth0"]);
        while !server.hears(MessageType::Request).source.is_unspecified() {}
        call(net, "DEL", &pod, &json!({})).success();
        let release = server.hears(MessageType::Release);
        assert_eq!((release.source, release.message.ciaddr()), (FIRST, FIRST));
        assert!(release.has(OptionCode::ServerIdentifier) && release.has(OptionCode::ClientIdentifier));
    });
}

#[test]
fn a_lease_that_its_server_does_not_renew_is_bound_to_any() {
    sandbox(|net| {
        lan(net);
        // Deaf to what comes from an address.
        let server = serve(net, |heard| {
            let open = heard.source.is_unspecified();
            open.then(|| grant(heard, terms(60, 1, 3))).flatten()
        });
        let daemon = daemon(net, &[]);
        let pod = pod(net);
        attach(net, &pod);
        daemon.says("renewal time expired, rebinding", 1);
        daemon.says("lease rebound, 192.168.7.10", 1);
        assert!(server.heard.try_iter().any(|heard| heard.source == FIRST), "it tried to renew");
        assert!(is_up(net, &pod));
    });
}

#[test]
fn a_refused_renewal_is_followed_by_another_lease() {
    sandbox(|net| {
        lan(net);
        let server = serve(net, |heard| {
            let wish = heard.message.opts().get(OptionCode::RequestedIpAddress);
            let is_request = heard.kind == MessageType::Request;
            if is_request && !heard.message.ciaddr().is_unspecified() {
                let text = DhcpOption::Message("lease not found".into());
                return Some((MessageType::Nak, [0; 4].into(), vec![text]));
            }
            if !is_request && wish.is_some() {
                return Some((MessageType::Offer, SECOND, terms(60, 30, 50)));
            }
            if wish == Some(&DhcpOption::RequestedIpAddress(SECOND)) {
                return Some((MessageType::Ack, SECOND, terms(60, 30, 50)));
            }
            grant(heard, terms(60, 1, 50))
        });
        let daemon = daemon(net, &[]);
        let pod = pod(net);
        attach(net, &pod);
        daemon.says("server rejected request with Nak (msg: lease not found)", 1);
        daemon.says("the server granted 192.168.7.11 but the interface has 192.168.7.10", 1);
        // CHECK tells.
        let mut conf = crate::world::conf(&json!({}));
        conf["prevResult"] = json!({"cniVersion": "1.1.0", "ips": [{"address": "192.168.7.10/24"}]});
        let (_, text) = net.cni("dhcp", "CHECK", &pod, &conf.to_string()).failure();
        assert!(text.contains("192.168.7.11"), "{text}");
        call(net, "DEL", &pod, &json!({})).success();
        assert_eq!(server.hears(MessageType::Release).message.ciaddr(), SECOND);
    });
}

#[test]
fn a_lease_that_nobody_extends_expires_and_the_link_goes_down() {
    sandbox(|net| {
        lan(net);
        let silent = Arc::new(AtomicBool::new(false));
        let quiet = Arc::clone(&silent);
        let _server = serve(net, move |heard| {
            (!quiet.load(Ordering::Relaxed)).then(|| grant(heard, terms(4, 1, 2))).flatten()
        });
        let daemon = daemon(net, &["-timeout", "200ms"]);
        let pod = pod(net);
        attach(net, &pod);
        silent.store(true, Ordering::Relaxed);
        let began = Instant::now();
        daemon.says("lease expired, bringing interface DOWN", 1);
        eventually("the link is down", || !is_up(net, &pod), || daemon.log());
        assert!(began.elapsed() < Duration::from_secs(7), "{:?}", began.elapsed());
        nothing_kept(&daemon);
        // The next one begins anew.
        silent.store(false, Ordering::Relaxed);
        call(net, "ADD", &pod, &json!({})).success();
        assert!(is_up(net, &pod));
    });
}

#[test]
fn without_a_server_patience_ends() {
    sandbox(|net| {
        lan(net);
        let daemon = daemon(net, &["-timeout", "100ms", "-resendtimeout", "1s"]);
        let pod = pod(net);
        let began = Instant::now();
        let want = (11, "error calling DHCP.Allocate: no more tries".to_owned());
        assert_eq!(call(net, "ADD", &pod, &json!({})).failure(), want);
        let took = began.elapsed();
        assert!((900..3000).contains(&took.as_millis()), "{took:?}");
        nothing_kept(&daemon);
        call(net, "DEL", &pod, &json!({})).success();
    });
}

#[test]
fn a_lease_without_a_mask_is_given_back() {
    sandbox(|net| {
        lan(net);
        let server = serve(net, |heard| grant(heard, vec![DhcpOption::AddressLeaseTime(60)]));
        let daemon = daemon(net, &[]);
        let pod = pod(net);
        let want = "error calling DHCP.Allocate: DHCP option Subnet Mask not found in DHCPACK";
        assert_eq!(call(net, "ADD", &pod, &json!({})).failure().1, want);
        server.hears(MessageType::Release);
        nothing_kept(&daemon);
    });
}

#[test]
fn answers_are_broadcast_if_so_wanted() {
    for (flags, wanted) in [(&["-broadcast"][..], true), (&[], false)] {
        sandbox(|net| {
            lan(net);
            let server = serve(net, |heard| grant(heard, terms(60, 30, 50)));
            let _daemon = daemon(net, flags);
            call(net, "ADD", &pod(net), &json!({})).success();
            for kind in [MessageType::Discover, MessageType::Request] {
                assert_eq!(server.hears(kind).message.flags().broadcast(), wanted, "{kind:?}");
            }
        });
    }
}

#[test]
fn a_restart_asks_whether_the_lease_still_holds_and_takes_no_for_an_answer() {
    sandbox(|net| {
        lan(net);
        let server = serve(net, |heard| {
            let is_reboot = heard.kind == MessageType::Request
                && heard.has(OptionCode::RequestedIpAddress)
                && !heard.has(OptionCode::ServerIdentifier);
            let is_rebind = !heard.message.ciaddr().is_unspecified();
            if is_reboot || (is_rebind && heard.kind == MessageType::Request) {
                return Some((MessageType::Nak, [0; 4].into(), vec![]));
            }
            grant(heard, terms(60, 30, 50))
        });
        let running = daemon(net, &[]);
        let pod = pod(net);
        attach(net, &pod);
        running.end(Signal::SIGKILL);
        server.heard.try_iter().for_each(drop);
        let running = daemon(net, &[]);
        let reboot = server.hears(MessageType::Request);
        assert!(reboot.source.is_unspecified() && reboot.message.ciaddr().is_unspecified());
        let wish = DhcpOption::RequestedIpAddress(FIRST);
        assert_eq!(reboot.message.opts().get(OptionCode::RequestedIpAddress), Some(&wish));
        running.says("server rejected request with Nak, acquiring another lease", 1);
        running.says("lease rebound, 192.168.7.10", 1);
        assert_eq!(remembered(), 1);
        server.hears(MessageType::Discover);
    });
}

#[test]
fn a_lease_ends_with_its_interface_and_with_its_container() {
    sandbox(|net| {
        lan(net);
        let _server = serve(net, |heard| grant(heard, terms(60, 1, 30)));
        let daemon = daemon(net, &[]);
        let (unplugged, deleted) = (pod(net), pod(net));
        attach(net, &unplugged);
        call(net, "ADD", &deleted, &json!({})).success();
        net.run_in(&unplugged, "ip", &["link", "del", "eth0"]);
        net.run("ip", &["netns", "del", &deleted.id]);
        daemon.says("terminating lease maintenance", 2);
        nothing_kept(&daemon);
    });
}
