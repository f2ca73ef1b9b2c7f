//! Subscriptions by regular expression, in RE2's syntax and in linear time.

use regex::RegexBuilder;
use wire::ErrorCode;

use super::Resolved;
use crate::Name;
use crate::context::Context;
use crate::error::Refusal;

/// Most bytes a compiled expression may take.
const COMPILED_BYTES_MAX: usize = 1 << 20;
/// A group's expressions are resolved again at most this often, however often topics change.
pub(crate) const REFRESH_MIN_MS: i64 = 10_000;

/// A checked expression, which matches whole names.
pub(crate) fn compile(text: &str) -> Result<regex::Regex, Refusal> {
    let whole = format!(r"\A(?:{})\z", without_quotes(text));
    RegexBuilder::new(&whole).size_limit(COMPILED_BYTES_MAX).build().map_err(|error| {
        let reason = match error {
            regex::Error::CompiledTooBig(_) => String::from("expression is too large"),
            other => other.to_string().lines().last().unwrap_or_default().to_string(),
        };
        Refusal::new(
            ErrorCode::InvalidRegularExpression,
            format!("SubscribedTopicRegex `{text}` is not a valid regular expression: {reason}."),
        )
    })
}

/// RE2 has `\Q...\E` for text that is meant as it stands; the crate has not.
fn without_quotes(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('\\') {
        let (before, escape) = rest.split_at(at);
        plain.push_str(before);
        if let Some(quoted) = escape.strip_prefix(r"\Q") {
            let end = quoted.find(r"\E").unwrap_or(quoted.len());
            plain.push_str(&regex::escape(&quoted[..end]));
            rest = quoted[end..].strip_prefix(r"\E").unwrap_or_default();
        } else {
            let pair = escape.char_indices().nth(2).map_or(escape.len(), |(at, _)| at);
            plain.push_str(&escape[..pair]);
            rest = &escape[pair..];
        }
    }
    plain.push_str(rest);
    plain
}

/// The topics that an expression stands for now.
pub(crate) fn resolve(text: &str, ctx: &Context<'_>) -> Result<Resolved, Refusal> {
    let regex = compile(text)?;
    let mut resolved =
        Resolved { version: ctx.topics.version(), resolved_ms: ctx.now_ms, ..Default::default() };
    ctx.topics.each_name(&mut |name| {
        if regex.is_match(name) {
            resolved.topics.insert(Name::from(name));
        }
    });
    Ok(resolved)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_names_match_in_re2_syntax() {
        let table = "
            foo.*        => foo yes
            foo.*        => foobar yes
            foo.*        => afoo no
            foo|bar      => bar yes
            foo|bar      => foobar no
            (?i)FOO      => foo yes
            \\Qa.b\\E.*  => a.bc yes
            \\Qa.b\\E.*  => axbc no
            \\Qa.b       => a.b yes
            a\\.b        => a.b yes
            \\d+         => 123 yes
            \\pL+        => abc yes
            [[:alpha:]]+ => abc yes
        ";
        for line in table.lines().map(str::trim).filter(|line| !line.is_empty()) {
            let (text, rest) = line.split_once(" => ").unwrap();
            let (name, matches) = rest.split_once(' ').unwrap();
            let regex = compile(text.trim()).unwrap();
            assert_eq!(regex.is_match(name), matches == "yes", "{line}");
        }
    }

    #[test]
    fn what_is_no_expression_is_refused() {
        for text in ["(", "a{2,1}", "[z-a]", r"(?<=a)b", r"\1", "((a{100}){100}){100}"] {
            let refusal = compile(text).unwrap_err();
            assert_eq!(refusal.code, ErrorCode::InvalidRegularExpression, "{text}");
        }
    }
}
