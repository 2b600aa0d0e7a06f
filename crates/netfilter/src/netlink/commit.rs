// SPDX-License-Identifier: Apache-2.0
//! Encodes steps and commits them, as one transaction wherever something comes.

use std::collections::HashSet;

use super::listing::handle;
use super::message::{Messages, NewRule};
use super::socket::{Refusal, Socket};
use super::xt::Form;
use super::{nft, xt};
use crate::error::{Error, Result};
use crate::known::{Hint, generation_after};
use crate::plan::{Action, Step};
use crate::rule::{AnyRule, Position, RuleId, TableRef, Wanted};

/// What a commit has done.
pub(crate) struct Committed {
    /// The generation that the ruleset has now.
    pub(crate) generation: u32,
    /// Where rules were put in chains that were there before.
    pub(crate) added: Vec<Hint>,
}

/// Commits the steps if the ruleset still is of this generation; `None` if it is not, or if an answer got lost: then a look
/// tells what is still to be done.
pub(crate) fn commit(
    socket: &mut Socket,
    generation: u32,
    steps: &[Step],
    form: Form,
) -> Result<Option<Committed>> {
    let mut done = Committed { generation, added: Vec::new() };
    for steps in transactions(steps) {
        let Some(added) = transact(socket, done.generation, steps, form)? else { return Ok(None) };
        done.generation = generation_after(done.generation);
        done.added.extend(added);
    }
    Ok(Some(done))
}

/// All steps as one; hundreds that only take away as several, of which what is done may stay done when a later one is
/// refused. For every rule that goes the kernel walks past all of its chain that the same transaction took away before (kernel
/// net/netfilter/nf_tables_api.c, nft_rule_lookup).
fn transactions(steps: &[Step]) -> impl Iterator<Item = &[Step]> {
    let only_takes = steps.iter().all(Step::deletes);
    steps.chunks(if only_takes { MOST_DELETIONS } else { steps.len().max(1) })
}

const MOST_DELETIONS: usize = 512;

