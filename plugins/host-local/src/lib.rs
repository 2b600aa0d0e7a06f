// SPDX-License-Identifier: Apache-2.0
//! The host-local CNI plugin
