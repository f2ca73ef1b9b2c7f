//! What the model does not reach: failed syncs, full disks, dropped writes.

use std::io::ErrorKind;
use std::time::Duration;

use bytes::Bytes;
use reactor::sim::{Outcome, World, with_faults};
use reactor::{
    AlignedBuf, Allocate, Chunk, Durability, File, OpenOptions, WriteBuf, fs, join_all, sleep,
    spawn, yield_now,
};
use smallvec::smallvec;

use crate::harness::Env;

every!(
    allocated_space_reads_as_zeros,
    a_dropped_write_keeps_its_buffer,
    many_operations_at_once,
    close_waits_for_nobody
);

/// The kernel reads the buffer long after the future and every handle are gone.
async fn a_dropped_write_keeps_its_buffer(env: Env) {
    let path = env.dir.join("dropped");
    let options = OpenOptions { direct: true, ..OpenOptions::for_writing() };
    let file = File::open(&path, options).await.unwrap();
    let size = 64 << 10;
    for round in 0..env.rounds(300, 40) {
        let mut chunk = Chunk::new(size);
        chunk.append(&vec![round as u8 | 1; size]);
        let bufs = smallvec![WriteBuf::Chunk(chunk.slice(0..size))];
        let writer = file.clone();
        let task = spawn(async move { writer.write_at(bufs, 0, Durability::Written).await });
        yield_now().await;
        drop((task, chunk));
        // Whoever gets the memory next must not end up in the file.
        let mut other = AlignedBuf::with_capacity(size);
        other.set_len(size);
        other.fill(0);
        let (n, buf) = file.read_at(AlignedBuf::with_capacity(size), 0).await;
        // The write may not have happened yet, may have half, but zeros were never written.
        assert!(buf[..n.unwrap()].iter().all(|&b| b != 0), "round {round}");
    }
}

async fn allocated_space_reads_as_zeros(env: Env) {
    let path = env.dir.join("allocated");
    let options = OpenOptions { direct: true, ..OpenOptions::for_writing() };
    let file = File::open(&path, options).await.unwrap();
    file.allocate(0, 1 << 20, Allocate::KeepSize).await.unwrap();
    assert_eq!(file.size().await.unwrap(), 0);
    file.allocate(0, 1 << 20, Allocate::Extend).await.unwrap();
    // Where it is offered it does what it says; elsewhere it says so.
    match file.allocate(1 << 20, 1 << 20, Allocate::WriteZeroes).await {
        Ok(()) => assert_eq!(file.size().await.unwrap(), 2 << 20),
        Err(e) => assert_eq!(e.kind(), ErrorKind::Unsupported),
    }
    let (n, buf) = file.read_at(AlignedBuf::with_capacity(1 << 20), 0).await;
    assert_eq!(n.unwrap(), 1 << 20);
    assert!(buf.iter().all(|&b| b == 0));
}

async fn many_operations_at_once(env: Env) {
    let path = env.dir.join("many");
    let file = File::open(&path, OpenOptions::for_writing()).await.unwrap();
    let count = env.rounds(5_000, 300);
    let writes = (0..count).map(|i| {
        let file = file.clone();
        spawn(async move {
            let bufs = smallvec![WriteBuf::Bytes(Bytes::from(i.to_le_bytes().to_vec()))];
            file.write_at(bufs, i as u64 * 8, Durability::Written).await
        })
    });
    let writes: Vec<_> = writes.collect();
    for write in writes {
        write.await.unwrap();
    }
    let all = fs::read(&path).await.unwrap();
    for (i, word) in all.chunks(8).enumerate() {
        assert_eq!(word, i.to_le_bytes());
    }
    assert_eq!(all.len(), count * 8);
}

async fn close_waits_for_nobody(env: Env) {
    let path = env.dir.join("closed");
    let file = File::open(&path, OpenOptions::for_writing()).await.unwrap();
    let clone = file.clone();
    file.close().await.unwrap();
    let bufs = smallvec![WriteBuf::Bytes(Bytes::from_static(b"still open"))];
    clone.write_at(bufs, 0, Durability::Synced).await.unwrap();
    clone.close().await.unwrap();
    assert_eq!(fs::read(&path).await.unwrap(), b"still open");
}

fn bytes(data: &'static [u8]) -> smallvec::SmallVec<[WriteBuf; 2]> {
    smallvec![WriteBuf::Bytes(Bytes::from_static(data))]
}

