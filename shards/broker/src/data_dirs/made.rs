//! Which partitions have had a folder in a data directory: one whose folder is not there any more must
//! not be taken for a new one.
//!
//! Owns: the files that say so. A start gathers what they say into `corelane.partitions`; while the
//! broker runs, each shard adds the partitions that it makes or takes over to a file of its own,
//! `corelane.partitions-<16 hex>`. Deciding what becomes of such a partition is `settle`'s matter.
//!
//! ```text
//! boot 3d195973af144b8a8ac96b828df94e47 6c1c6a0f     the start of the machine that wrote this file
//! made 5WlAQ1sNQlSu3rRk1eXOvA 0 0b1f3a77             topic id, partition
//! made 5WlAQ1sNQlSu3rRk1eXOvA 1 9a01d5c2
//! lasting 118 41bb2f90                               the folders of the first 118 bytes are synced
//! ```
//! The last word of a line is a CRC-32C of what is before it; a line where it is wrong does not count.
//!
//! A line is written once the folder is there, before the partition takes a record. A folder of a line
//! that is `lasting`, or was written since the machine was started, has been taken away if it is not
//! there. Of any other the power may have gone before its name was on the disk, and with it nothing that
//! was promised to outlast that. Nor was the line: what cannot be read among those is no damage.
//! The lines that a `lasting` speaks of are synced before it is written: a hole in them is damage.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::fmt::Write;
use std::io;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use meta::Image;
use reactor::sync::Semaphore;
use reactor::{Class, Durability, File, OpenOptions, WriteBuf, fs};
use smallvec::smallvec;
use tracing::{debug, warn};
use wire::Uuid;

/// What a start has gathered; the names of the other files begin like it.
pub const FILE: &str = "corelane.partitions";

/// New folders are synced together, this long after the first of them was made.
const SETTLE_AFTER: Duration = Duration::from_secs(1);

/// A partition by its topic's id and its number.
pub type Key = (Uuid, i32);

/// What the files of a data directory say.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Made {
    /// Partitions whose folders are there, or were taken away.
    pub partitions: BTreeSet<Key>,
    files: Vec<String>,
}

impl Made {
    /// Reads the files of these names. The folders that are there must be synced.
    pub async fn read(data_dir: &Path, files: Vec<String>) -> io::Result<Made> {
        let mut partitions = BTreeSet::new();
        let boot = reactor::boot_id();
        for name in &files {
            let path = data_dir.join(name);
            let bytes = fs::read(&path).await?;
            let refused = decode(name, &bytes, boot, &mut partitions);
            if refused > 0 {
                warn!("{}: {refused} lines are damaged and do not count", path.display());
            }
            reactor::yield_if_due().await;
        }
        Ok(Made { partitions, files })
    }

    /// Gathers into one file what still means something. On a full disk all stays as it is.
    pub async fn gather(&self, data_dir: &Path, home: Option<Uuid>, broker_id: i32, image: &Image) {
        let is_here = |(topic, index): &&Key| {
            let partition = image.topic_by_id(*topic).and_then(|topic| topic.partition(*index));
            partition.is_some_and(|p| home.is_some() && p.directory_on(broker_id) == home)
        };
        let here: BTreeSet<Key> = self.partitions.iter().filter(is_here).copied().collect();
        if self.files == [FILE] && here.len() == self.partitions.len() {
            return;
        }
        if let Err(error) = self.replace(data_dir, &here).await {
            debug!("{} not written in {}: {error}", FILE, data_dir.display());
        }
    }

    async fn replace(&self, data_dir: &Path, here: &BTreeSet<Key>) -> io::Result<()> {
        let mut text = String::new();
        for key in here {
            made_line(*key, &mut text);
        }
        lasting_line(text.len() as u64, &mut text);
        fs::write_atomic(&data_dir.join(FILE), text.into_bytes()).await?;
        for name in self.files.iter().filter(|name| *name != FILE) {
            fs::remove_file(&data_dir.join(name)).await?;
        }
        Ok(())
    }
}

/// Whether this is the name of one of the files.
pub fn is_file(name: &str) -> bool {
    let rest = name.strip_prefix(FILE);
    rest.is_some_and(|rest| rest.is_empty() || (rest.starts_with('-') && !rest.ends_with(".tmp")))
}

