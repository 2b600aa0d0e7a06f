# SPDX-License-Identifier: Apache-2.0
"""static on its own: every field, and who may name the addresses."""
from . import FAILS, LIFE, SHORT, VERSIONS, scenario, wrong_types
from .interfaces import args

ONE = {"address": "10.60.0.9/24", "gateway": "10.60.0.1"}
ONE6 = {"address": "fd60::9/64", "gateway": "fd60::1"}
ROUTES = [{"dst": "0.0.0.0/0"}, {"dst": "198.18.0.0/15", "gw": "10.60.0.3", "priority": 7, "mtu": 1400, "advmss": 1300, "table": 7, "scope": 0}]
DNS = {"nameservers": ["10.60.0.53"], "domain": "d", "search": ["a"], "options": ["ndots:2"]}


def static(*addresses, top=None, **ipam):
    """A configuration with only an ipam part (and TOP)."""
    return [dict({"type": "static", "ipam": dict({"type": "static", "addresses": list(addresses)}, **ipam)}, **(top or {}))]


def given(name, plugins, steps=SHORT, **more):
    """A scenario of this plugin alone."""
    return scenario("static/" + name, plugins, steps, **more)


RUNTIME = {"top": {"capabilities": {"ips": True}}}
BY_ARGS = {"top": {"args": {"cni": {"ips": ["10.62.0.5/24", "fd62::5/64"]}}}}
SCENARIOS = [given("version-%s" % v, static(ONE, ONE6, routes=ROUTES, dns=DNS), LIFE, version=v) for v in VERSIONS + (None,)]
SCENARIOS += [given("two-of-a-family-%s" % v, static(ONE, dict(ONE, address="10.60.0.10/24")), version=v) for v in ("0.2.0", "0.3.0", "1.1.0")]
SCENARIOS += [given(name, static(*addresses, **ipam)) for name, addresses, ipam in (
    ("host-part", [ONE], {}), ("network-address", [{"address": "10.60.0.0/24"}], {}), ("host-route", [{"address": "10.60.0.9/32"}], {}), ("v6-form", [{"address": "FD60:0:0::9/64"}], {}),
    ("mapped", [{"address": "::ffff:10.60.0.9/120"}], {}), ("gateway-outside", [dict(ONE, gateway="192.0.2.1")], {}), ("gateway-empty", [dict(ONE, gateway="")], {}), ("gateway-null", [dict(ONE, gateway=None)], {}),
    ("no-addresses", [], {}), ("no-addresses-but-routes", [], {"routes": ROUTES, "dns": DNS}), ("addresses-null", [], {"addresses": None}), ("routes-null", [ONE], {"routes": None, "dns": None}),
    ("unknown-keys", [dict(ONE, foo=1)], {"foo": [1]}), ("key-case", [{"ADDRESS": "10.60.0.9/24"}], {"Routes": ROUTES}), ("version-key", [dict(ONE, version="4")], {}))]
SCENARIOS += [given(name, static(*addresses, **ipam), FAILS) for name, addresses, ipam in (
    ("no-prefix", [{"address": "10.60.0.9"}], {}), ("bad-address", [{"address": "nonsense"}], {}), ("bad-prefix", [{"address": "10.60.0.9/33"}], {}), ("address-empty", [{"address": ""}], {}), ("address-missing", [{}], {}),
    ("address-zeros", [{"address": "010.60.0.9/24"}], {}), ("bad-gateway", [dict(ONE, gateway="nonsense")], {}), ("bad-route", [ONE], {"routes": [{"dst": "nonsense"}]}), ("bad-route-gateway", [ONE], {"routes": [{"dst": "0.0.0.0/0", "gw": "x"}]}),
    ("route-empty", [ONE], {"routes": [{}]}))]
