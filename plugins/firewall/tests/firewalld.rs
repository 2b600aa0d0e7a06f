// SPDX-License-Identifier: Apache-2.0
//! The firewalld backend with a real bus daemon, and on it a service that keeps sources as firewalld does.

#![expect(clippy::unwrap_used, reason = "a test panics")]

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, ErrorKind};
use std::os::unix::net::UnixListener;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use cnibox_testkit::{Outcome, Sandbox, sandbox, skip};
use serde_json::{Value, json};

/// A bus of its own for the sandbox. It ends with this.
struct Bus {
    daemon: Child,
    address: String,
}

impl Bus {
    /// `None` after a skip.
    fn start(net: &Sandbox) -> Option<Self> {
        let socket = net.dir().join("bus");
        let address = format!("unix:path={}", socket.display());
        let conf = net.dir().join("bus.conf");
        std::fs::write(&conf, BUS_CONF.replace("ADDRESS", &address)).unwrap();
        let mut command = Command::new("dbus-daemon");
        command.arg(format!("--config-file={}", conf.display())).args([
            "--nofork",
            "--nopidfile",
            "--print-address",
        ]);
        let Ok(mut daemon) = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn() else {
            skip("dbus-daemon is not installed");
            return None;
        };
        let mut printed = String::new();
        BufReader::new(daemon.stdout.take().unwrap()).read_line(&mut printed).unwrap();
        assert!(printed.starts_with(&address), "dbus-daemon printed {printed:?}");
        Some(Self { daemon, address })
    }
}

impl Drop for Bus {
    fn drop(&mut self) {
        let _ = self.daemon.kill();
        let _ = self.daemon.wait();
    }
}

type Sources = BTreeSet<(String, String)>;

/// Stands in for firewalld: `org.fedoraproject.FirewallD1.zone`, as far as sources go.
#[derive(Clone, Default)]
struct Firewalld(Arc<Mutex<Sources>>);

#[derive(Debug, zbus::DBusError)]
#[zbus(prefix = "org.fedoraproject.FirewallD1")]
enum Refused {
    #[zbus(error)]
    Bus(zbus::Error),
    Exception(String),
}

#[zbus::interface(name = "org.fedoraproject.FirewallD1.zone")]
impl Firewalld {
    #[zbus(name = "addSource")]
    fn add_source(&self, zone: String, source: String) -> Result<String, Refused> {
        if zone == "invalid" || source == "10.22.0.66/32" {
            return Err(Refused::Exception(format!("INVALID_ZONE: {zone}")));
        }
        if !self.0.lock().unwrap().insert((zone.clone(), source.clone())) {
            return Err(Refused::Exception(format!(
                "ZONE_ALREADY_SET: '{source}' already bound to '{zone}'"
            )));
        }
        Ok(zone)
    }

    #[zbus(name = "removeSource")]
    fn remove_source(&self, zone: String, source: String) -> Result<String, Refused> {
        if self.0.lock().unwrap().remove(&(zone.clone(), source.clone())) {
            return Ok(zone);
        }
        Err(Refused::Exception(format!("UNKNOWN_SOURCE: '{source}' is not in '{zone}'")))
    }

    #[zbus(name = "querySource")]
    fn query_source(&self, zone: String, source: String) -> bool {
        self.0.lock().unwrap().contains(&(zone, source))
    }
}

impl Firewalld {
    /// The service on the bus, for as long as the connection lives.
    fn start(&self, bus: &Bus) -> zbus::Connection {
        let service = zbus::connection::Builder::address(bus.address.as_str())
            .serve_at("/org/fedoraproject/FirewallD1", self.clone())
            .name("org.fedoraproject.FirewallD1");
        zbus::block_on(service.build()).unwrap()
    }

    fn sources(&self) -> Vec<String> {
        self.0.lock().unwrap().iter().map(|(zone, source)| format!("{zone} {source}")).collect()
    }
}

fn conf(backend: &str, ips: &[&str]) -> Value {
    let ips: Vec<_> = ips.iter().map(|ip| json!({"address": ip})).collect();
    json!({
        "cniVersion": "1.1.0", "name": "mynet", "type": "firewall", "backend": backend,
        "prevResult": {"cniVersion": "1.1.0", "interfaces": [{"name": "cni0"}], "ips": ips},
    })
}

fn with(mut conf: Value, key: &str, value: Value) -> Value {
    conf[key] = value;
    conf
}

fn without_result(mut conf: Value) -> Value {
    conf.as_object_mut().unwrap().remove("prevResult");
    conf
}

/// A call for container `one` on the bus at `address`.
fn call(net: &Sandbox, address: &str, verb: &str, conf: &Value) -> Outcome {
    let call = net.call("firewall", verb, &conf.to_string()).env("DBUS_SYSTEM_BUS_ADDRESS", address);
    if matches!(verb, "STATUS" | "GC") {
        return call.run();
    }
    call.env("CNI_CONTAINERID", "one").env("CNI_NETNS", "/proc/1/ns/net").env("CNI_IFNAME", "eth0").run()
}

