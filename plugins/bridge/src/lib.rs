// SPDX-License-Identifier: Apache-2.0
//! The bridge CNI plugin
