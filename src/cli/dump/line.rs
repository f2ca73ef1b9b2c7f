//! One line of a dump: named fields, printed as text or as a JSON object.
//!
//! Text has kafka-dump-log's words, `name: value` after `name: value`, so that what reads its
//! output reads ours; JSON has the same names.

use std::fmt::Display;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Map, Value as Json};

use super::internal::{Shape, Text};
use crate::cli::shown::{Shown, ShownBytes};

/// What a dump prints of one thing.
pub struct Line {
    kind: &'static str,
    /// In text, in place of the fields.
    title: Option<String>,
    /// In text, before the fields.
    lead: &'static str,
    fields: Vec<(&'static str, Value)>,
}

enum Value {
    Json(Json),
    /// `None` is printed as null, by text too.
    Bytes(Option<Vec<u8>>),
    Shape(Shape),
}

impl Line {
    pub fn new(kind: &'static str) -> Self {
        Line { kind, title: None, lead: "", fields: Vec::new() }
    }

    /// A line whose text is not its fields.
    pub fn titled(kind: &'static str, title: String) -> Self {
        Line { title: Some(title), ..Line::new(kind) }
    }

    pub fn led(kind: &'static str, lead: &'static str) -> Self {
        Line { lead, ..Line::new(kind) }
    }

    pub fn number(&mut self, name: &'static str, value: impl Into<i64>) -> &mut Self {
        self.push(name, Value::Json(Json::from(value.into())))
    }

    pub fn flag(&mut self, name: &'static str, value: bool) -> &mut Self {
        self.push(name, Value::Json(Json::from(value)))
    }

    pub fn text(&mut self, name: &'static str, value: impl Display) -> &mut Self {
        self.push(name, Value::Json(Json::from(value.to_string())))
    }

    /// A number that may be missing.
    pub fn maybe(&mut self, name: &'static str, value: Option<i64>) -> &mut Self {
        self.push(name, Value::Json(value.map_or(Json::Null, Json::from)))
    }

    pub fn bytes(&mut self, name: &'static str, value: Option<&[u8]>) -> &mut Self {
        self.push(name, Value::Bytes(value.map(<[u8]>::to_vec)))
    }

    pub fn shape(&mut self, name: &'static str, value: Shape) -> &mut Self {
        self.push(name, Value::Shape(value))
    }

    fn push(&mut self, name: &'static str, value: Value) -> &mut Self {
        self.fields.push((name, value));
        self
    }

    pub fn write_text(&self, out: &mut Vec<u8>) {
        match &self.title {
            Some(title) => out.extend_from_slice(title.as_bytes()),
            None => {
                out.extend_from_slice(self.lead.as_bytes());
                for (i, (name, value)) in self.fields.iter().enumerate() {
                    let gap = if i == 0 { "" } else { " " };
                    out.extend_from_slice(format!("{gap}{name}: ").as_bytes());
                    match value {
                        Value::Json(Json::String(text)) => {
                            out.extend_from_slice(Shown(text).to_string().as_bytes());
                        }
                        Value::Json(other) => out.extend_from_slice(other.to_string().as_bytes()),
                        Value::Bytes(Some(bytes)) => {
                            out.extend_from_slice(ShownBytes(bytes).to_string().as_bytes());
                        }
                        Value::Bytes(None) => out.extend_from_slice(b"null"),
                        Value::Shape(shape) => match &shape.text {
                            Text::Words(words) => {
                                out.extend_from_slice(Shown(words).to_string().as_bytes());
                            }
                            Text::Bytes(bytes) => {
                                out.extend_from_slice(ShownBytes(bytes).to_string().as_bytes());
                            }
                        },
                    }
                }
            }
        }
        out.push(b'\n');
    }

    pub fn write_json(&self, out: &mut Vec<u8>) {
        let mut object = Map::new();
        object.insert("type".to_owned(), Json::from(self.kind));
        for (name, value) in &self.fields {
            match value {
                Value::Json(json) => object.insert((*name).to_owned(), json.clone()),
                Value::Bytes(None) => object.insert((*name).to_owned(), Json::Null),
                Value::Shape(shape) => object.insert((*name).to_owned(), shape.json.clone()),
                Value::Bytes(Some(bytes)) => match std::str::from_utf8(bytes) {
                    Ok(text) => object.insert((*name).to_owned(), Json::from(text)),
                    Err(_) => {
                        object.insert(format!("{name}_base64"), Json::from(BASE64.encode(bytes)))
                    }
                },
            };
        }
        out.extend_from_slice(Json::Object(object).to_string().as_bytes());
        out.push(b'\n');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_one_line_whatever_is_in_it() {
        let mut line = Line::led("record", "| ");
        line.number("offset", 5).flag("isvalid", true).maybe("horizon", None);
        line.bytes("key", None).bytes("payload", Some(b"a\nb\xff\x01\\"));
        let mut text = Vec::new();
        line.write_text(&mut text);
        let expected =
            "| offset: 5 isvalid: true horizon: null key: null payload: a\\nb\\xff\\x01\\\\\n";
        assert_eq!(String::from_utf8(text).unwrap(), expected);
        let mut json = Vec::new();
        line.write_json(&mut json);
        let expected = "{\"horizon\":null,\"isvalid\":true,\"key\":null,\"offset\":5,\
                        \"payload_base64\":\"YQpi/wFc\",\"type\":\"record\"}\n";
        assert_eq!(String::from_utf8(json).unwrap(), expected);
    }
}