fn rules(net: &Sandbox) -> Vec<String> {
    let saved = net.run("iptables-save", &[]) + &net.run("ip6tables-save", &[]);
    saved.lines().filter(|line| line.starts_with("-A")).map(str::to_owned).collect()
}

fn with_firewalld(test: impl FnOnce(&Sandbox, &Bus, &Firewalld) + Send) {
    sandbox(|net| {
        let Some(bus) = Bus::start(net) else { return };
        let firewalld = Firewalld::default();
        let _service = firewalld.start(&bus);
        test(net, &bus, &firewalld);
    });
}

const NOWHERE: &str = "unix:path=/nowhere/bus";
const BUS_CONF: &str = r#"<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN"
 "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig>
  <type>session</type>
  <listen>ADDRESS</listen>
  <auth>EXTERNAL</auth>
  <policy context="default">
    <allow send_destination="*"/>
    <allow receive_sender="*"/>
    <allow own="*"/>
  </policy>
</busconfig>
"#;

#[test]
fn addresses_are_sources_of_the_zone_until_del() {
    for (backend, zone) in [("firewalld", ""), ("", "public")] {
        with_firewalld(|net, bus, firewalld| {
            let conf = conf(backend, &["10.22.0.2/16", "fd22::2/64"]);
            let conf = with(conf, "firewalldZone", json!(zone));
            let name = if zone.is_empty() { "trusted" } else { zone };
            for _ in 0..2 {
                let result = call(net, &bus.address, "ADD", &conf).success();
                assert_eq!(result["ips"], conf["prevResult"]["ips"]);
                let want = [format!("{name} 10.22.0.2/32"), format!("{name} fd22::2/128")];
                assert_eq!(firewalld.sources(), want);
                call(net, &bus.address, "CHECK", &conf).success();
            }
            assert!(rules(net).is_empty());
            for _ in 0..2 {
                call(net, &bus.address, "DEL", &without_result(conf.clone())).success();
                assert!(firewalld.sources().is_empty());
            }
        });
    }
}

#[test]
fn check_uses_the_answer() {
    with_firewalld(|net, bus, firewalld| {
        let conf = conf("firewalld", &["10.22.0.2/16", "fd22::2/64"]);
        call(net, &bus.address, "ADD", &conf).success();
        firewalld.0.lock().unwrap().remove(&("trusted".to_owned(), "fd22::2/128".to_owned()));
        let failure = call(net, &bus.address, "CHECK", &conf).failure();
        assert_eq!(failure, (999, "failed to find the address fd22::2/128 in trusted zone".to_owned()));
    });
}

#[test]
fn a_failed_add_takes_back_its_own_sources() {
    with_firewalld(|net, bus, firewalld| {
        call(net, &bus.address, "ADD", &conf("firewalld", &["10.22.0.3/16"])).success();
        let conf = conf("firewalld", &["10.22.0.2/16", "10.22.0.3/16", "10.22.0.66/16", "10.22.0.4/16"]);
        let failure = call(net, &bus.address, "ADD", &conf).failure();
        let text = "failed to add the address 10.22.0.66/32 to trusted zone: INVALID_ZONE: trusted";
        assert_eq!(failure, (999, text.to_owned()));
        assert_eq!(firewalld.sources(), ["trusted 10.22.0.3/32"]);
    });
}

#[test]
fn a_failed_policy_takes_back_the_sources() {
    with_firewalld(|net, bus, firewalld| {
        let conf = with(conf("firewalld", &["10.22.0.2/16"]), "ingressPolicy", json!("isolated"));
        let call = net.call("firewall", "ADD", &conf.to_string());
        let call = call
            .env("DBUS_SYSTEM_BUS_ADDRESS", &bus.address)
            .env("PATH", "/nowhere")
            .env("CNIBOX_NETFILTER", "exec");
        let call = call.env("CNI_CONTAINERID", "one").env("CNI_NETNS", "/proc/1/ns/net");
        let (_, message) = call.env("CNI_IFNAME", "eth0").run().failure();
        assert!(message.starts_with("could not initialize iptables protocol 0"), "{message}");
        assert!(firewalld.sources().is_empty());
    });
}

#[test]
fn policies_are_rules_all_the_same() {
    with_firewalld(|net, bus, firewalld| {
        let conf = with(conf("firewalld", &["10.22.0.2/16"]), "ingressPolicy", json!("isolated"));
        call(net, &bus.address, "ADD", &conf).success();
        assert_eq!(firewalld.sources(), ["trusted 10.22.0.2/32"]);
        let written = rules(net);
        assert_eq!(written.len(), 6);
        assert!(written.iter().all(|rule| rule.contains("CNI-ISOLATION-STAGE-")), "{written:?}");
        call(net, &bus.address, "CHECK", &conf).success();
        net.run("iptables", &["-F", "CNI-ISOLATION-STAGE-2"]);
        let (_, message) = call(net, &bus.address, "CHECK", &conf).failure();
        assert!(message.starts_with("expected CNI-ISOLATION-STAGE-2 rule"), "{message}");
    });
}

