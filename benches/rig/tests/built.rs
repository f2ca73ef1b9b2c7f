//! What has the rig built anew, so that its reports name the right commit.

#![allow(clippy::unwrap_used, reason = "a test ends where something is missing")]

#[path = "../build.rs"]
#[allow(dead_code, reason = "the test calls one part of it")]
mod build;

use std::path::Path;

#[test]
fn an_edit_of_any_source_is_seen() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    if !root.join("../../.git").exists() {
        // Built from an archive: there is no commit to name either.
        return;
    }
    let sources = build::sources().unwrap();
    for name in
        ["src/lib.rs", "../../Cargo.lock", "../../src/main.rs", "../../shards/log/Cargo.toml"]
    {
        assert!(sources.iter().any(|source| source == name), "{name} is not among them");
    }
    let prose = |name: &&String| name.ends_with(".md") || name.contains("benches/results/");
    assert_eq!(sources.iter().find(prose), None);
}
