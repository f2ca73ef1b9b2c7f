//! How `produce` reads records: lines, key and value lines, or the JSON lines that `consume`
//! prints.
//!
//! Pure: cuts a growing buffer into lines and a line into a record. Bounded: a line longer than
//! `MAX_LINE_BYTES` is an error, as no broker would take it.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::{Bytes, BytesMut};
use serde_json::{Map, Value};

/// Kafka's own ceiling of a request is 100 MiB.
pub const MAX_LINE_BYTES: usize = 64 << 20;

/// A record to be sent; what is `None` in `partition` and `timestamp` is chosen later.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NewRecord {
    pub key: Option<Bytes>,
    pub value: Option<Bytes>,
    pub headers: Vec<(String, Option<Bytes>)>,
    pub partition: Option<i32>,
    pub timestamp: Option<i64>,
}

/// What a line means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LineFormat {
    pub json: bool,
    /// Between key and value; without it the whole line is the value.
    pub separator: Option<Vec<u8>>,
    /// A key or value that reads so is null.
    pub null: Option<Vec<u8>>,
}

/// The fields of a JSON line. A slip in one must not quietly send a null.
const FIELDS: [&str; 9] = [
    "key",
    "key_base64",
    "value",
    "value_base64",
    "headers",
    "partition",
    "timestamp",
    // Printed by `consume`; where a record came from does not matter here.
    "topic",
    "offset",
];

/// Why a line is no record.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InputError {
    #[error("line {line} has no key separator; add it, or leave out --key-separator")]
    NoSeparator { line: u64 },
    #[error("line {line} is not a JSON object: {reason}")]
    Json { line: u64, reason: String },
    #[error("line {line}: {reason}")]
    Field { line: u64, reason: String },
    #[error("line {line} is longer than 64 MiB")]
    TooLong { line: u64 },
}

/// Cuts input into lines across reads; the newline (and a carriage return before it) is taken off.
#[derive(Debug, Default)]
pub struct Lines {
    pending: BytesMut,
    /// Bytes of `pending` already searched for a newline.
    searched: usize,
    line: u64,
}

impl Lines {
    /// The buffer to append input to.
    pub fn buffer(&mut self) -> &mut BytesMut {
        &mut self.pending
    }

    /// The next whole line and its number, counted from 1.
    pub fn next_line(&mut self) -> Result<Option<(u64, Bytes)>, InputError> {
        let fresh = self.pending.get(self.searched..).unwrap_or_default();
        let Some(at) = fresh.iter().position(|&b| b == b'\n') else {
            self.searched = self.pending.len();
            if self.searched > MAX_LINE_BYTES {
                return Err(InputError::TooLong { line: self.line + 1 });
            }
            return Ok(None);
        };
        let mut line = self.pending.split_to(self.searched + at + 1);
        line.truncate(line.len() - 1);
        Ok(Some(self.numbered(line)))
    }

    /// What is left when the input has ended without a newline.
    pub fn last_line(&mut self) -> Option<(u64, Bytes)> {
        let line = std::mem::take(&mut self.pending);
        (!line.is_empty()).then(|| self.numbered(line))
    }

    fn numbered(&mut self, mut line: BytesMut) -> (u64, Bytes) {
        if line.last() == Some(&b'\r') {
            line.truncate(line.len() - 1);
        }
        self.searched = 0;
        self.line += 1;
        (self.line, line.freeze())
    }
}

impl LineFormat {
    /// Reads one line.
    pub fn record(&self, line: u64, text: Bytes) -> Result<NewRecord, InputError> {
        if self.json {
            return json_record(line, &text);
        }
        let (key, value) = match &self.separator {
            None => (None, text),
            Some(separator) => {
                let at = find(&text, separator).ok_or(InputError::NoSeparator { line })?;
                (Some(text.slice(..at)), text.slice(at + separator.len()..))
            }
        };
        let key = key.and_then(|key| self.not_null(key));
        Ok(NewRecord { key, value: self.not_null(value), ..NewRecord::default() })
    }

    fn not_null(&self, bytes: Bytes) -> Option<Bytes> {
        (self.null.as_deref() != Some(&bytes[..])).then_some(bytes)
    }
}

fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack.windows(needle.len().max(1)).position(|window| window == needle)
}

fn json_record(line: u64, text: &[u8]) -> Result<NewRecord, InputError> {
    let object: Map<String, Value> = serde_json::from_slice(text)
        .map_err(|error| InputError::Json { line, reason: error.to_string() })?;
    let field = |reason: String| InputError::Field { line, reason };
    if let Some(name) = object.keys().find(|name| !FIELDS.contains(&name.as_str())) {
        return Err(field(format!("`{name}` is none of the fields {}", FIELDS.join(", "))));
    }
    let listed = match object.get("headers") {
        None | Some(Value::Null) => &[][..],
        Some(Value::Array(listed)) => listed,
        Some(_) => {
            let example = r#"[{"name":"a","value":"b"}]"#;
            return Err(field(format!("`headers` is no list; write for example {example}")));
        }
    };
    let mut headers = Vec::new();
    for header in listed {
        let header = header.as_object().ok_or_else(|| field("a header is no object".into()))?;
        let name = header.get("name").and_then(Value::as_str);
        let name = name.ok_or_else(|| field("a header has no `name`".into()))?;
        headers.push((name.to_owned(), bytes_of(header, "value").map_err(field)?));
    }
    let partition = match object.get("partition") {
        None | Some(Value::Null) => None,
        Some(value) => {
            let number = value.as_i64().and_then(|n| i32::try_from(n).ok()).filter(|&n| n >= 0);
            Some(number.ok_or_else(|| field("`partition` is no partition number".into()))?)
        }
    };
    let timestamp = match object.get("timestamp") {
        None | Some(Value::Null) => None,
        Some(value) => {
            let number = value.as_i64();
            let number = number.ok_or_else(|| field("`timestamp` is no number".into()))?;
            (number >= 0).then_some(number)
        }
    };
    let (key, value) = (bytes_of(&object, "key"), bytes_of(&object, "value"));
    Ok(NewRecord {
        key: key.map_err(field)?,
        value: value.map_err(field)?,
        headers,
        partition,
        timestamp,
    })
}

