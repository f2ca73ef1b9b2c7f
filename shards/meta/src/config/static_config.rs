//! What was given at the start: a `server.properties` file and `--set key=value` flags.
//! Every key must be known and every value valid; what is stored needs no second check.

use std::collections::BTreeMap;

use super::error::ConfigError;
use super::key::Scope;
use super::keys;

/// Broker keys set at the start. The last setting of a key wins.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct StaticConfig {
    values: BTreeMap<String, String>,
}

impl StaticConfig {
    /// Reads the text of a `server.properties` file (Java's properties format).
    pub fn parse_properties(text: &str) -> Result<Self, ConfigError> {
        let mut config = StaticConfig::default();
        config.merge_properties(text)?;
        Ok(config)
    }

    /// Reads more properties over those that are already set.
    pub fn merge_properties(&mut self, text: &str) -> Result<(), ConfigError> {
        for (line, logical) in logical_lines(text) {
            let (key, value) = split_property(&logical)
                .map_err(|reason| ConfigError::Line { line, reason: reason.into() })?;
            self.set(&key, &value)
                .map_err(|error| ConfigError::At { line, error: Box::new(error) })?;
        }
        Ok(())
    }

    /// Sets one key after checking name and value.
    pub fn set(&mut self, key: &str, value: &str) -> Result<(), ConfigError> {
        let found = keys::find(Scope::Broker, key).ok_or_else(|| unknown(key))?;
        let value = value.trim();
        found.validate(value)?;
        self.values.insert(key.to_string(), value.to_string());
        Ok(())
    }

    /// Sets one `key=value` of the command line.
    pub fn set_pair(&mut self, pair: &str) -> Result<(), ConfigError> {
        match pair.split_once('=') {
            Some((key, value)) => self.set(key.trim(), value),
            None => Err(ConfigError::Conflict(format!("{pair}: expected key=value"))),
        }
    }

    /// The value that was set, if any; built-in defaults are not looked at.
    pub fn value(&self, key: &str) -> Option<&str> {
        self.values.get(key).map(String::as_str)
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.values.iter().map(|(key, value)| (key.as_str(), value.as_str()))
    }
}

/// Without secrets: this may end up in a log.
impl std::fmt::Debug for StaticConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let secret = |key: &str| keys::find(Scope::Broker, key).is_none_or(|key| key.sensitive);
        let shown = |key: &str, value: &str| match secret(key) {
            true => "(hidden)".to_string(),
            false => value.to_string(),
        };
        f.debug_map().entries(self.iter().map(|(key, value)| (key, shown(key, value)))).finish()
    }
}

/// A topic key in a broker's file is a common slip: its broker synonym is what was meant.
fn unknown(key: &str) -> ConfigError {
    let synonym = keys::find(Scope::Topic, key).and_then(|topic| topic.synonyms.first().copied());
    let meant = synonym.or_else(|| keys::nearest_in(Scope::Broker, key));
    ConfigError::UnknownKey { name: key.into(), meant: meant.map(String::from) }
}

/// Lines without comments and blanks, continuation lines joined, each with its first line's number.
fn logical_lines(text: &str) -> Vec<(usize, String)> {
    let mut lines = Vec::new();
    let mut open: Option<(usize, String)> = None;
    for (at, raw) in text.lines().enumerate() {
        let part = raw.trim_start_matches([' ', '\t', '\u{c}']);
        if open.is_none() && (part.is_empty() || part.starts_with(['#', '!'])) {
            continue;
        }
        let (number, mut joined) = open.take().unwrap_or((at + 1, String::new()));
        let backslashes = part.bytes().rev().take_while(|b| *b == b'\\').count();
        if backslashes % 2 == 1 {
            joined.push_str(&part[..part.len() - 1]);
            open = Some((number, joined));
        } else {
            joined.push_str(part);
            lines.push((number, joined));
        }
    }
    lines.extend(open);
    lines
}

