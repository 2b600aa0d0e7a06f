# SPDX-License-Identifier: Apache-2.0
"""Upstream's own test suites, run against plugin executables."""
