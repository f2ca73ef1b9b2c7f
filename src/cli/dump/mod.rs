//! `corelane dump`: what is in the files of a data directory, and whether it fits together.
//!
//! Owns the way from a path to what is printed. Reads files only, in bounded pieces, never changes
//! or locks one, and needs no broker; it may run beside one. Formats are read by the crates that
//! write them.

mod internal;
mod line;
mod segment;
mod small;
pub mod verify;

use std::io;
use std::path::{Path, PathBuf};

use log::inspect::{FileName, OWN_CHECKPOINT};
use reactor::fs;

use super::args::DumpArgs;
use super::print;
use crate::error::{Error, Result, plain, warn};
use line::Line;

/// Output gathered before it is written.
const OUTPUT_BYTES: usize = 64 << 10;
const LOCK_FILE: &str = ".lock";

/// Where lines go.
pub struct Output {
    json: bool,
    buffer: Vec<u8>,
}

impl Output {
    pub fn new(json: bool) -> Self {
        Output { json, buffer: Vec::new() }
    }

    pub async fn line(&mut self, line: &Line) -> Result<()> {
        match self.json {
            true => line.write_json(&mut self.buffer),
            false => line.write_text(&mut self.buffer),
        }
        if self.buffer.len() >= OUTPUT_BYTES { self.flush().await } else { Ok(()) }
    }

    pub async fn flush(&mut self) -> Result<()> {
        print(std::mem::take(&mut self.buffer)).await
    }
}

pub async fn run(args: DumpArgs) -> Result<()> {
    for path in &args.paths {
        if let Some(dir) = in_use(path) {
            warn(format_args!(
                "{} is in use by a running broker: what it writes meanwhile may be seen half",
                dir.display()
            ));
        }
    }
    let mut output = Output::new(args.json);
    let ended = match args.verify {
        true => verify::run(&args.paths, &mut output).await,
        false => dump_all(&args, &mut output).await,
    };
    output.flush().await?;
    ended
}

async fn dump_all(args: &DumpArgs, output: &mut Output) -> Result<()> {
    for path in &args.paths {
        let kind = fs::metadata(path).await.map_err(|error| unreadable(path, &error))?;
        let mut files = vec![path.clone()];
        if kind.is_dir {
            files = files_below(path).await?;
        }
        for file in files {
            dump_file(args, &file, output).await?;
        }
    }
    Ok(())
}

/// The files of a data or partition directory, those of each partition together.
async fn files_below(dir: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    let mut folders = Vec::new();
    for entry in list(dir).await? {
        let to = if entry.is_dir { &mut folders } else { &mut files };
        to.push(dir.join(entry.name));
    }
    for folder in folders {
        let inside = list(&folder).await?;
        files.extend(inside.into_iter().filter(|e| !e.is_dir).map(|e| folder.join(e.name)));
    }
    Ok(files)
}

pub async fn list(dir: &Path) -> Result<Vec<fs::DirEntry>> {
    fs::read_dir(dir).await.map_err(|error| unreadable(dir, &error))
}

async fn dump_file(args: &DumpArgs, path: &Path, output: &mut Output) -> Result<()> {
    let name = path.file_name().map(|name| name.to_string_lossy()).unwrap_or_default();
    let mut head = Line::titled("file", format!("Dumping {}", path.display()));
    head.text("file", path.display());
    output.line(&head).await?;
    let result = match FileName::of(&name) {
        FileName::Segment(base) => segment::dump(path, Some(base), args.records, output).await,
        FileName::OffsetIndex(base) => small::offset_index(path, base, output).await,
        FileName::TimeIndex(base) => small::time_index(path, base, output).await,
        FileName::TxnIndex(base) => small::txn_index(path, base, output).await,
        FileName::Snapshot(_) => small::snapshot(path, output).await,
        FileName::Leftover | FileName::Other if is_metadata_snapshot(&name) => {
            segment::dump(path, None, args.records, output).await
        }
        FileName::Leftover | FileName::Other => small::text_file(path, &name, output).await,
    };
    result.map_err(|error| match error {
        Failed::Read(error) => unreadable(path, &error),
        Failed::Output(error) => error,
    })
}

/// Files of batches that are no segments: snapshots of cluster metadata.
fn is_metadata_snapshot(name: &str) -> bool {
    name.ends_with(".checkpoint") && name != OWN_CHECKPOINT
}

/// Why the dump of a file ended early.
enum Failed {
    Read(io::Error),
    Output(Error),
}

impl From<io::Error> for Failed {
    fn from(error: io::Error) -> Self {
        Failed::Read(error)
    }
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        Failed::Output(error)
    }
}

pub fn unreadable(path: &Path, error: &io::Error) -> Error {
    let what = format!("cannot read {}: {}", path.display(), plain(error));
    let remedy = "name a file, a partition's folder or a data directory that this user may read";
    match error.kind() {
        io::ErrorKind::NotFound => Error::config(what, remedy),
        _ => Error::machine(what, remedy),
    }
}

/// The data directory of a path, if a process holds its lock.
pub fn in_use(path: &Path) -> Option<PathBuf> {
    let around = std::iter::successors(Some(path), |path| path.parent()).take(3);
    let mut locked =
        around.filter(|dir| hardware::is_locked(&dir.join(LOCK_FILE)).unwrap_or(false));
    locked.next().map(Path::to_path_buf)
}
