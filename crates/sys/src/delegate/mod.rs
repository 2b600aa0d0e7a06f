// SPDX-License-Identifier: Apache-2.0
//! Calling other plugins: in this process where they are this executable, as processes otherwise.
//!
//! Must never know what a delegate does with its call.

mod invoke;
mod labelled;
