// SPDX-License-Identifier: Apache-2.0
//! A sandbox in which plugins are called in this process, with host-local for addresses.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use cnibox_harness::builtin;
use cnibox_sys::{Builtin, Env, Host, Registry};
use cnibox_testkit::{Container, Sandbox, Snapshot, await_unlocked};
use serde_json::{Value, json};

static PLUGINS: &[Builtin] = &[
    builtin::<cnibox_bandwidth::Bandwidth>(),
    builtin::<cnibox_bridge::Bridge>(),
    builtin::<cnibox_dhcp::Dhcp>(),
    builtin::<cnibox_dummy::Dummy>(),
    builtin::<cnibox_firewall::Firewall>(),
    builtin::<cnibox_host_device::HostDevice>(),
    builtin::<cnibox_host_local::HostLocal>(),
    builtin::<cnibox_ipvlan::Ipvlan>(),
    builtin::<cnibox_loopback::Loopback>(),
    builtin::<cnibox_macvlan::Macvlan>(),
    builtin::<cnibox_portmap::Portmap>(),
    builtin::<cnibox_ptp::Ptp>(),
    builtin::<cnibox_sbr::Sbr>(),
    builtin::<cnibox_static::Static>(),
    builtin::<cnibox_tap::Tap>(),
    builtin::<cnibox_tuning::Tuning>(),
    builtin::<cnibox_vlan::Vlan>(),
    builtin::<cnibox_vrf::Vrf>(),
];

/// The answer of a call: the document, and whether it is an error object.
pub(crate) type Answer = Result<Value, Value>;

/// Calls the plugin that the configuration's `type` names for `eth0` of the container with this ID and namespace.
/// Step `fail_at` fails.
pub(crate) fn call(verb: &str, (id, netns): (&str, &str), conf: &Value, fail_at: Option<usize>) -> Answer {
    let bin = Path::new("/run/testkit/self");
    if std::fs::create_dir(bin).is_ok() {
        // Delegates are this very executable, as far as the plugin can tell.
        symlink(std::env::current_exe().unwrap(), bin.join("host-local")).unwrap();
    }
    let env = Env::default()
        .with("CNI_COMMAND", verb)
        .with("CNI_CONTAINERID", id)
        .with("CNI_NETNS", netns)
        .with("CNI_IFNAME", "eth0")
        .with("CNI_PATH", bin)
        .with("PATH", std::env::var_os("PATH").unwrap_or_default());
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    let (registry, text) = (Registry(PLUGINS), conf.to_string());
    let plugin = registry.find(conf["type"].as_str().unwrap()).unwrap();
    let (stdin, out, err) = (&mut text.as_bytes(), &mut stdout, &mut stderr);
    let exit = (plugin.entry)(&mut Host { env, stdin, stdout: out, stderr: err, registry, fail_at });
    await_unlocked();
    let document = serde_json::from_slice(&stdout).unwrap_or_default();
    if exit == 0 { Ok(document) } else { Err(document) }
}

fn names(pod: &Container) -> (&str, &str) {
    (&pod.id, pod.path.to_str().unwrap())
}

/// ADD.
#[track_caller]
pub(crate) fn add(pod: &Container, conf: &Value) -> Value {
    call("ADD", names(pod), conf, None).unwrap_or_else(|error| panic!("ADD: {error}"))
}

/// The message of an ADD that must fail.
#[track_caller]
pub(crate) fn add_error(pod: &Container, conf: &Value) -> String {
    let error = call("ADD", names(pod), conf, None).expect_err("ADD succeeded");
    error["msg"].as_str().unwrap().to_owned()
}

/// CHECK with ADD's result.
pub(crate) fn check(pod: &Container, conf: &Value, result: &Value) -> Answer {
    let mut conf = conf.clone();
    conf["prevResult"] = result.clone();
    call("CHECK", names(pod), &conf, None)
}

/// DEL.
#[track_caller]
pub(crate) fn del(pod: &Container, conf: &Value) {
    call("DEL", names(pod), conf, None).unwrap_or_else(|error| panic!("DEL: {error}"));
}

/// DEL of a container whose namespace's path is another or empty.
#[track_caller]
pub(crate) fn del_at(pod: &Container, netns: &str, conf: &Value) {
    call("DEL", (&pod.id, netns), conf, None).unwrap_or_else(|error| panic!("DEL: {error}"));
}

/// GC of a network without attachments.
#[track_caller]
pub(crate) fn collect(conf: &Value) {
    let mut conf = conf.clone();
    conf["cni.dev/valid-attachments"] = json!([]);
    call("GC", ("", ""), &conf, None).unwrap_or_else(|error| panic!("GC: {error}"));
}

