use bytes::{Bytes, BytesMut};
use reactor::*;
use smallvec::smallvec;
use std::rc::Rc;
use std::time::Duration;

fn run<Fut: Future<Output = T> + 'static, T: 'static>(f: impl FnOnce() -> Fut) -> T {
    uring::run(&ShardSpec::default(), f).unwrap()
}

#[test]
fn timers_and_tasks() {
    let out = run(|| async {
        let a = spawn(async {
            sleep(Duration::from_millis(20)).await;
            1
        });
        let b = spawn(async {
            sleep(Duration::from_millis(5)).await;
            2
        });
        let r = timeout(Duration::from_millis(1), sleep(Duration::from_secs(10))).await;
        assert_eq!(r, Err(TimedOut));
        a.await + b.await
    });
    assert_eq!(out, 3);
}

#[test]
fn files() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = dir.path().to_path_buf();
    run(move || async move {
        let sub = path.join("a/b/c");
        fs::create_dir_all(&sub).await.unwrap();
        let name = sub.join("f.log");
        let f = File::open(&name, OpenOptions { direct: true, ..OpenOptions::for_writing() })
            .await
            .unwrap();
        f.allocate(0, 1 << 20, Allocate::Extend).await.unwrap();
        assert_eq!(f.size().await.unwrap(), 1 << 20);
        let mut c = Chunk::new(8192);
        c.append(&[7u8; 8192]);
        let mut tail = AlignedBuf::zeroed(4096);
        tail[..3].copy_from_slice(b"abc");
        f.write_at(
            smallvec![WriteBuf::Chunk(c.slice(0..8192)), WriteBuf::Aligned(tail)],
            0,
            Durability::Synced,
        )
        .await
        .unwrap();
        let (n, b) = f.read_at(AlignedBuf::with_capacity(12288), 0).await;
        assert_eq!(n.unwrap(), 12288);
        assert!(b[..8192].iter().all(|&x| x == 7));
        assert_eq!(&b[8192..8196], b"abc\0");
        f.set_len(8195).await.unwrap();
        let (n, _b) = f.read_at(AlignedBuf::with_capacity(12288), 0).await;
        assert_eq!(n.unwrap(), 8195);
        f.sync_data().await.unwrap();
        f.close().await.unwrap();
        fs::write_atomic(&sub.join("x"), b"hello".to_vec()).await.unwrap();
        assert_eq!(fs::read(&sub.join("x")).await.unwrap(), b"hello");
        let list = fs::read_dir(&sub).await.unwrap();
        assert_eq!(list.len(), 2);
        let l = fs::lock(&sub.join("lock")).await.unwrap();
        assert_eq!(
            fs::lock(&sub.join("lock")).await.err().unwrap().kind(),
            std::io::ErrorKind::WouldBlock
        );
        drop(l);
        assert!(fs::space(&sub).await.unwrap().available > 0);
        fs::remove_dir_all(&path.join("a")).await.unwrap();
        assert!(!fs::exists(&sub).await.unwrap());
    });
}

#[test]
fn sockets() {
    run(|| async {
        let l = TcpListener::bind("127.0.0.1:0".parse().unwrap(), 128).unwrap();
        let addr = l.local_addr();
        assert_eq!(
            TcpListener::bind(addr, 128).err().unwrap().kind(),
            std::io::ErrorKind::AddrInUse
        );
        let server = spawn(async move {
            let (s, _) = l.accept().await.unwrap();
            let mut total = 0;
            loop {
                let (n, b) = s.read(BytesMut::with_capacity(65536)).await;
                let n = n.unwrap();
                if n == 0 {
                    break;
                }
                total += n;
                s.write_all(vec![b.freeze()]).await.unwrap();
            }
            total
        });
        let c = Rc::new(TcpStream::connect(addr).await.unwrap());
        let w = c.clone();
        spawn(async move {
            let bufs: Vec<Bytes> = (0..3000).map(|i| Bytes::from(vec![i as u8; 1000])).collect();
            w.write_all(bufs).await.unwrap();
            w.finish_writes();
        })
        .detach();
        let mut got = 0;
        loop {
            let (n, b) = c.read(BytesMut::with_capacity(65536)).await;
            if n.unwrap() == 0 {
                break;
            }
            for (i, x) in b.iter().enumerate() {
                assert_eq!(*x, ((got + i) / 1000) as u8);
            }
            got += b.len();
        }
        assert_eq!(got, 3_000_000);
        assert_eq!(server.await, 3_000_000);
    });
}

#[test]
fn mesh_between_shards() {
    let mut handles = Vec::new();
    for m in mesh::<u64>(3, 4) {
        handles.push(
            uring::spawn_shard(ShardSpec::default(), move || async move {
                let m = Rc::new(m);
                let tx = m.clone();
                let sender = spawn(async move {
                    for i in 0..1000u64 {
                        for to in 0..3 {
                            tx.send(to, i).await.unwrap();
                        }
                    }
                });
                let mut next = [0u64; 3];
                for _ in 0..3000 {
                    let (from, v) = m.recv().await.unwrap();
                    assert_eq!(next[from], v);
                    next[from] += 1;
                }
                sender.await;
                next
            })
            .unwrap(),
        );
    }
    for h in handles {
        assert_eq!(h.join().unwrap().unwrap(), [1000; 3]);
    }
}