fn transact(socket: &mut Socket, generation: u32, steps: &[Step], form: Form) -> Result<Option<Vec<Hint>>> {
    let count = u32::try_from(steps.len()).unwrap_or(u32::MAX).saturating_add(2);
    let first = socket.sequence(count);
    let mut messages = Messages::new(first);
    messages.begin(generation);
    let echoed = hidden_among_others(steps);
    for (at, step) in steps.iter().enumerate() {
        push(&mut messages, step, form, echoed.contains(&at))?;
    }
    messages.end();
    if steps.iter().any(Step::deletes) {
        socket.note_deletion();
    }
    // Whether the steps are done is for the next look to say.
    let mut hints = Vec::new();
    let refusals = socket.transact(&messages.into_bytes(), |message| {
        if let (Some(handle), Some(Step { table, action: Action::AddRule { chain, .. } })) =
            (handle(&message), step_of(message.seq, first, steps))
        {
            hints.push(Hint::new(table, chain, handle));
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

/// The first of the steps that add a rule of the iptables dialect to a chain that others may fill, where it is to be found
/// again by its handle. A chain that the same steps make holds little else. The kernel sends these rules back: of more than
/// a few hundred its answers would not fit the socket.
fn hidden_among_others(steps: &[Step]) -> HashSet<usize> {
    let made = |Step { table, action }: &Step| {
        if let Action::AddChain(chain) = action { Some((table.clone(), chain.name.clone())) } else { None }
    };
    let made: HashSet<_> = steps.iter().filter_map(made).collect();
    let is_hidden = |(_, Step { table, action }): &(usize, &Step)| {
        let Action::AddRule { chain, .. } = action else { return false };
        matches!(table, TableRef::Xt(..)) && !made.contains(&(table.clone(), chain.clone()))
    };
    steps.iter().enumerate().filter(is_hidden).take(Hint::MOST).map(|(at, _)| at).collect()
}

const ERESTART: i32 = 85;

fn failure(refusal: Refusal, first: u32, steps: &[Step]) -> Error {
    let step = step_of(refusal.seq, first, steps);
    // kernel net/netfilter/nf_tables_api.c, nf_tables_newtable: all that it does not support of a plain table is its family
    if let Some(step @ Step { table, action: Action::AddTable { .. } }) = step
        && refusal.errno == libc::EOPNOTSUPP
    {
        return Error::NoFamily { operation: step.describe(), family: table.family().name() };
    }
    refusal.into_error(step.map_or_else(|| "change the ruleset".to_owned(), Step::describe))
}

/// The step that a message of the transaction was for; the first message opens it.
fn step_of(seq: u32, first: u32, steps: &[Step]) -> Option<&Step> {
    let index = seq.checked_sub(first.checked_add(1)?)?;
    steps.get(usize::try_from(index).ok()?)
}

fn push(messages: &mut Messages, Step { table, action }: &Step, form: Form, echo: bool) -> Result<()> {
    match action {
        Action::AddTable { comment } => messages.new_table(table, comment.as_deref()),
        Action::AddChain(chain) => messages.new_chain(table, chain),
        Action::AddRule { chain, rule, at } => {
            let rule = NewRule { at_head: *at == Position::Head, echo, ..encode(table, rule, form)? };
            messages.new_rule(table, chain, &rule);
        }
        Action::DeleteRule { chain, id: RuleId::Handle(handle) } => {
            messages.delete_rule(table, chain, Some(*handle));
        }
        Action::DeleteRule { id: RuleId::Listed(words), .. } => return Err(unencodable(words.join(" "))),
        Action::Flush(chain) => messages.delete_rule(table, chain, None),
        Action::DeleteChain(chain) => messages.delete_chain(table, chain),
    }
    Ok(())
}

fn encode<'r>(table: &TableRef, wanted: &'r Wanted, form: Form) -> Result<NewRule<'r>> {
    let (exprs, compat, comment) = match (wanted.canon(), wanted.rule(), table) {
        (Some(AnyRule::Xt(rule)), _, TableRef::Xt(family, _)) => {
            (xt::encode(rule, *family, form), rule.protocol(), None)
        }
        (Some(AnyRule::Nft(_)), AnyRule::Nft(rule), _) => {
            (nft::encode(rule, table.family()), None, rule.comment.as_deref())
        }
        _ => return Err(unencodable(wanted.rule().to_string())),
    };
    Ok(NewRule { exprs, compat, comment, at_head: false, echo: false })
}

fn unencodable(value: String) -> Error {
    Error::InvalidText { kind: "rule", value }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nft::Family;

    /// What comes must not come by halves, nor instead of something that went.
    #[test]
    fn only_what_takes_away_alone_is_divided() {
        let table = TableRef::Nft(Family::Inet, "some".to_owned());
        let step = |action| Step { table: table.clone(), action };
        let deletion = Action::DeleteRule { chain: "other".to_owned(), id: RuleId::Handle(1) };
        let mut steps = vec![step(deletion); MOST_DELETIONS + 1];
        let sizes = |steps: &[Step]| transactions(steps).map(<[Step]>::len).collect::<Vec<_>>();
        assert_eq!(sizes(&steps), [MOST_DELETIONS, 1]);
        assert_eq!(sizes(steps.split_last().unwrap().1), [MOST_DELETIONS]);
        steps.push(step(Action::AddTable { comment: None }));
        assert_eq!(sizes(&steps), [MOST_DELETIONS + 2]);
    }

    #[test]
    fn a_family_that_the_kernel_has_not_is_named() {
        let table = TableRef::Nft(Family::Inet, "some".to_owned());
        let flush = Action::Flush("other".to_owned());
        let steps =
            [Action::AddTable { comment: None }, flush].map(|action| Step { table: table.clone(), action });
        let said = |seq, errno| failure(Refusal { seq, errno, text: None }, 7, &steps).to_string();
        assert_eq!(
            said(8, libc::EOPNOTSUPP),
            "create table \"inet some\": the kernel has no nf_tables family inet"
        );
        assert_eq!(
            said(9, libc::EOPNOTSUPP),
            "flush chain \"other\" of table \"inet some\": operation not supported"
        );
        assert_eq!(said(8, libc::EPERM), "create table \"inet some\": operation not permitted");
    }
}
