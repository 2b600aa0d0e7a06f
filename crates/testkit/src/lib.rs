// SPDX-License-Identifier: Apache-2.0
//! For tests only: namespace sandbox, chain runner, packet probes, golden files
