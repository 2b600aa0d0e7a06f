# SPDX-License-Identifier: Apache-2.0
"""dhcp: a daemon of the same side and dnsmasq on the host's bridge."""
from . import VERSIONS, scenario

# What the server keeps for itself is in the lab's directory, which is not compared.
HOST = [
    "ip link add lan type bridge && ip addr add 10.9.0.1/24 dev lan && ip link set lan up",
    "dnsmasq --no-daemon --port=0 --conf-file=/dev/null --pid-file= --no-ping --dhcp-sequential-ip --interface=lan"
    " --dhcp-authoritative --dhcp-range=10.9.0.10,10.9.0.20,300 --dhcp-leasefile=/run/lab/leases"
    " --dhcp-option-force=33,11.0.0.0,10.9.0.3,172.16.0.0,10.9.0.4 --dhcp-option=121,10.6.0.0/16,10.9.0.5,10.5.0.0/16,0.0.0.0"
    " --dhcp-option=6,10.9.0.1 </dev/null >/run/lab/dnsmasq 2>&1 &"
    " for i in $(seq 100); do grep -q 'IP range' /run/lab/dnsmasq && exit 0; sleep 0.05; done; exit 1",
    "/run/lab/bin/dhcp daemon -timeout 1s -resendtimeout 2s </dev/null >/run/lab/daemon 2>&1 &"
    " for i in $(seq 100); do [ -S /run/cni/dhcp.sock ] && exit 0; sleep 0.05; done; exit 1",
]


def lan(**ipam):
    """A network on the bridge with addresses from the server."""
    return [{"type": "bridge", "bridge": "lan", "ipam": dict({"type": "dhcp"}, **ipam)}]


def alone(**ipam):
    """The plugin without one that makes an interface."""
    return [{"type": "dhcp", "ipam": dict({"type": "dhcp"}, **ipam)}]


LIFE = ["VERSION", "STATUS", "ADD c1", "CHECK c1", "ADD c2", "DEL c1", "DEL c1", "DEL c2"]
ADDED = ["ADD c1", "CHECK c1", "DEL c1"]
SCENARIOS = [scenario("dhcp/version-%s" % v, lan(), LIFE, version=v, host=HOST) for v in VERSIONS]
SCENARIOS += [scenario("dhcp/" + name, lan(**ipam), ADDED, host=HOST) for name, ipam in (
    ("classless-routes", {"request": [{"option": "121"}]}),
    ("without-router", {"request": [{"option": "subnet-mask", "skipDefault": True}]}),
    ("priority", {"priority": 77}),
    ("provide", {"provide": [{"option": "host-name", "value": "web"}, {"option": "60", "fromArg": "NONE"}]}),
    ("no-mask", {"request": [{"option": "3", "skipDefault": True}]}),
    ("key-case", {"PRIORITY": 5, "daemonsocketpath": "/run/cni/dhcp.sock"}),
)]
SCENARIOS += [
    scenario("dhcp/no-daemon", alone(), ["ADD c1", "CHECK c1"]),
    scenario("dhcp/no-interface", alone(), ["ADD c1", "DEL c1"], host=HOST),
    scenario("dhcp/option-unknown", alone(provide=[{"option": "x", "value": "y"}]), ["ADD c1"], host=HOST),
    scenario("dhcp/option-out-of-range", alone(request=[{"option": "256"}]), ["ADD c1"], host=HOST),
    scenario("dhcp/option-of-wrong-type", alone(request=[{"option": 3}]), ["ADD c1"], host=HOST),
]
