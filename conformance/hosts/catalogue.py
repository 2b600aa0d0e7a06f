# SPDX-License-Identifier: Apache-2.0
"""The rows and columns of docs/hosts.md: data only.

A host is where tests are run (a command that boots or confines), what its environment is, and what it is expected to lack.
"""
import dataclasses
import os
import typing

# What a kernel without iptables' compatibility lacks: as those of RHEL 10 and Fedora 43.
NO_COMPAT = "NFT_COMPAT NETFILTER_XTABLES NETFILTER_XT_ IP_NF_ IP6_NF_ BRIDGE_EBT_ BRIDGE_NF_EBTABLES"


@dataclasses.dataclass(frozen=True)
class Column:
    """Something that is run on hosts: a test, with the plugins under test or with the Go plugins."""

    title: str
    program: str        # FOLDER/TEST as scripts/test-executables knows it
    test: str = ""      # one of its tests; or all
    is_go: bool = False


NOMAD = Column("Nomad's network", "cnibox/any_host", "nomads_network")
DUAL = Column("Nomad's dual stack", "cnibox/any_host", "nomads_dual_stack")
NFTABLES = Column("nftables backends", "cnibox/any_host", "nftables_backends")
ROUTED = Column("ptp, tuning, bandwidth", "cnibox/any_host", "routed_and_limited")
LAN = Column("macvlan, dhcp", "cnibox/interfaces", "lan::nomads_macvlan_network_has_addresses_of_the_lan_and_host_ports")
KINDS = Column("every network of the documents", "cnibox/readme", "every_network_of_the_documents_lives")
GO = Column("Go plugins: Nomad's network", "cnibox/any_host", "nomads_network", is_go=True)

SELINUX = Column("tap with an SELinux label", "cnibox/any_host", "tap_with_an_selinux_label")
LINKS = Column("links, ports of bridges", "netlink/link")
ROUTES = Column("addresses, routes", "netlink/l3")
CONNECTIONS = Column("stale connections", "netfilter/kernel", "conntrack::only_the_named_flows_go")
RULES = Column("rules, connections", "netfilter/kernel")

# The blocks of docs/hosts.md: what is run on every host of each.
TABLES = {
    "this-kernel": (NOMAD, DUAL, NFTABLES, ROUTED, LAN, KINDS, GO),
    "complete-kernel": (NOMAD, DUAL, NFTABLES, ROUTED, LAN, KINDS, LINKS, ROUTES, RULES, GO),
    # The tests of rules and connections write some with iptables and look at connections themselves.
    "lacking-kernels": (NOMAD, DUAL, NFTABLES, ROUTED, LAN, KINDS, LINKS, ROUTES, GO),
    # Those of links, addresses and routes are about both families.
    "no-ipv6": (NOMAD, DUAL, NFTABLES, ROUTED, LAN, KINDS, GO),
    # Under emulation, so the longest are left out.
    "debian-kernels": (NOMAD, DUAL, NFTABLES, ROUTED, LAN, SELINUX, LINKS, ROUTES, CONNECTIONS, GO),
    "barred-modules": (NOMAD, DUAL, NFTABLES, ROUTED, LAN, GO),
}


@dataclasses.dataclass(frozen=True)
class Host:
    """A row."""

    name: str
    how: str = "here"                                   # here, user, nested, uml or qemu
    settings: typing.Mapping = dataclasses.field(default_factory=dict)   # of scripts/full-kernel
    prepare: str = ""                                   # shell commands in every sandbox; CNIBOX_HOST of the test kit
    tools: typing.Mapping = dataclasses.field(default_factory=dict)      # a folder of programs before the others of PATH
    is_bare: bool = False                               # plugins find no programs but those
    outside: str = ""                                   # shell commands before the first test
    lacks: typing.Mapping = dataclasses.field(default_factory=dict)      # column: words that must be said in place of working
    table: str = "this-kernel"                          # of TABLES

    @property
    def columns(self):
        """What is run there."""
        return TABLES[self.table]

    def is_unknown_kernel(self):
        """Whether the kernel is whatever this machine has."""
        return self.table == "this-kernel"


LEGACY = {tool: "/usr/sbin/xtables-legacy-multi" for tool in (
    "iptables", "iptables-save", "iptables-restore", "ip6tables", "ip6tables-save", "ip6tables-restore")}

# iptables says of such a table: incompatible, use 'nft' tool.
INCOMPATIBLE = """
nft add table ip nat
nft add chain ip nat POSTROUTING '{ type nat hook postrouting priority 100; }'
nft add set ip nat others '{ type ipv4_addr; }'
nft add rule ip nat POSTROUTING ip saddr @others ct state new meta cgroup 7 counter accept
"""

