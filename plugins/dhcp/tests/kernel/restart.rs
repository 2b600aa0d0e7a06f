// SPDX-License-Identifier: Apache-2.0
//! Leases survive the daemon, however it ends.

use cnibox_testkit::sandbox;
use nix::sys::signal::Signal;
use serde_json::json;

use crate::world::{
    attach, call, daemon, dnsmasq, keeps_leases, lan, leased, leases, nothing_kept, pod, remembered,
};

#[test]
fn a_lease_goes_on_after_a_restart_and_is_renewed() {
    for signal in [Signal::SIGKILL, Signal::SIGTERM] {
        sandbox(|net| {
            lan(net);
            let Some(server) = dnsmasq(net, &["--dhcp-option=option:T1,3", "--dhcp-option=option:T2,60"])
            else {
                return;
            };
            let running = daemon(net, &[]);
            let pod = pod(net);
            let address = attach(net, &pod);
            running.end(signal);
            assert_eq!(remembered(), 1);
            let running = daemon(net, &[]);
            running.says("lease confirmed", 1);
            running.says("lease renewed", 1);
            assert_eq!(server.log().matches("DHCPDISCOVER").count(), 1, "{}", server.log());
            let result = call(net, "ADD", &pod, &json!({})).success();
            assert_eq!(result["ips"][0]["address"], address.as_str());
            assert_eq!(leases(net).len(), 1);
            keeps_leases(&running, 1);
            call(net, "DEL", &pod, &json!({})).success();
            leased(net, 0);
            nothing_kept(&running);
        });
    }
}

#[test]
fn the_lease_of_a_container_that_is_gone_is_forgotten() {
    sandbox(|net| {
        lan(net);
        let Some(_server) = dnsmasq(net, &[]) else { return };
        let running = daemon(net, &[]);
        let (gone, replaced) = (pod(net), pod(net));
        attach(net, &gone);
        attach(net, &replaced);
        running.end(Signal::SIGKILL);
        net.run("ip", &["netns", "del", &gone.id]);
        // Another namespace at the same path.
        net.run("ip", &["netns", "del", &replaced.id]);
        net.run("ip", &["netns", "add", &replaced.id]);
        let running = daemon(net, &[]);
        running.says("forgetting its lease", 2);
        nothing_kept(&running);
    });
}

#[test]
fn without_an_answer_the_lease_holds_as_it_was() {
    sandbox(|net| {
        lan(net);
        let Some(server) = dnsmasq(net, &[]) else { return };
        let running = daemon(net, &[]);
        let pod = pod(net);
        let address = attach(net, &pod);
        running.end(Signal::SIGKILL);
        server.end(Signal::SIGKILL);
        let running = daemon(net, &["-timeout", "100ms"]);
        running.says("keeping the lease as it was", 1);
        let result = call(net, "ADD", &pod, &json!({})).success();
        assert_eq!(result["ips"][0]["address"], address.as_str());
        keeps_leases(&running, 1);
        assert_eq!(remembered(), 1);
    });
}
