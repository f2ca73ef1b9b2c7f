//! The pages of a report that was written before: `rig report` and `corelane bench report`.

use std::fs;
use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::Value;

use super::{Report, SCHEMA, html, markdown};
use crate::error::{Error, Result};

#[derive(Debug, Args)]
pub struct PagesArgs {
    /// The report.json of a run, or the folder that it lies in
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Where to write the HTML page [default: beside FILE, unless --md alone is given]
    #[arg(long, value_name = "OUT")]
    pub html: Option<PathBuf>,
    /// Where to write the Markdown page [default: beside FILE, unless --html alone is given]
    #[arg(long, value_name = "OUT")]
    pub md: Option<PathBuf>,
}

/// What was written.
pub fn write(args: &PagesArgs) -> Result<Vec<PathBuf>> {
    let file = if args.file.is_dir() { args.file.join("report.json") } else { args.file.clone() };
    let report = read(&file)?;
    let beside = |ending: &str| Some(file.with_extension(ending));
    let (to_html, to_md) = match (&args.html, &args.md) {
        (None, None) => (beside("html"), beside("md")),
        (html, md) => (html.clone(), md.clone()),
    };
    let mut written = Vec::new();
    let pages = [(to_html, html::page as fn(&Report) -> String), (to_md, markdown::text)];
    for (path, page) in pages.into_iter().filter_map(|(path, page)| Some((path?, page))) {
        let failed = Error::io(format!("write {}", path.display()));
        fs::write(&path, page(&report)).map_err(failed)?;
        written.push(path);
    }
    Ok(written)
}

pub fn read(file: &Path) -> Result<Report> {
    let name = file.display();
    let text = fs::read_to_string(file).map_err(Error::io(format!("read {name}")))?;
    let value: Value = serde_json::from_str(&text)
        .map_err(|error| Error::Usage(format!("{name} is no report.json: {error}")))?;
    match value.get("schema").and_then(Value::as_u64) {
        Some(schema) if schema == u64::from(SCHEMA) => {}
        Some(schema) => {
            return Err(Error::Usage(format!(
                "{name} has schema {schema} and this program reads {SCHEMA}: use the one that wrote it"
            )));
        }
        None => {
            return Err(Error::Usage(format!(
                "{name} has no \"schema\": it is no report, or one from before there was a schema"
            )));
        }
    }
    serde_json::from_value(value)
        .map_err(|error| Error::Usage(format!("{name} is no report of schema {SCHEMA}: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{Folder, Machine, Tool};

    fn args(file: PathBuf) -> PagesArgs {
        PagesArgs { file, html: None, md: None }
    }

    #[test]
    fn pages_are_made_again_from_the_file_alone() {
        let folder = tempfile::tempdir().unwrap();
        let report = Report::new(Tool::here("rig"), "Again", Vec::new(), Machine::default());
        Folder::create(folder.path()).unwrap().write_report(&report).unwrap();
        let page = folder.path().join("report.html");
        let first = fs::read_to_string(&page).unwrap();
        fs::remove_file(&page).unwrap();
        let written = write(&args(folder.path().to_owned())).unwrap();
        assert_eq!(written, [page.clone(), folder.path().join("report.md")]);
        assert_eq!(fs::read_to_string(&page).unwrap(), first);
        let other = folder.path().join("other.html");
        let one =
            PagesArgs { html: Some(other.clone()), ..args(folder.path().join("report.json")) };
        assert_eq!(write(&one).unwrap(), [other]);
    }

    #[test]
    fn what_is_no_report_is_refused_with_the_reason() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("report.json");
        let cases = [
            ("{", "no report.json"),
            ("{\"commit\": \"x\"}", "from before there was a schema"),
            ("{\"schema\": 9}", "has schema 9"),
            ("{\"schema\": 1}", "missing field"),
        ];
        for (text, reason) in cases {
            fs::write(&file, text).unwrap();
            let error = write(&args(file.clone())).unwrap_err().to_string();
            assert!(error.contains(reason), "{error}");
        }
        assert!(write(&args(folder.path().join("nothing.json"))).is_err());
    }
}
