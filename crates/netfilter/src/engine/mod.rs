// SPDX-License-Identifier: Apache-2.0
//! Applies batches and answers questions, over the transport that fits the host and the rules. It must never know how a
//! transport does its work, nor what a rule says beyond what it needs to be written.

mod route;

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::hash::{BuildHasher, Hasher};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::batch::{Batch, Change};
use crate::error::{Error, Result};
use crate::known::{Guard, Hint, Kept, Known, Shelf};
use crate::netlink::{self, Form, Socket, commit, extensions, needs_module};
use crate::plan::{Action, Reader, RuleInfo, Step, plan, search};
use crate::rule::{AnyRule, TableRef, Wanted};
use crate::tool::{self, Flavour, Tool, find_tool, is_legacy_program, reads_native_matches};
use crate::xt::{self, Match};
pub use route::Choice;
use route::{Route, routed};

/// How long others may keep changing the ruleset between a look and the change that is based on it. A crowd of
/// `iptables` processes does for seconds.
const PATIENCE: Duration = Duration::from_secs(60);
/// Attempts there are however long they take: a machine that stood still (a paused guest, a stuck disk) may use up all
/// patience in a single one, which says nothing about the others.
const FEWEST_ATTEMPTS: u32 = 20;
const FIRST_PAUSE: Duration = Duration::from_micros(50);
const LONGEST_PAUSE: Duration = Duration::from_millis(20);

/// The packet filter of the network namespace in which the calling thread first used the engine.
#[derive(Default)]
pub struct Engine {
    choice: Choice,
    path: OsString,
    iptables: OnceCell<Option<PathBuf>>,
    flavour: OnceCell<Flavour>,
    form: OnceCell<Form>,
    socket: Option<Socket>,
    hints: Vec<Hint>,
    added: Vec<Hint>,
    shelf: Option<Box<dyn Shelf>>,
    /// A part of the kernel that was missed, here or earlier since the kernel was started.
    missed: Option<String>,
}

