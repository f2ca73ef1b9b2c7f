//! What a data directory's file system can do: kind, space, writable, direct I/O.
//!
//! A directory that does not exist yet is judged by its nearest existing parent, so nothing is
//! created before every check has passed. The probe file has no name (`O_TMPFILE`) or is unlinked
//! at once, so a crash in between leaves nothing behind.

use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags};

/// The block that direct I/O is tried with; the log writes in multiples of it.
const BLOCK: usize = 4096;

/// Whether unbuffered writes work.
#[derive(Debug)]
pub enum DirectIo {
    Works,
    /// The file system refuses O_DIRECT or a 4 KiB aligned write through it.
    Refused,
    /// Could not be tried: not writable, or no space for one block.
    Untried(io::Error),
}

/// Findings about one directory.
#[derive(Debug)]
pub struct Directory {
    pub path: PathBuf,
    /// The directory the findings are about: `path`, or its nearest existing parent.
    pub judged: PathBuf,
    /// Name of the file system as in /proc/mounts where known, else its magic number.
    pub file_system: String,
    pub total_bytes: u64,
    /// For a process without privilege.
    pub free_bytes: u64,
    /// Why nothing can be created there, if so. A full file system still counts as writable.
    pub unwritable: Option<io::Error>,
    pub direct_io: DirectIo,
}

impl Directory {
    pub fn exists(&self) -> bool {
        self.path == self.judged
    }
}

/// Looks at `path`; an error means that not even a parent of it can be looked at.
pub fn inspect_directory(path: &Path) -> io::Result<Directory> {
    let judged = nearest_existing(path)?;
    let stat = rustix::fs::statvfs(&judged)?;
    let kind = rustix::fs::statfs(&judged)?.f_type;
    let probe = create_probe(&judged);
    let (unwritable, direct_io) = match probe {
        Ok(file) => (None, try_direct(&file)),
        Err(error) if is_full(&error) => (None, DirectIo::Untried(error)),
        Err(error) if error.kind() == ErrorKind::InvalidInput => (None, DirectIo::Refused),
        Err(error) => {
            let copy = io::Error::from(error.kind());
            (Some(error), DirectIo::Untried(copy))
        }
    };
    Ok(Directory {
        path: path.to_owned(),
        judged,
        file_system: file_system_name(kind as u64),
        total_bytes: stat.f_blocks.saturating_mul(stat.f_frsize),
        free_bytes: stat.f_bavail.saturating_mul(stat.f_frsize),
        unwritable,
        direct_io,
    })
}

/// What is looked at for `path`: the directory, or its nearest existing parent, without links.
pub fn place_of(path: &Path) -> io::Result<PathBuf> {
    std::fs::canonicalize(nearest_existing(path)?)
}

fn nearest_existing(path: &Path) -> io::Result<PathBuf> {
    let mut current = path;
    loop {
        let looked_at = if current.as_os_str().is_empty() { Path::new(".") } else { current };
        match std::fs::metadata(looked_at) {
            Ok(found) if found.is_dir() => return Ok(looked_at.to_owned()),
            Ok(_) => return Err(io::Error::from(ErrorKind::NotADirectory)),
            Err(error) if error.kind() == ErrorKind::NotFound => {
                current = current.parent().ok_or(error)?;
            }
            Err(error) => return Err(error),
        }
    }
}

/// A nameless file opened for direct I/O. InvalidInput means: no O_DIRECT here.
fn create_probe(directory: &Path) -> io::Result<OwnedFd> {
    let mode = Mode::RUSR | Mode::WUSR;
    let direct = OFlags::RDWR | OFlags::CLOEXEC | OFlags::DIRECT;
    match rustix::fs::openat(CWD, directory, direct | OFlags::TMPFILE, mode) {
        Ok(file) => return Ok(file),
        // The file system (NFS, old overlayfs) or kernel has no nameless files: use a named one.
        Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::ISDIR) => {}
        Err(errno) => return Err(errno.into()),
    }
    let name = directory.join(format!(".corelane-probe-{}", std::process::id()));
    let file = rustix::fs::openat(CWD, &name, direct | OFlags::CREATE | OFlags::EXCL, mode);
    // O_CREAT may have made the file even when O_DIRECT was then refused.
    match std::fs::remove_file(&name) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    Ok(file?)
}

fn try_direct(file: &OwnedFd) -> DirectIo {
    let memory = vec![0u8; 2 * BLOCK];
    let shift = memory.as_ptr().align_offset(BLOCK);
    let Some(block) = memory.get(shift..shift + BLOCK) else {
        return DirectIo::Untried(io::Error::from(ErrorKind::OutOfMemory));
    };
    match rustix::io::pwrite(file, block, 0) {
        Ok(BLOCK) => DirectIo::Works,
        Ok(_) => DirectIo::Refused,
        Err(rustix::io::Errno::INVAL) => DirectIo::Refused,
        Err(errno) => DirectIo::Untried(errno.into()),
    }
}

fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded)
}

/// Magic numbers of statfs(2).
fn file_system_name(magic: u64) -> String {
    let name = match magic & 0xffff_ffff {
        0xef53 => "ext4",
        0x5846_5342 => "xfs",
        0x9123_683e => "btrfs",
        0x2fc1_2fc1 => "zfs",
        0xf2f5_2010 => "f2fs",
        0xca45_1a4e => "bcachefs",
        0x0102_1994 => "tmpfs",
        0x8584_58f6 => "ramfs",
        0x794c_7630 => "overlay",
        0x6969 => "nfs",
        0xff53_4d42 | 0xfe53_4d42 => "cifs",
        0x6573_5546 => "fuse",
        0x0102_1997 => "9p",
        other => return format!("type 0x{other:x}"),
    };
    name.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_directory_is_judged_by_its_parent_and_not_created() {
        let root = tempfile::tempdir().unwrap();
        let wanted = root.path().join("a/b/c");
        let found = inspect_directory(&wanted).unwrap();
        assert_eq!(found.judged, root.path());
        assert!(!found.exists());
        assert!(found.unwritable.is_none());
        assert!(found.total_bytes >= found.free_bytes && found.total_bytes > 0);
        assert!(!root.path().join("a").exists());
        assert_eq!(std::fs::read_dir(root.path()).unwrap().count(), 0, "the probe left a file");
    }

    #[test]
    fn a_file_in_the_way_is_named_as_such() {
        let root = tempfile::tempdir().unwrap();
        let file = root.path().join("file");
        std::fs::write(&file, "x").unwrap();
        let error = inspect_directory(&file).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotADirectory);
    }

    #[test]
    fn a_place_where_nothing_can_be_made_is_unwritable() {
        // /proc refuses new files even to root, unlike a directory with mode 0555.
        let found = inspect_directory(Path::new("/proc/sys")).unwrap();
        assert!(found.unwritable.is_some());
        assert!(matches!(found.direct_io, DirectIo::Untried(_)));
    }

    #[test]
    fn a_relative_name_is_judged_by_the_working_directory() {
        let found = inspect_directory(Path::new("no-such-directory-here")).unwrap();
        assert_eq!(found.judged, Path::new("."));
    }

    #[test]
    fn file_system_names() {
        assert_eq!(file_system_name(0xef53), "ext4");
        assert_eq!(file_system_name(0x5846_5342), "xfs");
        assert_eq!(file_system_name(0x1234), "type 0x1234");
    }
}
