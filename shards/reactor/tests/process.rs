//! What concerns the whole process: descriptors, signals, many rings, idle shards, panics. One
//! test at a time, since they count what the process holds.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a failed assumption fails the test")]

use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use reactor::signal::{Signal, termination};
use reactor::{
    AlignedBuf, Backend, Durability, File, OpenOptions, ShardSpec, TcpListener, TcpStream,
    WriteBuf, fs, join_all, mesh, sleep, spawn, timeout, yield_now,
};
use smallvec::smallvec;

/// Defines a test per backend.
macro_rules! on_every {
    ($($name:ident),+ $(,)?) => {$(
        mod $name {
            #[test]
            fn uring() {
                super::$name(reactor::Backend::Uring);
            }

            #[cfg(feature = "glommio")]
            #[test]
            fn glommio() {
                super::$name(reactor::Backend::Glommio);
            }
        }
    )+};
}

on_every!(
    every_descriptor_is_closed_however_its_owner_ends,
    a_small_ring_takes_any_number_of_operations,
    completions_that_overflow_are_not_lost,
    many_shards_start_at_once,
    signals_interrupt_nothing,
    termination_comes_as_a_value,
    a_panic_takes_its_shard_down_and_nothing_else,
    what_a_shutdown_spawns_never_runs,
);

fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

