# SPDX-License-Identifier: Apache-2.0
"""A real Nomad agent drives the plugins, and, in the same run, the Go plugins: what it calls running must answer.

build.py has the programs, agent.py the agent, jobs.py what it is asked for, hosts.py the host below it, watch.py the eye
that looks for one address in two places, patterns.py and faults.py what is played, figures.py how long it takes;
inside.py is the program in the sandbox and lane.py what starts it and compares.
"""
