//! Writes the Rust source of `ApiKey` and its table.

use std::fmt::Write;

use crate::schema::Message;

/// Needs `struct Api` beside it, see `src/api.rs`.
pub fn apis(all: &[Message]) -> Result<String, String> {
    let (mut names, mut rows) = (String::new(), String::new());
    let (mut codes, mut list) = (String::new(), String::new());
    for request in all.iter().filter(|m| m.kind == "request" && !m.versions.is_empty()) {
        let key = request.key.ok_or_else(|| format!("{} has no api key", request.name))?;
        let name = request.name.strip_suffix("Request").unwrap_or(&request.name);
        let answers = |m: &&Message| m.kind == "response" && m.key == Some(key);
        let response = all.iter().find(answers);
        let response = response.ok_or_else(|| format!("{} has no response", request.name))?;
        if response.versions != request.versions {
            return Err(format!("{} and its response differ in versions", request.name));
        }
        let flexible = |m: &Message| match m.flexible.intersect(m.versions).is_empty() {
            true => "None".to_string(),
            false => format!("Some({})", m.flexible.first),
        };
        writeln!(names, "{name} = {key},").ok();
        writeln!(list, "ApiKey::{name},").ok();
        writeln!(codes, "{key} => ApiKey::{name},").ok();
        writeln!(
            rows,
            "ApiKey::{name} => &Api {{ name: \"{name}\", first: {}, last: {}, unstable: {}, \
             request_flexible: {}, response_flexible: {} }},",
            request.versions.first,
            request.versions.last,
            request.unstable,
            flexible(request),
            flexible(response),
        )
        .ok();
    }
    Ok(format!(
        "#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]\n#[repr(i16)]\n\
         pub enum ApiKey {{\n{names}}}\n\
         impl ApiKey {{\n/// In the order of their codes.\n\
         pub const ALL: &'static [ApiKey] = &[\n{list}];\n\
         pub fn from_code(code: i16) -> Option<Self> {{\nSome(match code {{\n{codes}\
         _ => return None,\n}})\n}}\n\
         fn api(self) -> &'static Api {{\nmatch self {{\n{rows}}}\n}}\n}}\n"
    ))
}
