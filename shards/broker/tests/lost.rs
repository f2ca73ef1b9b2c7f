//! Partitions whose folder is not where it should be, in the simulator: never begun empty while
//! something says that they held records.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod support;

use std::path::{Path, PathBuf};
use std::time::Duration;

use reactor::sim::{Crash, Outcome, World, with_faults};
use support::{BASE_PORT, Client, Shards, batch, start_on, values};

const DIRS: [&str; 2] = ["/disk1", "/disk2"];
const TOPIC: &str = "t";

async fn start(shards: u16) -> (Shards, Vec<Client>) {
    for dir in DIRS {
        reactor::fs::create_dir_all(Path::new(dir)).await.unwrap();
    }
    reactor::fs::sync_dir(Path::new("/")).await.unwrap();
    let mut started = start_on(shards, BASE_PORT, &DIRS, &[]);
    started.ready().await;
    let mut clients = Vec::new();
    for address in &started.addresses {
        clients.push(Client::connect(*address).await.unwrap());
    }
    (started, clients)
}

/// The answer of the partition's leader: error code and offset.
async fn produce(clients: &mut [Client], value: &[u8]) -> (i16, i64) {
    produce_to(clients, 0, value).await
}

async fn produce_to(clients: &mut [Client], partition: i32, value: &[u8]) -> (i16, i64) {
    let bytes = batch(&[value], reactor::wall_clock_ms());
    for client in clients {
        match client.produce(TOPIC, partition, &bytes).await.unwrap() {
            (6, _) => {}
            answer => return answer,
        }
    }
    panic!("nobody leads it");
}

/// Until the partition takes a record; its offset.
async fn produce_again(clients: &mut [Client], value: &[u8]) -> i64 {
    let begin = reactor::now();
    loop {
        match produce(clients, value).await {
            (0, offset) => return offset,
            (56, _) => {}
            other => panic!("produce answered {other:?}"),
        }
        assert!(reactor::now() - begin < Duration::from_secs(600), "it stays offline");
        reactor::sleep(Duration::from_millis(500)).await;
    }
}

async fn everything(client: &mut Client) -> Vec<Vec<u8>> {
    let (error, _, bytes) = client.fetch(TOPIC, 0, 0, 0).await.unwrap();
    assert_eq!(error, 0);
    values(&bytes).into_iter().map(|(_, value)| value).collect()
}

/// The partition's folders.
fn folders(world: &mut World) -> Vec<PathBuf> {
    let mut folders: Vec<PathBuf> = Vec::new();
    for (path, _) in world.disk().files() {
        let folder = path.parent().unwrap().to_path_buf();
        if folder.file_name().is_some_and(|name| name == "t-0") && !folders.contains(&folder) {
            folders.push(folder);
        }
    }
    folders
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Clean,
    Crash(Crash),
}

/// Three records, some idle time, and an end.
fn first_run(world: &mut World, end: End) {
    let after = Duration::from_secs(20);
    world.terminate_after(if end == End::Clean { after } else { Duration::from_secs(3600) });
    let ran = world.run(move || async move {
        let (started, mut clients) = start(1).await;
        // Kept through a power cut too.
        let synced = [("flush.messages", "1")];
        assert_eq!(clients[0].create_topic(TOPIC, 1, &synced).await.unwrap(), 0);
        for offset in 0..3 {
            assert_eq!(produce(&mut clients, b"v").await, (0, offset));
        }
        match end {
            End::Clean => {
                for task in started.tasks {
                    task.await.expect("a clean end");
                }
            }
            // At the next operation, whichever it is.
            End::Crash(kind) => {
                reactor::sleep(Duration::from_secs(15)).await;
                reactor::sim::crash_after(1, kind);
                reactor::sleep(Duration::from_secs(600)).await;
            }
        }
    });
    match end {
        End::Clean => assert!(matches!(ran, Outcome::Finished(())), "{ran:?}"),
        End::Crash(kind) => assert!(matches!(ran, Outcome::Crashed(k) if k == kind), "{ran:?}"),
    }
    world.terminate_after(Duration::from_secs(36_000));
}