impl Engine {
    /// An engine that finds tools in `path` (the value of `PATH`). Nothing is opened yet; the first use opens a socket in
    /// the network namespace of the calling thread and keeps it.
    #[must_use]
    pub fn open(choice: Choice, path: &OsStr) -> Self {
        Self { choice, path: path.to_owned(), ..Self::default() }
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

    /// From now on what chains hold at most is looked for here before they are listed, and kept here.
    pub fn keep_inventory(&mut self, shelf: impl Shelf + 'static) {
        self.shelf = Some(Box::new(shelf));
    }

    /// The flavour of the host's `iptables`, found without starting it.
    pub fn flavour(&self) -> Flavour {
        *self.flavour.get_or_init(|| Flavour::of(self.iptables()))
    }

    /// From now on this part of the kernel counts as missing, as it did when [`Engine::missed`] said so.
    pub fn expect_missing(&mut self, module: impl Into<String>) {
        self.missed = Some(module.into());
    }

    /// The part of the kernel that [`Engine::cannot_hold`] missed, by its module's name.
    #[must_use]
    pub fn missed(&self) -> Option<&str> {
        self.missed.as_deref()
    }

    /// Whether rules go into native tables unless somebody asked for others: where the host has `nft` and no `iptables`, and
    /// where the kernel cannot hold `rules`, of the iptables dialect. Starts a process only where legacy `iptables` is the
    /// host's and the namespace has none of its tables yet.
    ///
    /// # Errors
    /// When the kernel does not tell.
    pub fn wants_native(&mut self, rules: &Batch) -> Result<bool> {
        let has_nft = |engine: &Self| find_tool("nft", &engine.path).is_some();
        match self.flavour() {
            Flavour::Legacy => Ok(legacy_tables(xt::Family::Ipv4).unwrap_or_default().is_empty() && {
                let input = TableRef::Xt(xt::Family::Ipv4, xt::Table::Filter);
                self.chain_exists(&input, "INPUT").is_err_and(|error| error.is_absence())
            }),
            Flavour::Missing if has_nft(self) => Ok(true),
            Flavour::NfTables | Flavour::Missing => self.cannot_hold(rules),
        }
    }

    /// Whether the kernel cannot hold these rules of the iptables dialect, or could not when [`Engine::missed`] was found
    /// out.
    ///
    /// # Errors
    /// When the kernel does not tell.
    pub fn cannot_hold(&mut self, rules: &Batch) -> Result<bool> {
        let needed = self.needed_extensions(rules);
        if self.missed.as_deref().is_some_and(|module| needs_module(&needed, module)) {
            return Ok(true);
        }
        let missing = self.lacks_any(&needed)?;
        let cannot = missing.is_some();
        self.missed = missing.or(self.missed.take());
        Ok(cannot)
    }

    /// Finds out whether the kernel can hold these rules of the iptables dialect, for `operation`.
    ///
    /// # Errors
    /// [`Error::NoExtension`] when not; when the kernel does not tell.
    pub fn require(&mut self, rules: &Batch, operation: &str) -> Result<()> {
        let needed = self.needed_extensions(rules);
        match self.lacks_any(&needed)? {
            Some(module) => Err(Error::NoExtension { operation: operation.to_owned(), module }),
            None => Ok(()),
        }
    }

    /// Only rules of the iptables dialect that go over netlink need any.
    fn needed_extensions(&self, rules: &Batch) -> BTreeSet<netlink::Extension> {
        if self.uses_tool() {
            return BTreeSet::new();
        }
        let changes: Vec<_> = rules.changes().iter().collect();
        let form = self.form(&changes);
        let canons = changes.iter().filter_map(|change| Some((change.op.rule()?.canon()?, &change.table)));
        canons.flat_map(|(canon, table)| extensions(canon, table, form)).collect()
    }

    /// The first of the kernel's parts that is missing for these extensions, by the name of its module.
    fn lacks_any(&mut self, needed: &BTreeSet<netlink::Extension>) -> Result<Option<String>> {
        if needed.is_empty() { Ok(None) } else { self.socket()?.lacks(needed) }
    }

    /// Makes everything in the batch true.
    ///
    /// What goes over netlink is one transaction for all families: all of it or nothing; only of hundreds of rules that go,
    /// with nothing that comes, some may be gone when others are refused. Changes that need a tool follow, one process for
    /// each family that has any.
    ///
    /// # Errors
    /// [`Error::Kernel`] or [`Error::Tool`] with the first step that was refused; [`Error::InvalidText`] for names and
    /// comments that cannot be written; [`Error::ToolMissing`]; [`Error::Contended`].
    pub fn apply(&mut self, batch: &Batch) -> Result<()> {
        let mut routed = self.routed(batch).into_iter();
        routed.try_for_each(|(route, changes)| self.apply_by(route, &changes))
    }

    /// As [`Engine::apply`] for a batch that only takes away: a packet filter that the host does not have has nothing in
    /// it, and what one refuses keeps nothing in the others.
    ///
    /// # Errors
    /// The first of those of [`Engine::apply`].
    pub fn clear(&mut self, batch: &Batch) -> Result<()> {
        let routed = self.routed(batch).into_iter();
        let outcomes: Vec<_> =
            routed.map(|(route, changes)| if_any(self.apply_by(route, &changes))).collect();
        outcomes.into_iter().collect()
    }

    /// What [`Engine::apply`] would have to do now, in order; nothing where everything in the batch is true. It changes
    /// nothing.
    ///
    /// # Errors
    /// Those of the kernel or tool; [`Error::InvalidText`].
    pub fn needed(&mut self, batch: &Batch) -> Result<Vec<Step>> {
        let mut steps = Vec::new();
        for (route, changes) in self.routed(batch) {
            steps.extend(self.planned(route, &changes)?);
        }
        Ok(steps)
    }

    /// True if the table exists.
    ///
    /// # Errors
    /// Those of the kernel or tool, other than that the table is missing.
    pub fn has_table(&mut self, table: &TableRef) -> Result<bool> {
        self.read(table, |reader| reader.has_table(table))
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
        let wanted = |rule: &xt::Rule| Arc::new(Wanted::new(rule.clone().into(), &table));
        let wanted: Vec<_> = rules.iter().map(wanted).collect();
        let hints: Vec<_> = self.hints.iter().filter_map(|hint| hint.within(&table, chain)).collect();
        let found = if wanted.iter().any(|wanted| wanted.needs_tool()) {
            search(&mut self.tool(family), &table, chain, &wanted, &[])?
        } else {
            self.read(&table, |reader| search(reader, &table, chain, &wanted, &hints))?
        };
        Ok(rules.iter().zip(found).filter(|(_, found)| !found).map(|(rule, _)| rule).collect())
    }

    /// Whether iptables has certainly nothing in the table, found without starting it: it is the legacy one, and the
    /// namespace has no such table, which a question would make. Said of what is to be removed; whether the tool works is
    /// another matter.
    pub fn is_unused(&self, family: xt::Family, table: xt::Table) -> bool {
        let has_none = |names: String| names.lines().all(|name| name != table.name());
        self.uses_tool() && is_legacy_program(self.iptables()) && legacy_tables(family).is_some_and(has_none)
    }

    /// The rules of one chain in order; none if it does not exist.
    ///
    /// # Errors
    /// Those of the kernel or tool.
    pub fn rules(&mut self, table: &TableRef, chain: &str) -> Result<Vec<RuleInfo>> {
        self.read(table, |reader| reader.rules(table, chain))
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
    pub fn uses_tool(&self) -> bool {
        match self.choice {
            Choice::Auto => self.flavour() == Flavour::Legacy,
            Choice::Netlink => false,
            Choice::Exec => true,
        }
    }

    /// The changes by their routes.
    fn routed<'b>(&self, batch: &'b Batch) -> BTreeMap<Route, Vec<&'b Change>> {
        routed(batch, || self.uses_tool())
    }

