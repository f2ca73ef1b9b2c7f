//! A real broker on real directories under short loads: every figure is there, the report is as the
//! schema says, and neither process nor folder is left.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::{Path, PathBuf};
use std::time::Duration;

use disk_bench::broker::{self, Loads, Promise, Setup};
use disk_bench::{Part, Place, Plan, Stop};

fn folder() -> tempfile::TempDir {
    let run = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/run");
    std::fs::create_dir_all(&run).unwrap();
    tempfile::tempdir_in(run).unwrap()
}

fn setup() -> Setup {
    let binary = corelane_tests::repository::corelane_binary().unwrap();
    Setup { binary, shards: 1, port: None, room: 512 << 20 }
}

/// Windows in which something goes through on a machine that does much else.
fn loads() -> Loads {
    Loads { window: Duration::from_secs(1), steps: vec![0.2, 0.4], warm_bytes: 4 << 20 }
}

/// Brokers that were started on a folder below this one.
fn brokers_on(folder: &Path) -> usize {
    let wanted = folder.display().to_string();
    let processes = std::fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    let lines = processes.filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok());
    lines.filter(|line| String::from_utf8_lossy(line).contains(&wanted)).count()
}

#[test]
fn a_broker_is_held_against_its_disk_and_leaves_nothing() {
    let folder = folder();
    let place = Place::of(folder.path()).unwrap();
    let mut plan = Plan::quick(Duration::from_millis(10));
    plan.file_bytes = Some(64 << 20);
    let ceilings = disk_bench::measure(&place.dir, &plan, &Stop::default(), |_| {}).unwrap();
    let found = broker::measure(&place, &setup(), &loads(), &Stop::default(), &|_| {}).unwrap();
    assert_eq!(found.iter().map(|here| here.promise).collect::<Vec<_>>(), Promise::BOTH);
    for here in &found {
        assert_eq!((here.closed.len(), here.curve.len()), (2, 2));
        for closed in &here.closed {
            assert!(closed.sample.bytes > 0.0, "nothing went through");
            assert!(!closed.limit(1).words().is_empty());
        }
        assert!(here.curve[0].load < here.curve[1].load);
    }
    // Where the kernel counts, it counts at least what was acknowledged as on the device.
    let synced = &found[1].closed[0];
    if synced.activity.known {
        assert!(synced.activity.written_bytes >= synced.sample.bytes * 0.9, "{synced:?}");
    }
    let text = broker::on_disk_text(&place, &ceilings, &found, Some("hdd: slow"));
    assert!(text.contains("[emulated: hdd: slow]") && text.contains("% of the disk's"), "{text}");

    let part = Part { place: &place, found: &ceilings, label: None };
    let mut report = disk_bench::report(vec!["corelane".into()], &[part], None);
    broker::add_to(&mut report, &place, &ceilings, &found, None);
    let value = serde_json::to_value(&report).unwrap();
    assert_eq!(rig::report::schema::violations(&value), Vec::<String>::new());
    let knees = |curve: &str| {
        let on = |row: &&rig::report::Row| {
            row.curve.as_ref().is_some_and(|one| one.name.contains(curve) && one.knee)
        };
        report.rows.iter().filter(on).count()
    };
    for here in &found {
        assert_eq!(knees(here.promise.name()), usize::from(here.knee.is_some()));
    }
    assert_eq!(brokers_on(&place.dir), 0);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn brokers_run_side_by_side() {
    let folders = [folder(), folder()];
    let places: Vec<Place> =
        folders.iter().map(|folder| Place::of(folder.path()).unwrap()).collect();
    let found = broker::side_by_side(&places, &setup(), &loads(), &|_| {}).unwrap();
    assert!(found.alone.iter().chain(&found.together).all(|rate| *rate > 0.0), "{found:?}");
    assert!(found.scaling() > 0.0 && found.skew() <= 1.0);
    let dirs: Vec<PathBuf> = places.iter().map(|place| place.dir.clone()).collect();
    assert_eq!(found.dirs, dirs);
    for dir in &dirs {
        assert_eq!(brokers_on(dir), 0);
        assert_eq!(std::fs::read_dir(dir).unwrap().count(), 0);
    }
}

#[test]
fn a_broker_that_does_not_start_says_why_and_leaves_nothing() {
    let folder = folder();
    let place = Place::of(folder.path()).unwrap();
    let missing = Setup { binary: "/nothing/here".into(), ..setup() };
    let error = broker::measure(&place, &missing, &loads(), &Stop::default(), &|_| {}).unwrap_err();
    assert!(error.to_string().contains("/nothing/here"), "{error}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}
