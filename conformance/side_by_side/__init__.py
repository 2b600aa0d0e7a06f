# SPDX-License-Identifier: Apache-2.0
"""Scenarios run with two sets of plugins in separate sandboxes, and compared.

scenarios/  what is run: data
inside      runs one scenario inside a sandbox and writes a record
observe     what a record says about the kernel, the packet filter and the files
normal      takes random names and timing out of a record
compare     the differences between two records
lane        runs all scenarios and judges the differences
swap        one set of plugins adds, the other checks and deletes
"""
