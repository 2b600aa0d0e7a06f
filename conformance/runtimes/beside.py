# SPDX-License-Identifier: Apache-2.0
"""Beside the rules of Docker and of kube-proxy: a host whose FORWARD drops what nobody accepts, and chains that others keep.

What they wrote must stay as it is, word for word and in its order; containers are reached all the same, also after the
others have written their rules again, and after an operator has put back a ruleset saved before the container came.
The firewall plugin lets out what containers begin and its answers; what comes to published ports past a FORWARD that
drops is the administrator's to allow, in the chain CNI-ADMIN, as Nomad does in its own.
"""
import re
import tempfile

from . import host, remains
from .calls import Network, Phases, reached

PORTS = [(8080, 80)]
# Written as Docker 28 and kube-proxy write them, for a bridge docker0 and a service with a node port.
DOCKER = """*filter
:FORWARD DROP [0:0]
:DOCKER - [0:0]
:DOCKER-BRIDGE - [0:0]
:DOCKER-CT - [0:0]
:DOCKER-FORWARD - [0:0]
:DOCKER-ISOLATION-STAGE-1 - [0:0]
:DOCKER-ISOLATION-STAGE-2 - [0:0]
:DOCKER-USER - [0:0]
-A FORWARD -j DOCKER-USER
-A FORWARD -j DOCKER-FORWARD
-A DOCKER ! -i docker0 -o docker0 -j DROP
-A DOCKER-BRIDGE -o docker0 -j DOCKER
-A DOCKER-CT -o docker0 -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
-A DOCKER-FORWARD -j DOCKER-CT
-A DOCKER-FORWARD -j DOCKER-ISOLATION-STAGE-1
-A DOCKER-FORWARD -j DOCKER-BRIDGE
-A DOCKER-FORWARD -i docker0 -j ACCEPT
-A DOCKER-ISOLATION-STAGE-1 -i docker0 ! -o docker0 -j DOCKER-ISOLATION-STAGE-2
-A DOCKER-ISOLATION-STAGE-2 -o docker0 -j DROP
COMMIT
*nat
:DOCKER - [0:0]
-A PREROUTING -m addrtype --dst-type LOCAL -j DOCKER
-A OUTPUT ! -d {loopback} -m addrtype --dst-type LOCAL -j DOCKER
-A POSTROUTING -s {docker} ! -o docker0 -j MASQUERADE
COMMIT
"""
KUBE = """*filter
:FORWARD DROP [0:0]
:KUBE-EXTERNAL-SERVICES - [0:0]
:KUBE-FIREWALL - [0:0]
:KUBE-FORWARD - [0:0]
:KUBE-NODEPORTS - [0:0]
:KUBE-PROXY-FIREWALL - [0:0]
:KUBE-SERVICES - [0:0]
-A INPUT -m comment --comment "kubernetes health check service ports" -j KUBE-NODEPORTS
-A INPUT -j KUBE-FIREWALL
-A FORWARD -m conntrack --ctstate NEW -m comment --comment "kubernetes load balancer firewall" -j KUBE-PROXY-FIREWALL
-A FORWARD -m comment --comment "kubernetes forwarding rules" -j KUBE-FORWARD
-A FORWARD -m conntrack --ctstate NEW -m comment --comment "kubernetes service portals" -j KUBE-SERVICES
-A OUTPUT -j KUBE-FIREWALL
-A KUBE-FORWARD -m conntrack --ctstate INVALID -j DROP
-A KUBE-FORWARD -m comment --comment "kubernetes forwarding rules" -m mark --mark 0x4000/0x4000 -j ACCEPT
-A KUBE-FORWARD -m comment --comment "kubernetes forwarding conntrack rule" -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
COMMIT
*nat
:KUBE-MARK-MASQ - [0:0]
:KUBE-NODEPORTS - [0:0]
:KUBE-POSTROUTING - [0:0]
:KUBE-SEP-AAAAAAAAAAAAAAAA - [0:0]
:KUBE-SERVICES - [0:0]
:KUBE-SVC-BBBBBBBBBBBBBBBB - [0:0]
-A PREROUTING -m comment --comment "kubernetes service portals" -j KUBE-SERVICES
-A OUTPUT -m comment --comment "kubernetes service portals" -j KUBE-SERVICES
-A POSTROUTING -m comment --comment "kubernetes postrouting rules" -j KUBE-POSTROUTING
-A KUBE-MARK-MASQ -j MARK --set-xmark 0x4000/0x4000
-A KUBE-NODEPORTS -p tcp -m comment --comment "lab/web" -m tcp --dport 30080 -j KUBE-SVC-BBBBBBBBBBBBBBBB
-A KUBE-POSTROUTING -m mark ! --mark 0x4000/0x4000 -j RETURN
-A KUBE-POSTROUTING -j MARK --set-xmark 0x4000/0x0
-A KUBE-POSTROUTING -m comment --comment "kubernetes service traffic requiring SNAT" -j MASQUERADE
-A KUBE-SEP-AAAAAAAAAAAAAAAA -p tcp -m comment --comment "lab/web" -m tcp -j DNAT --to-destination {backend}
-A KUBE-SERVICES -m comment --comment "kubernetes service nodeports; NOTE: this must be the last rule in this chain" -m addrtype --dst-type LOCAL -j KUBE-NODEPORTS
-A KUBE-SVC-BBBBBBBBBBBBBBBB -p tcp -m comment --comment "lab/web" -m tcp --dport 30080 -j KUBE-MARK-MASQ
-A KUBE-SVC-BBBBBBBBBBBBBBBB -m comment --comment "lab/web" -j KUBE-SEP-AAAAAAAAAAAAAAAA
COMMIT
"""
# Per family: what the rules above name.
NAMES = {"iptables": {"loopback": "127.0.0.0/8", "docker": "172.17.0.0/16", "backend": "10.99.0.2:80"},
         "ip6tables": {"loopback": "::1/128", "docker": "fd17::/64", "backend": "[fd99::2]:80"}}
