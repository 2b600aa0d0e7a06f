// SPDX-License-Identifier: Apache-2.0
//! The netlink transport: reads for the planner, and the commit of its steps as one transaction.

use std::ops::ControlFlow;

use crate::batch::{Position, RuleId, TableRef};
use crate::error::{Error, Result};
use crate::hint::Hint;
use crate::kernel::expr::Expr;
use crate::kernel::message::{ChainName, Messages, NEW_RULE, NewRule};
use crate::kernel::socket::{Refusal, Socket};
use crate::kernel::tables::{RawRule, scan};
use crate::plan::{Action, AnyRule, Listed, Reader, Step, Uses, Wanted};
use crate::xt::Canon;
use crate::{nft, xt};

impl Reader for Socket {
    fn has_table(&mut self, table: &TableRef) -> Result<bool> {
        Socket::has_table(self, table.family(), table.name())
    }

    fn chain(&mut self, table: &TableRef, chain: &str) -> Result<Option<Uses>> {
        let facts = Socket::chain(self, chain_name(table, chain))?;
        Ok(facts.map(|facts| Uses::RulesAndJumps(facts.uses)))
    }

    fn jumps(&mut self, table: &TableRef, chain: &str) -> Result<u32> {
        let uses = Socket::chain(self, chain_name(table, chain))?.map_or(0, |facts| facts.uses);
        let own = Socket::rules(self, chain_name(table, chain))?.len();
        Ok(uses.saturating_sub(u32::try_from(own).unwrap_or(u32::MAX)))
    }

    fn rules(&mut self, table: &TableRef, chain: &str) -> Result<Vec<Listed>> {
        let rules = Socket::rules(self, chain_name(table, chain))?;
        let family = table.family();
        Ok(rules.into_iter().map(|rule| Listed::Raw { rule, family }).collect())
    }

    fn rule(&mut self, table: &TableRef, chain: &str, id: &RuleId) -> Result<Option<Listed>> {
        let RuleId::Handle(handle) = id else { return Ok(None) };
        let rule = Socket::rule(self, chain_name(table, chain), *handle)?;
        Ok(rule.map(|rule| Listed::Raw { rule, family: table.family() }))
    }

