//! Random file operations against a model in memory, buffered and direct, on every backend.

use std::path::PathBuf;
use std::rc::Rc;

use bytes::Bytes;
use reactor::{
    ALIGN, AlignedBuf, Allocate, Chunk, Durability, File, OpenOptions, WriteBuf, fs, join_all,
    spawn,
};
use smallvec::{SmallVec, smallvec};

use crate::harness::{Dice, Env};

every!(buffered_files_match_a_model, direct_files_match_a_model, names_match_a_model);

/// Largest file, in bytes.
const SIZE_MAX: usize = 256 << 10;
const FILES: u64 = 4;

async fn buffered_files_match_a_model(env: Env) {
    check_files(env, false).await;
}

async fn direct_files_match_a_model(env: Env) {
    check_files(env, true).await;
}

async fn check_files(env: Env, direct: bool) {
    let operations = env.rounds(25_000, 400);
    let tasks = (0..FILES).map(|i| {
        let path = env.dir.join(format!("file-{i}"));
        spawn(check_file(path, direct, env.seed * FILES + i, operations))
    });
    join_all(tasks).await;
}

struct Checked {
    path: PathBuf,
    options: OpenOptions,
    file: File,
    model: Vec<u8>,
    dice: Dice,
    /// Offsets and lengths are multiples of this.
    unit: usize,
}

async fn check_file(path: PathBuf, direct: bool, seed: u64, operations: usize) {
    let options = OpenOptions { direct, ..OpenOptions::for_writing() };
    let file = File::open(&path, options).await.unwrap();
    let unit = if direct { ALIGN } else { 1 };
    let mut checked =
        Checked { path, options, file, model: Vec::new(), dice: Dice::new(seed), unit };
    for _ in 0..operations {
        match checked.dice.below(100) {
            0..45 => checked.write().await,
            45..85 => checked.read().await,
            85..90 => checked.set_len().await,
            90..94 => checked.allocate().await,
            94..97 => checked.size().await,
            97 => checked.file.sync_data().await.unwrap(),
            98 => checked.reopen().await,
            _ => checked.copy_of_handle().await,
        }
    }
    checked.whole().await;
}

impl Checked {
    fn range(&mut self) -> (usize, usize) {
        let units = SIZE_MAX / self.unit;
        let start = self.dice.below(units);
        let most = if self.dice.below(10) == 0 { units } else { 20_000 / self.unit };
        let len = 1 + self.dice.below(most.min(units - start).max(1));
        (start * self.unit, len * self.unit)
    }

    async fn write(&mut self) {
        let (offset, len) = self.range();
        let data = self.dice.bytes(len);
        let bufs = self.split(&data);
        let durability =
            if self.dice.below(50) == 0 { Durability::Synced } else { Durability::Written };
        self.file.write_at(bufs, offset as u64, durability).await.unwrap();
        if self.model.len() < offset + len {
            self.model.resize(offset + len, 0);
        }
        self.model[offset..offset + len].copy_from_slice(&data);
    }

    /// The same bytes as one or several buffers of all kinds.
    fn split(&mut self, data: &[u8]) -> SmallVec<[WriteBuf; 2]> {
        let mut bufs: SmallVec<[WriteBuf; 2]> = smallvec![];
        let mut rest = data;
        while !rest.is_empty() {
            let units = rest.len() / self.unit;
            let n = (1 + self.dice.below(units)) * self.unit;
            let n = if self.dice.below(2) == 0 { rest.len() } else { n };
            let (part, tail) = rest.split_at(n);
            rest = tail;
            let kind = if self.unit == 1 { self.dice.below(3) } else { self.dice.below(2) };
            bufs.push(match kind {
                0 => {
                    let mut chunk = Chunk::new(n + ALIGN);
                    let range = chunk.append(part);
                    // The writer goes on behind the part that is being written.
                    let slice = chunk.slice(range);
                    chunk.append(&[0xEE; 100]);
                    WriteBuf::Chunk(slice)
                }
                1 => {
                    let mut buf = AlignedBuf::zeroed(n);
                    buf[..n].copy_from_slice(part);
                    buf.set_len(n);
                    WriteBuf::Aligned(buf)
                }
                _ => WriteBuf::Bytes(Bytes::copy_from_slice(part)),
            });
        }
        bufs
    }

