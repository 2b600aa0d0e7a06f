# SPDX-License-Identifier: Apache-2.0
"""What is in the packet filter of the namespace that the caller is in: both flavours of iptables, and nftables' own tables."""
import json
import re

from .shell import together

# The tables iptables-nft keeps; iptables-save shows them better than nft.
IPTABLES = {"filter", "nat", "mangle", "raw", "security"}
# What a legacy table was made in says so here.
LEGACY = {"iptables": "/proc/net/ip_tables_names", "ip6tables": "/proc/net/ip6_tables_names"}


def seen(ruleset):
    """Everything, by area; RULESET is what `nft -j list ruleset` prints. A flavour that has no table is not asked."""
    tables = {(e["table"]["family"], e["table"]["name"]) for e in json.loads(ruleset)["nftables"] if "table" in e}
    wanted = {}
    for program, family in (("iptables", "ip"), ("ip6tables", "ip6")):
        if any(f == family and name in IPTABLES for f, name in tables):
            wanted[program] = program + "-nft-save"
        if _lines(LEGACY[program]):
            wanted[program + "-legacy"] = program + "-legacy-save"
    own = sorted(t for t in tables if not (t[0] in ("ip", "ip6") and t[1] in IPTABLES))
    for family, name in own:
        wanted["nft %s %s" % (family, name)] = "nft -s list table %s '%s'" % (family, name)
    printed = dict(zip(wanted, together(list(wanted.values()))))
    out = {area: iptables(text) for area, text in printed.items() if not area.startswith("nft ")}
    out["nft"] = nft(ruleset)
    for family, name in own:
        out["nft"]["%s %s" % (family, name)]["comments"] = _comments(printed["nft %s %s" % (family, name)])
    return out


def _lines(path):
    try:
        with open(path) as f:
            return f.read().split()
    except OSError:
        return []


def iptables(saved):
    """{table: {chain: {policy, rules}}}; order of rules kept, order of chains not."""
    out, table = {}, None
    for line in saved.splitlines():
        if line.startswith("*"):
            table = out[line[1:]] = {}
        elif line.startswith(":"):
            chain, policy = line[1:].split(" ")[:2]
            table[chain] = {"policy": policy, "rules": []}
        elif line.startswith("-A "):
            table[line.split(" ", 2)[1]]["rules"].append(line)
    # iptables makes a table's built-in chains as soon as it looks at the table;
    # empty ones with the default policy mean nothing.
    for name in list(out):
        out[name] = {c: v for c, v in out[name].items() if v["policy"] != "ACCEPT" or v["rules"]}
        if not out[name]:
            del out[name]
    return out


def nft(ruleset):
    """Tables that are not iptables': {family table: {"": table, chain: ..., "chain rules": [...]}}."""
    out = {}
    for entry in json.loads(ruleset or '{"nftables": []}')["nftables"]:
        (kind, item), = entry.items()
        if kind == "metainfo":
            continue
        item.pop("handle", None)
        name = item["name"] if kind == "table" else item["table"]
        if item["family"] in ("ip", "ip6") and name in IPTABLES:
            continue
        table = out.setdefault(item["family"] + " " + name, {})
        if kind == "table":
            table["table"] = item
        elif kind == "rule":
            table.setdefault(item["chain"] + " rules", []).append(item)
        else:
            table[kind + " " + item["name"]] = item
    return out


def _comments(text):
    """The comments of a table and of what is in it but its rules, which nft leaves out of its JSON; a line each, behind what it is of."""
    out, inside = [], ""
    for line in text.splitlines():
        opened = re.fullmatch(r"\s*(\w+ .*) \{", line)
        inside = opened.group(1) if opened else inside
        if re.match(r"\s*comment ", line):
            out.append("%s: %s" % (inside, line.strip()))
    return sorted(out)
