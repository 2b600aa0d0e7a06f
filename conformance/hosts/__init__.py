# SPDX-License-Identifier: Apache-2.0
"""What runs on which host: docs/hosts.md."""
