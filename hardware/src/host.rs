//! The kernel's files: `/proc`, `/sys` and the like, read and set below a root.
//!
//! Owns the only way in which the checks of a host touch it, so that tests can give them another
//! machine. Never: reads more than [`READ_BYTES_MAX`] of a file, leaves its root.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};

/// More than any file of the kernel's that is looked at here.
const READ_BYTES_MAX: u64 = 4 << 20;
/// Names listed of a folder: as many as there may be processes.
const NAMES_MAX: usize = 1 << 20;

/// A machine as its kernel shows it. Paths are absolute, as on that machine.
pub trait Host {
    /// The file's text, without white space around it.
    fn read(&self, path: &str) -> io::Result<String>;
    /// Gives a file that exists already a new content, in one write.
    fn set(&self, path: &str, text: &str) -> io::Result<()>;
    /// The names in a folder, sorted.
    fn list(&self, path: &str) -> io::Result<Vec<String>>;
    /// The path behind all links.
    fn resolve(&self, path: &str) -> io::Result<String>;
}

/// The machine below a folder; `/` is the one this process runs on.
#[derive(Debug, Clone)]
pub struct Rooted(PathBuf);

impl Rooted {
    pub fn here() -> Self {
        Rooted(PathBuf::from("/"))
    }

    pub fn at(root: impl Into<PathBuf>) -> Self {
        Rooted(root.into())
    }

    fn below(&self, path: &str) -> PathBuf {
        self.0.join(path.trim_start_matches('/'))
    }
}

impl Host for Rooted {
    fn read(&self, path: &str) -> io::Result<String> {
        let mut bytes = Vec::new();
        File::open(self.below(path))?.take(READ_BYTES_MAX).read_to_end(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).trim().to_owned())
    }

    fn set(&self, path: &str, text: &str) -> io::Result<()> {
        let mut file =
            std::fs::OpenOptions::new().write(true).truncate(true).open(self.below(path))?;
        // The kernel takes a value whole or not at all.
        file.write_all(text.as_bytes())
    }

    fn list(&self, path: &str) -> io::Result<Vec<String>> {
        let entries = std::fs::read_dir(self.below(path))?.take(NAMES_MAX);
        let names = entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
        let mut names = names.collect::<io::Result<Vec<_>>>()?;
        names.sort();
        Ok(names)
    }

    fn resolve(&self, path: &str) -> io::Result<String> {
        let root = std::fs::canonicalize(&self.0)?;
        let found = std::fs::canonicalize(self.below(path))?;
        let inside =
            found.strip_prefix(&root).map_err(|_| io::Error::from(io::ErrorKind::NotFound))?;
        Ok(Path::new("/").join(inside).to_string_lossy().into_owned())
    }
}

/// A list of CPUs or nodes as the kernel writes it: `0-3,8,10-11`. `None` if it is not one.
pub(crate) fn parse_list(text: &str) -> Option<Vec<usize>> {
    const NUMBER_MAX: usize = 1 << 16;
    let mut numbers = Vec::new();
    for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        if last > NUMBER_MAX || first > last {
            return None;
        }
        numbers.extend(first..=last);
    }
    Some(numbers)
}

/// The opposite of [`parse_list`], for a sorted list.
pub(crate) fn format_list(numbers: &[usize]) -> String {
    let mut runs: Vec<(usize, usize)> = Vec::new();
    for &number in numbers {
        match runs.last_mut() {
            Some((_, last)) if *last + 1 == number => *last = number,
            _ => runs.push((number, number)),
        }
    }
    let text = |&(first, last): &(usize, usize)| match first == last {
        true => first.to_string(),
        false => format!("{first}-{last}"),
    };
    runs.iter().map(text).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_cpus() {
        assert_eq!(parse_list("0-2,5"), Some(vec![0, 1, 2, 5]));
        assert_eq!(parse_list(""), Some(vec![]));
        for nonsense in ["x", "3-1", "0-99999999999", "1-"] {
            assert_eq!(parse_list(nonsense), None, "{nonsense}");
        }
        assert_eq!(format_list(&[0, 1, 2, 5, 7, 8]), "0-2,5,7-8");
        assert_eq!(format_list(&[]), "");
    }

    #[test]
    fn a_host_below_a_folder_is_read_set_and_not_left() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(root.path().join("sys/a")).unwrap();
        std::fs::write(root.path().join("sys/a/value"), " 7\n").unwrap();
        std::os::unix::fs::symlink("a", root.path().join("sys/b")).unwrap();
        std::os::unix::fs::symlink("/etc", root.path().join("out")).unwrap();
        let host = Rooted::at(root.path());
        assert_eq!(host.read("/sys/b/value").unwrap(), "7");
        assert_eq!(host.resolve("/sys/b").unwrap(), "/sys/a");
        assert!(host.resolve("/out").is_err());
        host.set("/sys/a/value", "8").unwrap();
        assert_eq!(host.read("/sys/a/value").unwrap(), "8");
        // A file that the kernel does not have is not made.
        assert!(host.set("/sys/a/other", "8").is_err());
        assert_eq!(host.list("/sys").unwrap(), ["a", "b"]);
    }
}
