# SPDX-License-Identifier: Apache-2.0
"""Kubernetes' CRI: containerd or CRI-O driven by crictl as by a kubelet, with everything a pod may ask of its network.

    life      a pod with host ports in both families, tcp, udp, sctp, on one address only; bandwidth; sysctls; its neighbour
    verbs     STATUS by containerd 2, CHECK and GC by libcni with containerd's own cache: it calls neither
    crowd     many pods at once, no address twice, and their end, at once
    faults    containerd killed in the middle of RunPodSandbox; restarted beside living pods; namespaces removed by hand
"""
import concurrent.futures
import json
import os
import random
import time

from ..side_by_side import netns, traffic
from . import host, remains, sctp
from .calls import reached

NETWORK = "pods"
HOST6 = "2001:db8:99::1"
PORTS = [{"protocol": 0, "container_port": 80, "host_port": 8080}, {"protocol": 1, "container_port": 53, "host_port": 5353},
         {"protocol": 2, "container_port": 3868, "host_port": 3868},
         {"protocol": 0, "container_port": 80, "host_port": 8081, "host_ip": host.HOST}]
BANDWIDTH = {"kubernetes.io/ingress-bandwidth": "40M", "kubernetes.io/egress-bandwidth": "20M"}
SYSCTLS = {"net.ipv4.ip_local_port_range": "20000\t30000", "net.ipv6.conf.all.accept_redirects": "0"}


def conflist(version):
    """The network: what an operator would configure for pods in two families."""
    ipam = {"type": "host-local", "ranges": [[{"subnet": "10.63.0.0/24"}], [{"subnet": "fd63::/64"}]],
            "routes": [{"dst": "0.0.0.0/0"}, {"dst": "::/0"}]}
    return {"cniVersion": version, "name": NETWORK, "plugins": [
        {"type": "bridge", "bridge": "cni0", "isGateway": True, "ipMasq": True, "hairpinMode": True, "ipam": ipam},
        {"type": "firewall"}, {"type": "portmap", "capabilities": {"portMappings": True}, "snat": True},
        {"type": "bandwidth", "capabilities": {"bandwidth": True}},
        {"type": "tuning", "sysctl": {"net.ipv4.conf.IFNAME.arp_notify": "1"}}]}


def run(lab, make_node, version="1.1.0"):
    """All of it with one daemon; the case's report."""
    os.makedirs("/etc/cni/net.d")
    with open("/etc/cni/net.d/10-pods.conflist", "w") as f:
        json.dump(conflist(version), f)
    node = make_node(lab)
    case = Case(node, lab)
    try:
        node.start()
        report = case.run()
    except host.RuntimeFailure as e:
        raise host.RuntimeFailure("%s\n%s: %s" % (e, node.name, node.log_tail()))
    finally:
        if node.daemon:
            node.kill()
        host.tidy("cnibox-lab")
    return dict(report, version=node.version(), warnings=node.warnings())


