# SPDX-License-Identifier: Apache-2.0
"""Whole conflists as runtimes write them, with packets sent through the result."""
from . import scenario

NOMAD_ENV = {"CNI_ARGS": 'IgnoreUnknown=true;NOMAD_REGION=global;NOMAD_NAMESPACE=default;NOMAD_JOB_ID=web;NOMAD_GROUP_NAME=web;'
                         'NOMAD_ALLOC_ID=5a6b8c1e-30c4-4b42-8a0f-1d2b6c7d8e9f;CONSUL_IPTABLES_CONFIG={"ConsulDNSIP":"","ProxyUserID":"101","ProxyInboundPort":20000}'}
PORTS = {"portMappings": [{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}, {"hostPort": 8080, "containerPort": 80, "protocol": "udp"},
                          {"hostPort": 8443, "containerPort": 443, "protocol": "tcp", "hostIP": "198.51.100.1"}]}
OTHER_PORTS = {"portMappings": [{"hostPort": 9090, "containerPort": 80, "protocol": "tcp"}]}
CAPABLE = {"capabilities": {"portMappings": True}}


def nomad(ipv6):
    """Nomad's bridge network; users.md has where it comes from."""
    ranges = [[{"subnet": "172.26.64.0/20"}]] + ([[{"subnet": "fd00:a110:c8::/120"}]] if ipv6 else [])
    routes = [{"dst": "0.0.0.0/0"}] + ([{"dst": "::/0"}] if ipv6 else [])
    return [{"type": "loopback"},
            {"type": "bridge", "bridge": "nomad", "ipMasq": True, "isGateway": True, "forceAddress": True, "hairpinMode": True,
             "ipam": {"type": "host-local", "ranges": ranges, "routes": routes, "dataDir": "/var/run/cni"}},
            {"type": "firewall", "backend": "iptables", "iptablesAdminChainName": "NOMAD-ADMIN"},
            dict({"type": "portmap", "snat": True}, **CAPABLE)]


NERDCTL = [{"type": "bridge", "bridge": "nerdctl0", "isGateway": True, "ipMasq": True, "hairpinMode": True,
            "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.4.0.0/24", "gateway": "10.4.0.1"}]], "routes": [{"dst": "0.0.0.0/0"}]}},
           dict({"type": "portmap"}, **CAPABLE), {"type": "firewall", "ingressPolicy": "same-bridge"}]
PODMAN = [{"type": "bridge", "bridge": "cni-podman1", "isGateway": True, "ipMasq": True, "hairpinMode": True,
           "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.89.0.0/24", "gateway": "10.89.0.1"}], [{"subnet": "fd89::/64"}]],
                    "routes": [{"dst": "0.0.0.0/0"}, {"dst": "::/0"}]}},
          dict({"type": "portmap"}, **CAPABLE), {"type": "firewall", "backend": ""}]
CONTAINERD = [{"type": "bridge", "bridge": "cni0", "isGateway": True, "ipMasq": True, "promiscMode": True,
               "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.88.0.0/16"}], [{"subnet": "2001:db8:4860::/64"}]],
                        "routes": [{"dst": "0.0.0.0/0"}, {"dst": "::/0"}]}}, dict({"type": "portmap"}, **CAPABLE)]
BUILDKIT = [{"type": "loopback"}, {"type": "bridge", "bridge": "buildkit0", "isDefaultGateway": True, "ipMasq": True,
             "ipam": {"type": "host-local", "subnet": "10.10.0.0/16"}}, {"type": "firewall", "ingressPolicy": "same-bridge"}]
NFT = [{"type": "bridge", "bridge": "cni0", "isGateway": True, "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.88.0.0/16"}], [{"subnet": "fd88::/64"}]],
        "routes": [{"dst": "0.0.0.0/0"}, {"dst": "::/0"}]}}, dict({"type": "portmap", "backend": "nftables"}, **CAPABLE)]
NFT_MASQ = [dict(NFT[0], ipMasq=True, ipMasqBackend="nftables"), NFT[1]]


def reach(v4, proto="tcp", c2=None, **more):
    """Connections through the published port: from outside, from the host itself, from the neighbour."""
    steps = [{"connect": {"from": f, "to": to, "port": 8080, "server": "c1", "listen": 80, "proto": proto}, "observe": False}
             for f, to in (("out", "198.51.100.1"), ("host", "127.0.0.1"), ("c2", "198.51.100.1"), ("c1", "198.51.100.1"))]
    # Outwards (masqueraded or not), and to the neighbour directly.
    steps += [{"connect": {"from": "c1", "to": "198.51.100.2", "port": 7000, "server": "out", "listen": 7000}, "observe": False},
              {"connect": {"from": "c2", "to": v4, "port": 80, "server": "c1", "listen": 80}, "observe": False}]
    return steps


