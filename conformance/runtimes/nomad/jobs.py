# SPDX-License-Identifier: Apache-2.0
"""Jobs: a web server per allocation that answers with the allocation's own id."""
SECOND = 10 ** 9  # Nomad counts in nanoseconds
BUSYBOX = "/opt/cni/busybox"
# Serves both families on the port that is meant for the task.
SERVE = "mkdir -p local/www && echo $NOMAD_ALLOC_ID > local/www/index.html && exec %s httpd -f -p \"[::]:%s\" -h local/www"


def job(name, network, count=1, listen="$NOMAD_PORT_http"):
    """A service with COUNT allocations on NETWORK; one that fails is tried anew after some seconds, for ever."""
    task = {"Name": "web", "Driver": "raw_exec", "Config": {"command": BUSYBOX, "args": ["sh", "-c", SERVE % (BUSYBOX, listen)]},
            "Resources": {"CPU": 20, "MemoryMB": 20}, "KillTimeout": SECOND,
            "LogConfig": {"Disabled": True, "MaxFiles": 1, "MaxFileSizeMB": 1}}
    group = {"Name": "g", "Count": count, "Networks": [network], "Tasks": [task],
             "RestartPolicy": {"Attempts": 0, "Interval": 600 * SECOND, "Delay": SECOND, "Mode": "fail"},
             "ReschedulePolicy": {"Unlimited": True, "Delay": 5 * SECOND, "DelayFunction": "constant"},
             # No deployment: while one is under way, or has failed, what fails is not placed anew.
             "Update": {"MaxParallel": 0}, "EphemeralDisk": {"SizeMB": 10}}
    return {"ID": name, "Name": name, "Type": "service", "Datacenters": ["*"], "TaskGroups": [group]}


def bridge(static=None):
    """Nomad's own bridge: a port that it chooses, or one that is given."""
    if static:
        return {"Mode": "bridge", "ReservedPorts": [{"Label": "http", "Value": static, "To": 80}]}
    return {"Mode": "bridge", "DynamicPorts": [{"Label": "http", "To": 80}]}


def cni(name, **args):
    """A network of /etc/cni/net.d, with arguments for it and a port that Nomad chooses."""
    network = {"Mode": "cni/" + name, "DynamicPorts": [{"Label": "http", "To": 80}]}
    return dict(network, CNI={"Args": args}) if args else network
