# SPDX-License-Identifier: Apache-2.0
"""The scenarios that write rules of iptables, once more where rules go another way than by nf_tables netlink.

exec    ours is told to run iptables-restore
legacy  the host's iptables is the legacy flavour, for both sides
"""
import fnmatch

from . import bridge, chains, firewall, portmap

CHOSEN = ("portmap/iptables-*", "portmap/set-mark*", "portmap/check-[!n]*", "portmap/two-*", "portmap/mark-*", "portmap/other-*", "portmap/bad-*", "portmap/rules-*", "portmap/del-*",
          "firewall/v4", "firewall/many", "firewall/admin-*", "firewall/same-*", "firewall/isolated*", "firewall/rules-*", "firewall/foreign-*", "firewall/check-*", "firewall/del-*",
          "bridge/masq-two*", "bridge/del-*", "bridge/two-*", "chains/nomad*", "chains/podman", "chains/isolated", "chains/gc-*")
LEGACY = ("for t in iptables ip6tables; do for s in '' -save -restore; do ln -sf /usr/sbin/$t-legacy$s /etc/alternatives/$t$s || exit; done; done")


def again(flavour, **more):
    """The chosen scenarios in a flavour; the page of known differences knows them by their own names."""
    out = []
    for s in portmap.SCENARIOS + firewall.SCENARIOS + bridge.SCENARIOS + chains.SCENARIOS:
        if any(fnmatch.fnmatchcase(s["name"], pattern) for pattern in CHOSEN) and not s["needs"]:
            out.append(dict(s, name="%s %s" % (flavour, s["name"]), known=s["name"], **{k: v + s[k] if k == "host" else v for k, v in more.items()}))
    return out


SCENARIOS = again("exec", env={"CNIBOX_NETFILTER": "exec"}) + again("legacy", host=[LEGACY], needs=["legacy-iptables"])
for s in SCENARIOS:
    s["swap"] = s["known"] in ("chains/nomad-dual", "chains/podman") and s["name"].startswith("legacy")
