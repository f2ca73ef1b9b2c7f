//! The schema read a second way: values as a tree, written by walking the tables.
//!
//! Shares only the parser of the tables with the generator, so that both agreeing means
//! something.

use std::path::Path;

use crate::names;
use crate::schema::{self, Field, Kind, Message, Versions};

#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    Bool(bool),
    Int(i128),
    Float(f64),
    Uuid([u8; 16]),
    Text(String),
    Blob(Vec<u8>),
    Array(Vec<Value>),
    /// One value a field, in the order of the schema; absent fields have their default.
    Struct(Vec<Value>),
    Null,
}

/// Chooses the values of a message's fields.
pub trait Filler {
    fn null(&mut self) -> bool;
    fn keep_default(&mut self) -> bool;
    fn count(&mut self) -> usize;
    fn word(&mut self, path: &str) -> u64;
    fn length(&mut self, word: u64) -> usize;
}

pub struct Model {
    pub messages: Vec<Message>,
}

/// One message in one version.
#[derive(Clone, Copy)]
pub struct Typed<'m> {
    pub message: &'m Message,
    pub version: i16,
    pub flexible: bool,
}

impl Model {
    pub fn read() -> Self {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("schema");
        let mut messages = Vec::new();
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|extension| extension == "txt") {
                let text = std::fs::read_to_string(&path).unwrap();
                messages.extend(schema::parse(&text).unwrap());
            }
        }
        messages.sort_by(|a, b| a.name.cmp(&b.name));
        Model { messages }
    }

    pub fn typed(&self, name: &str, version: i16) -> Typed<'_> {
        let message = self.messages.iter().find(|message| message.name == name);
        let message = message.unwrap_or_else(|| panic!("no message is named {name}"));
        assert!(message.versions.contains(version), "{name} has no version {version}");
        Typed { message, version, flexible: message.flexible.contains(version) }
    }

    /// Every message in every version, headers aside.
    pub fn all(&self) -> impl Iterator<Item = Typed<'_>> {
        let messages = self.messages.iter().filter(|message| message.kind != "header");
        messages.flat_map(|message| {
            let Versions { first, last } = message.versions;
            (first..=last).map(|version| Typed {
                message,
                version,
                flexible: message.flexible.contains(version),
            })
        })
    }
}

impl<'m> Typed<'m> {
    pub fn fill(self, filler: &mut dyn Filler) -> Value {
        let Message { fields, versions, name, .. } = self.message;
        self.fill_struct(fields, *versions, name, filler)
    }

    pub fn defaults(self) -> Value {
        self.default_struct(&self.message.fields, self.message.versions)
    }

    pub fn encode(self, value: &Value) -> Vec<u8> {
        let mut out = Vec::new();
        self.encode_struct(&self.message.fields, self.message.versions, value, &mut out);
        out
    }

    /// The value as `{:?}` of the generated type writes it.
    pub fn debug(self, value: &Value) -> String {
        let message = self.message;
        self.debug_struct(&message.name, &message.fields, message.versions, value)
    }

    /// The fields of the structure that `field` holds, and the versions it is used in.
    fn structure(self, field: &'m Field, within: Versions) -> (&'m [Field], Versions) {
        let name = field.kind.structure().unwrap();
        match self.message.structs.iter().find(|common| common.name == name) {
            Some(common) => (&common.fields, common.versions.intersect(self.message.versions)),
            None => (&field.fields, field.versions.intersect(within)),
        }
    }

