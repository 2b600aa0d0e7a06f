// SPDX-License-Identifier: Apache-2.0
//! What a plugin can be asked for.

/// A verb of the protocol that is about a network or an attachment (`CNI_COMMAND`; CNI spec, section "CNI operations").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// ADD, which answers with a result.
    Add,
    /// DEL.
    Del,
    /// CHECK.
    Check,
    /// STATUS.
    Status,
    /// GC.
    Gc,
}

impl Verb {
    /// Every verb.
    pub const ALL: [Self; 5] = [Self::Add, Self::Del, Self::Check, Self::Status, Self::Gc];

    /// The value of `CNI_COMMAND`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Add => "ADD",
            Self::Del => "DEL",
            Self::Check => "CHECK",
            Self::Status => "STATUS",
            Self::Gc => "GC",
        }
    }
}
