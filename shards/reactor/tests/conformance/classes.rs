//! Scheduling classes: shares of the core and of a disk, inheritance, nobody starves.

use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use reactor::sim::{Delay, Outcome, World};
use reactor::{
    AlignedBuf, Backend, Class, DiskUsage, Durability, File, OpenOptions, Task, WriteBuf,
    current_class, fs, join_all, sleep, spawn, spawn_in, usage, with_class, yield_if_due,
    yield_now,
};
use smallvec::smallvec;

use crate::harness::Env;

every!(
    a_class_is_inherited_and_left_again,
    every_class_gets_its_share_of_the_core,
    a_disk_takes_a_bounded_number_of_each_class,
    a_flood_of_reads_starves_nobody,
    names_have_the_queue_of_their_disk,
    long_loops_can_let_others_go_first
);

on_real_ones!(
    what_waits_for_a_disk_still_lands_when_the_program_ends,
    a_disk_that_hangs_holds_up_no_other,
    a_poll_that_takes_too_long_is_counted,
);

const KIB: usize = 1 << 10;

async fn a_class_is_inherited_and_left_again(_: Env) {
    assert_eq!(current_class(), Class::Produce);
    let inner = with_class(Class::Backfill, async {
        yield_now().await;
        let inherited = spawn(async { current_class() }).await;
        let nested = with_class(Class::Background, async {
            sleep(Duration::from_millis(1)).await;
            current_class()
        });
        (current_class(), inherited, nested.await, current_class())
    });
    let (backfill, background) = (Class::Backfill, Class::Background);
    assert_eq!(inner.await, (backfill, backfill, background, backfill));
    assert_eq!(current_class(), Class::Produce);
    let task = spawn_in(Class::Replication, async {
        yield_now().await;
        let child = spawn(async { current_class() }).await;
        (current_class(), child)
    });
    assert_eq!(task.await, (Class::Replication, Class::Replication));
    // A future that is given up leaves no class behind.
    let waits = with_class(Class::Background, std::future::pending::<()>());
    let _ = reactor::timeout(Duration::from_millis(1), waits).await;
    assert_eq!(current_class(), Class::Produce);
}

/// Yields for ever and counts.
fn spinner(class: Class) -> (Task<()>, Rc<Cell<usize>>) {
    let count = Rc::new(Cell::new(0));
    let counting = Rc::clone(&count);
    let task = spawn_in(class, async move {
        loop {
            counting.set(counting.get() + 1);
            // Some work, so that what is measured is not the clock alone.
            std::hint::black_box((0..2_000u64).fold(0, |a, b| a ^ b.wrapping_mul(31)));
            yield_now().await;
        }
    });
    (task, count)
}

async fn every_class_gets_its_share_of_the_core(env: Env) {
    let spinners = Class::ALL.map(spinner);
    let least = env.rounds(400, 30);
    let background = Rc::clone(&spinners[4].1);
    with_class(Class::Background, async move {
        while background.get() < least {
            yield_now().await;
        }
    })
    .await;
    let counts: Vec<usize> = spinners.iter().map(|(_, count)| count.get()).collect();
    assert!(counts.iter().all(|&count| count > 0), "{counts:?}");
    let used = usage();
    let busy = |class: Class| {
        let of_class = used.classes.iter().find(|u| u.class == class).unwrap();
        assert!(of_class.polls > 0);
        of_class.busy.as_nanos() as f64
    };
    for class in Class::ALL {
        let due = busy(Class::Produce) * f64::from(class.share()) / 1000.0;
        let got = busy(class);
        // Virtual time charges every poll alike, so the shares come out exactly. In real time a
        // poll that the machine interrupts counts as long, which leaves nothing to assert.
        if env.simulated {
            assert!((got - due).abs() < due / 5.0, "{class:?}: {got} of {due}, {counts:?}");
        }
    }
}

async fn long_loops_can_let_others_go_first(env: Env) {
    let (task, others) = spinner(Class::Background);
    let turns = with_class(Class::Background, async {
        let mut turns = 0u64;
        while others.get() < 3 && turns < 1_000_000_000 {
            yield_if_due().await;
            turns += 1;
            if env.simulated {
                // Virtual time stands still within a poll.
                yield_now().await;
            }
        }
        turns
    });
    assert!(turns.await < 1_000_000_000, "it never let the other task run");
    drop(task);
}

