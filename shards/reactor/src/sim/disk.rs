//! The simulated disk: a tree of files and directories, each with what the running system sees
//! (`live`), what the device certainly holds (`durable`), and the changes between the two.
//!
//! Fault model. What a fault does here, and the switch of `faults.rs` that makes it happen (a crash
//! is `World::crash_after`):
//!
//! | fault | what the disk does | switch |
//! |---|---|---|
//! | the process is killed | an operation in flight happens, happens in part or not; the rest stays | `Crash::Process` |
//! | the power goes | each write since the last sync is lost, lands whole, or lands in some of its sectors, whatever became of its neighbours: lost writes, torn writes and writes out of order are one thing | `Crash::Power` |
//! | sectors of another size | a write tears every 512 or every 4,096 bytes; a sector is old or new | `sector_bytes` |
//! | a size that was not synced | a change of size is lost or not, apart from the bytes; a synced write takes earlier changes of size along | `Crash::Power` |
//! | names that were not synced | creations, renames and removals since the sync of their directory survive up to some point in their order, or each on its own; a move between directories happens whole or not | `Crash::Power`, `unordered_names` |
//! | a sync that fails | what it covered is lost at the next power cut, and the error comes once | `sync_eio_per_million` |
//! | a read or write that fails | EIO; a failed write has landed, in part or not | `eio_per_million`, `eio_after`, `eio_once` |
//! | a device that is gone | everything below a path fails with EIO, through open files as well | `broken` |
//! | a rename that fails | EIO, and it has happened or not | `stuck_names`, `eio_once` |
//! | a device that is slow | everything below a path takes longer | `slow`, `latency`, `sync_latency` |
//! | a disk that is full | what would grow fails with ENOSPC, on the machine or below a path | `capacity`, `full` |
//! | a short transfer | a read or write ends after some of its sectors | `short_per_million` |
//! | an interruption | EINTR or EAGAIN, and nothing has happened | `interrupt_per_million` |
//! | bit rot | a bit flips on the medium, for good, and nobody is told | `rot_per_million`, `World::corrupt` |
//!
//! Not modelled: a device that reports a sync it did not do, a write that lands in another place, a
//! file system that loses what it has acknowledged.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ffi::OsStr;
use std::path::{Component, Path, PathBuf};

use bytes::Bytes;

use super::content::Content;
use super::rng::Dice;
use crate::file::OpenOptions;
use crate::fs::{DirEntry, Metadata};

pub(super) type Ino = u64;
pub(super) type Errno = i32;

const ROOT: Ino = 1;

/// Changes a file may have that the device lacks; beyond, the oldest are written back, as a
/// kernel would sooner or later.
const PENDING_CHANGES_MAX: usize = 4096;

/// How the device behaves when the power goes.
#[derive(Clone, Copy)]
pub(super) struct PowerCut {
    pub(super) sector_bytes: usize,
    pub(super) unordered_names: bool,
}

pub(super) struct Disk {
    nodes: BTreeMap<Ino, Node>,
    next: Ino,
}

enum Node {
    File(FileNode),
    Dir(DirNode),
}

#[derive(Default)]
struct FileNode {
    live: Content,
    durable: Content,
    pending: VecDeque<Change>,
    /// Serial of the next change.
    next: u64,
    reserved: u64,
    modified_ms: i64,
}

struct Change {
    serial: u64,
    what: What,
    /// The device has it already (a synced write after changes that are not).
    synced: bool,
}

enum What {
    Write { offset: u64, data: Bytes },
    SetLen(u64),
}

#[derive(Default)]
struct DirNode {
    live: BTreeMap<String, Ino>,
    durable: BTreeMap<String, Ino>,
    pending: Vec<NameChange>,
    /// Serial of the next change.
    next: u64,
}

struct NameChange {
    serial: u64,
    /// Set on both halves of a move between directories, which happens as a whole or not at all.
    pair: Option<u64>,
    removed: Option<String>,
    added: Option<(String, Ino)>,
}

impl Disk {
    pub(super) fn new() -> Self {
        let mut nodes = BTreeMap::new();
        nodes.insert(ROOT, Node::Dir(DirNode::default()));
        Self { nodes, next: ROOT + 1 }
    }

    // Names.

