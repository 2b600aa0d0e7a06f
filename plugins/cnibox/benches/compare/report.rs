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
    /// Whether the README has all of it.
    is_for_readme: bool,
}

/// All tables and how they were made.
#[derive(Debug)]
pub(crate) struct Report {
    made: String,
    sections: Vec<Section>,
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
            is_for_readme: false,
        }
    }

    /// Puts the whole table into the README.
    pub(crate) fn for_readme(mut self) -> Self {
        self.is_for_readme = true;
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

    /// Adds a row to the short table of the README: what, ours, Go, and how they compare.
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

    /// Adds a table.
    pub(crate) fn add(&mut self, section: Section) {
        self.sections.push(section);
    }

    /// Everything.
    pub(crate) fn markdown(&self) -> String {
        let sections: Vec<_> = self.sections.iter().map(Section::markdown).collect();
        format!("## cnibox beside the Go plugins\n\n{}\n\n{}", self.made, sections.join("\n"))
    }

    /// The short table, and those that the README has in full.
    fn readme(&self) -> String {
        let rows: Vec<_> = self.sections.iter().flat_map(|section| section.headlines.clone()).collect();
        let header = ["", "cnibox", "Go plugins", "ratio"].map(str::to_owned);
        let whole = self.sections.iter().filter(|section| section.is_for_readme);
        let whole: Vec<_> = whole.map(|section| "\n".to_owned() + &section.markdown()).collect();
        format!("{BEGIN}\n{}\n{}\n{}{END}\n", table(&header, &rows), self.made, whole.concat())
    }

    /// Writes `report.md` and `readme.md` below `dir`.
    pub(crate) fn save(&self, dir: &Path) -> Result<()> {
        fs::create_dir_all(dir).with_context(|| format!("create {}", dir.display()))?;
        for (name, text) in [("report.md", self.markdown()), ("readme.md", self.readme())] {
            fs::write(dir.join(name), text).with_context(|| format!("write {name}"))?;
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

const BEGIN: &str = "<!-- bench:begin -->";
const END: &str = "<!-- bench:end -->";