#[test]
fn without_a_bus_only_del_succeeds() {
    sandbox(|net| {
        let before = net.snapshot();
        let conf = conf("firewalld", &["10.22.0.2/16"]);
        let text = "dial unix /nowhere/bus: connect: no such file or directory";
        for verb in ["ADD", "CHECK"] {
            assert_eq!(call(net, NOWHERE, verb, &conf).failure(), (999, text.to_owned()));
        }
        call(net, NOWHERE, "DEL", &conf).success();
        let failure = call(net, NOWHERE, "STATUS", &without_result(conf)).failure();
        assert_eq!(failure, (50, format!("firewalld is not running: {text}")));
        before.assert_same(&net.snapshot());
    });
}

#[test]
fn a_bus_without_firewalld_leaves_it_to_iptables() {
    sandbox(|net| {
        let Some(bus) = Bus::start(net) else { return };
        let auto = conf("", &["10.22.0.2/16"]);
        for address in [NOWHERE, &bus.address] {
            call(net, address, "STATUS", &without_result(auto.clone())).success();
            call(net, address, "ADD", &auto).success();
            assert_eq!(rules(net).len(), 4);
            call(net, address, "CHECK", &auto).success();
            call(net, address, "DEL", &auto).success();
            assert_eq!(rules(net).len(), 2);
        }
        let asked = conf("firewalld", &["10.22.0.2/16"]);
        let (_, message) = call(net, &bus.address, "ADD", &asked).failure();
        let reason = "The name org.fedoraproject.FirewallD1 was not provided by any .service files";
        assert_eq!(message, format!("failed to add the address 10.22.0.2/32 to trusted zone: {reason}"));
        let (code, message) = call(net, &bus.address, "STATUS", &without_result(asked.clone())).failure();
        assert_eq!(code, 50);
        assert!(message.starts_with("firewalld is not running: "), "{message}");
        call(net, &bus.address, "DEL", &asked).success();
    });
}

#[test]
fn firewalld_may_come_between_add_and_del() {
    sandbox(|net| {
        let Some(bus) = Bus::start(net) else { return };
        let conf = conf("", &["10.22.0.2/16"]);
        call(net, &bus.address, "ADD", &conf).success();
        assert_eq!(rules(net).len(), 4);
        let firewalld = Firewalld::default();
        let _service = firewalld.start(&bus);
        call(net, &bus.address, "DEL", &conf).success();
        assert_eq!(rules(net).len(), 2);
    });
}

#[test]
fn gc_removes_sources_that_are_nobodys() {
    with_firewalld(|net, bus, firewalld| {
        call(net, &bus.address, "ADD", &conf("", &["10.22.0.2/16"])).success();
        let gc = |valid: Value| {
            let conf = with(without_result(conf("", &[])), "cni.dev/valid-attachments", valid);
            call(net, &bus.address, "GC", &conf).success();
        };
        gc(json!([{"containerID": "one", "ifname": "eth0"}]));
        assert_eq!(firewalld.sources(), ["trusted 10.22.0.2/32"]);
        gc(json!([]));
        assert!(firewalld.sources().is_empty());
    });
}

#[test]
fn status_asks_for_what_add_needs() {
    with_firewalld(|net, bus, _| {
        for backend in ["", "iptables", "firewalld"] {
            let conf = with(without_result(conf(backend, &[])), "ingressPolicy", json!("isolated"));
            call(net, &bus.address, "STATUS", &conf).success();
        }
    });
}

#[test]
fn a_silent_bus_costs_a_bounded_time() {
    sandbox(|net| {
        let _listener = UnixListener::bind(net.dir().join("silent")).unwrap();
        let address = format!("unix:path={}", net.dir().join("silent").display());
        let started = Instant::now();
        let failure = call(net, &address, "ADD", &conf("firewalld", &["10.22.0.2/16"])).failure();
        assert_eq!(failure, (11, "no answer from the system bus within 5 s".to_owned()));
        call(net, &address, "ADD", &conf("", &["10.22.0.2/16"])).success();
        assert_eq!(rules(net).len(), 4);
        assert!(started.elapsed().as_secs() < 20);
    });
}

#[test]
fn who_asks_for_iptables_gets_no_bus() {
    sandbox(|net| {
        let listener = UnixListener::bind(net.dir().join("unused")).unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = format!("unix:path={}", net.dir().join("unused").display());
        let conf = conf("iptables", &["10.22.0.2/16"]);
        for verb in ["ADD", "CHECK", "DEL", "STATUS", "GC"] {
            call(net, &address, verb, &conf).success();
        }
        assert_eq!(listener.accept().unwrap_err().kind(), ErrorKind::WouldBlock);
    });
}
