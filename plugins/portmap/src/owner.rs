// SPDX-License-Identifier: Apache-2.0
//! Whose port mappings rules are, and the names that follow from it.

use cnibox_spec::{Attachment, sha512_prefix};

/// A container on a network. All its interfaces there share chains and comments, as in the reference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Owner {
    /// The network's name.
    pub(crate) network: String,
    /// The container's ID.
    pub(crate) container: String,
}

impl Owner {
    /// The owner of an attachment's ports.
    pub(crate) fn of(attachment: &Attachment) -> Self {
        let Attachment { network, container, .. } = attachment;
        Self { network: network.as_str().to_owned(), container: container.as_str().to_owned() }
    }

    /// The container's own iptables chain.
    pub(crate) fn dnat_chain(&self) -> String {
        format!("{DNAT_PREFIX}{}", sha512_prefix(&[&self.network, &self.container], HASH_DIGITS))
    }

    /// The chain that versions of the reference before 0.8 made.
    pub(crate) fn old_snat_chain(&self) -> String {
        format!("CNI-SN-{}", sha512_prefix(&[&self.network, &self.container], HASH_DIGITS))
    }

    /// The comment of the rules that lead into the chain. The reference cuts a long one and appends dots, of which
    /// iptables keeps as many as fit.
    pub(crate) fn xt_comment(&self) -> String {
        let mut comment = format!("{}{}\"", xt_comment_start(&self.network), self.container);
        if comment.len() > XT_COMMENT_LIMIT {
            comment.truncate(XT_COMMENT_LIMIT - 2);
            comment.push_str("..");
        }
        comment
    }

    /// The comment of native rules: the container's ID alone. One that is too long for `nft` is there by its beginning
    /// and its hash.
    pub(crate) fn nft_comment(&self) -> String {
        let container = &self.container;
        if container.len() <= NFT_COMMENT_LIMIT {
            return container.clone();
        }
        let start = container.get(..NFT_COMMENT_LIMIT - LONG_HASH_DIGITS).unwrap_or_default();
        format!("{start}{}", sha512_prefix(&[container], LONG_HASH_DIGITS))
    }
}

/// How the comments of all entry rules of a network begin. Names are plain, so nothing needs quoting.
pub(crate) fn xt_comment_start(network: &str) -> String {
    format!("dnat name: \"{network}\" id: \"")
}

/// How every container's own chain begins.
pub(crate) const DNAT_PREFIX: &str = "CNI-DN-";
/// Of 28 characters that a chain's name has in all.
const HASH_DIGITS: usize = 21;
/// 256 bytes with the terminating zero (`XT_MAX_COMMENT_LEN`).
const XT_COMMENT_LIMIT: usize = 255;
/// What `nft` accepts as a comment, in bytes (`NFTNL_UDATA_COMMENT_MAXLEN` of libnftnl).
const NFT_COMMENT_LIMIT: usize = 128;
const LONG_HASH_DIGITS: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    fn owner(network: &str, container: &str) -> Owner {
        Owner { network: network.into(), container: container.into() }
    }

    #[test]
    fn chains_are_the_references_vectors() {
        let id = "icee6giejonei6sohng6ahngee7laquohquee9shiGo7fohferakah3Feiyoolu2pei7ciPhoh7shaoX6vai3vuf0ahfaeng8yohb9ceu0daez5hashee8ooYai5wa3y";
        assert_eq!(owner("test", id).dnat_chain(), "CNI-DN-67e92b96e692a494b6b85");
        assert_eq!(owner("testNetName", id).dnat_chain(), "CNI-DN-bfd599665540dd91d5d28");
        assert_eq!(owner("mynet", "cont1").dnat_chain(), "CNI-DN-c729ec77c46fa9b53d651");
        assert_eq!(owner("mynet", "cont1").old_snat_chain(), "CNI-SN-c729ec77c46fa9b53d651");
    }

    #[test]
    fn comments_name_network_and_container_as_far_as_they_fit() {
        assert_eq!(owner("mynet", "cont1").xt_comment(), r#"dnat name: "mynet" id: "cont1""#);
        let fits = owner("mynet", &"a".repeat(230)).xt_comment();
        assert!(fits.len() == 255 && fits.ends_with("a\""));
        let cut = owner("mynet", &"a".repeat(231)).xt_comment();
        assert!(cut.len() == 255 && cut.ends_with("a.."));
    }

    #[test]
    fn a_native_comment_is_the_id_as_long_as_it_fits() {
        let comment = |digits| owner("mynet", &"b".repeat(digits)).nft_comment();
        assert_eq!(comment(128), "b".repeat(128));
        let (one, other) = (comment(129), comment(130));
        assert!(one.len() == 128 && other.len() == 128 && one != other);
    }
}
