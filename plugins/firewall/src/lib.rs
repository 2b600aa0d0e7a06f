// SPDX-License-Identifier: Apache-2.0
//! The firewall CNI plugin
