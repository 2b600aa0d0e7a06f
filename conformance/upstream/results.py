# SPDX-License-Identifier: Apache-2.0
"""What the specs of a suite say about the executables, and how two runs compare.

exercised  an executable ran in that spec before its first failure: only these are evidence
unit       passed without running one (upstream's internals)
blocked    failed before the first run, mostly for want of a kernel feature
excluded   cannot be put to an executable (needs something inside upstream's process)
"""
import json
import os

CLASSES = ("exercised", "passed", "failed", "unit", "blocked", "skipped", "excluded", "unreported")


def read(report):
    """The specs that the shim reported, names made unique."""
    specs, total, seen = [], None, {}
    for line in open(report) if os.path.exists(report) else ():
        try:
            rec = json.loads(line)
        except ValueError:
            continue  # cut short by a kill
        if "total_specs" in rec:
            total = rec["total_specs"]
        elif "name" in rec:
            n = seen[rec["name"]] = seen.get(rec["name"], 0) + 1
            if n > 1:
                rec["name"] += " #%d" % n
            specs.append(rec)
    return {"total": len(specs) if total is None else total, "specs": specs}


def classify(res):
    """Puts a class on every spec and the counts into the result."""
    counts = dict.fromkeys(CLASSES, 0)
    for spec in res["specs"]:
        spec["class"] = _class(spec)
        counts[spec["class"]] += 1
    counts["exercised"] = counts["passed"] + counts["failed"]
    counts["unreported"] = max(0, res["total"] - len(res["specs"]))
    res["counts"] = counts


def _class(spec):
    if spec["state"] in ("skipped", "pending"):
        return "skipped"
    if spec.get("not_portable"):
        return "excluded"
    if spec.get("calls_before_failure", spec.get("shim_calls", 0)) > 0:
        return "passed" if spec["state"] == "passed" else "failed"
    return "unit" if spec["state"] == "passed" else "blocked"


def shortfalls(res, control):
    """(spec name, why) of what the control passed with an executable and this run did not."""
    now = {s["name"]: s for s in res["specs"]}
    out = []
    for spec in control["specs"]:
        if spec["class"] != "passed":
            continue
        mine = now.get(spec["name"])
        if mine is None:
            out.append((spec["name"], "not run"))
        elif mine["class"] != "passed":
            out.append((spec["name"], "%s: %s" % (mine["class"], " ".join(mine.get("message", "").split())[:300])))
    return out


def anomalies(res, control):
    """(spec name, why) of oddities of the protocol that the tests themselves may not see, and that the control had not."""
    theirs = {s["name"]: _oddities(s) for s in control["specs"]}
    return [(s["name"], oddity) for s in res["specs"] for oddity in sorted(_oddities(s) - theirs.get(s["name"], set()))]


def _oddities(spec):
    return {"%s %s: %s" % (c["plugin"], c["command"], c["anomaly"]) for c in spec.get("calls") or () if c.get("anomaly")}
