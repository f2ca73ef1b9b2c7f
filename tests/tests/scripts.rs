//! What `scripts/` say where they should refuse or fail. Nothing is built: a stand-in plays cargo.

#![allow(clippy::unwrap_used, reason = "a test ends where something is missing")]

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::PathBuf;
use std::process::{Command, Output};

use corelane_tests::repository;

/// What the scripts call beside the programs that a test plays.
const TOOLS: &[&str] =
    &["awk", "bash", "cat", "cut", "dirname", "grep", "mktemp", "rm", "sed", "tail", "tee"];

/// Runs a script that finds these programs and `TOOLS`, nothing else.
fn script(name: &str, arguments: &[&str], programs: &[(&str, &str)], ci: bool) -> Output {
    let folder = tempfile::tempdir().unwrap();
    for tool in TOOLS {
        symlink(found(tool), folder.path().join(tool)).unwrap();
    }
    for (name, text) in programs {
        let file = folder.path().join(name);
        fs::write(&file, format!("#!/bin/sh\n{text}\n")).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
    }
    Command::new(repository::root().join("scripts").join(name))
        .args(arguments)
        .env("PATH", folder.path())
        .env("CI", if ci { "true" } else { "" })
        .env_remove("CORELANE_BROWSER")
        .output()
        .unwrap()
}

fn found(tool: &str) -> PathBuf {
    let path = std::env::var_os("PATH").unwrap();
    let files = std::env::split_paths(&path).map(|folder| folder.join(tool));
    files.into_iter().find(|file| file.exists()).unwrap_or_else(|| panic!("no {tool}"))
}

fn said(output: &Output) -> String {
    let both = [output.stdout.as_slice(), output.stderr.as_slice()].concat();
    String::from_utf8(both).unwrap()
}

/// Every test passes; in the target of the given name none is there.
fn cargo(empty: &str) -> String {
    format!(
        "count=3\ncase \"$*\" in *'{empty}'*) count=0 ;; esac\ncase \"$*\" in test*) echo \"test result: ok. \
         $count passed; 0 failed; 0 ignored\" ;; esac"
    )
}

#[test]
fn a_filter_that_matches_nothing_is_a_failure() {
    let green = script("test", &[], &[("cargo", &cargo("nowhere"))], false);
    assert!(green.status.success(), "{}", said(&green));
    for target in ["--test process", "--test conformance", "--workspace"] {
        let output = script("test", &[], &[("cargo", &cargo(target))], false);
        let said = said(&output);
        assert_eq!(output.status.code(), Some(1), "{target}: {said}");
        assert!(said.contains("ran no test") && said.contains(", 1 failed"), "{target}: {said}");
    }
}

#[test]
fn the_second_backend_is_linted_too() {
    let strict = "case \"$*\" in clippy*glommio*) echo 'error: a lint' ; exit 101 ;; esac";
    let output = script("test", &[], &[("cargo", strict)], false);
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
}

#[test]
fn a_browser_that_cannot_be_installed_is_said() {
    let cargo = cargo("nowhere");
    let programs = [("cargo", cargo.as_str()), ("id", "echo 0"), ("apt-get", "exit 100")];
    let output = script("test", &[], &programs, true);
    assert!(said(&output).contains("could not be installed (100)"), "{}", said(&output));
}

#[test]
fn what_is_not_there_to_compare_is_refused() {
    let output = script("bench-backends", &["--only", "typo"], &[("cargo", "exit 9")], false);
    assert_eq!(output.status.code(), Some(2), "{}", said(&output));
    assert!(said(&output).contains("--only typo?"), "{}", said(&output));
}