    /// Relative and absolute paths start at the same root.
    pub(super) fn lookup(&self, path: &Path) -> Result<Ino, Errno> {
        let mut at = ROOT;
        for name in names(path)? {
            at = *self.dir(at)?.live.get(name).ok_or(libc::ENOENT)?;
        }
        Ok(at)
    }

    fn parent<'p>(&self, path: &'p Path) -> Result<(Ino, &'p str), Errno> {
        let mut all = names(path)?;
        let last = all.pop().ok_or(libc::EINVAL)?;
        let mut at = ROOT;
        for name in all {
            at = *self.dir(at)?.live.get(name).ok_or(libc::ENOENT)?;
        }
        self.dir(at)?;
        Ok((at, last))
    }

    pub(super) fn open(&mut self, path: &Path, o: &OpenOptions, now_ms: i64) -> Result<Ino, Errno> {
        match self.lookup(path) {
            Ok(_) if o.create_new => Err(libc::EEXIST),
            Ok(ino) => {
                self.file(ino)?;
                if o.truncate {
                    self.set_len(ino, 0, now_ms)?;
                }
                Ok(ino)
            }
            Err(libc::ENOENT) if o.create || o.create_new => {
                let (parent, name) = self.parent(path)?;
                let node = FileNode { modified_ms: now_ms, ..FileNode::default() };
                let ino = self.insert(Node::File(node));
                self.change_names(parent, None, None, Some((name.to_owned(), ino)))?;
                Ok(ino)
            }
            Err(e) => Err(e),
        }
    }

    pub(super) fn make_dir(&mut self, path: &Path) -> Result<(), Errno> {
        if self.lookup(path).is_ok() {
            return Err(libc::EEXIST);
        }
        let (parent, name) = self.parent(path)?;
        let ino = self.insert(Node::Dir(DirNode::default()));
        self.change_names(parent, None, None, Some((name.to_owned(), ino)))
    }

    pub(super) fn remove(&mut self, path: &Path, directory: bool) -> Result<(), Errno> {
        let (parent, name) = self.parent(path)?;
        match (self.node(self.lookup(path)?)?, directory) {
            (Node::File(_), false) => {}
            (Node::Dir(dir), true) if dir.live.is_empty() => {}
            (Node::Dir(_), true) => return Err(libc::ENOTEMPTY),
            (Node::Dir(_), false) => return Err(libc::EISDIR),
            (Node::File(_), true) => return Err(libc::ENOTDIR),
        }
        self.change_names(parent, None, Some(name.to_owned()), None)
    }

    pub(super) fn rename(&mut self, from: &Path, to: &Path) -> Result<(), Errno> {
        let ino = self.lookup(from)?;
        let (source, old) = self.parent(from)?;
        let (target, new) = self.parent(to)?;
        if let Ok(replaced) = self.lookup(to) {
            match (self.node(ino)?, self.node(replaced)?) {
                _ if replaced == ino => return Ok(()),
                (Node::File(_), Node::File(_)) => {}
                (Node::Dir(_), Node::Dir(dir)) if dir.live.is_empty() => {}
                (Node::Dir(_), Node::Dir(_)) => return Err(libc::ENOTEMPTY),
                (Node::File(_), Node::Dir(_)) => return Err(libc::EISDIR),
                (Node::Dir(_), Node::File(_)) => return Err(libc::ENOTDIR),
            }
        }
        let (old, new) = (old.to_owned(), new.to_owned());
        if source == target {
            return self.change_names(source, None, Some(old), Some((new, ino)));
        }
        let pair = self.next;
        self.next += 1;
        self.change_names(source, Some(pair), Some(old), None)?;
        self.change_names(target, Some(pair), None, Some((new, ino)))
    }

    fn change_names(
        &mut self,
        dir: Ino,
        pair: Option<u64>,
        removed: Option<String>,
        added: Option<(String, Ino)>,
    ) -> Result<(), Errno> {
        let Some(Node::Dir(dir)) = self.nodes.get_mut(&dir) else { return Err(libc::ENOTDIR) };
        let change = NameChange { serial: dir.next, pair, removed, added };
        dir.next += 1;
        change.apply(&mut dir.live);
        dir.pending.push(change);
        Ok(())
    }

    pub(super) fn list(&self, path: &Path) -> Result<Vec<DirEntry>, Errno> {
        let dir = self.dir(self.lookup(path)?)?;
        let entry = |(name, ino): (&String, &Ino)| {
            let is_dir = matches!(self.nodes.get(ino), Some(Node::Dir(_)));
            DirEntry { name: name.clone(), is_dir }
        };
        Ok(dir.live.iter().map(entry).collect())
    }

    pub(super) fn metadata(&self, ino: Ino) -> Result<Metadata, Errno> {
        Ok(match self.node(ino)? {
            Node::File(f) => {
                Metadata { size: f.live.size(), is_dir: false, modified_ms: f.modified_ms }
            }
            Node::Dir(_) => Metadata { size: 0, is_dir: true, modified_ms: 0 },
        })
    }

    // Contents.

    pub(super) fn read(&self, ino: Ino, offset: u64, out: &mut [u8]) -> Result<usize, Errno> {
        Ok(self.file(ino)?.live.read(offset, out))
    }

    pub(super) fn write(
        &mut self,
        ino: Ino,
        offset: u64,
        data: Bytes,
        synced: bool,
        now_ms: i64,
    ) -> Result<(), Errno> {
        let file = self.file_mut(ino)?;
        file.modified_ms = now_ms;
        file.change(What::Write { offset, data }, synced);
        Ok(())
    }

    pub(super) fn set_len(&mut self, ino: Ino, len: u64, now_ms: i64) -> Result<(), Errno> {
        let file = self.file_mut(ino)?;
        file.modified_ms = now_ms;
        file.reserved = file.reserved.min(len);
        file.change(What::SetLen(len), false);
        Ok(())
    }

    pub(super) fn allocate(&mut self, ino: Ino, end: u64, keep_size: bool) -> Result<(), Errno> {
        let file = self.file_mut(ino)?;
        file.reserved = file.reserved.max(end);
        if !keep_size && end > file.live.size() {
            file.change(What::SetLen(end), false);
        }
        Ok(())
    }

    /// Everything there is.
    pub(super) fn inos(&self) -> Vec<Ino> {
        self.nodes.keys().copied().collect()
    }

    /// Serial below which a sync that starts now covers everything.
    pub(super) fn sync_point(&self, ino: Ino) -> Result<u64, Errno> {
        Ok(match self.node(ino)? {
            Node::File(f) => f.next,
            Node::Dir(d) => d.next,
        })
    }

    /// Makes changes below `point` durable, or, if the device fails, forgets that they are not.
    pub(super) fn sync(&mut self, ino: Ino, point: u64, fails: bool) -> Result<(), Errno> {
        match self.nodes.get_mut(&ino).ok_or(libc::EBADF)? {
            Node::File(file) => {
                while file.pending.front().is_some_and(|c| c.serial < point) {
                    if let Some(change) = file.pending.pop_front()
                        && (!fails || change.synced)
                    {
                        change.what.apply(&mut file.durable);
                    }
                }
                file.settle();
            }
            Node::Dir(dir) if !fails => {
                for change in dir.pending.extract_if(.., |c| c.serial < point) {
                    change.apply(&mut dir.durable);
                }
            }
            Node::Dir(_) => {}
        }
        if fails { Err(libc::EIO) } else { Ok(()) }
    }

    /// Bytes in use: those of files that have a name.
    pub(super) fn used(&self) -> u64 {
        let named = self.nodes.values().flat_map(|node| match node {
            Node::Dir(dir) => Some(dir.live.values()),
            Node::File(_) => None,
        });
        let named: BTreeSet<Ino> = named.flatten().copied().collect();
        let held = |ino: &Ino| match self.nodes.get(ino) {
            Some(Node::File(f)) => f.live.held().max(f.reserved),
            Some(Node::Dir(_)) | None => 0,
        };
        named.iter().map(held).sum()
    }

    /// Bytes that writing `len` bytes at `offset` adds at most.
    pub(super) fn growth(&self, ino: Ino, offset: u64, len: u64) -> u64 {
        let Ok(file) = self.file(ino) else { return 0 };
        let have = file.live.size().max(file.reserved);
        (offset + len).saturating_sub(have)
    }

    // Crashes.

    /// The power goes: every file and directory becomes what the device turns out to hold.
    pub(super) fn power_cut(&mut self, dice: &mut Dice, cut: PowerCut) {
        if cut.unordered_names {
            self.scatter_names(dice);
        }
        let mut kept: BTreeMap<Ino, usize> = BTreeMap::new();
        for (ino, node) in &mut self.nodes {
            match node {
                Node::File(file) => file.power_cut(dice, cut.sector_bytes),
                Node::Dir(dir) => {
                    kept.insert(*ino, dice.below(dir.pending.len() as u64 + 1) as usize);
                }
            }
        }
        self.settle_pairs(&mut kept);
        for (ino, node) in &mut self.nodes {
            if let Node::Dir(dir) = node {
                let keep = kept.get(ino).copied().unwrap_or(0);
                for change in dir.pending.drain(..).take(keep) {
                    change.apply(&mut dir.durable);
                }
                dir.live = dir.durable.clone();
            }
        }
        self.forget_unreachable();
    }

    /// Keeps some of the pending changes of names, whatever came before them.
    fn scatter_names(&mut self, dice: &mut Dice) {
        let mut moves: BTreeMap<u64, bool> = BTreeMap::new();
        for node in self.nodes.values_mut() {
            let Node::Dir(dir) = node else { continue };
            for change in dir.pending.drain(..) {
                let lands = match change.pair {
                    Some(pair) => *moves.entry(pair).or_insert_with(|| dice.coin()),
                    None => dice.coin(),
                };
                if lands {
                    change.apply(&mut dir.durable);
                }
            }
        }
    }

    /// Shortens what is kept until no move between directories is kept by half.
    fn settle_pairs(&self, kept: &mut BTreeMap<Ino, usize>) {
        loop {
            let mut places: BTreeMap<u64, Vec<(Ino, usize)>> = BTreeMap::new();
            for (ino, node) in &self.nodes {
                let Node::Dir(dir) = node else { continue };
                for (index, change) in dir.pending.iter().enumerate() {
                    if let Some(pair) = change.pair {
                        places.entry(pair).or_default().push((*ino, index));
                    }
                }
            }
            let mut changed = false;
            for halves in places.values().filter(|halves| halves.len() == 2) {
                let whole = halves.iter().all(|(ino, i)| kept.get(ino).is_some_and(|k| i < k));
                for (ino, index) in halves.iter().filter(|_| !whole) {
                    if let Some(k) = kept.get_mut(ino).filter(|k| index < *k) {
                        *k = *index;
                        changed = true;
                    }
                }
            }
            if !changed {
                return;
            }
        }
    }

    /// Frees nodes that no name leads to any more. Only between runs: open files have no name.
    pub(super) fn forget_unreachable(&mut self) {
        let mut reachable = std::collections::BTreeSet::from([ROOT]);
        let mut stack = vec![ROOT];
        while let Some(ino) = stack.pop() {
            let Some(Node::Dir(dir)) = self.nodes.get(&ino) else { continue };
            let pending = dir.pending.iter().filter_map(|c| c.added.as_ref().map(|(_, ino)| *ino));
            let all = dir.live.values().chain(dir.durable.values()).copied().chain(pending);
            for child in all {
                if reachable.insert(child) {
                    stack.push(child);
                }
            }
        }
        self.nodes.retain(|ino, _| reachable.contains(ino));
    }

    // For assertions.

    pub(super) fn walk(&self) -> Vec<(PathBuf, Ino)> {
        let mut found = Vec::new();
        let mut stack = vec![(PathBuf::from("/"), ROOT)];
        while let Some((path, ino)) = stack.pop() {
            match self.nodes.get(&ino) {
                Some(Node::Dir(dir)) => {
                    stack.extend(dir.live.iter().map(|(name, ino)| (path.join(name), *ino)));
                }
                Some(Node::File(_)) => found.push((path, ino)),
                None => {}
            }
        }
        found.sort();
        found
    }

    pub(super) fn live(&self, ino: Ino) -> Option<Vec<u8>> {
        self.file(ino).ok().map(|f| f.live.to_vec())
    }

    pub(super) fn durable(&self, ino: Ino) -> Option<Vec<u8>> {
        let file = self.file(ino).ok()?;
        let mut content = file.durable.clone();
        for change in file.pending.iter().filter(|c| c.synced) {
            change.what.apply(&mut content);
        }
        Some(content.to_vec())
    }

    /// Changes bytes behind everyone's back.
    pub(super) fn corrupt(&mut self, ino: Ino, offset: u64, xor: u8) -> Result<(), Errno> {
        let file = self.file_mut(ino)?;
        for content in [&mut file.live, &mut file.durable] {
            let mut byte = [0];
            if content.read(offset, &mut byte) == 1 {
                content.write(offset, &[byte[0] ^ xor]);
            }
        }
        Ok(())
    }

    // Nodes.

    fn insert(&mut self, node: Node) -> Ino {
        let ino = self.next;
        self.next += 1;
        self.nodes.insert(ino, node);
        ino
    }

    fn node(&self, ino: Ino) -> Result<&Node, Errno> {
        self.nodes.get(&ino).ok_or(libc::EBADF)
    }

    fn dir(&self, ino: Ino) -> Result<&DirNode, Errno> {
        match self.node(ino)? {
            Node::Dir(dir) => Ok(dir),
            Node::File(_) => Err(libc::ENOTDIR),
        }
    }

    fn file(&self, ino: Ino) -> Result<&FileNode, Errno> {
        match self.node(ino)? {
            Node::File(file) => Ok(file),
            Node::Dir(_) => Err(libc::EISDIR),
        }
    }

    fn file_mut(&mut self, ino: Ino) -> Result<&mut FileNode, Errno> {
        match self.nodes.get_mut(&ino) {
            Some(Node::File(file)) => Ok(file),
            Some(Node::Dir(_)) => Err(libc::EISDIR),
            None => Err(libc::EBADF),
        }
    }
}

