//! How `consume` writes records: values, key and value, JSON lines, or a pattern such as
//! `%p:%o %k=%v`.
//!
//! Pure: turns one record into bytes appended to an output buffer. Bytes go out as they are; only
//! JSON has to care for what is not UTF-8, and then says `..._base64`.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::json;

/// One record with where it stands, as any of the formats may need it.
#[derive(Debug, Clone, Copy)]
pub struct Shown<'a> {
    pub topic: &'a str,
    pub partition: i32,
    pub offset: i64,
    /// Milliseconds since 1970, -1 for none.
    pub timestamp: i64,
    pub key: Option<&'a [u8]>,
    pub value: Option<&'a [u8]>,
    pub headers: &'a [(&'a str, Option<&'a [u8]>)],
}

/// The parsed `--format`, with the texts around it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordFormat {
    kind: Kind,
    /// After every record.
    terminator: Vec<u8>,
    /// For a null key or value, except in JSON, which has its own null.
    null: Vec<u8>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Kind {
    Json,
    Pattern(Vec<Piece>),
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece {
    Text(Vec<u8>),
    Topic,
    Partition,
    Offset,
    Timestamp,
    Key,
    Value,
    Headers,
}

/// Why a pattern is not one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FormatError {
    #[error(
        "`%{0}` is not known; use %k key, %v value, %h headers, %o offset, %p partition, %t timestamp, %T topic, %%"
    )]
    Directive(String),
    #[error("`\\{0}` is not known; use \\n, \\t, \\r, \\0, \\\\ or \\xNN")]
    Escape(String),
    #[error("`{0}` is neither a format name (value, key-value, json) nor a pattern with a %")]
    Name(String),
}

impl RecordFormat {
    /// `separator` stands between key and value in `key-value`.
    pub fn parse(
        text: &str,
        separator: &str,
        terminator: &str,
        null: &str,
    ) -> Result<Self, FormatError> {
        let kind = match text {
            "json" => Kind::Json,
            "value" => Kind::Pattern(vec![Piece::Value]),
            "key-value" => {
                let separator = unescape(separator)?;
                Kind::Pattern(vec![Piece::Key, Piece::Text(separator), Piece::Value])
            }
            pattern if pattern.contains('%') => Kind::Pattern(parse_pattern(pattern)?),
            other => return Err(FormatError::Name(other.to_owned())),
        };
        Ok(RecordFormat { kind, terminator: unescape(terminator)?, null: null.into() })
    }

    /// Appends one record.
    pub fn write(&self, record: &Shown<'_>, out: &mut Vec<u8>) {
        match &self.kind {
            Kind::Json => write_json(record, out),
            Kind::Pattern(pieces) => {
                for piece in pieces {
                    self.write_piece(piece, record, out);
                }
                out.extend_from_slice(&self.terminator);
            }
        }
    }

    fn write_piece(&self, piece: &Piece, record: &Shown<'_>, out: &mut Vec<u8>) {
        match piece {
            Piece::Text(text) => out.extend_from_slice(text),
            Piece::Topic => out.extend_from_slice(record.topic.as_bytes()),
            Piece::Partition => out.extend_from_slice(record.partition.to_string().as_bytes()),
            Piece::Offset => out.extend_from_slice(record.offset.to_string().as_bytes()),
            Piece::Timestamp => out.extend_from_slice(record.timestamp.to_string().as_bytes()),
            Piece::Key => out.extend_from_slice(record.key.unwrap_or(&self.null)),
            Piece::Value => out.extend_from_slice(record.value.unwrap_or(&self.null)),
            Piece::Headers => {
                for (index, (name, value)) in record.headers.iter().enumerate() {
                    if index > 0 {
                        out.push(b',');
                    }
                    out.extend_from_slice(name.as_bytes());
                    out.push(b'=');
                    out.extend_from_slice(value.unwrap_or(&self.null));
                }
            }
        }
    }
}

/// The object that `produce --format json` reads back, its fields in a fixed order.
fn write_json(record: &Shown<'_>, out: &mut Vec<u8>) {
    let Shown { topic, partition, offset, timestamp, .. } = record;
    let place = format!(
        "{{\"topic\":{},\"partition\":{partition},\"offset\":{offset},\"timestamp\":{timestamp},",
        json!(topic)
    );
    out.extend_from_slice(place.as_bytes());
    write_json_bytes("key", record.key, out);
    out.push(b',');
    write_json_bytes("value", record.value, out);
    out.extend_from_slice(b",\"headers\":[");
    for (index, (name, value)) in record.headers.iter().enumerate() {
        let comma = if index > 0 { "," } else { "" };
        out.extend_from_slice(format!("{comma}{{\"name\":{},", json!(name)).as_bytes());
        write_json_bytes("value", *value, out);
        out.push(b'}');
    }
    out.extend_from_slice(b"]}\n");
}

fn write_json_bytes(name: &str, bytes: Option<&[u8]>, out: &mut Vec<u8>) {
    let field = match bytes.map(|bytes| (bytes, std::str::from_utf8(bytes))) {
        None => format!("\"{name}\":null"),
        Some((_, Ok(text))) => format!("\"{name}\":{}", json!(text)),
        Some((bytes, Err(_))) => format!("\"{name}_base64\":\"{}\"", BASE64.encode(bytes)),
    };
    out.extend_from_slice(field.as_bytes());
}

