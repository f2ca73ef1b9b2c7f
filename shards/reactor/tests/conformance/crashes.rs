//! What survives a crash of the simulated machine, and that a seed is a whole history.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use reactor::sim::{Crash, Outcome, World, cut_connections, with_faults};
use reactor::{
    Durability, File, OpenOptions, TcpListener, TcpStream, WriteBuf, fs, mesh, now, signal, sleep,
    spawn, stdio, timeout,
};
use smallvec::smallvec;

use crate::harness::Dice;

const RECORD: usize = 1500;

/// A little log: numbered records, acknowledged through standard output once written.
async fn append_records(durability: Durability, count: u8) {
    let path = Path::new("/data/log");
    fs::create_dir_all(Path::new("/data")).await.unwrap();
    fs::sync_dir(Path::new("/")).await.unwrap();
    let file = File::open(path, OpenOptions::for_writing()).await.unwrap();
    fs::sync_dir(Path::new("/data")).await.unwrap();
    for i in 0..count {
        let record = Bytes::from(vec![i + 1; RECORD]);
        let at = i as u64 * RECORD as u64;
        file.write_at(smallvec![WriteBuf::Bytes(record)], at, durability).await.unwrap();
        stdio::write_stdout(Bytes::from(vec![i])).await.unwrap();
    }
}

fn surviving_records(world: &World, acknowledged: usize) -> Result<usize, String> {
    let disk = world.disk();
    let Some(log) = disk.read(Path::new("/data/log")) else {
        return if acknowledged == 0 { Ok(0) } else { Err("the file is gone".to_owned()) };
    };
    let whole = |i: usize| {
        let record = log.get(i * RECORD..(i + 1) * RECORD);
        record.is_some_and(|r| r.iter().all(|&b| b == i as u8 + 1))
    };
    match (0..acknowledged).find(|&i| !whole(i)) {
        Some(i) => Err(format!("record {i} of {acknowledged} is lost")),
        None => Ok((acknowledged..40).take_while(|&i| whole(i)).count()),
    }
}

fn crash_at(seed: u64, kind: Crash, durability: Durability) -> (Result<usize, String>, u64) {
    let mut world = World::new(seed);
    let mut dice = Dice::new(seed);
    world.crash_after(1 + dice.below(45) as u64, kind);
    let outcome = world.run(|| append_records(durability, 40));
    assert_eq!(outcome, Outcome::Crashed(kind), "seed {seed}");
    let acknowledged = world.stdout().len();
    (surviving_records(&world, acknowledged), world.trace_hash())
}

#[test]
fn acknowledged_writes_survive_as_promised() {
    let mut partial = 0;
    for seed in 0..300 {
        for (kind, durability) in
            [(Crash::Process, Durability::Written), (Crash::Power, Durability::Synced)]
        {
            let (survived, trace) = crash_at(seed, kind, durability);
            let beyond = survived.unwrap_or_else(|e| panic!("seed {seed}, {kind:?}: {e}"));
            partial += beyond;
            assert_eq!(trace, crash_at(seed, kind, durability).1, "seed {seed}: two histories");
        }
    }
    assert!(partial > 0, "a record in flight never survived: the crash is too kind or too cruel");
}

#[test]
fn a_power_cut_takes_what_was_not_synced() {
    let lost =
        (0..100).filter(|&seed| crash_at(seed, Crash::Power, Durability::Written).0.is_err());
    let lost = lost.count();
    assert!((20..100).contains(&lost), "{lost} of 100 power cuts lost an un-synced record");
}

#[test]
fn torn_writes_happen_sector_by_sector() {
    let mut shapes = BTreeSet::new();
    for seed in 0..60 {
        let mut world = World::new(seed);
        let outcome = world.run(|| async {
            let options = OpenOptions::for_writing();
            let file = File::open(Path::new("/f"), options).await.unwrap();
            file.write_at(smallvec![WriteBuf::Bytes(vec![1; 4096].into())], 0, Durability::Written)
                .await
                .unwrap();
            file.sync_all().await.unwrap();
            fs::sync_dir(Path::new("/")).await.unwrap();
        });
        assert_eq!(outcome, Outcome::Finished(()));
        world.crash_after(3, Crash::Power);
        let outcome = world.run(|| async {
            let file = File::open(Path::new("/f"), OpenOptions::for_writing()).await.unwrap();
            file.write_at(smallvec![WriteBuf::Bytes(vec![2; 4096].into())], 0, Durability::Written)
                .await
                .unwrap();
            file.size().await.unwrap();
        });
        assert_eq!(outcome, Outcome::Crashed(Crash::Power));
        let found = world.disk().read(Path::new("/f")).unwrap();
        let sectors: Vec<u8> = found.chunks(512).map(|s| s[0]).collect();
        assert!(found.chunks(512).all(|s| s.iter().all(|&b| b == s[0])), "a sector is torn");
        shapes.insert(sectors);
    }
    assert!(shapes.contains(&vec![1; 8]) && shapes.contains(&vec![2; 8]), "lost, and whole");
    assert!(shapes.len() > 10, "only {} ways to tear a page", shapes.len());
}

