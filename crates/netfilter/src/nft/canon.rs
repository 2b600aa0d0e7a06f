// SPDX-License-Identifier: Apache-2.0
//! The form in which rules of the native dialect are compared, hashed and encoded: networks without host bits, and no
//! counters, which say nothing about packets.

use ipnetwork::IpNetwork;

use super::{Family, Rule, Statement};
use crate::xt::INTERFACE_SIZE;

impl Rule {
    /// The canonical form of the rule in a table of this family. `None` if a statement does not fit the family or only nft
    /// understands it.
    pub(crate) fn canon(self, family: Family) -> Option<Self> {
        let said = self.statements.into_iter().filter(|statement| *statement != Statement::Counter);
        let statements = said.map(|statement| statement.canon(family)).collect::<Option<_>>()?;
        Some(Self { statements, ..self })
    }
}

impl Statement {
    fn canon(mut self, family: Family) -> Option<Self> {
        let of_family = |is_ipv4: bool| match family {
            Family::Inet => true,
            Family::Ip => is_ipv4,
            Family::Ip6 => !is_ipv4,
            Family::Bridge => false,
        };
        let fits = match &mut self {
            Self::SourceAddress { net, .. } | Self::DestinationAddress { net, .. } => {
                *net = IpNetwork::new(net.network(), net.prefix()).ok()?;
                of_family(net.is_ipv4())
            }
            Self::Raw(_) => false,
            Self::EtherSource { .. } => family == Family::Bridge,
            Self::InInterface { name, .. } | Self::OutInterface { name, .. } => {
                (1..INTERFACE_SIZE).contains(&name.len()) && !name.contains(['*', '\0'])
            }
            Self::Dnat(to) => family != Family::Inet && of_family(to.is_ipv4()),
            Self::DestinationPort { .. }
            | Self::DestinationLocal
            | Self::ConntrackState(_)
            | Self::Marked(_)
            | Self::SetMark(_)
            | Self::Counter
            | Self::Verdict(_)
            | Self::Masquerade => true,
        };
        fits.then_some(self)
    }
}