fn parse_pattern(pattern: &str) -> Result<Vec<Piece>, FormatError> {
    let mut pieces = Vec::new();
    let mut rest = pattern;
    while let Some(at) = rest.find('%') {
        push_text(&mut pieces, unescape(&rest[..at])?);
        let mut after = rest[at + 1..].chars();
        let directive = after.next();
        match directive {
            Some('k') => pieces.push(Piece::Key),
            Some('v') => pieces.push(Piece::Value),
            Some('h') => pieces.push(Piece::Headers),
            Some('o') => pieces.push(Piece::Offset),
            Some('p') => pieces.push(Piece::Partition),
            Some('t') => pieces.push(Piece::Timestamp),
            Some('T') => pieces.push(Piece::Topic),
            Some('%') => push_text(&mut pieces, b"%".to_vec()),
            other => {
                return Err(FormatError::Directive(other.map(String::from).unwrap_or_default()));
            }
        }
        rest = after.as_str();
    }
    push_text(&mut pieces, unescape(rest)?);
    Ok(pieces)
}

fn push_text(pieces: &mut Vec<Piece>, text: Vec<u8>) {
    match pieces.last_mut() {
        Some(Piece::Text(before)) => before.extend_from_slice(&text),
        _ if text.is_empty() => {}
        _ => pieces.push(Piece::Text(text)),
    }
}

/// `\n`, `\t`, `\r`, `\0`, `\\` and `\xNN`; shells pass these through inside single quotes.
pub fn unescape(text: &str) -> Result<Vec<u8>, FormatError> {
    let mut out = Vec::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        if c != '\\' {
            out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
            continue;
        }
        match chars.next() {
            Some('n') => out.push(b'\n'),
            Some('t') => out.push(b'\t'),
            Some('r') => out.push(b'\r'),
            Some('0') => out.push(0),
            Some('\\') => out.push(b'\\'),
            Some('x') => {
                let digits: String = chars.by_ref().take(2).collect();
                let byte = u8::from_str_radix(&digits, 16).ok().filter(|_| digits.len() == 2);
                out.push(byte.ok_or_else(|| FormatError::Escape(format!("x{digits}")))?);
            }
            other => {
                return Err(FormatError::Escape(other.map(String::from).unwrap_or_default()));
            }
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADERS: [(&str, Option<&[u8]>); 2] = [("a", Some(b"1")), ("b", None)];

    fn shown<'a>(key: Option<&'a [u8]>, value: Option<&'a [u8]>) -> Shown<'a> {
        let (topic, partition, offset, timestamp) = ("t", 2, 40, 1_700_000_000_000);
        Shown { topic, partition, offset, timestamp, key, value, headers: &HEADERS }
    }

    fn written(format: &str, record: &Shown<'_>) -> String {
        let mut out = Vec::new();
        RecordFormat::parse(format, ":", "\\n", "NULL").unwrap().write(record, &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn named_formats() {
        let record = shown(Some(b"k"), Some(b"v"));
        assert_eq!(written("value", &record), "v\n");
        assert_eq!(written("key-value", &record), "k:v\n");
        assert_eq!(written("key-value", &shown(None, Some(b""))), "NULL:\n");
    }

    #[test]
    fn patterns() {
        let record = shown(Some(b"k"), Some(b"v"));
        assert_eq!(
            written("%T/%p@%o %t [%k]=%v {%h} 100%%\\t", &record),
            "t/2@40 1700000000000 [k]=v {a=1,b=NULL} 100%\t\n"
        );
        let bytes = [0u8, 0xff];
        let mut out = Vec::new();
        let format = RecordFormat::parse("%v", "", "\\0", "").unwrap();
        format.write(&shown(None, Some(&bytes)), &mut out);
        assert_eq!(out, [0, 0xff, 0]);
    }

    #[test]
    fn json_tells_null_empty_text_and_bytes_apart() {
        let line = written("json", &shown(None, Some(&[0xff])));
        let value: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert_eq!(value["key"], serde_json::Value::Null);
        assert_eq!(value["value_base64"], "/w==");
        assert_eq!(value["offset"], 40);
        assert_eq!(value["headers"][0], json!({"name": "a", "value": "1"}));
        assert_eq!(value["headers"][1], json!({"name": "b", "value": null}));
        assert!(written("json", &shown(Some(b""), None)).contains("\"key\":\"\""));
        assert_eq!(line.matches('\n').count(), 1);
    }

    #[test]
    fn mistakes_are_named() {
        let error = |text: &str| RecordFormat::parse(text, ":", "\\n", "").unwrap_err();
        assert_eq!(error("%q"), FormatError::Directive("q".into()));
        assert_eq!(error("%v %"), FormatError::Directive(String::new()));
        assert_eq!(error("%v\\q"), FormatError::Escape("q".into()));
        assert_eq!(error("%v\\x4"), FormatError::Escape("x4".into()));
        assert_eq!(error("valeu"), FormatError::Name("valeu".into()));
    }
}