#[test]
fn a_sync_of_the_disk_covers_every_file_and_name() {
    for seed in 0..50 {
        let mut world = World::new(seed);
        let outcome = world.run(|| async {
            for dir in ["/a/b", "/c"] {
                fs::create_dir_all(Path::new(dir)).await.unwrap();
                let path = Path::new(dir).join("f");
                let options = OpenOptions { create: true, ..OpenOptions::for_writing() };
                let file = File::open(&path, options).await.unwrap();
                let bufs = smallvec![WriteBuf::Bytes(vec![1; 4096].into())];
                file.write_at(bufs, 0, Durability::Written).await.unwrap();
            }
            fs::rename(Path::new("/c/f"), Path::new("/c/g")).await.unwrap();
            fs::sync_disk(Path::new("/a")).await.unwrap();
        });
        assert_eq!(outcome, Outcome::Finished(()));
        world.crash_after(1, Crash::Power);
        let outcome = world.run(|| async { fs::exists(Path::new("/a")).await.unwrap() });
        assert_eq!(outcome, Outcome::Crashed(Crash::Power));
        for path in ["/a/b/f", "/c/g"] {
            assert_eq!(world.disk().read(Path::new(path)).unwrap(), vec![1; 4096], "{path}");
        }
        assert!(world.disk().read(Path::new("/c/f")).is_none(), "it was renamed");
    }
}

#[test]
fn names_need_a_sync_of_their_directory() {
    let mut outcomes = BTreeSet::new();
    for seed in 0..80 {
        let mut world = World::new(seed);
        let finished = world.run(|| async {
            fs::create_dir_all(Path::new("/d")).await.unwrap();
            fs::sync_dir(Path::new("/")).await.unwrap();
            fs::write_atomic(Path::new("/d/a"), b"a".to_vec()).await.unwrap();
        });
        assert_eq!(finished, Outcome::Finished(()));
        // Three changes of names, none synced, then the power goes.
        world.crash_after(4, Crash::Power);
        let crashed = world.run(|| async {
            let options = OpenOptions { write: true, create: true, ..OpenOptions::default() };
            let file = File::open(Path::new("/d/b"), options).await.unwrap();
            fs::rename(Path::new("/d/a"), Path::new("/d/c")).await.unwrap();
            fs::remove_file(Path::new("/d/b")).await.unwrap();
            file.size().await.unwrap();
        });
        assert_eq!(crashed, Outcome::Crashed(Crash::Power));
        let names: Vec<String> =
            world.disk().files().iter().map(|(p, _)| p.display().to_string()).collect();
        outcomes.insert(names.join(" "));
    }
    let expected = ["/d/a", "/d/a /d/b", "/d/b /d/c", "/d/c"];
    assert!(outcomes.iter().eq(expected), "{outcomes:?}");
}

#[test]
fn an_atomic_replacement_is_old_or_new() {
    let mut seen = BTreeSet::new();
    for seed in 0..200 {
        let mut world = World::new(seed);
        let finished = world.run(|| async {
            fs::write_atomic(Path::new("/c"), vec![1; 5000]).await.unwrap();
        });
        assert_eq!(finished, Outcome::Finished(()));
        world.crash_after(1 + seed % 9, if seed % 2 == 0 { Crash::Power } else { Crash::Process });
        let outcome = world.run(|| fs::write_atomic(Path::new("/c"), vec![2; 9000]));
        let found = world.disk().read(Path::new("/c")).unwrap();
        if let Outcome::Finished(done) = outcome {
            done.unwrap();
            assert_eq!(found, vec![2; 9000]);
        }
        assert!(found == vec![1; 5000] || found == vec![2; 9000], "seed {seed}: {}", found.len());
        seen.insert(found[0]);
    }
    assert_eq!(seen.len(), 2, "both outcomes happen");
}

#[test]
fn a_run_that_waits_for_nothing_is_stuck() {
    let mut world = World::new(1);
    assert_eq!(world.run(std::future::pending::<()>), Outcome::Stuck);
    world.limit_time(Duration::from_secs(60));
    let polling = || async {
        loop {
            sleep(Duration::from_secs(1)).await;
        }
    };
    assert_eq!(world.run::<_, _, ()>(polling), Outcome::Stuck);
    let hour = world.run(|| async {
        let start = now();
        sleep(Duration::from_secs(50)).await;
        start.elapsed() >= Duration::from_secs(50)
    });
    assert_eq!(hour, Outcome::Finished(true));
}

