//! Directories, atomic replacement, locks, free space.

use std::io::ErrorKind;
use std::path::Path;

use reactor::{AlignedBuf, Durability, File, OpenOptions, WriteBuf, fs};
use smallvec::smallvec;

use crate::harness::Env;

every!(
    directories_come_and_go,
    errors_say_what_is_wrong,
    a_file_is_replaced_whole,
    a_lock_excludes,
    there_is_space
);

async fn directories_come_and_go(env: Env) {
    let deep = env.dir.join("a/b/c/d");
    fs::create_dir_all(&deep).await.unwrap();
    fs::create_dir_all(&deep).await.unwrap();
    for name in ["two", "one"] {
        fs::write_atomic(&deep.join(name), name.as_bytes().to_vec()).await.unwrap();
    }
    fs::create_dir_all(&deep.join("three")).await.unwrap();
    let entries = fs::read_dir(&deep).await.unwrap();
    let seen: Vec<_> = entries.iter().map(|e| (e.name.as_str(), e.is_dir)).collect();
    assert_eq!(seen, [("one", false), ("three", true), ("two", false)]);
    let moved = env.dir.join("a/moved");
    fs::rename(&deep, &moved).await.unwrap();
    fs::sync_dir(&env.dir.join("a")).await.unwrap();
    assert!(!fs::exists(&deep).await.unwrap());
    assert_eq!(fs::read(&moved.join("two")).await.unwrap(), b"two");
    assert!(fs::metadata(&moved).await.unwrap().is_dir);
    fs::remove_dir_all(&env.dir.join("a")).await.unwrap();
    assert!(!fs::exists(&env.dir.join("a")).await.unwrap());
}

async fn errors_say_what_is_wrong(env: Env) {
    let kind = |r: std::io::Result<()>| r.unwrap_err().kind();
    let absent = env.dir.join("absent");
    let reading = OpenOptions::for_reading();
    assert_eq!(kind(File::open(&absent, reading).await.map(drop)), ErrorKind::NotFound);
    assert_eq!(kind(fs::remove_file(&absent).await), ErrorKind::NotFound);
    assert_eq!(kind(fs::read_dir(&absent).await.map(drop)), ErrorKind::NotFound);
    assert_eq!(kind(fs::read(&absent).await.map(drop)), ErrorKind::NotFound);
    assert_eq!(kind(fs::space(&absent).await.map(drop)), ErrorKind::NotFound);
    assert_eq!(kind(fs::sync_disk(&absent).await), ErrorKind::NotFound);
    let dir = env.dir.join("dir");
    fs::create_dir_all(&dir).await.unwrap();
    fs::write_atomic(&dir.join("file"), Vec::new()).await.unwrap();
    assert_eq!(kind(fs::remove_dir(&dir).await), ErrorKind::DirectoryNotEmpty);
    assert_eq!(kind(fs::create_dir_all(&dir.join("file/below")).await), ErrorKind::NotADirectory);
    assert_eq!(kind(fs::create_dir_all(&dir.join("file")).await), ErrorKind::NotADirectory);
    assert_eq!(kind(fs::sync_dir(&dir.join("file")).await), ErrorKind::NotADirectory);
    assert_eq!(kind(fs::sync_disk(&dir.join("file")).await), ErrorKind::NotADirectory);
    fs::sync_disk(&dir).await.unwrap();
    let zero = Path::new("with\0zero");
    assert_eq!(kind(fs::exists(zero).await.map(drop)), ErrorKind::InvalidInput);
    // A file opened for reading only takes no bytes.
    let file = File::open(&dir.join("file"), reading).await.unwrap();
    let mut buf = AlignedBuf::zeroed(1);
    buf.set_len(1);
    let bufs = smallvec![WriteBuf::Aligned(buf)];
    assert!(file.write_at(bufs, 0, Durability::Written).await.is_err());
    // Direct I/O off the boundary is refused, not rounded.
    let options = OpenOptions { direct: true, ..OpenOptions::for_writing() };
    let file = File::open(&dir.join("file"), options).await.unwrap();
    let mut buf = AlignedBuf::zeroed(4096);
    buf.set_len(100);
    let written = file.write_at(smallvec![WriteBuf::Aligned(buf)], 0, Durability::Written).await;
    assert_eq!(written.unwrap_err().kind(), ErrorKind::InvalidInput);
}

async fn a_file_is_replaced_whole(env: Env) {
    let path = env.dir.join("checkpoint");
    for n in [0usize, 1, 4096, 300_000, 10] {
        let data: Vec<u8> = (0..n).map(|i| (i / 7) as u8).collect();
        fs::write_atomic(&path, data.clone()).await.unwrap();
        assert!(fs::read(&path).await.unwrap() == data, "{n} bytes");
    }
    assert_eq!(fs::read_dir(&env.dir).await.unwrap().len(), 1, "no temporary file stays");
}

async fn a_lock_excludes(env: Env) {
    let path = env.dir.join(".lock");
    let held = fs::lock(&path).await.unwrap();
    assert_eq!(fs::lock(&path).await.err().unwrap().kind(), ErrorKind::WouldBlock);
    drop(held);
    // Released in the background: any operation later it is free.
    let mut tries = 0;
    while let Err(e) = fs::lock(&path).await {
        assert!(tries < 1_000, "still locked: {e}");
        tries += 1;
        reactor::sleep(std::time::Duration::from_millis(1)).await;
    }
}

async fn there_is_space(env: Env) {
    let space = fs::space(&env.dir).await.unwrap();
    assert!(space.total >= space.available && space.available > 0);
}