/// `name` as text, or `name_base64`; a missing one is null.
fn bytes_of(object: &Map<String, Value>, name: &str) -> Result<Option<Bytes>, String> {
    let encoded = format!("{name}_base64");
    if let Some(value) = object.get(&encoded) {
        let text = value.as_str().ok_or_else(|| format!("`{encoded}` is no text"))?;
        let bytes = BASE64.decode(text).map_err(|_| format!("`{encoded}` is not base64"))?;
        return Ok(Some(bytes.into()));
    }
    match object.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(Bytes::copy_from_slice(text.as_bytes()))),
        Some(other) => Ok(Some(other.to_string().into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: LineFormat = LineFormat { json: false, separator: None, null: None };

    fn all_lines(pieces: &[&str]) -> Vec<(u64, Bytes)> {
        let mut lines = Lines::default();
        let mut found = Vec::new();
        for piece in pieces {
            lines.buffer().extend_from_slice(piece.as_bytes());
            while let Some(line) = lines.next_line().unwrap() {
                found.push(line);
            }
        }
        found.extend(lines.last_line());
        found
    }

    #[test]
    fn lines_are_cut_wherever_the_reads_fall() {
        let text = "one\r\n\ntwo\nthree";
        let whole = all_lines(&[text]);
        let expected: Vec<(u64, Bytes)> =
            vec![(1, "one".into()), (2, "".into()), (3, "two".into()), (4, "three".into())];
        assert_eq!(whole, expected);
        for cut in 0..=text.len() {
            assert_eq!(all_lines(&[&text[..cut], &text[cut..]]), expected, "cut at {cut}");
        }
        assert!(all_lines(&[""]).is_empty());
    }

    #[test]
    fn keys_and_nulls() {
        let format =
            LineFormat { separator: Some(b"::".to_vec()), null: Some(b"-".to_vec()), ..PLAIN };
        let read = |text: &'static str| format.record(1, Bytes::from(text)).unwrap();
        assert_eq!(read("k::v").key.as_deref(), Some(&b"k"[..]));
        assert_eq!(read("k::a::b").value.as_deref(), Some(&b"a::b"[..]));
        assert_eq!(read("-::-"), NewRecord::default());
        assert_eq!(read("::").key.as_deref(), Some(&b""[..]));
        let error = format.record(7, Bytes::from("nothing"));
        assert_eq!(error, Err(InputError::NoSeparator { line: 7 }));
    }

    #[test]
    fn json_reads_what_consume_prints() {
        use crate::cli::record_format::{RecordFormat, Shown};
        let headers = [("h", Some(&[0xfe_u8][..])), ("n", None)];
        let shown = Shown {
            topic: "t",
            partition: 3,
            offset: 9,
            timestamp: 17,
            key: None,
            value: Some(&[0xff, 0x00]),
            headers: &headers,
        };
        let mut out = Vec::new();
        RecordFormat::parse("json", "", "", "").unwrap().write(&shown, &mut out);
        let format = LineFormat { json: true, ..PLAIN };
        let read = format.record(1, Bytes::from(out)).unwrap();
        assert_eq!(read.key, None);
        assert_eq!(read.value.as_deref(), Some(&[0xff, 0x00][..]));
        assert_eq!((read.partition, read.timestamp), (Some(3), Some(17)));
        assert_eq!(read.headers[0].1.as_deref(), Some(&[0xfe][..]));
        assert_eq!(read.headers[1], ("n".into(), None));
    }

    #[test]
    fn bad_json_names_line_and_field() {
        let format = LineFormat { json: true, ..PLAIN };
        let error =
            |text: &'static str| format.record(5, Bytes::from(text)).unwrap_err().to_string();
        assert!(error("[1]").starts_with("line 5 is not a JSON object"));
        assert!(error("{\"value_base64\":\"*\"}").contains("`value_base64` is not base64"));
        assert!(error("{\"headers\":[{}]}").contains("no `name`"));
        assert!(error("{\"headers\":{\"h\":\"1\"}}").contains("`headers` is no list"));
        assert!(error("{\"key\":\"k\",\"val\":\"v\"}").contains("`val` is none of the fields"));
        assert!(error("{\"partition\":-1}").contains("`partition`"));
        assert!(error("{\"timestamp\":\"x\"}").contains("`timestamp`"));
    }
}