#[test]
fn seeds_differ_and_repeat() {
    let trace = |seed| {
        let mut world = World::new(seed);
        let outcome = world.run(|| async {
            let handles = mesh::<u64>(3, 2);
            let shards: Vec<_> = handles
                .into_iter()
                .map(|handle| {
                    spawn(async move {
                        for to in 0..3 {
                            handle.send(to, reactor::random_u64()).await.unwrap();
                        }
                        let mut sum = 0u64;
                        for _ in 0..3 {
                            sum = sum.wrapping_mul(31).wrapping_add(handle.recv().await.unwrap().1);
                        }
                        sum
                    })
                })
                .collect();
            let mut sums = Vec::new();
            for shard in shards {
                sums.push(shard.await);
            }
            sums
        });
        (world.trace_hash(), outcome.finished().unwrap())
    };
    let all: BTreeSet<_> = (0..50).map(trace).collect();
    assert_eq!(all.len(), 50, "seeds give different histories");
    assert!((0..50).map(trace).collect::<BTreeSet<_>>() == all, "a seed gives the same history");
}

#[test]
fn the_network_is_cut_delayed_and_held_up() {
    let mut world = World::new(5);
    world.faults().net.delay = reactor::sim::Delay::exactly(Duration::from_millis(40));
    let outcome = world.run(|| async {
        let listener = TcpListener::bind("10.0.0.1:9092".parse().unwrap(), 10).unwrap();
        let addr = listener.local_addr();
        let echo = spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                spawn(async move {
                    loop {
                        let (n, buf) = stream.read(BytesMut::with_capacity(100)).await;
                        if !matches!(n, Ok(n) if n > 0) {
                            return;
                        }
                        let _ = stream.write_all(vec![buf.freeze()]).await;
                    }
                })
                .detach();
            }
        });
        let client = TcpStream::connect(addr).await.unwrap();
        let start = now();
        client.write_all(vec![Bytes::from_static(b"ping")]).await.unwrap();
        let (n, _) = client.read(BytesMut::with_capacity(100)).await;
        assert_eq!(n.unwrap(), 4);
        let round_trip = start.elapsed();
        assert!(round_trip >= Duration::from_millis(80), "{round_trip:?}");
        assert!(round_trip < Duration::from_millis(90), "{round_trip:?}");
        // A black hole holds everything up; when it ends, everything arrives.
        with_faults(|f| f.net.blackholes.insert(9092));
        client.write_all(vec![Bytes::from_static(b"held")]).await.unwrap();
        let reading = spawn({
            let client = client.clone();
            async move { client.read(BytesMut::with_capacity(100)).await.0.unwrap() }
        });
        sleep(Duration::from_secs(3)).await;
        assert!(!reading.is_finished());
        assert!(TcpStream::connect(addr).await.is_err());
        with_faults(|f| f.net.blackholes.clear());
        assert_eq!(timeout(Duration::from_secs(1), reading).await, Ok(4));
        assert!(cut_connections(9092));
        let (n, _) = client.read(BytesMut::with_capacity(100)).await;
        assert_eq!(n.unwrap_err().kind(), std::io::ErrorKind::ConnectionReset);
        TcpStream::connect(addr).await.unwrap();
        drop(echo);
    });
    assert_eq!(outcome, Outcome::Finished(()));
}

#[test]
fn a_simulated_program_is_told_to_end() {
    let mut world = World::new(6);
    world.terminate_after(Duration::from_secs(7));
    world.set_stdin(b"typed");
    let outcome = world.run(|| async {
        let start = now();
        let signal = signal::termination().await.unwrap();
        assert!(start.elapsed() >= Duration::from_secs(7));
        let (n, input) = stdio::read_stdin(BytesMut::new()).await;
        assert_eq!((n.unwrap(), &input[..]), (5, &b"typed"[..]));
        assert_eq!(stdio::read_stdin(BytesMut::new()).await.0.unwrap(), 0);
        signal
    });
    assert_eq!(outcome, Outcome::Finished(signal::Signal::Terminate));
}

