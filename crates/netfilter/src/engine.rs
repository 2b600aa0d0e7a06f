// SPDX-License-Identifier: Apache-2.0
//! Applies batches and answers questions, over the transport that fits the host and the rules.

use std::ffi::{OsStr, OsString};
use std::hash::{BuildHasher, Hasher};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::batch::{Batch, Change, Op, RuleId, RuleInfo, TableRef};
use crate::commit::commit;
use crate::error::{Error, Result};
use crate::exec::{self, Tool};
use crate::flavour::{Flavour, find_tool, form_of};
use crate::hint::Hint;
use crate::kernel::socket::Socket;
use crate::plan::{AnyRule, Reader, Step, Wanted, plan};
use crate::xt::{self, Canon, Match};

/// How long others may keep changing the ruleset between a look and the change that is based on it. A crowd of
/// `iptables` processes does for seconds.
const PATIENCE: Duration = Duration::from_secs(60);
/// Attempts there are however long they take: a machine that stood still (a paused guest, a stuck disk) may use up all
/// patience in a single one, which says nothing about the others.
const FEWEST_ATTEMPTS: u32 = 20;
const FIRST_PAUSE: Duration = Duration::from_micros(50);
const LONGEST_PAUSE: Duration = Duration::from_millis(20);

/// How rules of the iptables dialect are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Choice {
    /// As the host's `iptables` would: netlink for its nf_tables flavour, `iptables-restore` for the legacy one.
    #[default]
    Auto,
    /// Always over nf_tables netlink, but for rules that only the tool understands.
    Netlink,
    /// Always with `iptables-restore`.
    Exec,
}

impl std::str::FromStr for Choice {
    type Err = Error;

    /// `auto` (or nothing), `netlink`, `exec`.
    fn from_str(text: &str) -> Result<Self> {
        match text {
            "" | "auto" => Ok(Self::Auto),
            "netlink" => Ok(Self::Netlink),
            "exec" => Ok(Self::Exec),
            _ => Err(Error::InvalidText { kind: "packet filter transport", value: text.to_owned() }),
        }
    }
}

/// The packet filter of the network namespace in which the calling thread first used the engine.
pub struct Engine {
    choice: Choice,
    path: OsString,
    iptables: Option<Option<PathBuf>>,
    flavour: Option<Flavour>,
    form: Option<xt::Form>,
    socket: Option<Socket>,
    hints: Vec<Hint>,
    added: Vec<Hint>,
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine")
            .field("choice", &self.choice)
            .field("flavour", &self.flavour)
            .finish_non_exhaustive()
    }
}

/// Which transport a change takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Route {
    Netlink,
    Tool(xt::Family),
    Nft,
}

/// In the order in which they are taken.
const ROUTES: [Route; 4] =
    [Route::Netlink, Route::Tool(xt::Family::Ipv4), Route::Tool(xt::Family::Ipv6), Route::Nft];

impl Engine {
    /// An engine that finds tools in `path` (the value of `PATH`). Nothing is opened yet; the first use opens a socket in
    /// the network namespace of the calling thread and keeps it.
    #[must_use]
    pub fn open(choice: Choice, path: &OsStr) -> Self {
        Self {
            choice,
            path: path.to_owned(),
            iptables: None,
            flavour: None,
            form: None,
            socket: None,
            hints: Vec::new(),
            added: Vec::new(),
        }
    }

    /// From now on rules are looked for in these places first. A chain that such a rule jumps to tells whether there are
    /// more of them; a rule that jumps nowhere is taken to be the only one of its kind, as it was when it was added.
    pub fn expect(&mut self, hints: impl IntoIterator<Item = Hint>) {
        self.hints.extend(hints);
    }

    /// Where this engine put rules of the iptables dialect among others, over netlink.
    #[must_use]
    pub fn added(&self) -> &[Hint] {
        &self.added
    }

    /// The flavour of the host's `iptables`, found without starting it.
    pub fn flavour(&mut self) -> Flavour {
        if let Some(flavour) = self.flavour {
            return flavour;
        }
        let flavour = Flavour::of(self.iptables());
        *self.flavour.insert(flavour)
    }

    /// Whether `nft` is installed, and `iptables` is not or cannot be used in this kernel: rules go into native tables
    /// then unless somebody asked for others. Starts a process only where legacy `iptables` leaves a choice.
    pub fn has_only_nft(&mut self) -> bool {
        let input = TableRef::Xt(xt::Family::Ipv4, xt::Table::Filter);
        let has_nft = |engine: &Self| find_tool("nft", &engine.path).is_some();
        match self.flavour() {
            Flavour::NfTables => false,
            Flavour::Missing => has_nft(self),
            Flavour::Legacy => {
                has_nft(self) && self.chain_exists(&input, "INPUT").is_err_and(|error| error.is_absence())
            }
        }
    }