/// How many lines of the file of this name are damaged.
pub fn damaged_lines(name: &str, bytes: &[u8]) -> usize {
    decode(name, bytes, reactor::boot_id(), &mut BTreeSet::new())
}

fn made_line((topic, index): Key, out: &mut String) {
    end_line(format!("made {topic} {index}"), out);
}

fn lasting_line(bytes: u64, out: &mut String) {
    end_line(format!("lasting {bytes}"), out);
}

pub(super) fn boot_line(boot: Option<[u8; 16]>, out: &mut String) {
    match boot {
        Some(boot) => end_line(format!("boot {:032x}", u128::from_be_bytes(boot)), out),
        None => end_line("boot -".to_owned(), out),
    }
}

pub(super) fn end_line(line: String, out: &mut String) {
    // Writing to a string does not fail.
    let _ = writeln!(out, "{line} {:08x}", crc32c::crc32c(line.as_bytes()));
}

/// Adds the partitions that a file tells of. Returns how many of its lines are damaged.
fn decode(name: &str, bytes: &[u8], boot: Option<[u8; 16]>, into: &mut BTreeSet<Key>) -> usize {
    let (mut made, mut unreadable) = (Vec::new(), Vec::new());
    // What a start has gathered was synced as a whole.
    let (mut is_kept, mut lasting) = (name == FILE, 0);
    let mut at = 0u64;
    for line in bytes.split_inclusive(|byte| *byte == b'\n') {
        let start = at;
        at += line.len() as u64;
        // The last write may have been cut; what a cut left out was never waited for.
        let Some(line) = line.strip_suffix(b"\n").filter(|line| !line.is_empty()) else { continue };
        match parse(line) {
            Some(Line::Boot(id)) => is_kept |= id.is_some() && id == boot,
            Some(Line::Made(key)) => made.push((start, key)),
            Some(Line::Lasting(bytes)) => lasting = lasting.max(bytes),
            None => unreadable.push((start, is_holed(line))),
        }
    }
    into.extend(made.into_iter().filter(|(at, _)| is_kept || *at < lasting).map(|(_, key)| key));
    // The first line says which start of the machine it was: where it is damaged, that is not known.
    let is_damaged = |(at, is_holed): &(u64, bool)| match *is_holed && *at >= lasting {
        true => name == FILE,
        false => is_kept || *at == 0 || *at < lasting,
    };
    unreadable.iter().filter(|line| is_damaged(line)).count()
}

/// Whether the power may have gone before this part of the file was on the disk. Of what was synced
/// nothing is missing.
fn is_holed(line: &[u8]) -> bool {
    line.windows(2).any(|pair| pair == [0, 0])
}

enum Line {
    Boot(Option<[u8; 16]>),
    Made(Key),
    Lasting(u64),
}

/// A line without its checksum, if that is right.
pub(super) fn checked(line: &[u8]) -> Option<&str> {
    let (line, crc) = std::str::from_utf8(line).ok()?.rsplit_once(' ')?;
    (u32::from_str_radix(crc, 16).ok()? == crc32c::crc32c(line.as_bytes())).then_some(line)
}

fn parse(line: &[u8]) -> Option<Line> {
    let line = checked(line)?;
    match *line.split(' ').collect::<Vec<_>>() {
        ["boot", "-"] => Some(Line::Boot(None)),
        ["boot", id] => {
            let id = u128::from_str_radix(id, 16).ok()?;
            Some(Line::Boot(Some(id.to_be_bytes())))
        }
        ["made", topic, index] => Some(Line::Made((topic.parse().ok()?, index.parse().ok()?))),
        ["lasting", bytes] => Some(Line::Lasting(bytes.parse().ok()?)),
        _ => None,
    }
}

/// One shard's additions to a data directory.
pub(super) struct Additions {
    file: RefCell<Option<OpenFile>>,
    /// Raised when the file is forgotten: whoever was at it then says nothing about the next one.
    generation: Cell<u64>,
    /// Not in the file yet, and how many there have been.
    waiting: RefCell<Vec<Key>>,
    asked: Cell<u64>,
    written: Cell<u64>,
    /// One writer at a time: who waits for it is often written along.
    writing: Semaphore,
    /// Somebody is about to sync the new folders.
    settling: Cell<bool>,
    /// It was said already that nothing can be written.
    has_failed: Cell<bool>,
}