/// Everything is closed after so many shards have ended. Of each, glommio itself forgets an event; and
/// its helper threads end a moment after their shard.
fn assert_all_closed(backend: Backend, before: usize, shards: usize) {
    let until = std::time::Instant::now() + Duration::from_secs(10);
    let left = if backend == Backend::Glommio { before + shards } else { before };
    while backend == Backend::Glommio && std::time::Instant::now() < until {
        if descriptors() == left {
            return;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(descriptors(), left);
}

fn small_ring() -> ShardSpec {
    ShardSpec { ring_entries: 32, ..ShardSpec::default() }
}

fn every_descriptor_is_closed_however_its_owner_ends(backend: Backend) {
    let _alone = alone();
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = dir.path().join("f");
    let round = || {
        let path = path.clone();
        backend
            .run(&small_ring(), move || async move {
                let listener = TcpListener::bind("127.0.0.1:0".parse().unwrap(), 1024).unwrap();
                let addr = listener.local_addr();
                let accepting = spawn(async move {
                    let mut streams = Vec::new();
                    loop {
                        let (stream, _) = listener.accept().await.unwrap();
                        let reader = stream.clone();
                        streams.push((
                            stream,
                            spawn(async move { reader.read(BytesMut::with_capacity(10)).await }),
                        ));
                    }
                });
                let clients = (0..50).map(|_| TcpStream::connect(addr));
                let clients: Vec<_> =
                    join_all(clients).await.into_iter().map(Result::unwrap).collect();
                // Opens, accepts and locks whose futures are gone when their descriptor comes.
                for _ in 0..50 {
                    let path = path.clone();
                    let opening = spawn(async move {
                        let _lock = fs::lock(&path.with_extension("lock")).await;
                        let file = File::open(&path, OpenOptions::for_writing()).await.unwrap();
                        file.write_at(
                            smallvec![WriteBuf::Aligned(AlignedBuf::zeroed(4096))],
                            0,
                            Durability::Synced,
                        )
                        .await
                    });
                    yield_now().await;
                    drop(opening);
                    let connecting = spawn(async move { TcpStream::connect(addr).await.map(drop) });
                    yield_now().await;
                    drop(connecting);
                }
                sleep(Duration::from_millis(5)).await;
                // The rest is in flight when main ends.
                accepting.detach();
                spawn(async move {
                    let _clients = clients;
                    std::future::pending::<()>().await;
                })
                .detach();
            })
            .unwrap();
    };
    round();
    let before = descriptors();
    for _ in 0..10 {
        round();
    }
    assert_all_closed(backend, before, 10);
}

fn a_small_ring_takes_any_number_of_operations(backend: Backend) {
    let _alone = alone();
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = dir.path().join("f");
    backend
        .run(&small_ring(), move || async move {
            let file = File::open(&path, OpenOptions::for_writing()).await.unwrap();
            // 32 submissions and 128 completions fit: the rest waits in the backlog and overflows.
            for round in 0..5u8 {
                let writes: Vec<_> = (0..10_000u64)
                    .map(|i| {
                        let file = file.clone();
                        spawn(async move {
                            let data = Bytes::from(vec![round; 16]);
                            file.write_at(
                                smallvec![WriteBuf::Bytes(data)],
                                i * 16,
                                Durability::Written,
                            )
                            .await
                        })
                    })
                    .collect();
                let sync = spawn({
                    let file = file.clone();
                    async move { file.sync_data().await }
                });
                for write in writes {
                    write.await.unwrap();
                }
                sync.await.unwrap();
                let all = fs::read(&path).await.unwrap();
                assert_eq!(all.len(), 160_000);
                assert!(all.iter().all(|&b| b == round));
            }
        })
        .unwrap();
}

fn completions_that_overflow_are_not_lost(backend: Backend) {
    let _alone = alone();
    backend
        .run(&small_ring(), || async {
            let listener = TcpListener::bind("127.0.0.1:0".parse().unwrap(), 4096).unwrap();
            let addr = listener.local_addr();
            let serving = spawn(async move {
                let mut readers = Vec::new();
                for _ in 0..1_000 {
                    let (stream, _) = listener.accept().await.unwrap();
                    readers.push(spawn(async move {
                        let (n, buf) = stream.read(BytesMut::with_capacity(64)).await;
                        assert_eq!((n.unwrap(), &buf[..]), (3, &b"all"[..]));
                    }));
                }
                readers
            });
            let mut clients = Vec::new();
            for _ in 0..1_000 {
                clients.push(TcpStream::connect(addr).await.unwrap());
            }
            let readers = serving.await;
            sleep(Duration::from_millis(5)).await;
            // 1,000 waiting reads end within few turns, against 128 completion entries.
            let sends: Vec<_> = clients
                .iter()
                .map(|c| {
                    let c = c.clone();
                    spawn(async move { c.write_all(vec![Bytes::from_static(b"all")]).await })
                })
                .collect();
            for send in sends {
                send.await.unwrap();
            }
            for reader in readers {
                timeout(Duration::from_secs(30), reader).await.expect("a completion was lost");
            }
        })
        .unwrap();
}

fn many_shards_start_at_once(backend: Backend) {
    let _alone = alone();
    let handles = mesh::<u8>(8, 4);
    let shards: Vec<_> = handles
        .into_iter()
        .map(|handle| {
            let spec = ShardSpec { cpu: Some(0), ..ShardSpec::default() };
            backend
                .spawn_shard(spec, move || async move {
                    for to in 0..8 {
                        handle.send(to, to as u8).await.unwrap();
                    }
                    for _ in 0..8 {
                        assert_eq!(handle.recv().await.unwrap().1, handle.me() as u8);
                    }
                    let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
                    assert!(status.contains("Cpus_allowed_list:\t0\n"), "the shard is not pinned");
                })
                .unwrap()
        })
        .collect();
    for shard in shards {
        shard.join().unwrap().unwrap();
    }
    backend.probe().unwrap();
    let nowhere = ShardSpec { cpu: Some(1_000_000), ..ShardSpec::default() };
    let error = backend.run(&nowhere, || async {}).unwrap_err();
    assert!(error.to_string().contains("no cpu 1000000"), "{error}");
}

#[test]
fn a_parked_shard_makes_no_system_calls() {
    let _alone = alone();
    let (sender, receiver) = mpsc::channel();
    let handle = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&handle);
    let mut ends = mesh::<u8>(2, 1).into_iter();
    let (ours, theirs) = (ends.next().unwrap(), ends.next().unwrap());
    let shard = Backend::Uring
        .spawn_shard(ShardSpec::default(), move || async move {
            let listener = TcpListener::bind("127.0.0.1:0".parse().unwrap(), 10).unwrap();
            let accepting = spawn(async move {
                let _ = listener.accept().await;
            });
            let far = (spawn(sleep(Duration::from_secs(3600))), spawn(sleep(Duration::MAX)));
            sender.send(rustix::thread::gettid()).unwrap();
            let message = theirs.recv().await;
            seen.store(true, Ordering::SeqCst);
            drop((accepting, far));
            message
        })
        .unwrap();
    let tid = receiver.recv().unwrap().as_raw_nonzero();
    let switches = || -> Option<String> {
        let status = std::fs::read_to_string(format!("/proc/self/task/{tid}/status")).unwrap();
        status.lines().find(|l| l.starts_with("voluntary_ctxt_switches")).map(str::to_owned)
    };
    // Let it fall asleep, then watch it sleep.
    let mut before = switches();
    loop {
        std::thread::sleep(Duration::from_millis(100));
        let now = switches();
        if now == before {
            break;
        }
        before = now;
    }
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(switches(), before, "it woke up with nothing to do");
    assert!(!handle.load(Ordering::SeqCst));
    drop(ours);
    assert_eq!(shard.join().unwrap().unwrap(), None);
}

fn signals_interrupt_nothing(backend: Backend) {
    let _alone = alone();
    static HITS: AtomicU32 = AtomicU32::new(0);
    extern "C" fn count(_: libc::c_int) {
        HITS.fetch_add(1, Ordering::Relaxed);
    }
    // SAFETY: the handler only touches an atomic; no SA_RESTART, so that calls really end early.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = count as *const () as libc::sighandler_t;
        assert_eq!(libc::sigaction(libc::SIGUSR1, &action, std::ptr::null_mut()), 0);
    }
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = dir.path().join("f");
    static TID: AtomicI32 = AtomicI32::new(0);
    let shard = backend
        .spawn_shard(ShardSpec::default(), move || async move {
            TID.store(rustix::thread::gettid().as_raw_nonzero().get(), Ordering::SeqCst);
            let options = OpenOptions { direct: true, ..OpenOptions::for_writing() };
            let file = File::open(&path, options).await.unwrap();
            for i in 0..1_000u64 {
                let mut buf = AlignedBuf::zeroed(64 << 10);
                buf.fill(i as u8);
                let bufs = smallvec![WriteBuf::Aligned(buf)];
                file.write_at(bufs, (i % 8) << 16, Durability::Written).await.unwrap();
                let (n, buf) =
                    file.read_at(AlignedBuf::with_capacity(64 << 10), (i % 8) << 16).await;
                assert_eq!(n.unwrap(), 64 << 10);
                assert!(buf.iter().all(|&b| b == i as u8));
                if i % 50 == 0 {
                    sleep(Duration::from_micros(700)).await;
                }
            }
        })
        .unwrap();
    while !shard.is_finished() {
        let tid = TID.load(Ordering::SeqCst);
        if tid != 0 {
            // SAFETY: a plain system call; a thread that just ended makes it fail.
            unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), tid, libc::SIGUSR1) };
        }
        std::thread::sleep(Duration::from_micros(100));
    }
    shard.join().unwrap().unwrap();
    assert!(HITS.load(Ordering::Relaxed) > 10, "the test did not interrupt anything");
}

