//! What deleted topics leave behind when the process dies amid it, in the simulator; and folders of
//! which nobody knows whose they are.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod support;

use std::cell::Cell;
use std::collections::BTreeSet;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use reactor::sim::{Crash, Outcome, World};
use support::{BASE_PORT, Client, Shards, batch, start_shards};

const DATA_DIR: &str = "/data";
const TOPIC: &str = "t";
const PARTITIONS: i32 = 3;

async fn start() -> (Shards, Client) {
    reactor::fs::create_dir_all(Path::new(DATA_DIR)).await.unwrap();
    reactor::fs::sync_dir(Path::new("/")).await.unwrap();
    let mut started = start_shards(1, BASE_PORT, DATA_DIR, &[]);
    started.ready().await;
    let client = Client::connect(started.addresses[0]).await.unwrap();
    (started, client)
}

async fn write_topic(client: &mut Client) {
    assert_eq!(client.create_topic(TOPIC, PARTITIONS, &[]).await.unwrap(), 0);
    for partition in 0..PARTITIONS {
        let bytes = batch(&[b"v"], reactor::wall_clock_ms());
        assert_eq!(client.produce(TOPIC, partition, &bytes).await.unwrap(), (0, 0));
    }
}

/// The names of the folders that hold something of the topic.
fn folders(world: &mut World) -> BTreeSet<String> {
    let files = world.disk().files();
    let names = files.into_iter().map(|(path, _)| {
        let folder = path.parent().unwrap();
        folder.file_name().unwrap_or_default().to_string_lossy().into_owned()
    });
    names.filter(|name| name.starts_with("t-")).collect()
}

/// Of what a power cut took the marks too, nobody can say whose it is.
fn unmarked(world: &mut World, folder: &str) -> bool {
    let folder = Path::new(DATA_DIR).join(folder);
    let marks = ["partition.metadata", "corelane.checkpoint"];
    marks.iter().all(|name| world.disk().read(&folder.join(name)).is_none_or(|b| b.is_empty()))
}

#[test]
fn a_crash_amid_a_deletion_leaves_nothing_for_ever() {
    let mut amid = 0;
    for kind in [Crash::Process, Crash::Power] {
        for seed in 0..80 {
            let mut world = World::new(seed);
            let ran = world.run(|| async {
                let (_started, mut client) = start().await;
                write_topic(&mut client).await;
                // Names and files are on the disk, whatever becomes of the power.
                reactor::sleep(Duration::from_secs(120)).await;
            });
            assert!(matches!(ran, Outcome::Finished(())), "{ran:?}");
            world.crash_after(50 + seed * 2, kind);
            let answered = Rc::new(Cell::new(false));
            let answer = answered.clone();
            let crashed = world.run(move || async move {
                let (_started, mut client) = start().await;
                assert_eq!(client.delete_topic(TOPIC).await.unwrap(), 0);
                answer.set(true);
                reactor::sleep(Duration::from_secs(3600)).await;
            });
            assert!(matches!(crashed, Outcome::Crashed(_)), "seed {seed}: {crashed:?}");
            let left = folders(&mut world);
            amid += usize::from(answered.get() && left.iter().any(|n| !n.ends_with("-delete")));
            let ran = world.run(|| async {
                let (_started, mut client) = start().await;
                let bytes = batch(&[b"v"], reactor::wall_clock_ms());
                let is_there = client.produce(TOPIC, 0, &bytes).await.unwrap().0 == 0;
                reactor::sleep(Duration::from_secs(120)).await;
                is_there
            });
            let Outcome::Finished(is_there) = ran else { panic!("seed {seed}: {ran:?}") };
            assert!(!is_there || !answered.get(), "seed {seed}: a deleted topic came back");
            let left = folders(&mut world);
            assert!(is_there || left.iter().all(|n| unmarked(&mut world, n)), "{seed}: {left:?}");
        }
    }
    assert!(amid > 0, "no crash came between the answer and the renames");
}

/// Of a topic that this cluster never had nothing is removed, at any start.
#[test]
fn a_folder_of_an_unknown_topic_is_set_aside_and_kept() {
    let mut world = World::new(1);
    let ran = world.run(|| async {
        let (_started, mut client) = start().await;
        write_topic(&mut client).await;
        let id = wire::Uuid([9; 16]);
        let theirs = Path::new(DATA_DIR).join("t-7");
        reactor::fs::create_dir_all(&theirs).await.unwrap();
        log::checkpoints::write_partition_metadata(&theirs, id).await.unwrap();
        // Another one, that does not even say whose it is.
        let nobodys = Path::new(DATA_DIR).join("t-8");
        reactor::fs::create_dir_all(&nobodys).await.unwrap();
        reactor::fs::write_atomic(&nobodys.join("x"), b"x".to_vec()).await.unwrap();
    });
    assert!(matches!(ran, Outcome::Finished(())), "{ran:?}");
    for _ in 0..3 {
        let ran = world.run(|| async {
            let (_started, mut client) = start().await;
            assert_eq!(client.create_topic("other", 1, &[]).await.unwrap() % 36, 0);
            assert_eq!(client.delete_topic("other").await.unwrap(), 0);
            reactor::sleep(Duration::from_secs(120)).await;
        });
        assert!(matches!(ran, Outcome::Finished(())), "{ran:?}");
        let left = folders(&mut world);
        for name in ["t-7.", "t-8."] {
            let aside = |n: &&String| n.starts_with(name) && n.ends_with("-stray");
            assert_eq!(left.iter().filter(aside).count(), 1, "{left:?}");
        }
    }
}
