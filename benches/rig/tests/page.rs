//! The HTML page of a report as a browser shows it: on a phone, on a desk, light, dark and printed.
//!
//! Needs Chromium. Without one the test says so and passes, unless `CI=true` asks for it.
//! `CORELANE_PAGE_PICTURES=DIR` leaves pictures of what it looked at.

#![allow(clippy::unwrap_used, reason = "a test ends at what it cannot do")]

#[path = "page/browser.rs"]
mod browser;
#[path = "page/fixture.rs"]
mod fixture;

use std::path::{Path, PathBuf};

use browser::Browser;
use rig::report::{Folder, Report, html, pages, schema};
use serde_json::{Value, json};

const CHECKS: &str = include_str!("page/checks.js");
/// Width, colours, medium.
const NARROW: (u32, &str, &str) = (360, "light", "");
const WIDE: (u32, &str, &str) = (1280, "light", "");
const LOOKS: [(u32, &str, &str); 6] = [
    NARROW,
    (360, "dark", ""),
    (768, "light", ""),
    WIDE,
    (1280, "dark", ""),
    (794, "light", "print"),
];

#[test]
fn the_page_reads_well_in_a_browser_and_asks_for_nothing() {
    let Some(program) = browser::find() else {
        assert!(
            std::env::var_os("CI").is_none_or(|ci| ci != "true"),
            "there is no Chromium: install it, or name one in CORELANE_BROWSER"
        );
        eprintln!("skipped: there is no Chromium (apt-get install chromium)");
        return;
    };
    let mut browser = Browser::start(&program);
    let mut expected = expected(&fixture::report());
    expected["plots"] = json!(fixture::PLOTS);
    expected["bars"] = json!(fixture::BARS);
    look_at(&mut browser, &fixture::report(), "all", &expected, &LOOKS);
    let broken = browser.evaluate("() => { document.body.style.width = '2000px'; }", &json!(null));
    assert!(broken.is_null());
    let found = browser.evaluate(CHECKS, &expected);
    assert!(found.to_string().contains("2000"), "the checks see what is wrong: {found}");
    for (name, report) in on_record() {
        look_at(&mut browser, &report, &name, &self::expected(&report), &[NARROW]);
    }
}

fn look_at(
    browser: &mut Browser,
    report: &Report,
    name: &str,
    expected: &Value,
    looks: &[(u32, &str, &str)],
) {
    let folder = tempfile::tempdir().unwrap();
    Folder::create(folder.path()).unwrap().write_report(report).unwrap();
    let page = folder.path().join("report.html");
    for (width, scheme, medium) in looks {
        browser.look(*width, scheme, medium);
        browser.open(&page);
        let mut expected = expected.clone();
        expected["print"] = json!(*medium == "print");
        let found = browser.evaluate(CHECKS, &expected);
        keep_pictures(browser, *width, &format!("{name}-{width}-{scheme}{medium}"));
        assert_eq!(found, json!([]), "{name}, {width} px, {scheme} {medium}");
        assert_eq!(noise(&browser.events, &page), Vec::<String>::new(), "{name}");
    }
}

/// The runs in `benches/results`, and one named in `CORELANE_PAGE_REPORT`.
fn on_record() -> Vec<(String, Report)> {
    let mut files = reports_in(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../results"));
    files.extend(std::env::var_os("CORELANE_PAGE_REPORT").map(PathBuf::from));
    // One from before there was a schema has no page.
    let has_schema =
        |file: &PathBuf| std::fs::read_to_string(file).unwrap().contains("\"schema\":");
    let named = |file: PathBuf| {
        let folder = file.parent()?.file_name()?.to_string_lossy().into_owned();
        Some((folder, pages::read(&file).unwrap()))
    };
    files.into_iter().filter(has_schema).filter_map(named).collect()
}

/// Some runs are tables and notes alone.
fn reports_in(results: &Path) -> Vec<PathBuf> {
    let folders = std::fs::read_dir(results).unwrap().map(|folder| folder.unwrap().path());
    let files = folders.map(|folder| folder.join("report.json"));
    let mut files: Vec<PathBuf> = files.filter(|file| file.exists()).collect();
    files.sort();
    files
}

#[test]
fn a_run_without_a_report_is_passed_over() {
    let results = tempfile::tempdir().unwrap();
    for name in ["a-backends", "b-report"] {
        std::fs::create_dir(results.path().join(name)).unwrap();
    }
    std::fs::write(results.path().join("a-backends/backends.md"), "a table").unwrap();
    let report = results.path().join("b-report/report.json");
    std::fs::write(&report, "{}").unwrap();
    assert_eq!(reports_in(results.path()), [report]);
}

/// What a page of the report has to show.
fn expected(report: &Report) -> Value {
    let rows = report.rows.iter().map(|row| [row.title.as_str(), row.durability.as_str()]);
    json!({ "rows": rows.collect::<Vec<_>>(), "plots": 0, "bars": 0 })
}

/// Requests other than the page itself, and everything that the console says.
fn noise(events: &[Value], page: &Path) -> Vec<String> {
    let itself = format!("file://{}", page.display());
    let is_noise = |event: &&Value| match event["method"].as_str() {
        Some("Network.requestWillBeSent") => {
            let url = event["params"]["request"]["url"].as_str().unwrap_or_default();
            url != itself && url != "data:,"
        }
        Some("Runtime.consoleAPICalled" | "Runtime.exceptionThrown" | "Log.entryAdded") => true,
        _ => false,
    };
    events.iter().filter(is_noise).map(Value::to_string).collect()
}

/// In pieces that are as high as a screen or two.
fn keep_pictures(browser: &mut Browser, width: u32, name: &str) {
    const HIGH: u64 = 2000;
    let Some(folder) = std::env::var_os("CORELANE_PAGE_PICTURES") else { return };
    std::fs::create_dir_all(&folder).unwrap();
    let high = browser.evaluate("() => document.documentElement.scrollHeight", &json!(null));
    for (number, top) in (0..high.as_u64().unwrap()).step_by(HIGH as usize).enumerate() {
        let picture = browser.picture(top, width, HIGH);
        std::fs::write(Path::new(&folder).join(format!("{name}-{number:02}.png")), picture)
            .unwrap();
    }
}

#[test]
fn runs_on_record_are_as_the_schema_says() {
    let all = on_record();
    assert!(!all.is_empty());
    for (name, report) in all {
        let value = serde_json::to_value(&report).unwrap();
        assert_eq!(schema::violations(&value), Vec::<String>::new(), "{name}");
    }
}

/// Without a browser: whatever stands in a report, none of it is markup.
#[test]
fn no_text_of_a_report_is_markup() {
    let mut value = serde_json::to_value(fixture::report()).unwrap();
    make_hostile(&mut value);
    let report: Report = serde_json::from_value(value).unwrap();
    let page = html::page(&report);
    assert!(!page.contains("<script") && !page.contains("<img"), "a name is markup");
    assert!(page.matches("&lt;script&gt;").count() > 100);
    assert!(!page.contains("onerror=\""), "a name ends an attribute");
}

/// Every text but those that the format fixes.
fn make_hostile(value: &mut Value) {
    let fixed = ["broker", "disk", "loop", "better", "id", "first", "second", "measure", "unit"];
    match value {
        Value::String(text) => *text = format!("{text}{}", fixture::HOSTILE),
        Value::Array(items) => items.iter_mut().for_each(make_hostile),
        Value::Object(fields) => {
            let free = fields.iter_mut().filter(|(name, _)| !fixed.contains(&name.as_str()));
            free.for_each(|(_, value)| make_hostile(value));
        }
        _ => {}
    }
}