    async fn read(&mut self) {
        let (offset, len) = self.range();
        let mut buf = AlignedBuf::with_capacity(len);
        buf.set_len(buf.capacity());
        buf.fill(0xDD);
        let (n, buf) = self.file.read_at(buf, offset as u64).await;
        let end = (offset + buf.capacity()).min(self.model.len());
        let expected = self.model.get(offset..end).unwrap_or_default();
        assert_eq!(n.unwrap(), expected.len(), "length of a read at {offset}");
        assert!(&buf[..] == expected, "bytes read at {offset}+{}", expected.len());
    }

    async fn set_len(&mut self) {
        let len = self.dice.below(SIZE_MAX);
        self.file.set_len(len as u64).await.unwrap();
        self.model.resize(len, 0);
    }

    async fn allocate(&mut self) {
        let (offset, len) = self.range();
        let keep = self.dice.below(2) == 0;
        let mode = if keep { Allocate::KeepSize } else { Allocate::Extend };
        self.file.allocate(offset as u64, len as u64, mode).await.unwrap();
        if !keep && self.model.len() < offset + len {
            self.model.resize(offset + len, 0);
        }
    }

    async fn size(&mut self) {
        assert_eq!(self.file.size().await.unwrap(), self.model.len() as u64);
        let metadata = fs::metadata(&self.path).await.unwrap();
        assert_eq!((metadata.size, metadata.is_dir), (self.model.len() as u64, false));
    }

    async fn reopen(&mut self) {
        let again = File::open(&self.path, self.options).await.unwrap();
        std::mem::replace(&mut self.file, again).close().await.unwrap();
    }

    /// Operations through a clone, with the first handle's future dropped on the way.
    async fn copy_of_handle(&mut self) {
        let clone = self.file.clone();
        let dropped =
            spawn(async move { clone.read_at(AlignedBuf::with_capacity(4096), 0).await.0 });
        reactor::yield_now().await;
        drop(dropped);
        self.read().await;
    }

    async fn whole(&mut self) {
        let whole = fs::read(&self.path).await.unwrap();
        assert!(whole == self.model, "the whole file after all operations");
    }
}

async fn names_match_a_model(env: Env) {
    use std::collections::BTreeSet;
    let mut dice = Dice::new(env.seed);
    let mut model: BTreeSet<String> = BTreeSet::new();
    let path = Rc::new(env.dir.join("names"));
    fs::create_dir_all(&path).await.unwrap();
    for _ in 0..env.rounds(5_000, 300) {
        let name = format!("n{}", dice.below(30));
        let other = format!("n{}", dice.below(30));
        match dice.below(4) {
            0 => {
                let options = OpenOptions { create_new: true, write: true, ..Default::default() };
                let opened = File::open(&path.join(&name), options).await;
                assert_eq!(opened.is_ok(), model.insert(name.clone()), "create_new {name}");
            }
            1 => {
                let removed = fs::remove_file(&path.join(&name)).await;
                assert_eq!(removed.is_ok(), model.remove(&name), "remove {name}");
            }
            2 => {
                let renamed = fs::rename(&path.join(&name), &path.join(&other)).await;
                assert_eq!(renamed.is_ok(), model.contains(&name), "rename {name} to {other}");
                if model.remove(&name) {
                    model.insert(other);
                }
            }
            _ => {
                let there = fs::exists(&path.join(&name)).await.unwrap();
                assert_eq!(there, model.contains(&name), "exists {name}");
            }
        }
    }
    let listed = fs::read_dir(&path).await.unwrap();
    assert!(listed.iter().all(|e| !e.is_dir));
    assert!(listed.into_iter().map(|e| e.name).eq(model));
}
