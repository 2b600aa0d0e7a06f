// SPDX-License-Identifier: Apache-2.0
//! ADD, CHECK, DEL, GC and STATUS.

use std::time::{Duration, Instant};

use cnibox_testkit::{Container, Sandbox, sandbox};
use serde_json::{Value, json};

use crate::world::{
    attach, call, conf, daemon, dnsmasq, keeps_leases, lan, leased, leases, nothing_kept, pod, remembered,
    start,
};

#[test]
fn a_lease_is_acquired_checked_and_given_back() {
    sandbox(|net| {
        lan(net);
        let Some(server) = dnsmasq(net, &[]) else { return };
        let daemon = daemon(net, &[]);
        let pod = pod(net);
        let result = call(net, "ADD", &pod, &json!({})).success();
        let address = result["ips"][0]["address"].as_str().unwrap();
        assert!(address.starts_with("192.168.7.") && address.ends_with("/24"), "{result}");
        assert_eq!(result["ips"][0]["gateway"], "192.168.7.1");
        assert_eq!(result["routes"], json!([{"dst": "0.0.0.0/0", "gw": "192.168.7.1"}]));
        assert!(result["dns"].is_null(), "{result}");
        // Servers know the client by a zero byte and the attachment.
        let id: Vec<_> = format!("\0{}/net/eth0", pod.id).bytes().map(|byte| format!("{byte:02x}")).collect();
        assert!(leases(net)[0].ends_with(&id.join(":")), "{:?}", leases(net));
        keeps_leases(&daemon, 1);
        assert_eq!(remembered(), 1);
        net.run_in(&pod, "ip", &["addr", "add", address, "dev", "eth0"]);

        let with_previous = |address: &str| {
            let mut conf = conf(&json!({}));
            conf["prevResult"] = json!({"cniVersion": "1.1.0", "ips": [{"address": address}]});
            net.cni("dhcp", "CHECK", &pod, &conf.to_string())
        };
        with_previous(address).success();
        let (_, message) = with_previous("192.168.7.250/24").failure();
        assert!(message.contains("which prevResult does not have"), "{message}");
        // A second ADD is the first one's lease.
        assert_eq!(call(net, "ADD", &pod, &json!({})).success(), result);
        keeps_leases(&daemon, 1);
        daemon.says("Checking lease", 2);

        call(net, "DEL", &pod, &json!({})).success();
        leased(net, 0);
        server.says("DHCPRELEASE", 1);
        nothing_kept(&daemon);
        call(net, "DEL", &pod, &json!({})).success();
    });
}

#[test]
fn a_release_arrives_although_the_interface_goes_at_once() {
    sandbox(|net| {
        lan(net);
        let Some(_server) = dnsmasq(net, &[]) else { return };
        let daemon = daemon(net, &[]);
        for number in 0..5 {
            let pod = pod(net);
            attach(net, &pod);
            // The server may have another one since.
            net.run("ip", &["link", "set", "lan", "address", &format!("02:00:00:00:00:0{number}")]);
            call(net, "DEL", &pod, &json!({})).success();
            net.run("ip", &["netns", "del", &pod.id]);
        }
        leased(net, 0);
        nothing_kept(&daemon);
    });
}

#[test]
fn without_a_daemon_there_is_no_add_but_del_gives_back() {
    sandbox(|net| {
        lan(net);
        let Some(server) = dnsmasq(net, &[]) else { return };
        let pod = pod(net);
        let missing =
            "error dialing DHCP daemon: dial unix /run/cni/dhcp.sock: connect: no such file or directory";
        assert_eq!(call(net, "ADD", &pod, &json!({})).failure(), (11, missing.to_owned()));
        assert_eq!(call(net, "CHECK", &pod, &json!({})).failure(), (11, missing.to_owned()));
        assert_eq!(call(net, "STATUS", &pod, &json!({})).failure(), (50, missing.to_owned()));
        call(net, "DEL", &pod, &json!({})).success();

        let running = daemon(net, &[]);
        call(net, "STATUS", &pod, &json!({})).success();
        attach(net, &pod);
        running.end(nix::sys::signal::Signal::SIGKILL);
        let refused = missing.replace("no such file or directory", "connection refused");
        assert_eq!(call(net, "STATUS", &pod, &json!({})).failure(), (50, refused));
        assert_eq!((leases(net).len(), remembered()), (1, 1));
        call(net, "DEL", &pod, &json!({})).success();
        leased(net, 0);
        server.says("DHCPRELEASE", 1);
        assert_eq!(remembered(), 0);
    });
}

/// The option that carries the attachment's name to the server has room for 254 bytes, the daemon's memory for all.
#[test]
fn a_lease_of_a_long_name_is_found_again() {
    sandbox(|net| {
        lan(net);
        let Some(_server) = dnsmasq(net, &[]) else { return };
        let pod = pod(net);
        let mut conf = conf(&json!({}));
        conf["name"] = json!("n".repeat(250));
        let call = |verb| net.cni("dhcp", verb, &pod, &conf.to_string()).success();
        let first = daemon(net, &[]);
        let result = call("ADD");
        first.end(nix::sys::signal::Signal::SIGKILL);
        let second = daemon(net, &[]);
        keeps_leases(&second, 1);
        assert_eq!(call("ADD")["ips"], result["ips"]);
        keeps_leases(&second, 1);
        second.end(nix::sys::signal::Signal::SIGKILL);
        call("DEL");
        leased(net, 0);
        assert_eq!(remembered(), 0);
    });
}