def life(v4, env=None):
    """Two containers come, work and go."""
    def do(verb, c):
        return {"do": verb, "c": c, "env": env or {}, "caps": PORTS if c == "c1" else OTHER_PORTS}
    return ([do("ADD", "c1"), do("CHECK", "c1"), do("ADD", "c2"), do("CHECK", "c2")] + reach(v4) + reach(v4, "udp")[:2] +
            [do("CHECK", "c1"), do("DEL", "c2"), do("CHECK", "c1")] + reach(v4)[:2] + [do("DEL", "c1"), do("DEL", "c1"), do("GC", "c1")])


NOMAD_HOST = ["iptables -N NOMAD-ADMIN && iptables -A NOMAD-ADMIN -o nomad -d 172.26.64.0/20 -j ACCEPT"]
ID = "5a6b8c1e-30c4-4b42-8a0f-1d2b6c7d8e9f"
SCENARIOS = [
    scenario("chains/nomad", nomad(False), life("172.26.64.2", NOMAD_ENV), version="0.4.0", net="nomad", host=NOMAD_HOST, swap=True),
    scenario("chains/nomad-dual", nomad(True), life("172.26.64.2", NOMAD_ENV), version="0.4.0", net="nomad", host=NOMAD_HOST, swap=True),
    scenario("chains/nerdctl", NERDCTL, life("10.4.0.2"), net="bridge", swap=True),
    scenario("chains/podman", PODMAN, life("10.89.0.2"), version="0.4.0", net="podman", swap=True),
    scenario("chains/containerd", CONTAINERD, life("10.88.0.2"), net="containerd-net", swap=True),
    scenario("chains/buildkit", BUILDKIT, life("10.10.0.2"), net="buildkit", swap=True),
    scenario("chains/isolated", NERDCTL[:2] + [{"type": "firewall", "ingressPolicy": "isolated"}], life("10.4.0.2"), net="isolated", swap=True),
    scenario("chains/nftables", NFT, life("10.88.0.2"), net="nft", swap=True),
    scenario("chains/nftables-masquerade", NFT_MASQ, life("10.88.0.2"), net="nft", swap=True, host=["iptables -t nat -N OTHER; ip6tables -t nat -N OTHER"]),
    scenario("chains/masquerade-only", CONTAINERD[:1], life("10.88.0.2"), net="plain", version="1.1.0", swap=True),
    scenario("chains/spoof-check", [dict(CONTAINERD[0], macspoofchk=True), CONTAINERD[1]], life("10.88.0.2"), net="spoof", swap=True),
    scenario("chains/nomad-netns-gone", nomad(False), [
        {"do": "ADD", "id": ID, "env": NOMAD_ENV, "caps": PORTS},
        {"sh": "ip netns del c1; while ip -br link show type veth | grep -q .; do sleep 0.02; done"},
        {"do": "DEL", "id": ID, "env": NOMAD_ENV, "caps": PORTS}, {"do": "DEL", "id": ID, "env": NOMAD_ENV, "caps": PORTS}],
        version="0.4.0", net="nomad", host=NOMAD_HOST),
    scenario("chains/nomad-portmap-fails", nomad(False)[:3] + [dict({"type": "portmap", "markMasqBit": 77}, **CAPABLE)], [
        {"do": "ADD", "env": NOMAD_ENV, "caps": PORTS}, {"do": "DEL", "env": NOMAD_ENV, "caps": {}}], version="0.4.0", net="nomad"),
    scenario("chains/kubernetes", CONTAINERD, [{"do": v, "env": {"CNI_ARGS": "IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=web-0;K8S_POD_INFRA_CONTAINER_ID=abc;K8S_POD_UID=1-2"},
                                                "caps": PORTS} for v in ("ADD", "CHECK", "DEL")], net="k8s"),
    scenario("chains/gc-with-attachments", CONTAINERD, [
        {"do": "ADD", "caps": PORTS}, {"do": "GC", "add": {"cni.dev/valid-attachments": [{"containerID": "c1", "ifname": "eth0"}], "cni.dev/attachments": [{"containerID": "c1", "ifname": "eth0"}]}},
        {"do": "CHECK", "caps": PORTS}, {"do": "DEL", "caps": PORTS}], version="1.1.0", net="gc"),
    scenario("chains/gc-of-everything", CONTAINERD, [
        {"do": "ADD", "caps": PORTS}, {"do": "GC", "add": {"cni.dev/valid-attachments": [], "cni.dev/attachments": []}}, {"do": "DEL", "caps": PORTS}], version="1.1.0", net="gc"),
]