/// A configuration with addresses from 10.9.0.0/24, or from nowhere.
pub(crate) fn conf(plugin: &str, fields: Value, subnet: Option<&str>) -> Value {
    let mut conf = fields;
    conf["cniVersion"] = json!("1.1.0");
    conf["name"] = json!("net");
    conf["type"] = json!(plugin);
    if let Some(subnet) = subnet {
        let routes = json!([{"dst": "0.0.0.0/0"}]);
        conf["ipam"] =
            json!({"type": "host-local", "dataDir": "/run/cni/ipam", "subnet": subnet, "routes": routes});
    }
    conf
}

/// The first address of a result, without its prefix length.
pub(crate) fn address(result: &Value) -> String {
    let text = result["ips"][0]["address"].as_str().unwrap();
    text.split('/').next().unwrap().to_owned()
}

/// What must be the same again: the host, its reservations, and the pod.
pub(crate) fn state(net: &Sandbox, pod: &Container) -> (Snapshot, Snapshot) {
    (host(net), net.snapshot_of(pod))
}

/// The host and its reservations, without the allocator's memory.
pub(crate) fn host(net: &Sandbox) -> Snapshot {
    net.snapshot().without("last_reserved_ip").without("/lock:").without("/run/cnibox/host-local/")
}

/// One of the properties that `ip -j link` prints of an interface.
pub(crate) fn property(printed: &str, key: &str) -> String {
    let links: Value = serde_json::from_str(printed).unwrap();
    links[0][key].as_str().unwrap_or_default().to_owned()
}

/// Every step of ADD fails in turn, and everything is as before; so it is after ADD, DEL and another DEL. An ADD and
/// DEL beforehand leave behind what is shared.
#[track_caller]
pub(crate) fn all_or_nothing(net: &Sandbox, pod: &Container, conf: &Value) {
    add(pod, conf);
    del(pod, conf);
    let (host, inside) = state(net, pod);
    for step in 1.. {
        match call("ADD", names(pod), conf, Some(step)) {
            Ok(result) => {
                assert!(step > 2, "ADD has no steps");
                check(pod, conf, &result).unwrap_or_else(|error| panic!("CHECK: {error}"));
                break;
            }
            Err(error) => {
                let told = format!("step {step} told to fail");
                // vlan puts words in front of what its IPAM step says.
                assert!(error["msg"].as_str().unwrap().ends_with(&told), "{error}");
                assert!(error["details"].is_null(), "step {step}: the undo failed: {error}");
            }
        }
        let (host_now, inside_now) = state(net, pod);
        host.assert_same(&host_now);
        inside.assert_same(&inside_now);
    }
    del(pod, conf);
    del(pod, conf);
    let (host_now, inside_now) = state(net, pod);
    host.assert_same(&host_now);
    inside.assert_same(&inside_now);
}

/// False, after saying so, where the kernel has no such kind of link.
pub(crate) fn supported(net: &Sandbox, kind: &str) -> bool {
    net.run("ip", &["link", "add", "probe1", "type", "veth", "peer", "name", "probe2"]);
    let mut args = vec!["link", "add", "probe0", "link", "probe1", "type", kind];
    if kind == "vlan" {
        args.extend(["id", "1"]);
    }
    if kind == "dummy" {
        args.drain(3..5);
    }
    let made = std::process::Command::new("ip").args(&args).output().unwrap();
    let said = String::from_utf8_lossy(&made.stderr).into_owned();
    if made.status.success() {
        net.run("ip", &["link", "del", "probe0"]);
    }
    net.run("ip", &["link", "del", "probe1"]);
    if said.contains("Unknown device type") || said.contains("not supported") {
        cnibox_testkit::lacks(kind);
        return false;
    }
    assert!(made.status.success(), "{args:?}: {said}");
    true
}

/// The node that opens TAP devices, for everybody; the system's own is for root only.
pub(crate) fn tun_node(net: &Sandbox) -> PathBuf {
    let node = net.dir().join("tun");
    if !node.exists() {
        net.run("mknod", &["-m", "666", node.to_str().unwrap(), "c", "10", "200"]);
        net.run("mount", &["-o", "remount,dev", "/run"]);
        net.run("chmod", &["755", "/run", net.dir().to_str().unwrap()]);
    }
    node
}

/// False, after saying so, where there is no Python to open a device with.
pub(crate) fn has_python() -> bool {
    let found = Path::new("/usr/bin/python3").exists();
    if !found {
        cnibox_testkit::skip("no python3");
    }
    found
}