#[derive(Clone)]
struct OpenFile {
    file: File,
    end: u64,
}

impl OpenFile {
    async fn write(&mut self, text: String) -> io::Result<()> {
        let bytes = Bytes::from(text);
        let len = bytes.len() as u64;
        let buffers = smallvec![WriteBuf::Bytes(bytes)];
        self.file.write_at(buffers, self.end, Durability::Written).await?;
        self.end += len;
        Ok(())
    }
}

impl Additions {
    pub fn new() -> Rc<Self> {
        Rc::new(Additions {
            file: RefCell::default(),
            generation: Cell::new(0),
            waiting: RefCell::default(),
            asked: Cell::new(0),
            written: Cell::new(0),
            writing: Semaphore::new(1),
            settling: Cell::new(false),
            has_failed: Cell::new(false),
        })
    }

    /// The directory has failed: what comes back may be another file system.
    pub fn forget(&self) {
        self.file.replace(None);
        self.generation.set(self.generation.get() + 1);
    }

    /// The folder of the partition is there: the kernel knows of it when this returns. Where it cannot
    /// be written down, on a disk without a free byte say, the partition is served all the same.
    pub async fn note(self: &Rc<Self>, data_dir: &Path, key: Key) {
        self.waiting.borrow_mut().push(key);
        let mine = self.asked.get() + 1;
        self.asked.set(mine);
        let _turn = self.writing.acquire(1).await;
        if self.written.get() >= mine {
            return;
        }
        let keys = self.waiting.borrow().clone();
        let upto = self.asked.get();
        let mut text = String::new();
        for key in &keys {
            made_line(*key, &mut text);
        }
        let added = self.append(data_dir, text).await;
        self.waiting.borrow_mut().drain(..keys.len());
        self.written.set(upto);
        match added {
            Ok(()) => {
                self.has_failed.set(false);
                self.settle_later(data_dir);
            }
            Err(error) => {
                self.forget();
                if !self.has_failed.replace(true) {
                    warn!("new partitions not noted in {}: {error}", data_dir.display());
                }
            }
        }
    }

    async fn append(&self, dir: &Path, text: String) -> io::Result<()> {
        let generation = self.generation.get();
        let open = self.file.borrow().clone();
        let (mut open, text) = match open {
            Some(open) => (open, text),
            None => return self.begin(dir, &text, generation).await,
        };
        open.write(text).await?;
        self.keep(open, generation)
    }

    /// Begins a file with these lines. One that cannot take them is not left behind: on a full disk
    /// there would be one for each try.
    async fn begin(&self, dir: &Path, text: &str, generation: u64) -> io::Result<()> {
        let path = dir.join(format!("{FILE}-{:016x}", reactor::random_u64()));
        let options = OpenOptions { write: true, create: true, ..OpenOptions::default() };
        let mut whole = String::new();
        boot_line(reactor::boot_id(), &mut whole);
        whole.push_str(text);
        let mut open = OpenFile { file: File::open(&path, options).await?, end: 0 };
        if let Err(error) = open.write(whole).await {
            if let Err(left) = fs::remove_file(&path).await {
                debug!("{} stays: {left}", path.display());
            }
            return Err(error);
        }
        self.keep(open, generation)
    }

    fn keep(&self, open: OpenFile, generation: u64) -> io::Result<()> {
        if generation != self.generation.get() {
            return Err(io::Error::other("the data directory has failed meanwhile"));
        }
        self.file.replace(Some(open));
        Ok(())
    }

    /// Syncs the names of the new folders in a moment, and writes down that it was done.
    fn settle_later(self: &Rc<Self>, data_dir: &Path) {
        if self.settling.replace(true) {
            return;
        }
        let (additions, data_dir) = (self.clone(), data_dir.to_owned());
        reactor::spawn_in(Class::Background, async move {
            reactor::sleep(SETTLE_AFTER).await;
            additions.settling.set(false);
            if let Err(error) = additions.settle(&data_dir).await {
                debug!("new partitions in {} not synced: {error}", data_dir.display());
            }
        })
        .detach();
    }

