//! Where things are in this repository, and how its binary is built.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::{Error, Result};

/// The repository's root folder.
pub fn root() -> PathBuf {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
    tests.parent().unwrap_or(tests).to_path_buf()
}

/// A new folder for one broker, on the repository's own file system: the system's temporary folder
/// may be a memory file system that has no direct I/O. `CORELANE_RUN_DIR` names another place,
/// which whoever set it can clear when a run is ended by force.
pub fn temporary_folder(prefix: &str) -> Result<tempfile::TempDir> {
    let run = match std::env::var_os("CORELANE_RUN_DIR") {
        Some(folder) => PathBuf::from(folder),
        None => root().join("target/run"),
    };
    std::fs::create_dir_all(&run).map_err(Error::io(format!("create {}", run.display())))?;
    tempfile::Builder::new()
        .prefix(prefix)
        .tempdir_in(&run)
        .map_err(Error::io(format!("create a folder in {}", run.display())))
}

/// Builds the `corelane` binary in the profile of this harness and gives its path.
/// `CORELANE_BIN` names another binary to use as it is.
pub fn corelane_binary() -> Result<PathBuf> {
    if let Some(path) = std::env::var_os("CORELANE_BIN") {
        return Ok(PathBuf::from(path));
    }
    let (profile, folder) =
        if cfg!(debug_assertions) { ("dev", "debug") } else { ("release", "release") };
    let target = std::env::var_os("CARGO_TARGET_DIR")
        .map_or_else(|| root().join("target"), |path| root().join(path));
    let mut build = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    build.current_dir(root()).args(["build", "--quiet", "--bin", "corelane", "--profile", profile]);
    run_quietly(&mut build)?;
    Ok(target.join(folder).join("corelane"))
}

/// Runs a command to its end; gives what it printed on stdout, or its stderr as the error. Exit
/// code 3 is this repository's sign for a missing toolchain.
pub fn run_quietly(command: &mut Command) -> Result<String> {
    let name = format!("{command:?}");
    let output = command.stdin(Stdio::null()).output().map_err(Error::io(format!("run {name}")))?;
    let stderr = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    match output.status.code() {
        Some(0) => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        Some(3) => Err(Error::Missing(stderr)),
        _ => Err(Error::Command { command: name, status: output.status, output: stderr }),
    }
}
