//! The one error type of this crate; every message names the thing and, where there is one, the remedy.

use std::path::{Path, PathBuf};

pub type Result<T> = std::result::Result<T, Error>;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot {what} {}: {}", path.display(), plain(source))]
    Io { what: &'static str, path: PathBuf, source: std::io::Error },
    #[error("{}: {free} free, and at most an eighth of it may be used; that is too little to measure", path.display())]
    TooFull { path: PathBuf, free: String },
    #[error("{} is not there; make it first, on the disk that is to be measured", .0.display())]
    Missing(PathBuf),
    #[error("no ring: {0}; `corelane serve --check` says what is missing")]
    Ring(std::io::Error),
    #[error("the thread that measures ended by itself")]
    Thread,
    #[error("cannot emulate: {0}")]
    Emulation(String),
    #[error("the broker {0}")]
    Broker(String),
    #[error(transparent)]
    Rig(#[from] rig::error::Error),
    #[error(transparent)]
    Profile(#[from] hardware::ProfileError),
    #[error("{0}")]
    Usage(String),
    #[error("stopped by a signal")]
    Stopped,
}

/// In words, without the number that the standard library appends.
fn plain(error: &std::io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or(&text).to_lowercase()
}

impl Error {
    pub(crate) fn io(what: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.to_owned();
        move |source| Error::Io { what, path, source }
    }
}
