// SPDX-License-Identifier: Apache-2.0
//! A virtual machine as Firecracker and its like run one: a network of containers (bridge or ptp), and a tap device that
//! takes it to the machine. The machine is a process of an ordinary user that opens the device and speaks Ethernet.

use std::process::Command;

use cnibox_testkit::{Chain, Container, Sandbox, sandbox};

use crate::world::{has_python, tun_node};

/// The user that runs the machine.
const USER: &str = "54321";
const OTHER: &str = "54320";

const TAP: &str = r#"{"cniVersion": "1.1.0", "name": "machine", "plugins": [
    {"type": "tap", "owner": 54321, "group": 54321, "bridge": "br0"}]}"#;
const BRIDGE: &str = r#"{"cniVersion": "1.1.0", "name": "net", "plugins": [
    {"type": "bridge", "bridge": "cni0", "isGateway": true, "ipMasq": true,
     "ipam": {"type": "host-local", "subnet": "10.9.0.0/24", "dataDir": "/run/cni/ipam"}}, {"type": "firewall"}]}"#;
const PTP: &str = r#"{"cniVersion": "1.1.0", "name": "net", "plugins": [
    {"type": "ptp", "ipMasq": true,
     "ipam": {"type": "host-local", "subnet": "10.9.0.0/24", "dataDir": "/run/cni/ipam"}}, {"type": "firewall"}]}"#;

/// The machine: asks by ARP who has its gateway, pings it, and ends well when it was answered. Arguments: the node, its
/// MAC, its address, the gateway. The flags are `IFF_TAP | IFF_NO_PI | IFF_VNET_HDR`, a header of ten bytes before each frame.
const MACHINE: &str = r#"
import fcntl, os, select, socket, struct, sys, time
node, mac, own, gateway = sys.argv[1], bytes.fromhex(sys.argv[2].replace(":", "")), *map(socket.inet_aton, sys.argv[3:5])
tun = os.open(node, os.O_RDWR)
fcntl.ioctl(tun, 0x400454ca, struct.pack("16sH22x", b"tap0", 0x5002))
def sums(data):
    total = sum(struct.unpack("!%dH" % (len(data) // 2), data))
    total = (total & 0xffff) + (total >> 16)
    return ~(total + (total >> 16)) & 0xffff
def asks(frame, answer):
    until = time.monotonic() + 20
    while time.monotonic() < until:
        os.write(tun, bytes(10) + frame)
        pause = time.monotonic() + 0.2
        while select.select([tun], [], [], max(0, pause - time.monotonic()))[0]:
            got = os.read(tun, 4096)[10:]
            if answer(got):
                return got
    sys.exit("no answer")
arp = struct.pack("!HHBBH", 1, 0x0800, 6, 4, 1) + mac + own + bytes(6) + gateway
told = asks(b"\xff" * 6 + mac + b"\x08\x06" + arp, lambda f: f[12:14] == b"\x08\x06" and f[20:22] == b"\0\2" and f[28:32] == gateway)
echo = struct.pack("!BBHHH", 8, 0, 0, 7, 7)
echo = echo[:2] + struct.pack("!H", sums(echo)) + echo[4:]
ip = struct.pack("!BBHHHBBH", 0x45, 0, 28, 0, 0, 64, 1, 0) + own + gateway
ip = ip[:10] + struct.pack("!H", sums(ip)) + ip[12:]
asks(told[22:28] + mac + b"\x08\x00" + ip + echo, lambda f: f[12:14] == b"\x08\x00" and f[23] == 1 and f[34] == 0 and f[26:30] == gateway)
"#;

/// Runs the machine as a user; what it complained of.
fn machine(
    net: &Sandbox,
    pod: &Container,
    user: &str,
    [mac, address, gateway]: [&str; 3],
) -> Result<(), String> {
    let (uid, gid) = (format!("--reuid={user}"), format!("--regid={user}"));
    let node = tun_node(net);
    let mut command = Command::new("setpriv");
    command.args([&uid, &gid, "--clear-groups", "--bounding-set=-all", "/usr/bin/python3", "-c", MACHINE]);
    command.arg(node).args([mac, address, gateway]);
    let output = pod.netns.run(|| command.output()).unwrap().unwrap();
    if output.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&output.stderr).into_owned()) }
}

/// A network's interface and the tap device on a bridge of the pod; the machine has the interface's MAC and address.
fn machine_is_on(net: &Sandbox, network: &str) {
    let pod = net.container();
    let (network, tap) = (Chain::new(net, network), Chain::new(net, TAP));
    let eth0 = network.add(&pod, "eth0").unwrap_or_else(|outcome| panic!("ADD: {}", outcome.stdout));
    for args in
        ["link add br0 type bridge", "link set br0 up", "address flush dev eth0", "link set eth0 master br0"]
    {
        net.run_in(&pod, "ip", &args.split(' ').collect::<Vec<_>>());
    }
    let tap0 = tap.add(&pod, "tap0").unwrap_or_else(|outcome| panic!("ADD: {}", outcome.stdout));
    tap0.check().unwrap_or_else(|outcome| panic!("CHECK: {}", outcome.stdout));
    let pods = eth0.result["interfaces"].as_array().unwrap().iter();
    let mac = pods.filter(|link| link["name"] == "eth0").find_map(|link| link["mac"].as_str()).unwrap();
    let ip = &eth0.result["ips"][0];
    let address = ip["address"].as_str().unwrap().split('/').next().unwrap();
    // The bridge has eth0's MAC as well and would keep the machine's frames for itself.
    net.run_in(&pod, "ip", &["link", "set", "br0", "address", "02:00:00:00:00:01"]);
    net.run_in(&pod, "ip", &["link", "set", "eth0", "address", "02:00:00:00:00:02"]);
    let speaks = |user| machine(net, &pod, user, [mac, address, ip["gateway"].as_str().unwrap()]);
    let refused = speaks(OTHER).unwrap_err();
    assert!(refused.contains("Operation not permitted"), "{refused}");
    speaks(USER).unwrap_or_else(|why| panic!("{why}"));
    tap0.del().unwrap_or_else(|outcome| panic!("DEL: {}", outcome.stdout));
    assert!(!net.run_in(&pod, "ip", &["link"]).contains("tap0"));
    eth0.del().unwrap_or_else(|outcome| panic!("DEL: {}", outcome.stdout));
    assert_eq!(net.run("ip", &["-br", "link", "show", "type", "veth"]), "");
}

#[test]
fn a_machine_of_an_ordinary_user_is_on_a_network_of_containers() {
    sandbox(|net| {
        if !has_python() {
            return;
        }
        machine_is_on(net, BRIDGE);
        machine_is_on(net, PTP);
    });
}