/// The counts of a class over all disks.
fn at_disks(class: Class) -> DiskUsage {
    let mut all = DiskUsage {
        device: None,
        class,
        ops: 0,
        bytes: 0,
        delayed: 0,
        took: Duration::ZERO,
        waiting: 0,
        in_flight: 0,
    };
    for disk in usage().disks.iter().filter(|d| d.class == class) {
        all.ops += disk.ops;
        all.bytes += disk.bytes;
        all.delayed += disk.delayed;
        all.took += disk.took;
        all.waiting += disk.waiting;
        all.in_flight += disk.in_flight;
    }
    all
}

async fn a_file(dir: &Path, name: &str) -> File {
    let options = OpenOptions { direct: true, ..OpenOptions::for_writing() };
    File::open(&dir.join(name), options).await.unwrap()
}

async fn write(file: File, block: u64, byte: u8) {
    let mut buf = AlignedBuf::zeroed(64 * KIB);
    buf.fill(byte);
    let bufs = smallvec![WriteBuf::Aligned(buf)];
    file.write_at(bufs, block * 64 * KIB as u64, Durability::Written).await.unwrap();
}

async fn a_disk_takes_a_bounded_number_of_each_class(env: Env) {
    let file = a_file(&env.dir, "bounded").await;
    let count = env.rounds(400, 60) as u64;
    let tasks: Vec<_> = (0..count)
        .map(|i| spawn_in(Class::Background, write(file.clone(), i, i as u8 | 1)))
        .collect();
    let writer = file.clone();
    let watch = spawn(async move {
        let mut most = 0;
        for _ in 0..200 {
            let background = at_disks(Class::Background);
            most = most.max(background.in_flight);
            // A producer's write is with the kernel in the moment it is made.
            let before = at_disks(Class::Produce);
            write(writer.clone(), count, 7).await;
            let after = at_disks(Class::Produce);
            assert_eq!((after.waiting, after.delayed), (0, before.delayed));
        }
        most
    });
    join_all(tasks).await;
    let most = watch.await;
    assert!((1..=16).contains(&most), "{most} in flight at once");
    let background = at_disks(Class::Background);
    assert_eq!((background.waiting, background.in_flight), (0, 0));
    // A resubmission after an interruption counts again.
    assert!(background.ops >= count && background.bytes >= count * 64 * KIB as u64);
    assert!(background.delayed >= count / 2, "{background:?}");
    assert!(background.took > Duration::ZERO);
    let (n, buf) = file.read_at(AlignedBuf::with_capacity(count as usize * 64 * KIB), 0).await;
    assert_eq!(n.unwrap(), count as usize * 64 * KIB);
    for (i, block) in buf.chunks(64 * KIB).enumerate() {
        assert!(block.iter().all(|&b| b == i as u8 | 1), "block {i}");
    }
}

async fn a_flood_of_reads_starves_nobody(env: Env) {
    let file = a_file(&env.dir, "flooded").await;
    for block in 0..16 {
        write(file.clone(), block, 1).await;
    }
    let flood: Vec<_> = (0..env.rounds(100, 60))
        .map(|_| {
            let file = file.clone();
            spawn_in(Class::Backfill, async move {
                loop {
                    let buf = AlignedBuf::with_capacity(1 << 20);
                    file.read_at(buf, 0).await.0.unwrap();
                }
            })
        })
        .collect();
    yield_now().await;
    for round in 0..env.rounds(30, 10) as u64 {
        for class in [Class::Background, Class::Replication, Class::TailFetch, Class::Produce] {
            spawn_in(class, write(file.clone(), 16 + round % 8, 2)).await;
        }
    }
    let backfill = at_disks(Class::Backfill);
    assert!(backfill.in_flight <= 33 && backfill.waiting > 0, "{backfill:?}");
    drop(flood);
}

