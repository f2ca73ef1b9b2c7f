//! Generates the message types and the table of APIs from `schema/`.

mod apis;
mod emit;
mod fields;
mod names;
mod schema;
mod show;

use std::error::Error;
use std::path::{Path, PathBuf};
use std::{env, fs};

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=schema");
    println!("cargo::rerun-if-changed=build");
    let messages = read_tables(Path::new("schema"))?;
    let out = PathBuf::from(env::var("OUT_DIR")?);
    fs::write(out.join("messages.rs"), emit::messages(&messages)?)?;
    fs::write(out.join("apis.rs"), apis::apis(&messages)?)?;
    Ok(())
}

fn read_tables(folder: &Path) -> Result<Vec<schema::Message>, Box<dyn Error>> {
    let entries = fs::read_dir(folder)?.collect::<Result<Vec<_>, _>>()?;
    let mut paths: Vec<PathBuf> = entries.into_iter().map(|entry| entry.path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "txt"));
    paths.sort();
    let mut messages = Vec::new();
    for path in paths {
        let text = fs::read_to_string(&path)?;
        messages.extend(schema::parse(&text).map_err(|e| format!("{}, {e}", path.display()))?);
    }
    Ok(messages)
}
