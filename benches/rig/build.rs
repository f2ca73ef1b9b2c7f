//! Tells the rig the commit it was built from, for its reports. Only where the build is optimised:
//! no other build's figures are worth a report, and every commit would have it built anew.

use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-env=RIG_COMMIT={}", commit().as_deref().unwrap_or("unknown"));
}

fn commit() -> Option<String> {
    if std::env::var("PROFILE").ok()? != "release" {
        return None;
    }
    // What moves with HEAD, in a linked worktree too.
    for name in ["HEAD", "logs/HEAD"] {
        println!("cargo::rerun-if-changed={}", git(&["rev-parse", "--git-path", name])?);
    }
    git(&["describe", "--always", "--dirty", "--abbrev=10", "--exclude=*"])
}

fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    (output.status.success() && !text.is_empty()).then_some(text)
}
