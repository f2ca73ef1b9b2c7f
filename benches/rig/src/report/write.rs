//! The folder of a run: `report.json`, its pages `report.md` and `report.html`, and the `.hgrm` files.

use std::fs;
use std::path::{Path, PathBuf};

use hdrhistogram::Histogram;

use super::{LatencyHistogram, Report, histogram, html, markdown};
use crate::error::{Error, Result};

#[derive(Debug)]
pub struct Folder(PathBuf);

impl Folder {
    pub fn create(path: &Path) -> Result<Self> {
        fs::create_dir_all(path).map_err(Error::io(format!("create {}", path.display())))?;
        Ok(Folder(path.to_owned()))
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Writes a row's histogram beside the report and notes its name in what the report keeps of
    /// it.
    pub fn keep(
        &self,
        row: &str,
        kept: &mut LatencyHistogram,
        recorded: &Histogram<u64>,
    ) -> Result<()> {
        let name = format!("{}-{}.hgrm", plain(row), plain(&kept.name));
        self.write(&name, &histogram::percentile_text(recorded))?;
        kept.file = Some(name);
        Ok(())
    }

    /// `report.json`, `report.md` and `report.html`. Whoever ends the program meanwhile finds the last one whole.
    pub fn write_report(&self, report: &Report) -> Result<()> {
        let text = serde_json::to_string_pretty(report)
            .map_err(|error| Error::Unreadable(format!("the report: {error}")))?;
        self.write("report.json", &format!("{}\n", join_pairs(&text)))?;
        self.write("report.md", &markdown::text(report))?;
        self.write("report.html", &html::page(report))
    }

    pub fn write(&self, name: &str, text: &str) -> Result<()> {
        let path = self.0.join(name);
        let beside = self.0.join(format!("{name}.new"));
        let failed = |path: &Path| Error::io(format!("write {}", path.display()));
        fs::write(&beside, text).map_err(failed(&beside))?;
        fs::rename(&beside, &path).map_err(failed(&path))
    }
}

/// Fit for a file name.
fn plain(text: &str) -> String {
    let keep = |c: char| if c.is_ascii_alphanumeric() || c == '.' { c } else { '-' };
    text.chars().map(keep).collect()
}

/// Numbers that stand a line each become one line: thousands of counts are no page to read.
fn join_pairs(pretty: &str) -> String {
    let is_number = |line: &str| {
        let text = line.trim().trim_end_matches(',');
        text == "null" || text.parse::<f64>().is_ok()
    };
    let mut text = String::with_capacity(pretty.len());
    let mut inside = false;
    for line in pretty.lines() {
        let closing = matches!(line.trim(), "]" | "],");
        if inside && (is_number(line) || closing) {
            text.push_str(line.trim());
            inside = !closing;
        } else {
            if !text.is_empty() {
                text.push('\n');
            }
            text.push_str(line);
            inside = line.trim_end().ends_with('[');
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn joined_pairs_are_the_same_document() {
        let value = serde_json::json!({
            "a": [[1, 2], [3, 4.5]], "b": [], "c": [{"d": [null, 1]}, "x,"], "e": ["]", "["]
        });
        let pretty = serde_json::to_string_pretty(&value).unwrap();
        let joined = join_pairs(&pretty);
        assert_eq!(serde_json::from_str::<serde_json::Value>(&joined).unwrap(), value);
        assert!(joined.lines().count() < pretty.lines().count());
        assert!(joined.contains("[1,2]"), "{joined}");
    }
}