#[test]
fn a_sector_of_four_kibibytes_is_old_or_new() {
    let mut shapes = BTreeSet::new();
    for seed in 0..60 {
        let mut world = World::new(seed);
        world.faults().disk.sector_bytes = 4096;
        let write = |byte: u8| async move {
            let file = File::open(Path::new("/f"), OpenOptions::for_writing()).await.unwrap();
            let data = WriteBuf::Bytes(vec![byte; 3 * 4096].into());
            file.write_at(smallvec![data], 0, Durability::Written).await.unwrap();
            file
        };
        let outcome = world.run(move || async move {
            write(1).await.sync_all().await.unwrap();
            fs::sync_dir(Path::new("/")).await.unwrap();
        });
        assert_eq!(outcome, Outcome::Finished(()));
        world.crash_after(3, Crash::Power);
        let outcome = world.run(move || async move { write(2).await.size().await.map(drop) });
        assert!(matches!(outcome, Outcome::Crashed(Crash::Power)), "{outcome:?}");
        let found = world.disk().read(Path::new("/f")).unwrap();
        assert!(found.chunks(4096).all(|s| s.iter().all(|&b| b == s[0])), "a sector is torn");
        shapes.insert(found.chunks(4096).map(|s| s[0]).collect::<Vec<u8>>());
    }
    assert_eq!(shapes.len(), 8, "every mixture of old and new sectors: {shapes:?}");
}

#[test]
fn a_power_cut_is_a_new_boot_and_a_crash_of_the_process_is_none() {
    let mut world = World::new(1);
    let mut boot = |crash: Option<Crash>| {
        crash.into_iter().for_each(|kind| world.crash_after(1, kind));
        if crash.is_some() {
            world.run(|| async { fs::metadata(Path::new("/")).await.map(drop) });
        }
        world.run(|| async { reactor::boot_id() }).finished().flatten().expect("it is known")
    };
    let first = boot(None);
    assert_eq!(boot(Some(Crash::Process)), first);
    let second = boot(Some(Crash::Power));
    assert_ne!(second, first);
    assert_eq!(boot(None), second);
}

#[test]
fn names_may_survive_each_on_its_own() {
    let mut outcomes = BTreeSet::new();
    for seed in 0..200 {
        let mut world = World::new(seed);
        world.faults().disk.unordered_names = true;
        let finished = world.run(|| async {
            fs::create_dir_all(Path::new("/d")).await.unwrap();
            fs::sync_dir(Path::new("/")).await.unwrap();
            fs::write_atomic(Path::new("/d/a"), b"a".to_vec()).await.unwrap();
            fs::write_atomic(Path::new("/d/b"), b"b".to_vec()).await.unwrap();
        });
        assert_eq!(finished, Outcome::Finished(()));
        world.crash_after(3, Crash::Power);
        let crashed = world.run(|| async {
            fs::rename(Path::new("/d/a"), Path::new("/d/gone-a")).await.unwrap();
            fs::rename(Path::new("/d/b"), Path::new("/d/gone-b")).await.unwrap();
            fs::metadata(Path::new("/d/gone-b")).await.map(drop)
        });
        assert!(matches!(crashed, Outcome::Crashed(Crash::Power)), "{crashed:?}");
        let names: Vec<String> =
            world.disk().files().iter().map(|(p, _)| p.display().to_string()).collect();
        outcomes.insert(names.join(" "));
    }
    let expected = ["/d/a /d/b", "/d/a /d/gone-b", "/d/b /d/gone-a", "/d/gone-a /d/gone-b"];
    assert!(outcomes.iter().eq(expected), "{outcomes:?}");
}

#[test]
fn one_of_two_devices_is_full_and_media_rot() {
    let mut world = World::new(1);
    let outcome = world.run(|| async {
        for dir in ["/a", "/b"] {
            fs::create_dir_all(Path::new(dir)).await.unwrap();
        }
        with_faults(|faults| faults.disk.full.insert("/a".into()));
        let full = fs::write_atomic(Path::new("/a/f"), vec![1; 100]).await.unwrap_err();
        assert_eq!(full.kind(), std::io::ErrorKind::StorageFull);
        assert_eq!(fs::space(Path::new("/a")).await.unwrap().available, 0);
        assert!(fs::space(Path::new("/b")).await.unwrap().available > 0);
        fs::write_atomic(Path::new("/b/f"), vec![1; 100]).await.unwrap();
        with_faults(|faults| faults.disk.full.clear());
        fs::write_atomic(Path::new("/a/f"), vec![1; 100]).await.unwrap();
        // Every read now costs a bit, which stays flipped; some lie beyond the end of the file.
        with_faults(|faults| faults.disk.rot_per_million = 1_000_000);
        for _ in 0..200 {
            fs::read(Path::new("/b/f")).await.unwrap();
        }
        with_faults(|faults| faults.disk.rot_per_million = 0);
        let rotten = fs::read(Path::new("/b/f")).await.unwrap();
        assert!(rotten != vec![1; 100] && rotten.len() == 100);
        assert_eq!(fs::read(Path::new("/b/f")).await.unwrap(), rotten);
    });
    assert_eq!(outcome, Outcome::Finished(()));
}