    fn search(&mut self, table: &TableRef, chain: &str, wanted: &[Wanted]) -> Result<Vec<bool>> {
        let mut found = vec![false; wanted.len()];
        scan(chain_name(table, chain), |rule| {
            for (wanted, found) in wanted.iter().zip(&mut found).filter(|(_, found)| !**found) {
                *found = wanted.is_raw(rule, table.family());
            }
            if found.contains(&false) { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        Ok(found)
    }

    fn is_same(&mut self, _: &TableRef, _: &str, wanted: &Wanted, listed: &Listed) -> Result<bool> {
        Ok(wanted.is(listed))
    }
}

/// Commits the steps if the ruleset still is of this generation, and says where rules were put in chains that were there
/// before; `None` if it is not, or if the answer got lost.
pub(crate) fn commit(
    socket: &mut Socket,
    generation: u32,
    steps: &[Step],
    form: xt::Form,
) -> Result<Option<Vec<Hint>>> {
    let count = u32::try_from(steps.len()).unwrap_or(u32::MAX).saturating_add(2);
    let first = socket.sequence(count);
    let mut messages = Messages::new(first);
    messages.begin(generation);
    for step in steps {
        push(&mut messages, step, form, is_hidden_among_others(step, steps))?;
    }
    messages.end();
    if steps.iter().any(|(_, action)| action.deletes()) {
        socket.note_deletion();
    }
    // Whether the steps are done is for the next look to say.
    let mut hints = Vec::new();
    let refusals = socket.transact(&messages.into_bytes(), |message| {
        let rule = RawRule::parse(message.body).filter(|_| message.kind == NEW_RULE);
        if let (Some(rule), Some((table, Action::AddRule { chain, .. }))) =
            (rule, step_of(message.seq, first, steps))
        {
            hints.push(Hint::new(table, chain, rule.handle));
        }
    })?;
    let Some(refusals) = refusals else { return Ok(None) };
    let Some(refusal) = refusals.into_iter().min_by_key(|refusal| refusal.seq) else {
        return Ok(Some(hints));
    };
    // kernel net/netfilter/nfnetlink.c: the generation differs
    if refusal.errno == ERESTART {
        return Ok(None);
    }
    Err(failure(refusal, first, steps))
}

/// True for a rule of the iptables dialect in a chain that others may fill, which is to be found again by its handle. A
/// chain that the same steps make holds little else.
fn is_hidden_among_others((table, action): &Step, steps: &[Step]) -> bool {
    let (Action::AddRule { chain, .. }, TableRef::Xt(..)) = (action, table) else { return false };
    !steps
        .iter()
        .any(|(of, step)| of == table && matches!(step, Action::AddChain(made) if made.name == *chain))
}

const ERESTART: i32 = 85;

fn failure(refusal: Refusal, first: u32, steps: &[Step]) -> Error {
    let operation = match step_of(refusal.seq, first, steps) {
        Some((table, action)) => action.describe(table),
        None => "change the ruleset".to_owned(),
    };
    refusal.into_error(operation)
}

/// The step that a message of the transaction was for; the first message opens it.
fn step_of(seq: u32, first: u32, steps: &[Step]) -> Option<&Step> {
    let index = seq.checked_sub(first.checked_add(1)?)?;
    steps.get(usize::try_from(index).ok()?)
}

fn push(messages: &mut Messages, (table, action): &Step, form: xt::Form, echo: bool) -> Result<()> {
    let family = table.family();
    match action {
        Action::AddTable { comment } => messages.new_table(family, table.name(), comment.as_deref()),
        Action::AddChain(chain) => messages.new_chain(family, table.name(), chain),
        Action::AddRule { chain, rule, at } => {
            let encoded = encode(table, rule, form)?;
            let at_head = *at == Position::Head;
            messages.new_rule(chain_name(table, chain), &encoded.as_message(at_head, echo));
        }
        Action::DeleteRule { chain, id: RuleId::Handle(handle) } => {
            messages.delete_rule(chain_name(table, chain), Some(*handle));
        }
        Action::DeleteRule { id: RuleId::Listed(words), .. } => return Err(unencodable(words.join(" "))),
        Action::Flush { chain } => messages.delete_rule(chain_name(table, chain), None),
        Action::DeleteChain { chain } => messages.delete_chain(chain_name(table, chain)),
    }
    Ok(())
}

struct Encoded<'a> {
    exprs: Vec<Expr<'static>>,
    compat: Option<(u8, bool)>,
    comment: Option<&'a str>,
}

impl Encoded<'_> {
    fn as_message(&self, at_head: bool, echo: bool) -> NewRule<'_> {
        NewRule { exprs: &self.exprs, compat: self.compat, comment: self.comment, at_head, echo }
    }
}

fn encode<'a>(table: &TableRef, rule: &'a AnyRule, form: xt::Form) -> Result<Encoded<'a>> {
    let (exprs, compat, comment) = match (rule, table) {
        (AnyRule::Xt(rule), TableRef::Xt(family, _)) => {
            let canon = Canon::of(rule).ok_or_else(|| unencodable(rule.to_args().join(" ")))?;
            (xt::encode(&canon, *family, form), canon.protocol, None)
        }
        (AnyRule::Nft(rule), _) => (nft::encode(rule, table.family()), None, rule.comment.as_deref()),
        (AnyRule::Xt(_), TableRef::Nft(..)) => (None, None, None),
    };
    let exprs = exprs.ok_or_else(|| unencodable(format!("{rule:?}")))?;
    Ok(Encoded { exprs, compat, comment })
}

fn unencodable(value: String) -> Error {
    Error::InvalidText { kind: "rule", value }
}

pub(crate) fn chain_name<'a>(table: &'a TableRef, chain: &'a str) -> ChainName<'a> {
    ChainName { family: table.family(), table: table.name(), chain }
}