class Case:
    """One run against one containerd."""

    def __init__(self, node, lab):
        self.node, self.driver, self.sizes = node, lab["driver"], lab["crowds"]
        self.phases = (self._crowds,) if lab.get("timed") else (self._life, self._crowds, self._namespace_gone, self._restart, self._killed)
        self.times = {}

    def run(self):
        """Every phase; what was left and how long things took."""
        host.expect("reason why the network is ready", self.node.conditions()["NetworkReady"][0], True)
        self._warm_up()
        known, left = self._seen(), []
        for phase in self.phases:
            phase()
            now = self._seen()
            left += ["%s: %s" % (phase.__name__.strip("_"), l) for l in sorted(now - known)]
            known |= now
        return {"left": left, "times": self.times}

    def _seen(self):
        """The state of the host, without what is the daemon's own."""
        return {l for l in remains.seen() if not (self.node.own_state and self.node.own_state.search(l))}

    def _warm_up(self):
        """The first pod brings what all share (bridge, chains, tables), and leaves only that."""
        pod = self.node.run_pod("first", port_mappings=PORTS[:1])
        self._libcni("CHECK", pod)
        self.node.remove(pod)
        host.expect("what the first pod left", host.left_over("/var/lib/cni/networks/" + NETWORK), [])

    # ------------------------------------------------------------ life

    def _life(self):
        pod = self.node.run_pod("web", port_mappings=PORTS, annotations=BANDWIDTH, linux={"sysctls": SYSCTLS})
        self.node.serve("web", pod)
        neighbour = self.node.run_pod("neighbour")
        addresses, namespace = self.node.inspect(pod)
        _, other = self.node.inspect(neighbour)
        host.expect("families of the pod", [":" in a for a in addresses], [False, True])
        self._reached(namespace, other, addresses)
        self._shaped(namespace)
        for name, value in SYSCTLS.items():
            got = host.shell("ip netns exec %s sysctl -n %s" % (namespace, name)).strip()
            host.expect(name + " in the pod", got, value)
        self._libcni("CHECK", pod)
        self._libcni("GC", pod, VALID="%s/eth0 %s/eth0" % (pod, neighbour))
        host.expect("the web server after GC", host.fetch(8080), host.GREETING + "web")
        self.node.remove(neighbour)
        host.expect("the web server after its neighbour's end", host.fetch(8080), host.GREETING + "web")
        self.node.remove(pod)

    def _reached(self, namespace, other, addresses):
        """The pod's ports, seen from outside, from the host, from its neighbour and from itself."""
        said = host.GREETING + "web"
        by_cni = [("host", "127.0.0.1", 8080), (other, host.HOST, 8080), (other, HOST6, 8080), (namespace, host.HOST, 8080)]
        for seen_from, address, port in (by_cni if self.node.maps_ports_by_cni else []) + [
                ("out", host.HOST, 8080), ("out", HOST6, 8080), ("out", host.HOST, 8081), ("host", host.HOST, 8080),
                (other, addresses[0], 80), (other, addresses[1], 80)]:
            host.expect("answer from %s:%d to %s" % (address, port, seen_from), host.fetch(port, seen_from, address), said)
        host.expect("a port of one address, asked at another", _refused(8081, HOST6), True)
        for address in (host.HOST, HOST6):
            step = {"from": "out", "to": address, "port": 5353, "server": namespace, "listen": 53, "proto": "udp"}
            host.expect("udp to " + address, traffic.connect(step)["reached"], True)
        host.expect("sctp", sctp.arrives("out", host.HOST, 3868, namespace, 3868), True)

    def _shaped(self, namespace):
        """Bandwidth both ways: a bucket on the host's end and one on the device its traffic is led through."""
        link = json.loads(host.shell("ip -j -n %s link show eth0" % namespace))[0]
        end = next(l["ifname"] for l in json.loads(host.shell("ip -j link")) if l["ifindex"] == link["link_index"])
        qdiscs = json.loads(host.shell("tc -j qdisc show"))
        rates = {q["dev"]: q["options"]["rate"] for q in qdiscs if q["kind"] == "tbf"}
        host.expect("rate into the pod", rates.pop(end, None), 5000000)
        host.expect("rate out of it", [r for d, r in rates.items()], [2500000])

    def _libcni(self, verb, pod, **more):
        """A verb that containerd does not call, with the cache it keeps."""
        env = dict(os.environ, CNI_PATH=host.PLUGINS, ID=pod, NETNS="/var/run/netns/" + self.node.inspect(pod)[1], IFNAME="eth0", **more)
        host.shell("%s %s /etc/cni/net.d/10-pods.conflist /var/lib/cni" % (self.driver, verb), env)

    # ------------------------------------------------------------ crowd

    def _crowds(self):
        for size in self.sizes:
            self._crowd(size)

    def _crowd(self, size):
        """SIZE pods at once: none has another's address, their ports reach them; how long each took, and how much of it CNI."""
        start, known = time.monotonic(), self.node.setup_seconds()
        with concurrent.futures.ThreadPoolExecutor(size) as pool:
            made = list(pool.map(self._timed, range(size)))
            name = "%d pod%s" % (size, "s" if size > 1 else "")
            self.times[name + ", all running"] = time.monotonic() - start
            self.times[name + ", one, on average"] = (sum(seconds for _, seconds in made) / size, self.node.setup_seconds(known, size))
            pods = [pod for pod, _ in made]
            seen = [a for addresses, _ in pool.map(self.node.inspect, pods) for a in addresses]
            host.expect("addresses given twice", len(seen) - len(set(seen)), 0)
            for i in {0, size // 2, size - 1}:
                reached("a port of pod %d" % i, **{"from": "out"}, to=host.HOST, port=9000 + i, server=self.node.inspect(pods[i])[1], listen=80)
            start = time.monotonic()
            list(pool.map(self.node.remove, pods))
            self.times[name + ", all removed"] = time.monotonic() - start

    def _timed(self, index):
        start = time.monotonic()
        return self._with_port(index, "crowd%d" % index), time.monotonic() - start

    def _with_port(self, index, name):
        return self.node.run_pod(name, port_mappings=[{"protocol": 0, "container_port": 80, "host_port": 9000 + index}])

    # ------------------------------------------------------------ faults

    def _namespace_gone(self):
        """Somebody removes the namespaces of living pods; their end must clean as ever."""
        pods = [self._with_port(i, "bare%d" % i) for i in range(3)]
        for pod in pods:
            _unmount(self.node.inspect(pod)[1])
        self.node.remove(*pods)

    def _restart(self):
        """containerd goes and comes back; pods live on, and end under the new one."""
        pod = self.node.run_pod("stays", port_mappings=PORTS)
        self.node.serve("stays", pod)
        self.node.kill()
        host.expect("the web server without containerd", host.fetch(8080), host.GREETING + "stays")
        self.node.start()
        self._libcni("CHECK", pod)
        later = self._with_port(0, "later")
        addresses = self.node.inspect(pod)[0] + self.node.inspect(later)[0]
        host.expect("addresses", len(set(addresses)), 4)
        host.expect("the web server after the restart", host.fetch(8080), host.GREETING + "stays")
        self.node.remove(later, pod)

    def _killed(self):
        """containerd is killed while it makes pods. What it forgot is taken away by GC, which any kubelet's restart may call."""
        chance = random.Random(63)
        for round_ in range(3):
            with concurrent.futures.ThreadPoolExecutor(4) as pool:
                for i in range(4):
                    pool.submit(self.node.run_pod, "torn%d-%d" % (round_, i), True, port_mappings=[
                        {"protocol": 0, "container_port": 80, "host_port": 9000 + i}])
                time.sleep(chance.uniform(0.15, 0.6))
                self.node.kill()
            self.node.start()
            self.node.remove(*self.node.pods())
        env = dict(os.environ, CNI_PATH=host.PLUGINS, ID="none", IFNAME="eth0", VALID="")
        host.shell("%s GC /etc/cni/net.d/10-pods.conflist /var/lib/cni" % self.driver, env)
        for name in os.listdir("/run/netns"):  # containerd's, and it has no others now
            if name != "out":
                _unmount(name)


def _unmount(namespace):
    path = netns.path(namespace)
    host.shell("umount -l %s" % path)  # CRI-O holds it open
    os.unlink(path)


def _refused(port, address):
    try:
        host.fetch(port, address=address, wait=0)
    except host.RuntimeFailure:
        return True
    return False
