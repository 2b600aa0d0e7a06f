# SPDX-License-Identifier: Apache-2.0
"""libcni itself: every verb, its cache, and its garbage collection."""
import json
import os

from . import host
from ..side_by_side import netns, traffic

CONF = {"cniVersion": "1.1.0", "name": "libcni", "plugins": [
    {"type": "loopback"},
    {"type": "bridge", "bridge": "cni0", "isGateway": True, "ipMasq": True, "hairpinMode": True,
     "ipam": {"type": "host-local", "subnet": "10.60.0.0/24", "routes": [{"dst": "0.0.0.0/0"}]}},
    {"type": "firewall"}, {"type": "portmap", "capabilities": {"portMappings": True}}]}
CACHE = "/run/lab/libcni"


def run(driver):
    """All verbs; what was left behind at the end."""
    with open("/run/lab/libcni.conflist", "w") as f:
        json.dump(CONF, f)

    def verb(name, container="c1", **more):
        env = dict(os.environ, CNI_PATH=host.PLUGINS, ID=container, NETNS=netns.path(container), IFNAME="eth0", **more)
        port = {"c1": 8080, "c2": 8081}[container]
        env["CAPABILITIES"] = json.dumps({"portMappings": [{"hostPort": port, "containerPort": 80, "protocol": "tcp"}]})
        return host.shell("%s %s /run/lab/libcni.conflist %s" % (driver, name, CACHE), env)

    for container in ("c1", "c2"):
        host.shell("ip netns add " + container)
        verb("STATUS")
        result = json.loads(verb("ADD", container))
        host.expect("version of the result", result["cniVersion"], "1.1.0")
        verb("CHECK", container)
    _reached("c1", 8080)
    _reached("c2", 8081)
    host.expect("cached results", len(os.listdir(CACHE + "/results")), 2)
    verb("GC", VALID="c2/eth0")  # deletes c1, which is not valid any more
    host.expect("cached results after GC", len(os.listdir(CACHE + "/results")), 1)
    _reached("c2", 8081)
    verb("CHECK", "c2")
    verb("DEL", "c2")
    verb("DEL", "c2")
    verb("GC", VALID="")
    host.expect("cached results at the end", os.listdir(CACHE + "/results"), [])
    return host.left_over("/var/lib/cni/networks/libcni")


def _reached(container, port):
    step = {"from": "out", "to": host.HOST, "port": port, "server": container, "listen": 80}
    host.expect("connection to %s through port %d" % (container, port), traffic.connect(step),
                {"reached": True, "peer": "198.51.100.2"})