#[test]
fn a_folder_that_is_gone_at_a_start_is_not_begun_empty() {
    for end in [End::Clean, End::Crash(Crash::Process), End::Crash(Crash::Power)] {
        let mut world = World::new(1);
        first_run(&mut world, end);
        let folder = folders(&mut world).remove(0);
        let away = folder.with_file_name("kept");
        let (gone, kept) = (folder.clone(), away.clone());
        let ran = world.run(move || async move {
            reactor::fs::rename(&gone, &kept).await.unwrap();
            let (_started, mut clients) = start(1).await;
            reactor::sleep(Duration::from_secs(30)).await;
            assert_eq!(produce(&mut clients, b"v").await.0, 56);
            assert_eq!(clients[0].fetch(TOPIC, 0, 0, 0).await.unwrap().0, 56);
            assert!(!reactor::fs::exists(&gone).await.unwrap(), "an empty one was made");
        });
        assert!(matches!(ran, Outcome::Finished(())), "{end:?}: {ran:?}");
        // That was a crash; what a clean shutdown said is not known any more.
        let (gone, kept) = (folder.clone(), away.clone());
        let ran = world.run(move || async move {
            let (_started, mut clients) = start(1).await;
            reactor::sleep(Duration::from_secs(30)).await;
            assert_eq!(produce(&mut clients, b"v").await.0, 56);
            assert!(!reactor::fs::exists(&gone).await.unwrap(), "an empty one was made");
            // Put back, it is served again, without a restart.
            reactor::fs::rename(&kept, &gone).await.unwrap();
            assert_eq!(produce_again(&mut clients, b"v").await, 3);
            assert_eq!(everything(&mut clients[0]).await.len(), 4);
        });
        assert!(matches!(ran, Outcome::Finished(())), "{end:?}: {ran:?}");
        // Each start has gathered what the ones before wrote down.
        let ran = world.run(|| async {
            let (_started, mut clients) = start(1).await;
            assert_eq!(produce_again(&mut clients, b"v").await, 4);
        });
        assert!(matches!(ran, Outcome::Finished(())), "{end:?}: {ran:?}");
        let is_journal = |path: &Path| path.to_string_lossy().contains("corelane.partitions-");
        let journals = world.disk().files().into_iter().filter(|(path, _)| is_journal(path));
        assert_eq!(journals.count(), 0, "{end:?}");
    }
}

/// The disk goes on taking records for a folder that has no name any more.
#[test]
fn a_folder_that_goes_while_it_is_served_is_missed_at_the_next_start() {
    for end in [End::Clean, End::Crash(Crash::Process), End::Crash(Crash::Power)] {
        let mut world = World::new(4);
        world.terminate_after(Duration::from_secs(3600));
        let ran = world.run(move || async move {
            let (_started, mut clients) = start(1).await;
            assert_eq!(clients[0].create_topic(TOPIC, 1, &[]).await.unwrap(), 0);
            assert_eq!(produce(&mut clients, b"v").await, (0, 0));
            reactor::sleep(Duration::from_secs(15)).await;
            for dir in DIRS.map(Path::new) {
                let _ = reactor::fs::rename(&dir.join("t-0"), &dir.join("kept")).await;
                reactor::fs::sync_dir(dir).await.unwrap();
            }
            match end {
                End::Clean => reactor::sleep(Duration::from_secs(7200)).await,
                End::Crash(kind) => drop(reactor::sim::crash_after(1, kind)),
            }
            reactor::sleep(Duration::from_secs(600)).await;
        });
        assert!(matches!(ran, Outcome::Finished(()) | Outcome::Crashed(_)), "{end:?}: {ran:?}");
        world.terminate_after(Duration::from_secs(36_000));
        let ran = world.run(|| async {
            let (_started, mut clients) = start(1).await;
            assert_eq!(produce(&mut clients, b"v").await.0, 56);
        });
        assert!(matches!(ran, Outcome::Finished(())), "{end:?}: {ran:?}");
    }
}

