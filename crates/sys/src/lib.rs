// SPDX-License-Identifier: Apache-2.0
//! What a plugin may touch: namespaces, links, rules, delegates, state; with transactions