SCENARIOS += [given("args-" + name, static(ONE), args(text)) for name, text in (
    ("ip", "IP=10.61.0.5/24"), ("ip-and-gateway", "IP=10.61.0.5/24;GATEWAY=10.61.0.1"), ("several", "IP=10.61.0.5/24,fd61::5/64;GATEWAY=fd61::1,10.61.0.1"), ("spaces", "IP=10.61.0.5/24, 10.62.0.5/24;GATEWAY=10.61.0.1, 10.62.0.1"),
    ("gateway-of-configured", "GATEWAY=10.60.0.2"), ("gateway-first", "GATEWAY=10.61.0.1;IP=10.61.0.5/24"), ("gateway-elsewhere", "IP=10.61.0.5/24;GATEWAY=192.0.2.1"), ("ip-empty", "IP="), ("ip-without-prefix", "IP=10.61.0.5"),
    ("ip-bad", "IP=nonsense"), ("ip-trailing-comma", "IP=10.61.0.5/24,"), ("gateway-bad", "IP=10.61.0.5/24;GATEWAY=x"), ("gateway-empty", "GATEWAY="), ("unknown", "FOO=bar"), ("unknown-ignored", "IgnoreUnknown=1;FOO=bar;IP=10.61.0.5/24"),
    ("malformed", "nonsense"), ("ip-twice", "IP=10.61.0.5/24;IP=10.62.0.5/24"), ("same-as-configured", "IP=10.60.0.9/24"))]
SCENARIOS += [
    given("args-cni", static(ONE, **BY_ARGS), args("IP=10.61.0.5/24")), given("args-cni-empty", static(ONE, top={"args": {"cni": {"ips": []}}})), given("args-cni-bad", static(ONE, top={"args": {"cni": {"ips": ["10.62.0.5"]}}}), FAILS),
    given("runtime", static(ONE, **RUNTIME), args("IP=10.61.0.5/24"), caps={"ips": ["10.63.0.5/24", "fd63::5/64"]}), given("runtime-empty", static(ONE, **RUNTIME), caps={"ips": []}), given("runtime-bad", static(ONE, **RUNTIME), FAILS, caps={"ips": ["10.63.0.5"]}),
    given("runtime-over-args", static(ONE, top=dict(RUNTIME["top"], **BY_ARGS["top"])), caps={"ips": ["10.63.0.5/24"]}), given("runtime-alone", [dict({"type": "static", "ipam": {"type": "static"}}, **RUNTIME["top"])], caps={"ips": ["10.63.0.5/24"]}),
    given("no-ipam", [{"type": "static"}], ["STATUS"] + FAILS), given("ipam-null", [{"type": "static", "ipam": None}], FAILS), given("del-anything", static({"address": "nonsense"}), [{"do": "DEL", "netns": "/nowhere"}, {"do": "DEL", "netns": ""}]),
    given("check-without-prevresult", static(ONE), ["ADD c1", {"do": "CHECK", "add": {"prevResult": None}}]),
    given("check-other-addresses", static(ONE, ONE6), ["ADD c1"] + [{"do": "CHECK", "add": {"prevResult": dict({"cniVersion": "1.0.0"}, **r)}} for r in (
        {"ips": []}, {"ips": [{"address": "10.60.0.9/24", "gateway": "10.60.0.2"}]}, {"ips": [{"address": "10.60.0.9/16", "gateway": "10.60.0.1"}]}, {"ips": [{"address": "10.60.0.9/24"}]}, {"ips": [{"address": "nonsense"}]}, {"cniVersion": "9.9.9"})])]
SCENARIOS += [wrong_types("static/wrong-types", static(ONE)[0], [("ipam.addresses", "x"), ("ipam.addresses", [5]), ("ipam.addresses", [{"address": 5}]), ("ipam.addresses", [{"address": "10.0.0.1/8", "gateway": 5}]), ("ipam.routes", "x"), ("ipam.routes", [5]),
    ("ipam.routes", [{"dst": 5}]), ("ipam.routes", [{"dst": "10.0.0.0/8", "mtu": "x"}]), ("ipam.dns", 5), ("ipam.dns.search", "x"), ("runtimeConfig.ips", "x"), ("runtimeConfig.ips", [5]), ("args.cni", 5), ("args.cni.ips", [5])])]