    async fn settle(&self, data_dir: &Path) -> io::Result<()> {
        let generation = self.generation.get();
        let Some(OpenFile { file, end: upto }) = self.file.borrow().clone() else { return Ok(()) };
        // Before the line that says so, which the kernel may write before those that it speaks of.
        file.sync_data().await?;
        fs::sync_dir(data_dir).await?;
        let _turn = self.writing.acquire(1).await;
        if self.generation.get() != generation {
            return Ok(());
        }
        let mut text = String::new();
        lasting_line(upto, &mut text);
        self.append(data_dir, text).await?;
        let file = self.file.borrow().as_ref().map(|open| open.file.clone());
        match file {
            Some(file) => file.sync_data().await,
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOOT: Option<[u8; 16]> = Some([7; 16]);
    const ADDED: &str = "corelane.partitions-00000000000000ff";

    fn key(byte: u8, index: i32) -> Key {
        (Uuid([byte; 16]), index)
    }

    fn read(text: &str, boot: Option<[u8; 16]>) -> (Vec<Key>, usize) {
        let mut into = BTreeSet::new();
        let refused = decode(ADDED, text.as_bytes(), boot, &mut into);
        (into.into_iter().collect(), refused)
    }

    #[test]
    fn what_is_synced_counts_always_and_the_rest_while_the_machine_runs() {
        let mut text = String::new();
        boot_line(BOOT, &mut text);
        made_line(key(1, 0), &mut text);
        lasting_line(text.len() as u64, &mut text);
        made_line(key(0xfb, i32::MAX), &mut text);
        assert_eq!(read(&text, BOOT), (vec![key(1, 0), key(0xfb, i32::MAX)], 0));
        assert_eq!(read(&text, Some([8; 16])), (vec![key(1, 0)], 0));
        assert_eq!(read(&text, None), (vec![key(1, 0)], 0));
        let mut unknown = String::new();
        boot_line(None, &mut unknown);
        made_line(key(1, 0), &mut unknown);
        assert_eq!(read(&unknown, None), (vec![], 0), "two that are not known are not the same");
    }

    #[test]
    fn a_flip_costs_its_line_and_a_cut_what_comes_behind() {
        let mut text = String::new();
        boot_line(BOOT, &mut text);
        for index in 0..3 {
            made_line(key(1, index), &mut text);
        }
        for at in 0..text.len() {
            let mut flipped = text.clone().into_bytes();
            flipped[at] ^= 0x10;
            let mut into = BTreeSet::new();
            decode(ADDED, &flipped, BOOT, &mut into);
            assert!(into.iter().all(|(id, _)| id.0 == [1; 16]), "byte {at}: {into:?}");
            let of_boot = at <= text.find('\n').unwrap();
            assert!(of_boot || !into.is_empty(), "byte {at}");
            let (cut, refused) = read(&text[..at], BOOT);
            assert!(refused == 0 && cut.iter().all(|(id, _)| id.0 == [1; 16]), "cut at {at}");
        }
    }

    #[test]
    fn what_a_power_cut_left_of_lines_that_were_not_synced_is_no_damage() {
        let mut text = String::new();
        boot_line(BOOT, &mut text);
        made_line(key(1, 0), &mut text);
        let synced = text.len();
        lasting_line(synced as u64, &mut text);
        let unsynced = text.len();
        for index in 1..5 {
            made_line(key(1, index), &mut text);
        }
        let flipped = |at: usize| {
            let mut bytes = text.clone().into_bytes();
            bytes[at] ^= 0x10;
            bytes
        };
        let holed = |from: usize, to: usize| {
            let mut bytes = text.clone().into_bytes();
            bytes[from..to].fill(0);
            bytes
        };
        let other = Some([8; 16]);
        let end = text.len();
        let table = [
            ("a hole to the middle of a line", ADDED, other, holed(unsynced + 9, end - 9), 0),
            ("a hole of whole lines", ADDED, BOOT, holed(unsynced, end - 1), 0),
            ("a hole at the beginning", ADDED, other, holed(0, 40), 1),
            ("a hole in what was synced", ADDED, other, holed(synced - 9, synced - 3), 1),
            ("a hole in what was gathered", FILE, other, holed(unsynced + 9, end - 9), 1),
            ("unsynced and not readable", ADDED, other, flipped(unsynced + 3), 0),
            ("unsynced, but the power has not gone", ADDED, BOOT, flipped(unsynced + 3), 1),
            ("synced", ADDED, other, flipped(synced - 3), 1),
            ("the first line", ADDED, other, flipped(3), 1),
            ("gathered", FILE, other, flipped(unsynced + 3), 1),
        ];
        for (what, name, boot, bytes, damaged) in table {
            assert_eq!(decode(name, &bytes, boot, &mut BTreeSet::new()), damaged, "{what}");
        }
        let mut never_synced = text.into_bytes();
        never_synced.truncate(synced);
        never_synced[..40].fill(0);
        assert_eq!(decode(ADDED, &never_synced, other, &mut BTreeSet::new()), 0);
    }

    const DIR: &str = "/disk";

    /// What the files of additions say, as after another start of the machine, and how many they are.
    async fn lasting() -> (BTreeSet<Key>, usize) {
        let (mut into, mut files) = (BTreeSet::new(), 0);
        for entry in fs::read_dir(Path::new(DIR)).await.unwrap() {
            let bytes = fs::read(&Path::new(DIR).join(&entry.name)).await.unwrap();
            assert_eq!(decode(&entry.name, &bytes, None, &mut into), 0);
            files += 1;
        }
        (into, files)
    }

    fn slow(latency: Duration) {
        let latency = reactor::sim::Delay::exactly(latency);
        reactor::sim::with_faults(|faults| faults.disk.slow.insert(DIR.into(), latency));
    }

    #[test]
    fn a_sync_says_nothing_of_folders_of_a_file_that_came_after_it() {
        let ran = reactor::sim::World::new(1).run(|| async {
            let dir = Path::new(DIR);
            fs::create_dir_all(dir).await.unwrap();
            let additions = Additions::new();
            additions.note(dir, key(1, 0)).await;
            reactor::sleep(SETTLE_AFTER - Duration::from_millis(10)).await;
            slow(Duration::from_secs(1));
            // The sync is on its way.
            reactor::sleep(Duration::from_millis(500)).await;
            additions.forget();
            reactor::sim::with_faults(|faults| faults.disk.slow.clear());
            for index in 1..4 {
                additions.note(dir, key(1, index)).await;
            }
            // Its `lasting` would be there, and the next one not yet.
            reactor::sleep(Duration::from_millis(900)).await;
            assert_eq!(lasting().await, (BTreeSet::new(), 2));
            reactor::sleep(2 * SETTLE_AFTER).await;
            assert_eq!(lasting().await.0, (1..4).map(|index| key(1, index)).collect());
        });
        assert!(ran.finished().is_some());
    }

    #[test]
    fn a_file_that_was_forgotten_while_it_was_written_does_not_come_back() {
        let ran = reactor::sim::World::new(1).run(|| async {
            let dir = Path::new(DIR);
            fs::create_dir_all(dir).await.unwrap();
            let additions = Additions::new();
            slow(Duration::from_secs(1));
            let writing = {
                let additions = additions.clone();
                reactor::spawn(async move { additions.note(Path::new(DIR), key(1, 0)).await })
            };
            reactor::sleep(Duration::from_millis(1_500)).await;
            additions.forget();
            writing.await;
            reactor::sim::with_faults(|faults| faults.disk.slow.clear());
            additions.note(dir, key(1, 1)).await;
            assert_eq!(lasting().await.1, 2, "files");
        });
        assert!(ran.finished().is_some());
    }

    #[test]
    fn a_full_disk_is_not_littered_with_empty_files() {
        let ran = reactor::sim::World::new(1).run(|| async {
            let dir = Path::new(DIR);
            fs::create_dir_all(dir).await.unwrap();
            let additions = Additions::new();
            reactor::sim::with_faults(|faults| faults.disk.full.insert(DIR.into()));
            for index in 0..3 {
                additions.note(dir, key(1, index)).await;
            }
            assert_eq!(lasting().await.1, 0, "files");
            reactor::sim::with_faults(|faults| faults.disk.full.clear());
            additions.note(dir, key(1, 3)).await;
            assert_eq!(lasting().await.1, 1, "files");
        });
        assert!(ran.finished().is_some());
    }

    #[test]
    fn names() {
        let table = [
            ("corelane.partitions", true),
            ("corelane.partitions-00000000000000ff", true),
            ("corelane.partitions.tmp", false),
            ("corelane.partition", false),
            ("corelane.reserve", false),
        ];
        for (name, is) in table {
            assert_eq!(is_file(name), is, "{name}");
        }
    }
}