    /// What is still to be done for changes of one route.
    fn planned(&mut self, route: Route, changes: &[&Change]) -> Result<Vec<Step>> {
        let plan = match route {
            Route::Tool(family) => plan(changes, Known::NOTHING, &mut self.tool(family))?,
            Route::Nft => plan(changes, Known::NOTHING, self.socket()?)?,
            Route::Netlink => {
                let socket = socket(&mut self.socket)?;
                let known = Known { hints: &self.hints, guard: Guard::Generation, kept: None };
                plan(changes, known, socket)?
            }
        };
        Ok(plan.steps)
    }

    fn apply_by(&mut self, route: Route, changes: &[&Change]) -> Result<()> {
        match route {
            Route::Netlink => self.apply_netlink(changes),
            Route::Tool(family) => {
                self.apply_planned(route, changes, |engine, steps| engine.tool(family).restore(steps))
            }
            Route::Nft => {
                self.apply_planned(route, changes, |engine, steps| tool::run_nft(&engine.path, steps))
            }
        }
    }

    fn apply_netlink(&mut self, changes: &[&Change]) -> Result<()> {
        let form = self.form(changes);
        let (mut pause, deadline) = (FIRST_PAUSE, Instant::now() + PATIENCE);
        let mut attempts = 0;
        loop {
            let socket = socket(&mut self.socket)?;
            let generation = socket.generation()?;
            let kept = self.shelf.as_deref().map(|shelf| Kept::new(shelf, generation));
            let known = Known { hints: &self.hints, guard: Guard::Generation, kept: kept.as_ref() };
            let plan = plan(changes, known, socket)?;
            if plan.steps.is_empty() {
                return Ok(());
            }
            match commit(socket, generation, &plan.steps, form) {
                Ok(Some(done)) => {
                    self.added.extend(done.added);
                    if let Some(kept) = kept {
                        kept.pass_on(done.generation, plan.lesson());
                    }
                    return Ok(());
                }
                Ok(None) => {}
                Err(error) => return Err(self.explained(error, &plan.steps, form)),
            }
            attempts += 1;
            if attempts >= FEWEST_ATTEMPTS && Instant::now() >= deadline {
                return Err(Error::Contended { attempts });
            }
            std::thread::sleep(pause.mul_f64(random_share()));
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// The kernel says of an extension that it does not have no more than of a chain that is not there.
    fn explained(&mut self, error: Error, steps: &[Step], form: Form) -> Error {
        let Error::Kernel { operation, errno: libc::ENOENT, .. } = &error else { return error };
        let needed = steps.iter().filter_map(|Step { table, action }| {
            let Action::AddRule { rule, .. } = action else { return None };
            Some(extensions(rule.canon()?, table, form))
        });
        match self.lacks_any(&needed.flatten().collect()) {
            Ok(Some(module)) => Error::NoExtension { operation: operation.clone(), module },
            _ => error,
        }
    }

    /// Plans, and has a tool carry that out if there is anything to do. Between the two somebody else may have made the same
    /// chain or taken the same rule away, which the tool refuses: then a new look asks for other steps. What it refuses twice
    /// is refused.
    fn apply_planned(
        &mut self,
        route: Route,
        changes: &[&Change],
        carry_out: impl Fn(&Self, &[Step]) -> Result<()>,
    ) -> Result<()> {
        let (mut pause, deadline) = (FIRST_PAUSE, Instant::now() + PATIENCE);
        let mut refused: Vec<Step> = Vec::new();
        loop {
            let steps = self.planned(route, changes)?;
            if steps.is_empty() {
                return Ok(());
            }
            match carry_out(self, &steps) {
                Err(Error::Tool { .. }) if steps != refused && Instant::now() < deadline => refused = steps,
                outcome => return outcome,
            }
            std::thread::sleep(pause.mul_f64(random_share()));
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// How the host's iptables wants to read ports and marks; asked for only if there are any.
    fn form(&self, changes: &[&Change]) -> Form {
        if !changes.iter().any(depends_on_form) {
            return Form::Native;
        }
        let form = || if reads_native_matches(self.iptables()) { Form::Native } else { Form::Extension };
        *self.form.get_or_init(form)
    }

    /// The host's `iptables`, looked for once.
    fn iptables(&self) -> Option<&Path> {
        self.iptables.get_or_init(|| find_tool("iptables", &self.path)).as_deref()
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

/// The tables of legacy iptables that this namespace has, a name a line (kernel `net/netfilter/x_tables.c`,
/// `xt_proto_init`); `None` where that is not to be seen. A kernel that could make them says nothing of whether the tool
/// works.
fn legacy_tables(family: xt::Family) -> Option<String> {
    let folder = Path::new("/proc/thread-self/net");
    let file = match family {
        xt::Family::Ipv4 => "ip_tables_names",
        xt::Family::Ipv6 => "ip6_tables_names",
    };
    match std::fs::read_to_string(folder.join(file)) {
        Ok(names) => Some(names),
        // The module is not loaded.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound && folder.is_dir() => Some(String::new()),
        Err(_) => None,
    }
}

fn socket(place: &mut Option<Socket>) -> Result<&mut Socket> {
    match place {
        Some(socket) => Ok(socket),
        none => Ok(none.insert(Socket::open()?)),
    }
}

/// Between 0 and 1. Processes that were refused together must not come back together.
fn random_share() -> f64 {
    // The standard library seeds its hashers from the kernel's random numbers.
    let random = std::hash::RandomState::new().build_hasher().finish();
    f64::from((random & 0xffff) as u16) / f64::from(u16::MAX)
}

/// True for rules that are written differently for different versions of iptables.
fn depends_on_form(change: &&Change) -> bool {
    let formed = |found: &Match| matches!(found, Match::DestinationPort { .. } | Match::Mark { .. });
    match change.op.rule().and_then(|rule| rule.canon()) {
        Some(AnyRule::Xt(rule)) => rule.matches.iter().any(formed),
        Some(AnyRule::Nft(_)) | None => false,
    }
}
