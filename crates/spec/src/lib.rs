// SPDX-License-Identifier: Apache-2.0
//! CNI wire types, versions, error codes and CNI_ARGS; pure, knows no operating system
