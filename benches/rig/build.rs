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
    for file in sources()? {
        println!("cargo::rerun-if-changed={file}");
    }
    git(&["describe", "--always", "--dirty", "--abbrev=10", "--exclude=*"])
}

/// What is tracked and not prose: an edit without a commit makes the build a dirty one.
pub fn sources() -> Option<Vec<String>> {
    let but = [":(top,exclude)*.md", ":(top,exclude)benches/results", ":(top,exclude)docs"];
    let names = git(&[&["ls-files", "-z", ":/"][..], &but].concat())?;
    Some(names.split('\0').filter(|name| !name.is_empty()).map(str::to_owned).collect())
}

fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    (output.status.success() && !text.is_empty()).then_some(text)
}
