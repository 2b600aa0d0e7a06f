// SPDX-License-Identifier: Apache-2.0
//! Every CNI reference plugin in one executable.

fn main() {}
