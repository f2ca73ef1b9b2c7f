//! Who holds a file lock, asked without taking it: from the kernel's list of locks.
//!
//! To take a lock for a moment would keep a broker that starts right then from starting.

use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

const LOCKS: &str = "/proc/locks";

/// Whether any process holds a lock on the file. `false` too where the kernel does not say: a
/// process of another container may hold one unseen.
pub fn is_locked(path: &Path) -> io::Result<bool> {
    let file = match std::fs::metadata(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(error),
    };
    let locks = std::fs::read_to_string(LOCKS).unwrap_or_default();
    Ok(names_inode(&locks, file.ino()))
}

/// Lines are `1: FLOCK ADVISORY WRITE 1234 fd:01:5678 0 EOF`; the number behind the last colon is
/// the inode. Device numbers are left out: they differ from those of `stat` on some file systems.
fn names_inode(locks: &str, inode: u64) -> bool {
    let waits = |line: &&str| !line.contains("->");
    let of = |line: &str| line.split_whitespace().nth(5)?.rsplit(':').next()?.parse::<u64>().ok();
    locks.lines().filter(waits).any(|line| of(line) == Some(inode))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_is_found_by_its_inode() {
        let locks = "1: POSIX  ADVISORY  WRITE 11 00:2f:77 0 EOF\n\
                     2: FLOCK  ADVISORY  WRITE 12 fd:01:5678 0 EOF\n\
                     2: -> FLOCK  ADVISORY  WRITE 13 fd:01:99 0 EOF\n";
        assert!(names_inode(locks, 77) && names_inode(locks, 5678));
        assert!(!names_inode(locks, 99) && !names_inode(locks, 1));
        assert!(!is_locked(Path::new("/nothing/is/here")).unwrap());
    }
}
