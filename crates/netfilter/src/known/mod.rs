// SPDX-License-Identifier: Apache-2.0
//! What is known before anything is read: where rules were put, and what chains hold at most. It must never know how that
//! is found out, nor where it is kept.

mod hint;
mod inventory;

pub use hint::Hint;
pub use inventory::{Inventory, Shelf};
pub(crate) use inventory::{Kept, generation_after};

/// Whether the steps will be refused when anything has changed since the planner looked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Guard {
    /// They are: what was seen is what there is.
    Generation,
    /// They are not: others' rules may have come.
    Nothing,
}

/// What is known before anything is read.
#[derive(Clone, Copy)]
pub(crate) struct Known<'k> {
    /// Where rules that are to go are looked for before all are read.
    pub(crate) hints: &'k [Hint],
    pub(crate) guard: Guard,
    /// What chains hold at most.
    pub(crate) kept: Option<&'k Kept<'k>>,
}

impl Known<'_> {
    /// Nothing is.
    pub(crate) const NOTHING: Self = Self { hints: &[], guard: Guard::Nothing, kept: None };
}
