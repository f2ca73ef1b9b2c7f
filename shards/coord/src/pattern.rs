//! Regular expressions from clients, in RE2's syntax and in linear time.

use regex::{Regex, RegexBuilder};

/// Most bytes a compiled expression of a group may take: what it takes, it takes time to compile
/// too, in which a shard does nothing else.
const COMPILED_BYTES_MAX: usize = 5 << 18;

/// An expression that matches whole names, or what is wrong with it.
pub(crate) fn whole(text: &str) -> Result<Regex, String> {
    whole_within(text, COMPILED_BYTES_MAX)
}

/// The same for one that may take so many bytes.
pub(crate) fn whole_within(text: &str, bytes_max: usize) -> Result<Regex, String> {
    let whole = format!(r"\A(?:{})\z", translated(text));
    RegexBuilder::new(&whole).size_limit(bytes_max).build().map_err(|error| match error {
        regex::Error::CompiledTooBig(_) => String::from("expression is too large"),
        other => other.to_string().lines().last().unwrap_or_default().to_string(),
    })
}

/// What RE2 means by its classes: ASCII only. As nested classes they stand inside of brackets too.
const CLASSES: [(&str, &str); 6] = [
    (r"\w", "[0-9A-Za-z_]"),
    (r"\W", "[^0-9A-Za-z_]"),
    (r"\d", "[0-9]"),
    (r"\D", "[^0-9]"),
    (r"\s", r"[\t\n\f\r ]"),
    (r"\S", r"[^\t\n\f\r ]"),
];

/// In the crate's syntax. RE2 has `\Q...\E` for text that is meant as it stands; the crate has not.
fn translated(text: &str) -> String {
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
            let pair_text = &escape[..pair];
            let class = CLASSES.iter().find(|(short, _)| *short == pair_text);
            plain.push_str(class.map_or(pair_text, |(_, class)| class));
            rest = &escape[pair..];
        }
    }
    plain.push_str(rest);
    plain
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
            [\\w.-]{1,249} => a_b.c-9 yes
            [\\w.-]{1,249} => é no
            [^\\d]+     => a1 no
            \\W\\S     => .x yes
        ";
        for line in table.lines().map(str::trim).filter(|line| !line.is_empty()) {
            let (text, rest) = line.split_once(" => ").unwrap();
            let (name, matches) = rest.split_once(' ').unwrap();
            let regex = whole(text.trim()).unwrap();
            assert_eq!(regex.is_match(name), matches == "yes", "{line}");
        }
    }

    #[test]
    fn what_kafka_takes_is_taken() {
        let names: Vec<String> = (0..500).map(|n| format!("a-topic-of-many-others-{n}")).collect();
        assert!(whole(&names.join("|")).unwrap().is_match("a-topic-of-many-others-499"));
        assert!(whole(&"x".repeat(32_767)).is_ok());
        assert!(whole(r"\w{1,249}").is_ok() && whole(".{1,249}").is_ok());
    }
}