/// The folder of another topic stands in its place, and its own elsewhere.
#[test]
fn a_folder_of_another_topic_is_not_taken_for_an_old_one_of_this() {
    for end in [End::Clean, End::Crash(Crash::Process), End::Crash(Crash::Power)] {
        let mut world = World::new(5);
        first_run(&mut world, end);
        let folder = folders(&mut world).remove(0);
        let ran = world.run(move || async move {
            let kept = folder.with_file_name("kept");
            let other = "version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ\n";
            reactor::fs::rename(&folder, &kept).await.unwrap();
            reactor::fs::create_dir_all(&folder).await.unwrap();
            let metadata = folder.join("partition.metadata");
            reactor::fs::write_atomic(&metadata, other.as_bytes().to_vec()).await.unwrap();
            let (_started, mut clients) = start(1).await;
            reactor::sleep(Duration::from_secs(30)).await;
            assert_eq!(produce(&mut clients, b"v").await.0, 56);
            assert!(reactor::fs::exists(&metadata).await.unwrap(), "it was set aside");
            reactor::fs::remove_dir_all(&folder).await.unwrap();
            reactor::fs::rename(&kept, &folder).await.unwrap();
            assert_eq!(produce_again(&mut clients, b"v").await, 3);
        });
        assert!(matches!(ran, Outcome::Finished(())), "{end:?}: {ran:?}");
    }
}

/// All files of a folder, to be put back later.
async fn copy_of(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut files = Vec::new();
    for entry in reactor::fs::read_dir(folder).await.unwrap() {
        let path = folder.join(&entry.name);
        files.push((path.clone(), reactor::fs::read(&path).await.unwrap()));
    }
    files
}

async fn empty(folder: &Path) {
    for entry in reactor::fs::read_dir(folder).await.unwrap() {
        if entry.name != "partition.metadata" {
            reactor::fs::remove_file(&folder.join(&entry.name)).await.unwrap();
        }
    }
}

/// Where the partition is.
async fn folder() -> PathBuf {
    for dir in DIRS {
        let folder = Path::new(dir).join("t-0");
        if reactor::fs::exists(&folder).await.unwrap() {
            return folder;
        }
    }
    panic!("it is nowhere");
}

/// Longer than it takes to write down how far each partition has gone, and to flush an idle log.
const WRITTEN_DOWN: Duration = Duration::from_secs(300);

/// Ends the run as told.
async fn end_run(started: Shards, end: End) {
    match end {
        End::Clean => {
            for task in started.tasks {
                task.await.expect("a clean end");
            }
        }
        End::Crash(kind) => {
            reactor::sim::crash_after(1, kind);
            reactor::sleep(Duration::from_secs(7200)).await;
        }
    }
}

const ENDS: [End; 3] = [End::Clean, End::Crash(Crash::Process), End::Crash(Crash::Power)];

