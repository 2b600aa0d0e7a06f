// SPDX-License-Identifier: Apache-2.0
//! Where every error ends: an error object with its code.
//!
//! An error's `Display` is its whole message, causes included, because the reference's texts put the cause
//! wherever they like. `source()` serves only to find the kernel's own words for the details.

use std::error::Error;

use cnibox_spec::{ArgsError, Code, ConvertError, DecodeError, ErrorObject, IdentError, PrevResultError};

/// An error that knows its CNI code.
pub trait Coded: Error + 'static {
    /// The code of an error that always has the same; 999 as the reference uses for everything without a better one.
    const CODE: Code = Code::INTERNAL;

    /// The code.
    fn code(&self) -> Code {
        Self::CODE
    }
}

/// A failed verb. Boxed, since it travels through every `Result`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure(Box<ErrorObject>);

impl Failure {
    /// A failure with a message and no details.
    #[must_use]
    pub fn new(code: Code, msg: impl Into<String>) -> Self {
        Self(Box::new(ErrorObject { code, msg: msg.into(), details: String::new() }))
    }

    /// A failure with the code that everything without a better one has.
    #[must_use]
    pub fn internal(msg: impl Into<String>) -> Self {
        Self::new(Code::INTERNAL, msg)
    }

    /// A failure of a configuration that can be read and makes no sense.
    #[must_use]
    pub fn invalid_config(msg: impl Into<String>) -> Self {
        Self::new(Code::INVALID_CONFIG, msg)
    }

    /// A failure with the kernel's own words behind `cause` for the details.
    pub(crate) fn caused(code: Code, msg: String, cause: &(dyn Error + 'static)) -> Self {
        let details = kernel_text(cause).unwrap_or_default().to_owned();
        Self(Box::new(ErrorObject { code, msg, details }))
    }

    /// The object to print.
    #[must_use]
    pub fn object(&self) -> &ErrorObject {
        &self.0
    }

    /// Puts `prefix` in front of the message.
    #[must_use]
    pub fn prefixed(mut self, prefix: &str) -> Self {
        self.0.msg.insert_str(0, prefix);
        self
    }

    /// Adds to the details, separated by `; `.
    pub fn add_details(&mut self, text: &str) {
        if !self.0.details.is_empty() {
            self.0.details.push_str("; ");
        }
        self.0.details.push_str(text);
    }

    /// Several failures as one: the first one's code and message, the others in the details; `Ok` for none.
    ///
    /// # Errors
    /// The combined failure.
    pub fn combine(failures: impl IntoIterator<Item = Self>) -> Result<(), Self> {
        let mut failures = failures.into_iter();
        let Some(mut first) = failures.next() else { return Ok(()) };
        for other in failures {
            first.add_details(&other.0.to_string());
        }
        Err(first)
    }
}

impl From<ErrorObject> for Failure {
    fn from(object: ErrorObject) -> Self {
        Self(Box::new(object))
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

impl Error for Failure {}

impl<E: Coded> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::caused(error.code(), error.to_string(), &error)
    }
}

/// Says where an error arises what was attempted. A [`Failure`] has said it already, and keeps its code.
pub trait OrSay<T, E> {
    /// A [`Failure::internal`] with the message `text` and the kernel's own words for the details.
    ///
    /// # Errors
    /// The failure.
    fn or_say(self, text: impl FnOnce(&E) -> String) -> Result<T, Failure>;
}

impl<T, E: Coded> OrSay<T, E> for Result<T, E> {
    fn or_say(self, text: impl FnOnce(&E) -> String) -> Result<T, Failure> {
        self.map_err(|error| Failure::caused(Code::INTERNAL, text(&error), &error))
    }
}

/// The kernel's extended acknowledgement behind an error, wherever it stands in the chain.
fn kernel_text<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a str> {
    let mut next = Some(error);
    while let Some(error) = next {
        let netlink =
            error.downcast_ref::<cnibox_netlink::Error>().and_then(cnibox_netlink::Error::kernel_text);
        let netfilter =
            error.downcast_ref::<cnibox_netfilter::Error>().and_then(cnibox_netfilter::Error::kernel_text);
        if let Some(text) = netlink.or(netfilter) {
            return Some(text);
        }
        next = error.source();
    }
    None
}

impl Coded for cnibox_netlink::Error {}
impl Coded for cnibox_netns::Error {}
impl Coded for cnibox_netns::sysctl::Error {}

impl Coded for cnibox_netfilter::Error {
    fn code(&self) -> Code {
        if self.is_transient() { Code::TRY_AGAIN_LATER } else { Code::INTERNAL }
    }
}

impl Coded for ArgsError {
    const CODE: Code = Code::INVALID_ENVIRONMENT;
}

/// Plugins look before they are done ([`cnibox_spec::check_expressible`]): what is printed cannot be taken back.
impl Coded for ConvertError {}

impl Coded for DecodeError {
    const CODE: Code = Code::DECODING_FAILURE;
}

impl Coded for PrevResultError {
    const CODE: Code = Code::INVALID_CONFIG;
}

impl From<IdentError> for Failure {
    fn from(error: IdentError) -> Self {
        ErrorObject::from(error).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_where_an_error_arises_keeps_the_kernels_words() {
        let refused =
            cnibox_netlink::Error::Refused { errno: 40, kernel_text: Some("Can not enslave".into()) };
        let failure = Err::<(), _>(refused).or_say(|error| format!("attach: {error}")).unwrap_err();
        let object = failure.object();
        assert_eq!(object.code, Code::INTERNAL);
        assert_eq!(object.msg, "attach: too many levels of symbolic links");
        assert_eq!(object.details, "Can not enslave");
    }
}