fn termination_comes_as_a_value(backend: Backend) {
    let _alone = alone();
    backend
        .run(&ShardSpec::default(), || async {
            // A wait that is given up does not swallow the signal after it.
            assert!(timeout(Duration::from_millis(5), termination()).await.is_err());
            for (number, signal) in
                [(libc::SIGTERM, Signal::Terminate), (libc::SIGINT, Signal::Interrupt)]
            {
                let waiting = spawn(termination());
                sleep(Duration::from_millis(5)).await;
                // SAFETY: the handler was installed by the first wait.
                assert_eq!(unsafe { libc::kill(libc::getpid(), number) }, 0);
                let came = timeout(Duration::from_secs(10), waiting).await.expect("no signal came");
                assert_eq!(came.unwrap(), signal);
                // A wait that has the signal but is given up before it looks leaves it to the next.
                let waiting = spawn(termination());
                sleep(Duration::from_millis(5)).await;
                // SAFETY: as above.
                assert_eq!(unsafe { libc::kill(libc::getpid(), number) }, 0);
                drop(waiting);
                let came = timeout(Duration::from_secs(10), termination()).await;
                assert_eq!(came.expect("the signal was swallowed").unwrap(), signal);
            }
        })
        .unwrap();
}

fn a_panic_takes_its_shard_down_and_nothing_else(backend: Backend) {
    let _alone = alone();
    let before = descriptors();
    let mut ends = mesh::<u8>(2, 1).into_iter();
    let (ours, theirs) = (ends.next().unwrap(), ends.next().unwrap());
    let broken = backend
        .spawn_shard(ShardSpec::default(), move || async move {
            let _held = theirs;
            let listener = TcpListener::bind("127.0.0.1:0".parse().unwrap(), 10).unwrap();
            let client = TcpStream::connect(listener.local_addr()).await.unwrap();
            // The kernel holds this buffer when the thread unwinds.
            let reading = spawn(async move { client.read(BytesMut::with_capacity(4096)).await });
            yield_now().await;
            let (server, _) = listener.accept().await.unwrap();
            spawn(async move {
                sleep(Duration::from_millis(1)).await;
                panic!("this panic is part of the test");
            })
            .detach();
            reading.await.0.unwrap();
            drop(server);
        })
        .unwrap();
    let healthy = backend
        .spawn_shard(ShardSpec::default(), move || async move {
            assert_eq!(ours.recv().await, None, "the broken shard's handle was not dropped");
        })
        .unwrap();
    assert!(broken.join().is_err());
    healthy.join().unwrap().unwrap();
    assert_all_closed(backend, before, 2);
}

fn what_a_shutdown_spawns_never_runs(backend: Backend) {
    let _alone = alone();
    struct Spawner(u32);
    impl Drop for Spawner {
        fn drop(&mut self) {
            if self.0 > 0 {
                let next = Spawner(self.0 - 1);
                spawn(async move {
                    let _next = next;
                    std::future::pending::<()>().await;
                })
                .detach();
                spawn(async { panic!("it ran") }).detach();
            }
        }
    }
    let before = descriptors();
    backend
        .run(&ShardSpec::default(), || async {
            let held = Spawner(5);
            spawn(async move {
                let _held = held;
                std::future::pending::<()>().await;
            })
            .detach();
            yield_now().await;
        })
        .unwrap();
    assert_all_closed(backend, before, 1);
}