async fn names_have_the_queue_of_their_disk(env: Env) {
    let dir = env.dir.join("disk");
    fs::create_dir_all(&dir).await.unwrap();
    fs::keep_apart(&dir).await.unwrap();
    let on_disk = |device: Option<u64>| {
        let all = usage().disks.into_iter();
        let ours = all.filter(|d| d.class == Class::Background && d.device == device);
        ours.map(|d| d.ops).sum::<u64>()
    };
    let open = async |path: PathBuf| drop(File::open(&path, OpenOptions::for_writing()).await);
    with_class(Class::Background, open(dir.join("a"))).await;
    let devices: Vec<_> = usage().disks.iter().filter_map(|d| d.device).collect();
    let device = devices.into_iter().find(|d| on_disk(Some(*d)) > 0);
    assert!(device.is_some(), "the name was opened in the queue of its disk: {:?}", usage().disks);
    let before = on_disk(device);
    with_class(Class::Background, fs::rename(&dir.join("a"), &dir.join("b"))).await.unwrap();
    with_class(Class::Background, fs::remove_file(&dir.join("b"))).await.unwrap();
    assert!(on_disk(device) >= before + 2);
    assert_eq!(on_disk(None), 0);
    with_class(Class::Background, open(env.dir.join("elsewhere"))).await;
    assert!(on_disk(None) >= 1);
}

fn what_waits_for_a_disk_still_lands_when_the_program_ends(backend: Backend) {
    let program = |path: PathBuf| async move {
        let options = OpenOptions { direct: true, ..OpenOptions::for_writing() };
        let file = File::open(&path, options).await.unwrap();
        for i in 0..100 {
            spawn(with_class(Class::Background, write(file.clone(), i, i as u8 + 1))).detach();
        }
        while at_disks(Class::Background).waiting < 50 {
            yield_now().await;
        }
    };
    let complete = |bytes: &[u8]| {
        assert_eq!(bytes.len(), 100 * 64 * KIB);
        for (i, block) in bytes.chunks(64 * KIB).enumerate() {
            assert!(block.iter().all(|&b| b == i as u8 + 1), "block {i}");
        }
    };
    let mut world = World::new(5);
    assert_eq!(world.run(|| program("/f".into())), Outcome::Finished(()));
    complete(&world.disk().read(Path::new("/f")).unwrap());
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = dir.path().join("f");
    let at = path.clone();
    backend.run(&reactor::ShardSpec::default(), || program(at)).unwrap();
    complete(&std::fs::read(&path).unwrap());
}

/// A pipe is opened for writing when somebody opens it for reading: what an operation does on a disk
/// that hangs.
fn a_disk_that_hangs_holds_up_no_other(backend: Backend) {
    let program = |dir: PathBuf| async move {
        let healthy = dir.join("healthy");
        fs::create_dir_all(&healthy).await.unwrap();
        fs::keep_apart(&healthy).await.unwrap();
        let file = a_file(&healthy, "file").await;
        let pipe = dir.join("pipe");
        rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::RWXU).unwrap();
        let options = OpenOptions { read: false, direct: false, ..OpenOptions::for_writing() };
        let hanging: Vec<_> =
            [Class::Produce, Class::TailFetch, Class::Backfill, Class::Background]
                .into_iter()
                .cycle()
                .take(1_000)
                .map(|class| {
                    let pipe = pipe.clone();
                    spawn_in(class, async move { File::open(&pipe, options).await.map(drop) })
                })
                .collect();
        yield_now().await;
        let work = async {
            for round in 0..50 {
                write(file.clone(), round, 1).await;
                file.sync_data().await.unwrap();
                a_file(&healthy, "another").await;
            }
        };
        reactor::timeout(Duration::from_secs(30), work).await.expect("the other disk answers");
        assert!(at_disks(Class::Produce).waiting > 0, "the pipe has a queue");
        let reader = std::fs::OpenOptions::new().read(true).open(&pipe).unwrap();
        for opened in join_all(hanging).await {
            opened.unwrap();
        }
        drop(reader);
    };
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = dir.path().to_path_buf();
    backend.run(&reactor::ShardSpec::default(), || program(path)).unwrap();
}

