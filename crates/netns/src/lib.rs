// SPDX-License-Identifier: Apache-2.0
//! Network namespaces: open, enter, create; sysctls inside them