#[test]
fn a_folder_that_was_emptied_is_not_begun_anew() {
    for end in ENDS {
        let mut world = World::new(6);
        world.terminate_after(Duration::from_secs(1_000));
        let ran = world.run(move || async move {
            let (started, mut clients) = start(1).await;
            assert_eq!(clients[0].create_topic(TOPIC, 1, &[]).await.unwrap(), 0);
            assert_eq!(produce(&mut clients, b"v").await, (0, 0));
            reactor::sleep(WRITTEN_DOWN).await;
            end_run(started, end).await;
        });
        assert!(matches!(ran, Outcome::Finished(()) | Outcome::Crashed(_)), "{end:?}: {ran:?}");
        world.terminate_after(Duration::from_secs(36_000));
        // It stays offline, whatever the starts in between write down.
        for _ in 0..2 {
            let ran = world.run(move || async move {
                empty(&folder().await).await;
                let (_started, mut clients) = start(1).await;
                reactor::sleep(WRITTEN_DOWN).await;
                assert_eq!(produce(&mut clients, b"v").await.0, 56);
            });
            assert!(matches!(ran, Outcome::Finished(())), "{end:?}: {ran:?}");
        }
        // The way on that the broker's log names, and no other; also while it runs.
        let ran = world.run(move || async move {
            for name in ["00000000000000000000.log", "00000000000000000001.log"] {
                let empty = folder().await.join(name);
                reactor::fs::write_atomic(&empty, Vec::new()).await.unwrap();
            }
            let (_started, mut clients) = start(1).await;
            reactor::sleep(WRITTEN_DOWN).await;
            assert_eq!(produce(&mut clients, b"v").await.0, 56);
            give_up(&folder().await).await;
            assert_eq!(produce_again(&mut clients, b"v").await, 1);
        });
        assert!(matches!(ran, Outcome::Finished(())), "{end:?}: {ran:?}");
    }
}

/// As an operator does it who has no copy.
async fn give_up(folder: &Path) {
    let word = folder.join("given-up-offset-checkpoint");
    reactor::fs::write_atomic(&word, Vec::new()).await.unwrap();
}

async fn put(folder: &Path, files: Vec<(PathBuf, Vec<u8>)>) {
    for (path, bytes) in files {
        let file = folder.join(path.file_name().unwrap());
        reactor::fs::write_atomic(&file, bytes).await.unwrap();
    }
}

/// Writes a record, keeps a copy of the folder, and goes on for as long as it takes that the disks know of
/// what comes then: all of it flushed, or every record but the first few only written.
fn write_with_copy(world: &mut World, end: End, is_idle: bool) {
    world.terminate_after(Duration::from_secs(2_000));
    let ran = world.run(move || async move {
        let (started, mut clients) = start(1).await;
        assert_eq!(clients[0].create_topic(TOPIC, 1, &[]).await.unwrap(), 0);
        assert_eq!(produce(&mut clients, b"v").await, (0, 0));
        if is_idle {
            reactor::sleep(WRITTEN_DOWN).await;
        }
        let older = copy_of(&folder().await).await;
        let kept = Path::new("/older");
        reactor::fs::create_dir_all(kept).await.unwrap();
        put(kept, older).await;
        reactor::fs::sync_dir(Path::new("/")).await.unwrap();
        let records = if is_idle { 1 } else { 90 };
        for offset in 1..=records {
            assert_eq!(produce(&mut clients, b"w").await, (0, offset));
            reactor::sleep(Duration::from_secs(1)).await;
        }
        if is_idle {
            reactor::sleep(WRITTEN_DOWN).await;
        }
        end_run(started, end).await;
    });
    assert!(matches!(ran, Outcome::Finished(()) | Outcome::Crashed(_)), "{end:?}: {ran:?}");
    world.terminate_after(Duration::from_secs(36_000));
}

/// What a crash of the process leaves is missed in the first minute too, once the disks know of it.
#[test]
fn an_older_copy_of_a_folder_is_not_served() {
    let written = (End::Crash(Crash::Process), false);
    for (end, is_idle) in ENDS.map(|end| (end, true)).into_iter().chain([written]) {
        let mut world = World::new(7);
        write_with_copy(&mut world, end, is_idle);
        let last = if is_idle { 2 } else { 91 };
        let ran = world.run(move || async move {
            let folder = folder().await;
            let newer = copy_of(&folder).await;
            let has_checkpoint =
                newer.iter().any(|(path, _)| path.ends_with("corelane.checkpoint"));
            assert_eq!(has_checkpoint, is_idle, "it was flushed");
            reactor::fs::remove_dir_all(&folder).await.unwrap();
            reactor::fs::create_dir_all(&folder).await.unwrap();
            put(&folder, copy_of(Path::new("/older")).await).await;
            let (_started, mut clients) = start(1).await;
            reactor::sleep(WRITTEN_DOWN).await;
            assert_eq!(produce(&mut clients, b"x").await.0, 56);
            // The right one again, without a restart.
            empty(&folder).await;
            put(&folder, newer).await;
            assert_eq!(produce_again(&mut clients, b"x").await, last);
        });
        assert!(matches!(ran, Outcome::Finished(())), "{end:?}: {ran:?}");
    }
}