    /// Makes everything in the batch true.
    ///
    /// What goes over netlink is one transaction for all families: all of it or nothing. Changes that need a tool follow,
    /// one process for each family that has any.
    ///
    /// # Errors
    /// [`Error::Kernel`] or [`Error::Tool`] with the first step that was refused; [`Error::InvalidText`] for names and
    /// comments that cannot be written; [`Error::ToolMissing`]; [`Error::Contended`].
    pub fn apply(&mut self, batch: &Batch) -> Result<()> {
        let routes = self.routes(batch);
        for route in ROUTES {
            self.apply_by(route, &of_route(batch, &routes, route))?;
        }
        Ok(())
    }

    /// As [`Engine::apply`] for a batch that only takes away: a packet filter that the host does not have has nothing in
    /// it, and what one refuses keeps nothing in the others.
    ///
    /// # Errors
    /// The first of those of [`Engine::apply`].
    pub fn clear(&mut self, batch: &Batch) -> Result<()> {
        let routes = self.routes(batch);
        let outcomes = ROUTES.map(|route| if_any(self.apply_by(route, &of_route(batch, &routes, route))));
        outcomes.into_iter().collect()
    }

    /// True if the chain exists.
    ///
    /// # Errors
    /// Those of the kernel or tool, other than that the chain or table is missing.
    pub fn chain_exists(&mut self, table: &TableRef, chain: &str) -> Result<bool> {
        self.read(table, |reader| Ok(reader.chain(table, chain)?.is_some()))
    }

    /// Those of `rules`, of the iptables dialect, that the chain does not contain (`iptables -C`), in one pass that ends
    /// as soon as all are found. Missing chains contain none.
    ///
    /// # Errors
    /// Those of the kernel or tool.
    pub fn missing<'r>(
        &mut self,
        family: xt::Family,
        table: xt::Table,
        chain: &str,
        rules: &'r [xt::Rule],
    ) -> Result<Vec<&'r xt::Rule>> {
        let table = TableRef::Xt(family, table);
        let wanted: Vec<_> =
            rules.iter().map(|rule| Wanted::new(&AnyRule::Xt(rule.clone()), table.family())).collect();
        let hints: Vec<_> = self.hints.iter().filter_map(|hint| hint.within(&table, chain)).collect();
        let found = if wanted.iter().any(Wanted::is_opaque) {
            self.tool(family).search(&table, chain, &wanted)?
        } else {
            self.read(&table, |reader| search(reader, &table, chain, &wanted, &hints))?
        };
        Ok(rules.iter().zip(found).filter(|(_, found)| !found).map(|(rule, _)| rule).collect())
    }

    /// The rules of one chain in order; none if it does not exist.
    ///
    /// # Errors
    /// Those of the kernel or tool.
    pub fn rules(&mut self, table: &TableRef, chain: &str) -> Result<Vec<RuleInfo>> {
        self.read(table, |reader| {
            Ok(reader.rules(table, chain)?.iter().map(crate::plan::Listed::info).collect())
        })
    }

    fn read<T>(&mut self, table: &TableRef, ask: impl FnOnce(&mut dyn Reader) -> Result<T>) -> Result<T> {
        match table {
            TableRef::Xt(family, _) if self.uses_tool() => ask(&mut self.tool(*family)),
            TableRef::Xt(..) | TableRef::Nft(..) => {
                let answer = ask(self.socket()?);
                if answer.as_ref().is_err_and(|error| error.errno() == Some(libc::EINVAL)) {
                    // Which may mean that there is no nf_tables; this question tells.
                    self.socket()?.generation()?;
                }
                answer
            }
        }
    }

    /// Whether rules of the iptables dialect are written with the host's tools, not over netlink.
    pub fn uses_tool(&mut self) -> bool {
        match self.choice {
            Choice::Auto => self.flavour() == Flavour::Legacy,
            Choice::Netlink => false,
            Choice::Exec => true,
        }
    }

    /// One rule that needs the tool takes all changes of its family or native table with it, so that their order is kept.
    fn routes(&mut self, batch: &Batch) -> Vec<Route> {
        let has_xt = batch.changes().iter().any(|change| matches!(change, Change::Xt { .. }));
        let tool = has_xt && self.uses_tool();
        let needy =
            |table: &TableRef| batch.changes().iter().any(|c| needs_tool(c) && alike(&c.table(), table));
        let route = |change: &Change| match change.table() {
            TableRef::Xt(family, table) if tool || needy(&TableRef::Xt(family, table)) => Route::Tool(family),
            table @ TableRef::Nft(..) if needy(&table) => Route::Nft,
            TableRef::Xt(..) | TableRef::Nft(..) => Route::Netlink,
        };
        batch.changes().iter().map(route).collect()
    }

    fn apply_by(&mut self, route: Route, changes: &[&Change]) -> Result<()> {
        match route {
            _ if changes.is_empty() => Ok(()),
            Route::Netlink => self.apply_netlink(changes),
            Route::Tool(family) => self.apply_tool(family, changes),
            Route::Nft => self.apply_nft(changes),
        }
    }

    fn apply_netlink(&mut self, changes: &[&Change]) -> Result<()> {
        let form = self.form(changes);
        let socket = socket(&mut self.socket)?;
        let (mut pause, deadline) = (FIRST_PAUSE, Instant::now() + PATIENCE);
        let mut attempts = 0;
        loop {
            let generation = socket.generation()?;
            let steps = plan(changes, &self.hints, socket)?;
            if steps.is_empty() {
                return Ok(());
            }
            if let Some(added) = commit(socket, generation, &steps, form)? {
                self.added.extend(added);
                return Ok(());
            }
            attempts += 1;
            if attempts >= FEWEST_ATTEMPTS && Instant::now() >= deadline {
                return Err(Error::Contended { attempts });
            }
            std::thread::sleep(pause.mul_f64(random_share()));
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    fn apply_tool(&mut self, family: xt::Family, changes: &[&Change]) -> Result<()> {
        let mut tool = self.tool(family);
        let steps = plan(changes, &[], &mut tool)?;
        tool.restore(&steps)
    }

    fn apply_nft(&mut self, changes: &[&Change]) -> Result<()> {
        let steps: Vec<Step> = plan(changes, &[], self.socket()?)?;
        exec::run_nft(&self.path, &steps)
    }

    /// How the host's iptables wants to read ports and marks; asked for only if there are any.
    fn form(&mut self, changes: &[&Change]) -> xt::Form {
        if !changes.iter().any(|change| depends_on_form(change)) {
            return xt::Form::Native;
        }
        if let Some(form) = self.form {
            return form;
        }
        let form = form_of(self.iptables());
        *self.form.insert(form)
    }

    /// The host's `iptables`, looked for once.
    fn iptables(&mut self) -> Option<&Path> {
        self.iptables.get_or_insert_with(|| find_tool("iptables", &self.path)).as_deref()
    }

    fn tool(&self, family: xt::Family) -> Tool {
        Tool::new(&self.path, family)
    }

    fn socket(&mut self) -> Result<&mut Socket> {
        socket(&mut self.socket)
    }
}

/// An answer about a packet filter that the host may not have: then nothing is in it.
///
/// # Errors
/// Any other.
pub fn if_any<T: Default>(answer: Result<T>) -> Result<T> {
    answer.or_else(|error| if error.is_absence() { Ok(T::default()) } else { Err(error) })
}

fn of_route<'b>(batch: &'b Batch, routes: &[Route], route: Route) -> Vec<&'b Change> {
    batch.changes().iter().zip(routes).filter(|(_, of)| **of == route).map(|(change, _)| change).collect()
}

