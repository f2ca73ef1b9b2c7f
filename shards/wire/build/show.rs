//! The code that tells what a structure holds, for messages that are kept in files: tools print
//! them.

use std::fmt::Write;

use crate::fields::{Condition, condition};
use crate::names;
use crate::schema::{Field, Versions};

/// Whether messages of this kind can be shown; requests and responses are not, which keeps the
/// crate quick to compile.
pub fn is_shown(kind: &str) -> bool {
    !matches!(kind, "request" | "response" | "header")
}

pub fn show(full: &str, fields: &[Field], versions: Versions) -> String {
    let mut pushes = String::new();
    for field in fields {
        let (name, label) = (names::field(&field.name), names::camel(&field.name));
        let push = format!("fields.push((\"{label}\", c::Show::show(&self.{name}, v)));");
        match condition(field.versions, versions) {
            Condition::Always => writeln!(pushes, "{push}"),
            Condition::Never => Ok(()),
            Condition::If(test) => writeln!(pushes, "if {test} {{ {push} }}"),
        }
        .ok();
    }
    let mutable = if pushes.is_empty() { "" } else { "mut " };
    format!(
        "impl<'a> c::Show for {full} {{\nfn show(&self, v: c::Version) -> c::Shown {{\n\
         let {mutable}fields = Vec::new();\n{pushes}c::Shown::Fields(fields)\n}}\n}}\n"
    )
}