ADDRESSES = (host.HOST, "2001:db8:99::1")


def conflist(mark_chain):
    """A network with published ports; with kube-proxy, portmap marks with its chain."""
    ipam = {"type": "host-local", "ranges": [[{"subnet": "10.65.0.0/24"}], [{"subnet": "fd65::/64"}]],
            "routes": [{"dst": "0.0.0.0/0"}, {"dst": "::/0"}]}
    portmap = {"type": "portmap", "capabilities": {"portMappings": True}, "snat": True}
    if mark_chain:
        portmap["externalSetMarkChain"] = mark_chain
    return {"cniVersion": "1.0.0", "name": "beside", "plugins": [
        {"type": "bridge", "bridge": "cni0", "isGateway": True, "ipMasq": True, "hairpinMode": True, "ipam": ipam}, {"type": "firewall"}, portmap]}


def run(lab, rules, mark_chain):
    """Every phase beside RULES."""
    host.shell("ip link add docker0 type bridge && ip link set docker0 up && ip addr add 172.17.0.1/16 dev docker0")
    case = Case(Network(lab["driver"], conflist(mark_chain)), rules)
    case.write()
    case.allow()
    case.foreign = case.others()
    return case.run()


class Case:
    """One run beside one program's rules."""

    def __init__(self, network, rules):
        self.network, self.rules, self.foreign = network, rules, None

    def run(self):
        """What failed, what was left."""
        self.network.add("first", PORTS)
        self.network.delete("first", PORTS)
        phases = Phases(self.network, remains.seen)
        for phase in (self._life, self._written_again, self._put_back):
            phases.run(phase)
        return phases.report(version=host.shell("iptables --version").split()[1].lstrip("v"))

    def write(self):
        """What the other program does at its start: its chains anew, its jumps where it wants them."""
        for program, names in NAMES.items():
            text = self.rules
            for key, value in names.items():
                text = text.replace("{%s}" % key, value)
            _restore(program + "-restore --noflush", text)

    @staticmethod
    def allow():
        """The administrator allows what comes to the network."""
        for program, subnet in (("iptables", "10.65.0.0/24"), ("ip6tables", "fd65::/64")):
            host.shell("{0} -N CNI-ADMIN && {0} -A CNI-ADMIN -o cni0 -d {1} -j ACCEPT".format(program, subnet))

    @staticmethod
    def others():
        """Everything that is not of CNI, in its order."""
        return [[l.split(" [")[0] for l in host.shell(p + "-save").splitlines() if l[:1] in ":-*" and "CNI" not in l]
                for p in NAMES]

    def _unchanged(self):
        host.expect("the others' rules", self.others(), self.foreign)

    def _reached(self, container):
        for address in ADDRESSES:
            for seen_from in ("out", "host"):
                reached("port at %s from %s" % (address, seen_from), **{"from": seen_from}, to=address, port=8080, server=container, listen=80)

    def _outward(self, container):
        for address in ("198.51.100.2", "2001:db8:99::2"):
            reached("%s from %s" % (address, container), **{"from": container}, to=address, port=7000, server="out", listen=7000)

    def _life(self):
        self.network.verb("STATUS", "none")
        addresses = self.network.add("c1", PORTS)
        self.network.add("c2")
        self.network.verb("CHECK", "c1", PORTS)
        self._reached("c1")
        self._outward("c1")
        reached("a neighbour", **{"from": "c2"}, to=addresses[0], port=80, server="c1", listen=80)
        self._unchanged()
        self.network.delete("c2")
        self.network.delete("c1", PORTS)
        self._unchanged()

    def _written_again(self):
        """The other program restarts beside a living container: its rules are taken away and written anew."""
        self.network.add("c3", PORTS)
        for program in NAMES:
            saved = host.shell(program + "-save")
            kept = [l for l in saved.splitlines() if l[:1] == ":" or "CNI-" in l or not re.search("DOCKER|KUBE|docker0", l)]
            _restore(program + "-restore", "\n".join(kept) + "\n")
        self.write()
        self._reached("c3")
        self._outward("c3")
        self.network.verb("CHECK", "c3", PORTS)
        self.network.delete("c3", PORTS)
        self.foreign = self.others()

    def _put_back(self):
        """An operator puts back what was saved before the container came: CHECK says so, DEL cleans, others live."""
        saved = {p: host.shell(p + "-save") for p in NAMES}
        self.network.add("c4", PORTS)
        for program, text in saved.items():
            _restore(program + "-restore", text)
        host.expect("CHECK without rules fails", bool(self.network.refusal("CHECK", "c4", PORTS)), True)
        self.network.delete("c4", PORTS)
        self._unchanged()
        self.network.add("c5", PORTS)
        self._reached("c5")
        self.network.delete("c5", PORTS)
        self._unchanged()


def _restore(program, rules):
    """Gives a ruleset to iptables-restore or ip6tables-restore."""
    with tempfile.NamedTemporaryFile("w", dir="/run/lab") as f:
        f.write(rules)
        f.flush()
        host.shell("%s < %s" % (program, f.name))
