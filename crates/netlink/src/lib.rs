// SPDX-License-Identifier: Apache-2.0
//! rtnetlink verbs on one blocking socket per network namespace