/// Only the process has ended: what it had written is there, unless something else took it.
#[test]
fn a_last_segment_that_something_has_shortened_is_not_served_until_it_is_given_up() {
    let mut world = World::new(8);
    write_with_copy(&mut world, End::Crash(Crash::Process), false);
    let ran = world.run(|| async {
        let folder = folder().await;
        let segment = folder.join("00000000000000000000.log");
        let bytes = reactor::fs::read(&segment).await.unwrap();
        let short = bytes[..bytes.len().min(200)].to_vec();
        reactor::fs::write_atomic(&segment, short).await.unwrap();
        let (_started, mut clients) = start(1).await;
        reactor::sleep(WRITTEN_DOWN).await;
        assert_eq!(produce(&mut clients, b"x").await.0, 56);
        give_up(&folder).await;
        let offset = produce_again(&mut clients, b"x").await;
        assert!((1..5).contains(&offset), "{offset}");
        reactor::sleep(WRITTEN_DOWN).await;
        reactor::sim::crash_after(1, Crash::Process);
        reactor::sleep(Duration::from_secs(60)).await;
    });
    assert!(matches!(ran, Outcome::Crashed(_)), "{ran:?}");
    // It is not missed again.
    let ran = world.run(|| async {
        let (_started, mut clients) = start(1).await;
        assert_eq!(produce(&mut clients, b"y").await.0, 0);
    });
    assert!(matches!(ran, Outcome::Finished(())), "{ran:?}");
}

#[test]
fn the_topic_of_a_folder_that_is_gone_can_be_deleted_and_made_again() {
    let mut world = World::new(2);
    first_run(&mut world, End::Clean);
    let folder = folders(&mut world).remove(0);
    let ran = world.run(move || async move {
        reactor::fs::remove_dir_all(&folder).await.unwrap();
        let (_started, mut clients) = start(1).await;
        assert_eq!(produce(&mut clients, b"v").await.0, 56);
        assert_eq!(clients[0].delete_topic(TOPIC).await.unwrap(), 0);
        assert_eq!(clients[0].create_topic(TOPIC, 1, &[]).await.unwrap(), 0);
        assert_eq!(produce(&mut clients, b"new").await, (0, 0));
    });
    assert!(matches!(ran, Outcome::Finished(())), "{ran:?}");
}

/// A log that failed is opened again, but not as a new one: its folder went in between.
#[test]
fn a_folder_that_goes_while_it_is_served_is_not_begun_empty() {
    let mut world = World::new(3);
    let outcome = world.run(|| async {
        let (_started, mut clients) = start(1).await;
        assert_eq!(clients[0].create_topic(TOPIC, 1, &[]).await.unwrap(), 0);
        assert_eq!(produce(&mut clients, b"v").await, (0, 0));
        let mut places = DIRS.map(|dir| Path::new(dir).join("t-0")).to_vec();
        if !reactor::fs::exists(&places[0]).await.unwrap() {
            places.reverse();
        }
        let (folder, kept) = (places[0].clone(), places[0].with_file_name("kept"));
        with_faults(|faults| faults.disk.broken.insert(folder.clone()));
        assert_eq!(produce(&mut clients, b"v").await.0, 56);
        with_faults(|faults| faults.disk.broken.clear());
        reactor::fs::rename(&folder, &kept).await.unwrap();
        reactor::sleep(Duration::from_secs(60)).await;
        assert_eq!(produce(&mut clients, b"v").await.0, 56);
        (folder, kept)
    });
    let Outcome::Finished((folder, kept)) = outcome else { panic!("{outcome:?}") };
    let ran = world.run(|| async move {
        let (_started, mut clients) = start(1).await;
        assert_eq!(produce(&mut clients, b"v").await.0, 56, "a restart makes no difference");
        reactor::fs::rename(&kept, &folder).await.unwrap();
        assert!(produce_again(&mut clients, b"v").await >= 1);
        assert_eq!(everything(&mut clients[0]).await[0], b"v");
    });
    assert!(matches!(ran, Outcome::Finished(())), "{ran:?}");
}

