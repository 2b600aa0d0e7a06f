# SPDX-License-Identifier: Apache-2.0
"""The conformance lab: how close the plugins in a directory are to the Go reference."""
