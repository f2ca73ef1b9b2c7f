//! The page `docs/configuration.md`, written from the registry so that it cannot fall behind.

use std::fmt::Write as _;

use super::key::{Check, Effect, Key, Scope, UpdateMode};
use super::keys::sections;

/// The whole page as Markdown.
pub fn configuration_page() -> String {
    let mut page = String::from(INTRODUCTION);
    page.push_str("\n## Topic keys\n\n");
    page.push_str(
        "Set when a topic is created, or later with AlterConfigs. A key that is not set on a topic takes \
         its value from the broker key in the last column.\n",
    );
    for section in sections(Scope::Topic) {
        table(&mut page, section.keys, "Broker key", |key| match key.synonyms {
            [] => String::new(),
            names => code_list(names),
        });
    }
    page.push_str("\n## Broker keys\n\n");
    page.push_str(
        "Set in the file given with `--config`, or with `--set key=value`. The last column says whether \
         a key can also change while the broker runs: `per-broker` for one node, `cluster-wide` for one \
         node or as the default of all, `read-only` not at all.\n",
    );
    for section in sections(Scope::Broker) {
        let _ = write!(page, "\n### {}\n", section.title);
        table(&mut page, section.keys, "Change", |key| match key.update {
            UpdateMode::ReadOnly => "read-only".into(),
            mode => mode.name().into(),
        });
    }
    page.push_str("\n## Group keys\n\nSet on a group with IncrementalAlterConfigs.\n");
    for section in sections(Scope::Group) {
        table(&mut page, section.keys, "Broker key", |key| code_list(key.synonyms));
    }
    page.push_str("\n## Client metrics keys\n\nSet on a client metrics subscription.\n");
    for section in sections(Scope::ClientMetrics) {
        table(&mut page, section.keys, "", |_| String::new());
    }
    page
}

const INTRODUCTION: &str = "\
<!-- Written by `cargo run -p corelane-meta --example config-docs > docs/configuration.md`. -->

# Configuration

Corelane uses Apache Kafka's names, defaults and value checks (as of Kafka 4.4), so existing `server.properties` files and
tools work. Unknown keys are refused, with the nearest known name. A value is looked for in this order:

1. on the topic (or group) itself,
2. set at run time for the node,
3. set at run time as the default of the cluster,
4. set at the start: command line flags, then the file,
5. the built-in default.

Keys marked † are known, checked, stored and described, but change nothing yet: Corelane either works differently there or
does not have the feature so far.
";

fn table(page: &mut String, keys: &[Key], last: &str, cell: impl Fn(&Key) -> String) {
    let _ = write!(page, "\n| Key | Type | Default | Allowed | Meaning | {last} |\n");
    page.push_str("|---|---|---|---|---|---|\n");
    for key in keys.iter().filter(|key| !key.hidden) {
        let mark = if key.effect == Effect::AcceptedOnly { " †" } else { "" };
        let _ = writeln!(
            page,
            "| `{}`{mark} | {} | {} | {} | {} | {} |",
            key.name,
            kind(key),
            default(key),
            allowed(key),
            key.doc,
            cell(key)
        );
    }
}

fn kind(key: &Key) -> String {
    let name = key.kind.name().to_lowercase();
    match key.unit() {
        "" => name,
        unit => format!("{name}, {unit}"),
    }
}

fn default(key: &Key) -> String {
    match key.default {
        None => "not set".into(),
        Some("") => "empty".into(),
        Some("9223372036854775807" | "2147483647" | "1.7976931348623157E308") => "no limit".into(),
        Some(text) => format!("`{text}`"),
    }
}

fn allowed(key: &Key) -> String {
    match key.check {
        Check::Any => String::new(),
        Check::AtLeast(min) => format!("≥ {min}"),
        Check::Between(min, max) => format!("{min} – {max}"),
        Check::BetweenOr(min, max, or) => format!("{min} – {max}, or {or}"),
        Check::RealBetween(min, max) => format!("{min} – {max}"),
        Check::OneOf(values) | Check::OneOfAnyCase(values) => code_list(values),
        Check::EachOf(values) => format!("any of {}", code_list(values)),
        Check::ThrottledReplicas => "`*` or `partition:broker` pairs".into(),
        Check::OffsetReset => "`latest`, `earliest`, `by_duration:PT1H`".into(),
    }
}

fn code_list(values: &[&str]) -> String {
    values.iter().map(|value| format!("`{value}`")).collect::<Vec<_>>().join(", ")
}