impl FileNode {
    fn change(&mut self, what: What, synced: bool) {
        what.apply(&mut self.live);
        self.pending.push_back(Change { serial: self.next, what, synced });
        self.next += 1;
        if self.pending.len() > PENDING_CHANGES_MAX
            && let Some(oldest) = self.pending.pop_front()
        {
            oldest.what.apply(&mut self.durable);
        }
        self.settle();
    }

    /// Folds synced changes that nothing un-synced precedes.
    fn settle(&mut self) {
        while self.pending.front().is_some_and(|c| c.synced) {
            if let Some(change) = self.pending.pop_front() {
                change.what.apply(&mut self.durable);
            }
        }
    }

    fn power_cut(&mut self, dice: &mut Dice, sector: usize) {
        // A synced change carries earlier changes of size with it: one journal orders them.
        let last_synced = self.pending.iter().rposition(|c| c.synced);
        for (index, change) in self.pending.drain(..).enumerate() {
            match change.what {
                what if change.synced => what.apply(&mut self.durable),
                What::SetLen(len) => {
                    if last_synced.is_some_and(|last| index < last) || dice.coin() {
                        self.durable.set_size(len);
                    }
                }
                What::Write { offset, data } => {
                    let size_lands = dice.coin();
                    let end = scatter(&mut self.durable, offset, &data, (dice, sector));
                    if size_lands {
                        self.durable.grow_to(end);
                    }
                }
            }
        }
        self.durable.trim();
        self.live = self.durable.clone();
        self.reserved = self.reserved.min(self.live.size());
    }
}

