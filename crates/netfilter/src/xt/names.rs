// SPDX-License-Identifier: Apache-2.0
//! What a user may call a chain.

/// Whether a user's text can be a chain's name: at most 28 bytes (`XT_EXTENSION_MAXNAMELEN` - 1), nothing that a rule
/// file would read as something else, and no target (`assert_valid_chain_name` of iptables `iptables/xshared.c`).
#[must_use]
pub fn is_chain_name(name: &str) -> bool {
    let plain = |c: char| !c.is_whitespace() && !c.is_control() && !"\"'\\".contains(c);
    let well_formed = (1..=28).contains(&name.len()) && !name.starts_with(['-', '!']);
    well_formed && name.chars().all(plain) && !TARGETS.split(' ').any(|target| target == name)
}

/// What follows `-j` and is no chain: the verdicts, and the targets that come with iptables for either family.
const TARGETS: &str = "\
    ACCEPT AUDIT CHECKSUM CLASSIFY CLUSTERIP CONNMARK CONNSECMARK CT DNAT DNPT DROP DSCP ECN HL HMARK \
    IDLETIMER LED LOG MARK MASQUERADE NETMAP NFLOG NFQUEUE NOTRACK QUEUE RATEEST REDIRECT REJECT RETURN \
    SECMARK SET SNAT SNPT SYNPROXY TCPMSS TCPOPTSTRIP TEE TOS TPROXY TRACE TTL ULOG standard";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_no_chains() {
        assert_eq!(TARGETS.split(' ').count(), 43);
        for name in TARGETS.split(' ') {
            assert!(!is_chain_name(name), "{name}");
        }
        for name in ["CNI-ADMIN", "ACCEPT-ALL", "accept", "set", "ünïcödé"] {
            assert!(is_chain_name(name), "{name}");
        }
        for name in ["", "-j", "!x", "a b", "a\nb", "\u{0}", "a\"b", "a\\b", &"a".repeat(29)] {
            assert!(!is_chain_name(name), "{name:?}");
        }
    }
}
