# SPDX-License-Identifier: Apache-2.0
"""Some of every plugin's scenarios once more with containers whose network namespaces belong to user namespaces of their
own, as a pod's with `hostUsers: false` does. The page of known differences knows them by their own names."""
import fnmatch

from . import chains, dhcp, interfaces, loopback, meta

CHOSEN = ("chains/nomad-dual", "chains/nomad-netns-gone", "chains/containerd", "chains/kubernetes", "chains/nftables-masquerade", "*/dual",
          "tuning/all", "tuning/sysctl", "bandwidth/of-both", "sbr/two-homed", "vrf/table", "dhcp/version-1.1.0", "loopback/version-1.1.0")
OWNED = ("unshare --user --map-root-user --net sh -c 'sysctl -qw net.ipv6.conf.default.dad_transmits=0 && echo $$ && exec sleep 60' | "
         "{{ read pid && ip netns del {0} && ip netns attach {0} $pid && kill $pid; }}")


def owned(scenario):
    """The scenario with such containers; what is outside stays as it is."""
    containers = [OWNED.format(c) for c in scenario["containers"] if c != "out"]
    return dict(scenario, name="user namespace " + scenario["name"], known=scenario["name"], host=containers + scenario["host"], swap=False)


SCENARIOS = [owned(s) for module in (chains, interfaces, meta, dhcp, loopback) for s in module.SCENARIOS
             if any(fnmatch.fnmatchcase(s["name"], pattern) for pattern in CHOSEN)]
