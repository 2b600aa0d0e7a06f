// SPDX-License-Identifier: Apache-2.0
//! Steps as text for `nft -f -`, for rules with words that only nft understands.

use crate::error::{Error, Result};
use crate::nft::{Chain, string};
use crate::plan::{Action, Step};
use crate::rule::{AnyRule, Position, RuleId, TableRef};

/// The command for `nft`, a line or two.
pub(super) fn command(Step { table, action }: &Step) -> Result<String> {
    Ok(match action {
        Action::AddTable { comment } => format!("add table {table}{}", block(&[], comment.as_deref())?),
        Action::AddChain(chain) => add_chain(table, chain)?,
        Action::AddRule { chain, rule, at } => {
            let AnyRule::Nft(rule) = rule.rule() else { return Err(foreign(action)) };
            let verb = match at {
                Position::Head => "insert",
                Position::Tail => "add",
            };
            format!("{verb} rule {table} {chain} {}", rule.to_text()?)
        }
        Action::DeleteRule { chain, id: RuleId::Handle(handle) } => {
            format!("delete rule {table} {chain} handle {handle}")
        }
        Action::DeleteRule { id: RuleId::Listed(_), .. } => return Err(foreign(action)),
        Action::Flush(chain) => format!("flush chain {table} {chain}"),
        Action::DeleteChain(chain) => {
            format!("flush chain {table} {chain}\ndelete chain {table} {chain}")
        }
    })
}

/// A step of the other dialect.
fn foreign(action: &Action) -> Error {
    Error::InvalidText { kind: "rule", value: format!("{action:?}") }
}

fn add_chain(table: &TableRef, chain: &Chain) -> Result<String> {
    let hook = chain.hook.map(|hook| {
        let policy = if hook.says_accept { " policy accept ;" } else { "" };
        let (kind, point) = (hook.chain_type.name(), hook.point.name());
        format!("type {kind} hook {point} priority {} ;{policy}", hook.priority)
    });
    let block = block(hook.as_slice(), chain.comment.as_deref())?;
    Ok(format!("add chain {table} {}{block}", chain.name))
}

fn block(parts: &[String], comment: Option<&str>) -> Result<String> {
    let mut parts = parts.to_vec();
    if let Some(comment) = comment {
        parts.push(format!("comment {} ;", string(comment)?));
    }
    Ok(if parts.is_empty() { String::new() } else { format!(" {{ {} }}", parts.join(" ")) })
}