/// Key and value of one line: the first unescaped `=`, `:` or blank ends the key.
fn split_property(line: &str) -> Result<(String, String), &'static str> {
    let mut escaped = false;
    let mut end = line.len();
    for (at, c) in line.char_indices() {
        if escaped {
            escaped = false;
        } else if c == '\\' {
            escaped = true;
        } else if matches!(c, '=' | ':' | ' ' | '\t' | '\u{c}') {
            end = at;
            break;
        }
    }
    let (key, rest) = line.split_at(end);
    let rest = rest.trim_start_matches([' ', '\t', '\u{c}']);
    let rest = rest.strip_prefix(['=', ':']).unwrap_or(rest);
    let rest = rest.trim_start_matches([' ', '\t', '\u{c}']);
    if key.is_empty() {
        return Err("a setting without a key");
    }
    Ok((unescape(key)?, unescape(rest)?))
}

fn unescape(text: &str) -> Result<String, &'static str> {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        if c != '\\' {
            out.push(c);
            continue;
        }
        match chars.next() {
            Some('n') => out.push('\n'),
            Some('t') => out.push('\t'),
            Some('r') => out.push('\r'),
            Some('f') => out.push('\u{c}'),
            Some('u') => {
                let hex: String = chars.by_ref().take(4).collect();
                let code = u32::from_str_radix(&hex, 16).ok().filter(|_| hex.len() == 4);
                out.push(code.and_then(char::from_u32).ok_or("\\u needs four hex digits")?);
            }
            Some(other) => out.push(other),
            None => {}
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn properties_are_read_as_java_reads_them() {
        let text = "\
# comment
! also a comment

num.partitions=3
  default.replication.factor : 1
log.dirs /a,\\
         /b
broker.rack = r\\u00e9\\=1 \\
   # not a comment
num.partitions=4
compression.type=
";
        // The last line has an empty value, which is not a codec.
        let error = StaticConfig::parse_properties(text).unwrap_err();
        assert_eq!(
            error.to_string(),
            "line 11: Invalid value  for configuration compression.type: String must be one of: \
             uncompressed, zstd, lz4, snappy, gzip, producer"
        );
        let text = text.replace("compression.type=\n", "");
        let config = StaticConfig::parse_properties(&text).unwrap();
        let values: Vec<_> = config.iter().collect();
        assert_eq!(
            values,
            [
                ("broker.rack", "ré=1 # not a comment"),
                ("default.replication.factor", "1"),
                ("log.dirs", "/a,/b"),
                ("num.partitions", "4"),
            ]
        );
    }

    #[test]
    fn unknown_keys_are_refused_with_the_nearest_match() {
        let refused = |key: &str| StaticConfig::default().set(key, "1").unwrap_err().to_string();
        assert_eq!(
            refused("num.partition"),
            "unknown configuration key num.partition; did you mean num.partitions?"
        );
        assert_eq!(
            refused("retention.ms"),
            "unknown configuration key retention.ms; did you mean log.retention.ms?"
        );
        assert_eq!(
            refused("something.else.entirely"),
            "unknown configuration key something.else.entirely; take it out, or look for its name \
             in docs/configuration.md"
        );
        let mut config = StaticConfig::default();
        assert_eq!(
            config.set_pair("num.partitions").unwrap_err().to_string(),
            "num.partitions: expected key=value"
        );
        assert!(config.set_pair("num.partitions = 7").is_ok());
        assert_eq!(config.value("num.partitions"), Some("7"));
    }

    #[test]
    fn secrets_stay_out_of_debug_output() {
        let config =
            StaticConfig::parse_properties("ssl.key.password=abc\nnum.partitions=2").unwrap();
        let shown = format!("{config:?}");
        assert_eq!(shown, r#"{"num.partitions": "2", "ssl.key.password": "(hidden)"}"#);
    }

    #[test]
    fn odd_escapes_do_not_panic() {
        for text in ["a\\", "\\", "=", "\\u12", "num.partitions=\\u12", "é=\\", "\\\\\\"] {
            assert!(StaticConfig::parse_properties(text).is_err(), "{text}");
        }
    }
}