/// GC of the network with these containers alive.
fn gc(net: &Sandbox, live: &[&Container]) {
    let live: Vec<Value> = live.iter().map(|pod| json!({"containerID": pod.id, "ifname": "eth0"})).collect();
    let mut conf = conf(&json!({}));
    conf["cni.dev/valid-attachments"] = json!(live);
    net.call("dhcp", "GC", &conf.to_string()).run().success();
}

#[test]
fn gc_gives_back_the_leases_of_this_networks_lost_attachments() {
    sandbox(|net| {
        lan(net);
        let Some(_server) = dnsmasq(net, &[]) else { return };
        let running = daemon(net, &[]);
        let pods = [pod(net), pod(net), pod(net)];
        pods.iter().for_each(|pod| drop(attach(net, pod)));
        let other = pod(net);
        let mut foreign = conf(&json!({}));
        foreign["name"] = json!("other");
        net.cni("dhcp", "ADD", &other, &foreign.to_string()).success();
        gc(net, &[&pods[0], &pods[1]]);
        leased(net, 3);
        keeps_leases(&running, 3);
        assert_eq!(remembered(), 3);
        // The same without the daemon.
        running.end(nix::sys::signal::Signal::SIGTERM);
        gc(net, &[&pods[0]]);
        leased(net, 2);
        let running = daemon(net, &[]);
        keeps_leases(&running, 2);
        assert_eq!(remembered(), 2);
        gc(net, &[]);
        leased(net, 1);
        assert!(!leases(net).is_empty(), "the other network's");
    });
}

#[test]
fn twenty_containers_at_once() {
    sandbox(|net| {
        lan(net);
        let Some(_server) = dnsmasq(net, &[]) else { return };
        let daemon = daemon(net, &[]);
        let pods: Vec<_> = (0..20).map(|_| pod(net)).collect();
        for (verb, left) in [("ADD", 20), ("DEL", 0)] {
            let children: Vec<_> = pods.iter().map(|pod| start(net, verb, pod)).collect();
            let addresses: std::collections::BTreeSet<String> = children
                .into_iter()
                .map(|child| {
                    let output = child.wait_with_output().unwrap();
                    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
                    String::from_utf8(output.stdout).unwrap()
                })
                .collect();
            assert_eq!(addresses.len(), left.max(1), "every container has its own address");
            leased(net, left);
        }
        nothing_kept(&daemon);
    });
}

#[test]
fn a_server_that_does_not_answer_delays_nobody_else_and_del_ends_the_waiting() {
    sandbox(|net| {
        lan(net);
        let Some(_server) = dnsmasq(net, &[]) else { return };
        let daemon = daemon(net, &["-resendtimeout", "60s"]);
        // On no network at all.
        let lonely = net.container();
        net.run_in(&lonely, "ip", &["link", "add", "eth0", "type", "veth", "peer", "name", "other"]);
        let waiting = start(net, "ADD", &lonely);
        daemon.says("acquiring lease", 1);
        let pod = pod(net);
        let began = Instant::now();
        attach(net, &pod);
        call(net, "DEL", &pod, &json!({})).success();
        call(net, "DEL", &lonely, &json!({})).success();
        assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
        assert!(!waiting.wait_with_output().unwrap().status.success());
        nothing_kept(&daemon);
    });
}

#[test]
fn what_cannot_work_is_said_at_once() {
    sandbox(|net| {
        lan(net);
        let daemon = daemon(net, &[]);
        let pod = net.container();
        let said = |ipam: Value| call(net, "ADD", &pod, &ipam).failure();
        let missing = "error calling DHCP.Allocate: error looking up \"eth0\": Link not found";
        assert_eq!(said(json!({})), (999, missing.to_owned()));
        let (code, text) = said(json!({"request": [{"option": "bogus"}]}));
        assert_eq!(code, 7);
        assert!(text.starts_with("error calling DHCP.Allocate: Can not parse option \"bogus\": "), "{text}");
        let gone =
            net.call("dhcp", "ADD", &conf(&json!({})).to_string()).pod(&pod).env("CNI_NETNS", "/run/netns/x");
        let text = gone.run().failure().1;
        let want =
            "error calling DHCP.Allocate: failed to Statfs \"/run/netns/x\": no such file or directory";
        assert_eq!(text, want);
        let no_ipam = json!({"cniVersion": "1.1.0", "name": "net", "type": "dhcp"});
        let (code, text) = net.cni("dhcp", "ADD", &pod, &no_ipam.to_string()).failure();
        assert_eq!((code, text.as_str()), (7, "IPAM config missing 'ipam' key"));
        nothing_kept(&daemon);
    });
}