fn socket(place: &mut Option<Socket>) -> Result<&mut Socket> {
    match place {
        Some(socket) => Ok(socket),
        none => Ok(none.insert(Socket::open()?)),
    }
}

/// As [`Reader::search`], with a look at the hinted rules first.
fn search(
    reader: &mut dyn Reader,
    table: &TableRef,
    chain: &str,
    wanted: &[Wanted],
    hints: &[RuleId],
) -> Result<Vec<bool>> {
    let mut hinted = Vec::new();
    for id in hints {
        hinted.extend(reader.rule(table, chain, id)?);
    }
    let found: Vec<_> = wanted.iter().map(|wanted| hinted.iter().any(|listed| wanted.is(listed))).collect();
    if found.contains(&false) { reader.search(table, chain, wanted) } else { Ok(found) }
}

/// Between 0 and 1. Processes that were refused together must not come back together.
fn random_share() -> f64 {
    // The standard library seeds its hashers from the kernel's random numbers.
    let random = std::hash::RandomState::new().build_hasher().finish();
    f64::from((random & 0xffff) as u16) / f64::from(u16::MAX)
}

/// True for rules that have no native encoding.
fn needs_tool(change: &Change) -> bool {
    match change {
        Change::Xt { family, op, .. } => {
            let native = |rule| {
                Canon::of(rule).and_then(|canon| xt::encode(&canon, *family, xt::Form::Native)).is_some()
            };
            rule_of(op).is_some_and(|rule| !native(rule))
        }
        Change::Nft { op, .. } => rule_of(op).is_some_and(crate::nft::Rule::is_raw),
    }
}

/// True for rules that are written differently for different versions of iptables.
fn depends_on_form(change: &Change) -> bool {
    let Change::Xt { op, .. } = change else { return false };
    let formed = |found: &Match| matches!(found, Match::DestinationPort { .. } | Match::Mark { .. });
    rule_of(op).is_some_and(|rule| rule.matches.iter().any(formed))
}

fn rule_of<R>(op: &Op<R>) -> Option<&R> {
    match op {
        Op::EnsureRule { rule, .. } | Op::AppendRule { rule, .. } | Op::DeleteRule { rule, .. } => Some(rule),
        Op::EnsureTable { .. }
        | Op::EnsureChain(_)
        | Op::DeleteRulesWhere { .. }
        | Op::DeleteFound { .. }
        | Op::FlushChain { .. }
        | Op::DeleteChain { .. }
        | Op::DeleteChainIfUnreferenced { .. } => None,
    }
}

/// True if changes of both tables have to take the same route: one tool call serves one family.
fn alike(one: &TableRef, other: &TableRef) -> bool {
    match (one, other) {
        (TableRef::Xt(one, _), TableRef::Xt(other, _)) => one == other,
        _ => one == other,
    }
}