# As administrators keep modules from being loaded.
BARRED = "mkdir -p /etc/modprobe.d; printf 'install %%s /bin/false\\n' %s >/etc/modprobe.d/barred.conf"

NO_IPV6 = "open /proc/sys/net/ipv6/conf/eth0/keep_addr_on_down: no such file or directory"
# The reference's nftables backend of masquerade has its table in that, with IPv4 alone, too.
NO_INET = "the kernel has no nf_tables family inet"
# What the reference's nftables backend of portmap relies on, as the Go plugins do.
NO_BR_NETFILTER = "another pod through the host port"
READ_ONLY_NOTES = "mkdir -p /run/cnibox; mount -t tmpfs -o ro,mode=700 tmpfs /run/cnibox"


def without(options, **kw):
    """A User Mode Linux built without some options."""
    kw.setdefault("table", "lacking-kernels")
    return Host(how="uml", settings={"FULLKERNEL_WITHOUT": options, "FULLKERNEL_APPEND": kw.pop("parameters", "")}, **kw)


def barred(outside, **kw):
    """Debian 12's kernel, with modules that the administrator keeps from being loaded."""
    return debian("bookworm", table="barred-modules", settings={"FULLKERNEL_MODULES": "veth bridge"}, outside=outside, **kw)


def debian(suite, **kw):
    """Debian's kernel under emulation, with SELinux and no policy."""
    settings = {"FULLKERNEL_BACKEND": "qemu", "FULLKERNEL_SUITE": suite, "FULLKERNEL_APPEND": "security=selinux selinux=1",
                **kw.pop("settings", {})}
    kw.setdefault("table", "debian-kernels")
    return Host(how="qemu", settings=settings, **kw)


HOSTS = [
    Host("iptables of the nf_tables flavour"),
    Host("iptables of the legacy flavour", tools=LEGACY),
    Host("no iptables program", tools={"true": "/bin/true"}, is_bare=True),
    Host("others' rules in iptables' tables", prepare=INCOMPATIBLE),
    Host("an ordinary user's namespaces", how="user"),
    Host("namespaces of a user within another's", how="nested"),
    Host("/run/cnibox is read-only", prepare=READ_ONLY_NOTES),
    Host("no /sys", prepare="umount -l /sys || mount -t tmpfs -o ro tmpfs /sys"),
    Host("/proc with hidepid=2", prepare="mount -t proc -o hidepid=2 proc /proc"),
    Host("/proc/sys is read-only", prepare="mount --bind /proc/sys /proc/sys; mount -o remount,bind,ro /proc/sys",
         lacks=dict.fromkeys((NOMAD, DUAL, NFTABLES, ROUTED, KINDS), "read-only file system")),
    without("", name="complete", table="complete-kernel"),
    without(NO_COMPAT, name="no nft_compat, no xtables (as RHEL 10)"),
    without("NF_TABLES", name="no nf_tables, iptables of the legacy flavour", tools=LEGACY,
            lacks=dict.fromkeys((NFTABLES, KINDS), "the kernel has no nf_tables")),
    without("NF_CT_NETLINK", name="no connection tracking over netlink"),
    without("IPV6", name="no IPv6", table="no-ipv6", lacks={DUAL: NO_IPV6, NFTABLES: NO_INET, KINDS: NO_INET}),
    without("", name="ipv6.disable=1", table="no-ipv6", parameters="ipv6.disable=1", lacks={DUAL: NO_IPV6}),
    debian("bullseye", name="Debian 11"),
    debian("bookworm", name="Debian 12"),
    debian("trixie", name="Debian 13"),
    debian("trixie", name="Debian 13, arm64", settings={"FULLKERNEL_ARCH": "arm64"}),
    debian("sid", name="Debian unstable"),
    barred(BARRED % "nft_compat x_tables", name="nft_compat and x_tables", lacks={NFTABLES: NO_BR_NETFILTER}),
    barred(BARRED % "nf_tables", name="nf_tables, iptables of the legacy flavour", tools=LEGACY, lacks={NFTABLES: "the kernel has no nf_tables"}),
    barred("echo 1 > /proc/sys/kernel/modules_disabled", name="all that is not loaded yet",
           lacks={**dict.fromkeys((NOMAD, DUAL, NFTABLES, ROUTED), "the kernel has no nf_tables"), LAN: "the kernel has no macvlan"}),
]

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def architecture(host):
    """Debian's name of a host's machine."""
    return host.settings.get("FULLKERNEL_ARCH", "amd64")


def path_of(folder, host):
    """(PATH of tests, PATH of plugins) on a host whose folder of programs is FOLDER."""
    if not host.tools:
        return PATH, PATH
    return (PATH, folder) if host.is_bare else (os.pathsep.join((folder, PATH)),) * 2