/// What waits for its turn is not the disk's doing.
#[test]
fn the_oldest_operation_at_a_disk_is_one_that_the_disk_has() {
    let mut world = World::new(9);
    world.faults().disk.latency = Delay::exactly(Duration::from_millis(100));
    let outcome = world.run(|| async {
        let dir = Path::new("/disk");
        fs::create_dir_all(dir).await.unwrap();
        fs::keep_apart(dir).await.unwrap();
        assert_eq!(fs::oldest_operation(dir), None);
        let file = a_file(dir, "file").await;
        let writes: Vec<_> = (0..200)
            .map(|block| spawn_in(Class::Background, write(file.clone(), block, 1)))
            .collect();
        let mut oldest = Duration::ZERO;
        while at_disks(Class::Background).ops < 200 {
            sleep(Duration::from_millis(10)).await;
            oldest = oldest.max(fs::oldest_operation(dir).unwrap_or_default());
        }
        join_all(writes).await;
        let expected = Duration::from_millis(50)..=Duration::from_millis(150);
        assert!(expected.contains(&oldest), "{oldest:?}");
        assert_eq!(fs::oldest_operation(dir), None);
    });
    assert_eq!(outcome, Outcome::Finished(()));
}

#[test]
fn bulk_data_makes_way_for_slow_writes_of_producers_and_never_stops() {
    let mut world = World::new(8);
    let ms = Duration::from_millis;
    world.faults().disk.latency = Delay::between(ms(0), ms(20));
    let outcome = world.run(|| async {
        let file =
            File::open(Path::new("/f"), OpenOptions { direct: true, ..OpenOptions::for_writing() })
                .await
                .unwrap();
        for block in 0..16 {
            write(file.clone(), block, 1).await;
        }
        let reading = file.clone();
        let reader = move || {
            let file = reading.clone();
            spawn_in(Class::Backfill, async move {
                loop {
                    let buf = AlignedBuf::with_capacity(256 * KIB);
                    file.read_at(buf, 0).await.0.unwrap();
                }
            })
        };
        let readers: Vec<_> = (0..4).map(|_| reader()).collect();
        for block in 0..300 {
            write(file.clone(), 16 + block % 8, 2).await;
        }
        let window = usage().bulk_windows.iter().filter(|(device, _)| device.is_some()).count();
        assert_eq!(window, 1);
        let (_, bytes) = usage().bulk_windows.into_iter().find(|(d, _)| d.is_some()).unwrap();
        assert!(bytes < 64 << 10, "{bytes}");
        // In the pauses nothing else happens that could wake the shard.
        let before = at_disks(Class::Backfill).ops;
        assert!(before > 10, "{before} reads beside the writes");
        let bound = reactor::timeout(Duration::from_secs(10), async {
            while at_disks(Class::Backfill).ops < before + 100 {
                sleep(Duration::from_millis(100)).await;
            }
        });
        assert!(bound.await.is_ok(), "reading goes on");
        drop(readers);
    });
    assert_eq!(outcome, Outcome::Finished(()));
}

#[test]
fn a_busy_disk_holds_up_its_own_operations_only() {
    let mut world = World::new(6);
    let outcome = world.run(|| async {
        let mut files = Vec::new();
        for dir in ["/a", "/b"] {
            fs::create_dir_all(Path::new(dir)).await.unwrap();
            let options = OpenOptions { direct: true, ..OpenOptions::for_writing() };
            files.push(File::open(&Path::new(dir).join("f"), options).await.unwrap());
        }
        let on = |i: usize| files[i].clone();
        let slow: Vec<_> =
            (0..500).map(|i| spawn(with_class(Class::Background, write(on(0), i, 1)))).collect();
        while at_disks(Class::Background).waiting == 0 {
            yield_now().await;
        }
        let before = usage().disks.iter().filter(|d| d.waiting > 0).count();
        spawn_in(Class::Background, write(on(1), 0, 1)).await;
        let delayed: Vec<_> = usage().disks.into_iter().filter(|d| d.delayed > 0).collect();
        assert_eq!(before, 1);
        assert_eq!(delayed.len(), 1, "only one disk has a queue: {delayed:?}");
        drop(slow);
    });
    assert_eq!(outcome, Outcome::Finished(()));
}

fn a_poll_that_takes_too_long_is_counted(backend: Backend) {
    let stalls = backend.run(&reactor::ShardSpec::default(), || async {
        let before = usage();
        spawn(async { std::thread::sleep(Duration::from_millis(60)) }).await;
        // A stall is noted when its slice is over.
        sleep(Duration::from_millis(1)).await;
        let after = usage();
        assert!(after.longest_stall >= Duration::from_millis(60));
        after.stalls - before.stalls
    });
    assert_eq!(stalls.unwrap(), 1);
}
