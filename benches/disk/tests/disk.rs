//! Real measurements on the disk of this repository, short ones: what is asserted is that they are
//! whole and leave nothing behind, never how fast the disk is.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::{Path, PathBuf};
use std::time::Duration;

use disk_bench::{Part, Place, Plan, Stop};
use hardware::Profile;

/// The system's temporary folder may be in memory, without direct I/O.
fn folder() -> tempfile::TempDir {
    let run = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/run");
    std::fs::create_dir_all(&run).unwrap();
    tempfile::tempdir_in(run).unwrap()
}

fn short() -> Plan {
    let mut plan = Plan::quick(Duration::from_millis(20));
    plan.file_bytes = Some(64 << 20);
    plan
}

fn left_behind(folder: &Path) -> Vec<PathBuf> {
    std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect()
}

#[test]
fn a_disk_is_measured_whole_and_nothing_is_left() {
    let folder = folder();
    let place = Place::of(folder.path()).unwrap();
    let plan = short();
    let (told, heard) = std::sync::mpsc::channel();
    let tell = move |text: &str| told.send(text.to_owned()).unwrap();
    let found = disk_bench::measure(&place.dir, &plan, &Stop::default(), tell).unwrap();
    assert!(!found.stopped);
    assert_eq!(found.sequential_write.len(), 9);
    assert_eq!(found.sequential_read.len(), 9);
    assert_eq!((found.random_read.len(), found.mixed.len()), (3, 3));
    // The filling, and a line for each cell.
    assert_eq!(heard.iter().count(), 1 + plan.cells());
    let cells = found.sequential_write.iter().chain(&found.sequential_read);
    for cell in cells.chain(&found.random_read).chain(&found.synced_append) {
        assert_eq!(cell.requests, cell.latency.len(), "a request without a latency");
        assert!(cell.requests > 0 && cell.seconds >= 0.02);
    }
    assert!(left_behind(folder.path()).is_empty());

    let profile = disk_bench::profile(&place, &found, &plan, None).unwrap();
    assert_eq!(Profile::parse(&profile.write().unwrap()).unwrap(), profile);
    assert_eq!(profile.conditions.file_bytes, 64 << 20);

    let part = Part { place: &place, found: &found, label: Some("hdd: slow") };
    let report = disk_bench::report(Vec::new(), &[part], None);
    let mut ids: Vec<&str> = report.rows.iter().map(|row| row.id.as_str()).collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), report.rows.len(), "two rows with one id");
    assert_eq!(report.rows.len(), 9 + 9 + 3 + 6 + 1);
    assert!(report.rows.iter().all(|row| row.labels == ["emulated: hdd: slow"]));
    let value = serde_json::to_value(&report).unwrap();
    assert_eq!(rig::report::schema::violations(&value), Vec::<String>::new());
    assert_eq!(report.machine.disks[0].emulated.as_deref(), Some("hdd: slow"));
    let text = disk_bench::ceilings_text(&place, &found, Some("hdd: slow"));
    assert_eq!(text.matches("[emulated: hdd: slow]").count(), 2, "{text}");
}

#[test]
fn a_wish_to_stop_ends_it_with_what_there_is() {
    let folder = folder();
    let stop = Stop::default();
    let wish = stop.clone();
    let tell = move |text: &str| {
        if text.starts_with("random read") {
            wish.request();
        }
    };
    let found = disk_bench::measure(folder.path(), &short(), &stop, tell).unwrap();
    assert!(found.stopped && found.synced_append.is_none());
    assert_eq!((found.sequential_read.len(), found.random_read.len()), (9, 0));
    assert!(left_behind(folder.path()).is_empty());
    let place = Place::of(folder.path()).unwrap();
    assert!(disk_bench::profile(&place, &found, &short(), None).is_err());
}

#[test]
fn several_directories_are_written_to_alone_and_together() {
    let (a, b) = (folder(), folder());
    let dirs = [a.path().to_owned(), b.path().to_owned()];
    let found = disk_bench::measure_together(&dirs, &short(), &Stop::default()).unwrap().unwrap();
    assert_eq!((found.alone.len(), found.together.len()), (2, 2));
    assert!(found.scaling() > 0.0 && found.skew() > 0.0 && found.skew() <= 1.0);
    let places = dirs.map(|dir| Place::of(&dir).unwrap());
    assert!(disk_bench::together_text(&places, &found, None).contains("share a disk"));
    assert!(left_behind(a.path()).is_empty() && left_behind(b.path()).is_empty());
}

#[test]
fn a_directory_that_is_not_there_is_named() {
    let folder = folder();
    let error = Place::of(&folder.path().join("missing")).unwrap_err().to_string();
    assert!(error.contains("missing"), "{error}");
    let gone = folder.path().join("gone");
    let dirs = [folder.path().to_owned(), gone];
    let error = disk_bench::measure_together(&dirs, &short(), &Stop::default()).unwrap_err();
    assert!(error.to_string().contains("gone"), "{error}");
}
