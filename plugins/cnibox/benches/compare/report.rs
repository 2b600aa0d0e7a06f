// SPDX-License-Identifier: Apache-2.0
//! Tables, as Markdown.

use std::fmt::Write;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

/// One table with what must be said about it.
#[derive(Debug)]
pub(crate) struct Section {
    title: String,
    note: String,
    header: Vec<String>,
    rows: Vec<Vec<String>>,
    headlines: Vec<Vec<String>>,
    /// Whether the documents have all of it.
    is_for_docs: bool,
}

/// All tables and how they were made.
#[derive(Debug)]
pub(crate) struct Report {
    made: String,
    /// Each with its scenario.
    sections: Vec<(&'static str, Section)>,
}

impl Section {
    /// An empty table; the first column is text, the others are numbers.
    pub(crate) fn new(title: &str, note: &str, header: &[&str]) -> Self {
        let header = header.iter().map(|&name| name.to_owned()).collect();
        Self {
            title: title.to_owned(),
            note: note.to_owned(),
            header,
            rows: Vec::new(),
            headlines: Vec::new(),
            is_for_docs: false,
        }
    }

    /// Puts the whole table into the documents.
    pub(crate) fn for_docs(mut self) -> Self {
        self.is_for_docs = true;
        self
    }

    /// Adds a row.
    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().collect());
    }

    /// Adds a row of milliseconds with the ratio of the second to the first.
    pub(crate) fn compare(&mut self, what: &str, ours: f64, go: f64) {
        self.row([what.to_owned(), ms(ours), ms(go), times(go / ours)]);
    }

    /// Adds a row to the short table of the documents: what, ours, Go, and how they compare.
    pub(crate) fn headline(&mut self, what: &str, ours: String, go: String, ratio: String) {
        self.headlines.push(vec![what.to_owned(), ours, go, ratio]);
    }

    fn markdown(&self) -> String {
        let mut text = format!("### {}\n\n", self.title);
        if !self.note.is_empty() {
            let _ = write!(text, "{}\n\n", self.note);
        }
        text + &table(&self.header, &self.rows)
    }
}

impl Report {
    /// A report without tables; `made` describes machine, versions and command.
    pub(crate) fn new(made: String) -> Self {
        Self { made, sections: Vec::new() }
    }

    /// Adds a table of a scenario.
    pub(crate) fn add(&mut self, scenario: &'static str, section: Section) {
        self.sections.push((scenario, section));
    }

    /// Everything.
    pub(crate) fn markdown(&self) -> String {
        let sections: Vec<_> = self.sections.iter().map(|(_, section)| section.markdown()).collect();
        format!("## cnibox beside the Go plugins\n\n{}\n\n{}", self.made, sections.join("\n"))
    }

    /// The short table of the scenarios that `wanted` holds for.
    fn headlines(&self, wanted: impl Fn(&str) -> bool) -> String {
        let of = self.sections.iter().filter(|(scenario, _)| wanted(scenario));
        let rows: Vec<_> = of.flat_map(|(_, section)| section.headlines.clone()).collect();
        if rows.is_empty() { String::new() } else { table(&SHORT.map(str::to_owned), &rows) + "\n" }
    }

    /// What the documents have of one scenario: the short table, how it was made, and the tables that are there in full.
    fn page(&self, wanted: &str) -> String {
        let whole =
            self.sections.iter().filter(|(scenario, section)| *scenario == wanted && section.is_for_docs);
        let whole: Vec<_> = whole.map(|(_, section)| "\n".to_owned() + &section.markdown()).collect();
        format!("{}{}\n{}", self.headlines(|scenario| scenario == wanted), self.made, whole.concat())
    }

    /// Writes below `dir` `report.md`, and for the documents `docs/SCENARIO.md` and `docs/short.md`, of what was measured.
    pub(crate) fn save(&self, dir: &Path) -> Result<()> {
        let docs = dir.join("docs");
        if docs.exists() {
            fs::remove_dir_all(&docs).with_context(|| format!("remove {}", docs.display()))?;
        }
        fs::create_dir_all(&docs).with_context(|| format!("create {}", docs.display()))?;
        let mut files = vec![("report.md".to_owned(), self.markdown())];
        files.push(("docs/short.md".to_owned(), self.headlines(|_| true)));
        files.extend(self.sections.iter().map(|(name, _)| (format!("docs/{name}.md"), self.page(name))));
        for (name, text) in files {
            fs::write(dir.join(&name), text).with_context(|| format!("write {name}"))?;
        }
        Ok(())
    }
}

/// Milliseconds; a dash for what was not measured.
pub(crate) fn ms(value: f64) -> String {
    if value.is_nan() { "-".to_owned() } else { format!("{value:.1} ms") }
}

/// A ratio; a dash for what was not measured.
pub(crate) fn times(value: f64) -> String {
    if value.is_nan() { "-".to_owned() } else { format!("{value:.2}x") }
}

fn table(header: &[String], rows: &[Vec<String>]) -> String {
    let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
    let rule = header.iter().enumerate().map(|(column, _)| if column == 0 { "---" } else { "---:" });
    let mut text = line(header) + &line(&rule.map(str::to_owned).collect::<Vec<_>>());
    for row in rows {
        text += &line(row);
    }
    text
}

/// The columns of the short table.
const SHORT: [&str; 4] = ["what", "cnibox", "Go plugins", "ratio"];
