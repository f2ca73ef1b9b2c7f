//! Subscriptions by regular expression, in RE2's syntax and in linear time.

use wire::ErrorCode;

use super::Resolved;
use crate::Name;
use crate::context::Context;
use crate::error::Refusal;
use crate::pattern;

/// A group's expressions are resolved again at most this often, however often topics change.
pub(crate) const REFRESH_MIN_MS: i64 = 10_000;

/// A checked expression, which matches whole names.
pub(crate) fn compile(text: &str) -> Result<regex::Regex, Refusal> {
    pattern::whole(text).map_err(|reason| {
        Refusal::new(
            ErrorCode::InvalidRegularExpression,
            format!("SubscribedTopicRegex `{text}` is not a valid regular expression: {reason}."),
        )
    })
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
    fn what_is_no_expression_is_refused() {
        for text in ["(", "a{2,1}", "[z-a]", r"(?<=a)b", r"\1", "((a{100}){100}){100}"] {
            let refusal = compile(text).unwrap_err();
            assert_eq!(refusal.code, ErrorCode::InvalidRegularExpression, "{text}");
        }
    }
}