/// Lands a write wholly, not, or in some sectors; returns the end of what landed.
fn scatter(
    content: &mut Content,
    offset: u64,
    data: &[u8],
    (dice, sector): (&mut Dice, usize),
) -> u64 {
    let fate = dice.below(3);
    let mut end = 0;
    let mut at = 0;
    while at < data.len() {
        let position = offset + at as u64;
        let len = (sector - (position % sector as u64) as usize).min(data.len() - at);
        if fate == 1 || (fate == 2 && dice.coin()) {
            content.write(position, &data[at..at + len]);
            end = position + len as u64;
        }
        at += len;
    }
    end
}

impl What {
    fn apply(&self, content: &mut Content) {
        match self {
            What::Write { offset, data } => {
                content.write(*offset, data);
                content.grow_to(offset + data.len() as u64);
            }
            What::SetLen(len) => content.set_size(*len),
        }
    }
}

impl NameChange {
    fn apply(&self, names: &mut BTreeMap<String, Ino>) {
        if let Some(name) = &self.removed {
            names.remove(name);
        }
        if let Some((name, ino)) = &self.added {
            names.insert(name.clone(), *ino);
        }
    }
}

fn names(path: &Path) -> Result<Vec<&str>, Errno> {
    let mut names = Vec::new();
    for component in path.components() {
        match component {
            Component::Normal(name) => names.push(name.to_str().ok_or(libc::EILSEQ)?),
            Component::RootDir | Component::CurDir => {}
            Component::ParentDir | Component::Prefix(_) => return Err(libc::EINVAL),
        }
    }
    debug_assert!(names.iter().all(|n| OsStr::new(n) != ".."));
    Ok(names)
}
