// SPDX-License-Identifier: Apache-2.0
//! The portmap CNI plugin