    fn fill_struct(
        self,
        fields: &'m [Field],
        within: Versions,
        path: &str,
        filler: &mut dyn Filler,
    ) -> Value {
        let fill = |field: &'m Field| {
            if !field.versions.contains(self.version) || filler.keep_default() {
                let default = self.default(field, within);
                let present = field.versions.contains(self.version);
                if !present || default != Value::Null || field.nullable.contains(self.version) {
                    return default;
                }
            }
            if field.nullable.contains(self.version) && filler.null() {
                return Value::Null;
            }
            let path = format!("{path}.{}", field.name);
            let Kind::Array(element) = &field.kind else {
                return self.fill_scalar(&field.kind, field, within, &path, filler);
            };
            let count = filler.count();
            let item = |i| {
                let path = format!("{path}[{i}]");
                self.fill_scalar(element, field, within, &path, filler)
            };
            Value::Array((0..count).map(item).collect())
        };
        Value::Struct(fields.iter().map(fill).collect())
    }

    fn fill_scalar(
        self,
        kind: &Kind,
        field: &'m Field,
        within: Versions,
        path: &str,
        filler: &mut dyn Filler,
    ) -> Value {
        if let Kind::Struct(_) = kind {
            let (fields, within) = self.structure(field, within);
            return self.fill_struct(fields, within, path, filler);
        }
        let h = filler.word(path);
        match kind {
            Kind::Bool => Value::Bool(h & 1 == 1),
            Kind::Int8 => Value::Int((h as i8).into()),
            Kind::Int16 => Value::Int((h as i16).into()),
            Kind::Uint16 => Value::Int((h as u16).into()),
            Kind::Int32 => Value::Int((h as i32).into()),
            Kind::Uint32 => Value::Int((h as u32).into()),
            Kind::Int64 => Value::Int((h as i64).into()),
            Kind::Float64 => Value::Float(f64::from(h as i32) / 8.0),
            Kind::Uuid => Value::Uuid((u128::from(h) << 64 | u128::from(!h)).to_be_bytes()),
            Kind::Text => {
                let letter = |i| char::from(b'a' + (((h & 0xff) as usize + i) % 26) as u8);
                Value::Text((0..filler.length(h)).map(letter).collect())
            }
            _ => Value::Blob(
                (0..filler.length(h)).map(|i| (h as u8).wrapping_add(i as u8)).collect(),
            ),
        }
    }

    fn default_struct(self, fields: &'m [Field], within: Versions) -> Value {
        Value::Struct(fields.iter().map(|field| self.default(field, within)).collect())
    }

    fn default(self, field: &'m Field, within: Versions) -> Value {
        let text = field.default.as_deref();
        if field.kind == Kind::Records || text == Some("null") {
            return Value::Null;
        }
        match &field.kind {
            Kind::Bool => Value::Bool(text == Some("true")),
            Kind::Float64 => Value::Float(0.0),
            Kind::Uuid => Value::Uuid([0; 16]),
            Kind::Text => Value::Text(String::new()),
            Kind::Bytes | Kind::Records => Value::Blob(Vec::new()),
            Kind::Array(_) => Value::Array(Vec::new()),
            Kind::Struct(_) => {
                let (fields, within) = self.structure(field, within);
                self.default_struct(fields, within)
            }
            _ => Value::Int(match text.unwrap_or("0").strip_prefix("0x") {
                Some(hex) => i128::from_str_radix(hex, 16).unwrap(),
                None => text.unwrap_or("0").parse().unwrap(),
            }),
        }
    }

    fn encode_struct(
        self,
        fields: &'m [Field],
        within: Versions,
        value: &Value,
        out: &mut Vec<u8>,
    ) {
        let Value::Struct(values) = value else { panic!("{value:?} is no structure") };
        let present = |field: &Field| field.versions.contains(self.version);
        let mut tagged = Vec::new();
        for (field, value) in fields.iter().zip(values).filter(|(field, _)| present(field)) {
            match field.tag {
                None => self.encode_field(field, within, value, out),
                Some(tag) if *value != self.default(field, within) => {
                    let mut bytes = Vec::new();
                    self.encode_field(field, within, value, &mut bytes);
                    tagged.push((tag, bytes));
                }
                Some(_) => {}
            }
        }
        if self.flexible {
            tagged.sort();
            uvarint(tagged.len(), out);
            for (tag, bytes) in tagged {
                uvarint(tag as usize, out);
                uvarint(bytes.len(), out);
                out.extend(bytes);
            }
        }
    }

    fn encode_field(self, field: &'m Field, within: Versions, value: &Value, out: &mut Vec<u8>) {
        if let (Kind::Struct(_), true) = (&field.kind, field.nullable.contains(self.version)) {
            let null = if field.tag.is_some() { 0x00 } else { 0xff };
            out.push(if *value == Value::Null { null } else { 0x01 });
            if *value == Value::Null {
                return;
            }
        }
        self.encode_value(&field.kind, field, within, value, out);
    }

    fn encode_value(
        self,
        kind: &Kind,
        field: &'m Field,
        within: Versions,
        value: &Value,
        out: &mut Vec<u8>,
    ) {
        match (kind, value) {
            (Kind::Bool, Value::Bool(value)) => out.push((*value).into()),
            (Kind::Int8, Value::Int(n)) => out.extend((*n as i8).to_be_bytes()),
            (Kind::Int16 | Kind::Uint16, Value::Int(n)) => out.extend((*n as i16).to_be_bytes()),
            (Kind::Int32 | Kind::Uint32, Value::Int(n)) => out.extend((*n as i32).to_be_bytes()),
            (Kind::Int64, Value::Int(n)) => out.extend((*n as i64).to_be_bytes()),
            (Kind::Float64, Value::Float(value)) => out.extend(value.to_be_bytes()),
            (Kind::Uuid, Value::Uuid(bytes)) => out.extend(bytes),
            (Kind::Text, Value::Text(text)) if !self.flexible => {
                out.extend((text.len() as i16).to_be_bytes());
                out.extend(text.as_bytes());
            }
            (Kind::Text, Value::Null) if !self.flexible => out.extend([0xff, 0xff]),
            (_, Value::Null) if self.flexible => out.push(0),
            (_, Value::Null) => out.extend([0xff; 4]),
            (_, Value::Text(text)) => {
                uvarint(text.len() + 1, out);
                out.extend(text.as_bytes());
            }
            (_, Value::Blob(bytes)) => {
                self.length(bytes.len(), out);
                out.extend(bytes);
            }
            (Kind::Array(element), Value::Array(items)) => {
                self.length(items.len(), out);
                for item in items {
                    self.encode_value(element, field, within, item, out);
                }
            }
            (Kind::Struct(_), value) => {
                let (fields, within) = self.structure(field, within);
                self.encode_struct(fields, within, value, out);
            }
            (kind, value) => panic!("{value:?} is no {kind:?}"),
        }
    }

    fn length(self, length: usize, out: &mut Vec<u8>) {
        match self.flexible {
            true => uvarint(length + 1, out),
            false => out.extend((length as i32).to_be_bytes()),
        }
    }

    fn debug_struct(
        self,
        name: &str,
        fields: &'m [Field],
        within: Versions,
        value: &Value,
    ) -> String {
        let Value::Struct(values) = value else { panic!("{value:?} is no structure") };
        let field = |(field, value): (&'m Field, &Value)| {
            let nullable = !field.nullable.intersect(within).is_empty();
            let text = match (nullable || field.kind == Kind::Records, value) {
                (true, Value::Null) => "None".into(),
                (true, _) => {
                    format!("Some({})", self.debug_value(&field.kind, field, within, value))
                }
                (false, _) => self.debug_value(&field.kind, field, within, value),
            };
            format!("{}: {text}", names::snake(&field.name))
        };
        let fields: Vec<String> = fields.iter().zip(values).map(field).collect();
        match fields.is_empty() {
            true => name.into(),
            false => format!("{name} {{ {} }}", fields.join(", ")),
        }
    }

    fn debug_value(self, kind: &Kind, field: &'m Field, within: Versions, value: &Value) -> String {
        match (kind, value) {
            (_, Value::Bool(value)) => value.to_string(),
            (_, Value::Int(value)) => value.to_string(),
            (_, Value::Float(value)) => format!("{value:?}"),
            (_, Value::Uuid(bytes)) => wire::Uuid(*bytes).to_string(),
            (_, Value::Text(text)) => format!("{text:?}"),
            (Kind::Records, Value::Blob(bytes)) => format!("Borrowed({bytes:?})"),
            (_, Value::Blob(bytes)) => format!("{bytes:?}"),
            (Kind::Array(element), Value::Array(items)) => {
                let item = |item| self.debug_value(element, field, within, item);
                format!("[{}]", items.iter().map(item).collect::<Vec<_>>().join(", "))
            }
            (Kind::Struct(name), value) => {
                let (fields, within) = self.structure(field, within);
                self.debug_struct(name, fields, within, value)
            }
            (kind, value) => panic!("{value:?} is no {kind:?}"),
        }
    }
}

fn uvarint(mut value: usize, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}