/// The crash comes anywhere between the record that makes a topic and its folders: they are made by the
/// next start, whatever it finds of them.
#[test]
fn a_topic_whose_folders_a_crash_kept_from_being_made_begins_empty() {
    for kind in [Crash::Process, Crash::Power] {
        begins_empty_after(kind);
    }
}

fn begins_empty_after(kind: Crash) {
    let mut unmade = 0;
    for seed in 0..120 {
        let mut world = World::new(seed);
        world.faults().disk.unordered_names = seed % 2 == 0;
        let ran = world.run(|| async { drop(start(1).await) });
        assert!(matches!(ran, Outcome::Finished(())), "{ran:?}");
        world.crash_after(20 + seed, kind);
        let crashed = world.run(|| async {
            let (_started, mut clients) = start(1).await;
            let _ = clients[0].create_topic(TOPIC, 1, &[]).await;
            reactor::sleep(Duration::from_secs(60)).await;
        });
        assert!(matches!(crashed, Outcome::Crashed(_)), "seed {seed}: {crashed:?}");
        let was_made = !folders(&mut world).is_empty();
        let ran = world.run(|| async {
            let (_started, mut clients) = start(1).await;
            let exists = clients[0].create_topic(TOPIC, 1, &[]).await.unwrap() == 36;
            assert_eq!(produce_again(&mut clients, b"v").await, 0);
            exists
        });
        let Outcome::Finished(exists) = ran else { panic!("seed {seed}: {ran:?}") };
        unmade += usize::from(exists && !was_made);
    }
    assert!(unmade > 0, "{kind:?}: none came between the two");
}

/// The last partition of a topic that has more than are opened at the same time.
const LAST: i32 = 399;

/// A new topic's partition goes to another core before it was opened where it was made.
#[test]
fn a_new_partition_that_changes_cores_at_once_is_made() {
    for seed in 0..4 {
        let outcome = World::new(seed).run(move || async move {
            let (_started, mut clients) = start(2).await;
            // More than are opened at the same time, and slowly: the last one waits for its turn.
            let slow = reactor::sim::Delay::exactly(Duration::from_millis(200));
            with_faults(|faults| {
                for (number, dir) in (0..=LAST).flat_map(|n| DIRS.map(|dir| (n, dir))) {
                    let folder = Path::new(dir).join(format!("{TOPIC}-{number}"));
                    faults.disk.slow.insert(folder, slow);
                }
            });
            let partitions = LAST + 1;
            assert_eq!(clients[0].create_topic(TOPIC, partitions, &[]).await.unwrap(), 0);
            for node in [1000, 1001, 1000] {
                let done = clients[0].reassign(TOPIC, LAST, Some(vec![node])).await;
                assert_eq!(done.unwrap(), 0);
            }
            with_faults(|faults| faults.disk.slow.clear());
            assert_eq!(produce_to(&mut clients, LAST, b"v").await, (0, 0));
        });
        assert!(matches!(outcome, Outcome::Finished(())), "seed {seed}: {outcome:?}");
    }
}