#[test]
fn a_failed_sync_is_never_reported_as_success_later() {
    let mut world = World::new(3);
    let outcome = world.run(|| async {
        let path = std::path::Path::new("/f");
        let file = File::open(path, OpenOptions::for_writing()).await.unwrap();
        file.write_at(bytes(b"lost"), 0, Durability::Written).await.unwrap();
        with_faults(|f| f.disk.sync_eio_per_million = 1_000_000);
        assert!(file.sync_data().await.is_err());
        with_faults(|f| f.disk.sync_eio_per_million = 0);
        assert!(file.sync_data().await.is_err(), "the data is gone, a sync cannot succeed");
        assert!(file.sync_all().await.is_err());
        let synced = file.write_at(bytes(b"more"), 4, Durability::Synced).await;
        assert!(synced.is_err(), "what was written before is not on the device");
        // A synced write that fails poisons the file in the same way.
        let file = File::open(path, OpenOptions::for_writing()).await.unwrap();
        with_faults(|f| f.disk.sync_eio_per_million = 1_000_000);
        assert!(file.write_at(bytes(b"lost"), 0, Durability::Synced).await.is_err());
        with_faults(|f| f.disk.sync_eio_per_million = 0);
        assert!(file.sync_data().await.is_err());
    });
    assert_eq!(outcome, Outcome::Finished(()));
    assert_eq!(world.disk().durable(std::path::Path::new("/f")), Some(Vec::new()));
}

#[test]
fn a_full_disk_and_a_broken_disk_are_errors() {
    let mut world = World::new(4);
    world.faults().disk.capacity = Some(1 << 20);
    let outcome = world.run(|| async {
        let path = std::path::Path::new("/f");
        let file = File::open(path, OpenOptions::for_writing()).await.unwrap();
        let big = || smallvec![WriteBuf::Bytes(Bytes::from(vec![1; 700 << 10]))];
        file.write_at(big(), 0, Durability::Written).await.unwrap();
        let full = file.write_at(big(), 700 << 10, Durability::Written).await.unwrap_err();
        assert_eq!(full.kind(), ErrorKind::StorageFull);
        // A synced write that the full disk refused has lost nothing.
        let full = file.write_at(big(), 700 << 10, Durability::Synced).await.unwrap_err();
        assert_eq!(full.kind(), ErrorKind::StorageFull);
        file.sync_data().await.unwrap();
        // Overwriting takes no room, and removing gives it back.
        file.write_at(big(), 0, Durability::Written).await.unwrap();
        assert_eq!(fs::space(path).await.unwrap().total, 1 << 20);
        file.set_len(0).await.unwrap();
        file.write_at(big(), 100, Durability::Written).await.unwrap();
        with_faults(|f| f.disk.eio_after = Some(1));
        file.size().await.unwrap();
        let broken = file.size().await.unwrap_err();
        assert_eq!(broken.raw_os_error(), Some(5));
    });
    assert_eq!(outcome, Outcome::Finished(()));
}

#[test]
fn interrupted_operations_do_not_surface() {
    for seed in 0..20 {
        let mut world = World::new(seed);
        world.faults().disk.interrupt_per_million = 500_000;
        world.faults().disk.short_per_million = 500_000;
        let outcome = world.run(|| async {
            let path = std::path::Path::new("/f");
            let options = OpenOptions { direct: true, ..OpenOptions::for_writing() };
            let file = File::open(path, options).await.unwrap();
            let tasks = (0..20u64).map(|i| {
                let file = file.clone();
                spawn(async move {
                    let mut buf = AlignedBuf::zeroed(64 << 10);
                    buf.fill(i as u8 + 1);
                    let bufs = smallvec![WriteBuf::Aligned(buf)];
                    file.write_at(bufs, i << 16, Durability::Synced).await.unwrap();
                    sleep(Duration::from_micros(50)).await;
                    let (n, buf) = file.read_at(AlignedBuf::with_capacity(64 << 10), i << 16).await;
                    assert_eq!(n.unwrap(), 64 << 10);
                    assert!(buf.iter().all(|&b| b == i as u8 + 1));
                })
            });
            join_all(tasks).await;
        });
        assert_eq!(outcome, Outcome::Finished(()), "seed {seed}");
    }
}

#[test]
fn one_device_may_go_and_leave_the_others() {
    use std::path::Path;
    let mut world = World::new(7);
    let outcome = world.run(|| async {
        let mut files = Vec::new();
        for dir in ["/a", "/b"] {
            fs::create_dir_all(Path::new(dir)).await.unwrap();
            let path = Path::new(dir).join("f");
            files.push(File::open(&path, OpenOptions::for_writing()).await.unwrap());
        }
        with_faults(|f| f.disk.broken.insert("/a".into()));
        let on = |i: usize| files[i].clone();
        let write = on(0).write_at(bytes(b"x"), 0, Durability::Written).await;
        assert_eq!(write.unwrap_err().raw_os_error(), Some(libc::EIO));
        assert!(fs::read_dir(Path::new("/a")).await.is_err());
        assert!(fs::rename(Path::new("/b/f"), Path::new("/a/g")).await.is_err());
        on(1).write_at(bytes(b"x"), 0, Durability::Synced).await.unwrap();
        assert_eq!(fs::read(Path::new("/b/f")).await.unwrap(), b"x");
    });
    assert_eq!(outcome, Outcome::Finished(()));
}
