//! Reads the tables of `schema/`. The format is described in `schema/README.md`; anything else is
//! refused with its line.

/// Inclusive; `first > last` holds no version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Versions {
    pub first: i16,
    pub last: i16,
}

#[derive(Debug)]
pub struct Message {
    pub kind: String,
    pub name: String,
    /// None for an API that was retired: its key stays taken.
    pub versions: Versions,
    pub key: Option<i16>,
    pub flexible: Versions,
    pub unstable: bool,
    pub structs: Vec<Struct>,
    pub fields: Vec<Field>,
}

#[derive(Debug)]
pub struct Struct {
    pub name: String,
    pub versions: Versions,
    pub fields: Vec<Field>,
}

#[derive(Debug)]
pub struct Field {
    pub name: String,
    pub kind: Kind,
    pub versions: Versions,
    pub nullable: Versions,
    /// A tagged field is tagged in all its versions.
    pub tag: Option<u32>,
    pub default: Option<String>,
    pub never_flexible: bool,
    pub ignorable: bool,
    /// Of the structure that the field introduces.
    pub fields: Vec<Field>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    Bool,
    Int8,
    Int16,
    Uint16,
    Int32,
    Uint32,
    Int64,
    Float64,
    Uuid,
    Text,
    Bytes,
    Records,
    Struct(String),
    Array(Box<Kind>),
}

impl Versions {
    pub const NONE: Versions = Versions { first: 0, last: -1 };

    pub fn is_empty(self) -> bool {
        self.first > self.last
    }

    pub fn contains(self, version: i16) -> bool {
        (self.first..=self.last).contains(&version)
    }

    pub fn intersect(self, other: Versions) -> Versions {
        Versions { first: self.first.max(other.first), last: self.last.min(other.last) }
    }

    fn parse(text: &str) -> Result<Self, String> {
        let number = |text: &str| text.parse::<i16>().map_err(|e| format!("version {text}: {e}"));
        if text == "none" {
            return Ok(Self::NONE);
        }
        let (first, last) = match (text.strip_suffix('+'), text.split_once('-')) {
            (Some(first), _) => (number(first)?, i16::MAX),
            (None, Some((first, last))) => (number(first)?, number(last)?),
            (None, None) => (number(text)?, number(text)?),
        };
        match first <= last {
            true => Ok(Versions { first, last }),
            false => Err(format!("versions {text} are out of order")),
        }
    }
}

impl Kind {
    fn parse(text: &str) -> Result<Self, String> {
        if let Some(element) = text.strip_prefix("[]") {
            return Ok(Kind::Array(Box::new(Kind::parse(element)?)));
        }
        Ok(match text {
            "bool" => Kind::Bool,
            "int8" => Kind::Int8,
            "int16" => Kind::Int16,
            "uint16" => Kind::Uint16,
            "int32" => Kind::Int32,
            "uint32" => Kind::Uint32,
            "int64" => Kind::Int64,
            "float64" => Kind::Float64,
            "uuid" => Kind::Uuid,
            "string" => Kind::Text,
            "bytes" => Kind::Bytes,
            "records" => Kind::Records,
            name if name.starts_with(char::is_uppercase) => Kind::Struct(name.into()),
            other => return Err(format!("unknown type {other}")),
        })
    }

    /// The structure a field of this kind holds, itself or as elements.
    pub fn structure(&self) -> Option<&str> {
        match self {
            Kind::Struct(name) => Some(name),
            Kind::Array(element) => element.structure(),
            _ => None,
        }
    }
}

/// One line: how deep it is indented, and its words.
struct Line<'t> {
    number: usize,
    depth: usize,
    words: Vec<&'t str>,
}

pub fn parse(text: &str) -> Result<Vec<Message>, String> {
    let mut messages: Vec<Message> = Vec::new();
    let lines: Vec<Line<'_>> = text.lines().enumerate().filter_map(line).collect();
    let mut rest = lines.as_slice();
    while let Some((first, after)) = rest.split_first() {
        let length = after.iter().take_while(|line| line.depth > 0).count();
        let (body, next) = after.split_at(length);
        messages.push(message(first, body)?);
        rest = next;
    }
    Ok(messages)
}

fn line((index, text): (usize, &str)) -> Option<Line<'_>> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let indent = text.len() - text.trim_start().len();
    (!words.is_empty()).then_some(Line { number: index + 1, depth: indent / 2, words })
}

fn message(head: &Line<'_>, body: &[Line<'_>]) -> Result<Message, String> {
    let at = |problem: String| format!("line {}: {problem}", head.number);
    let [kind, name, versions, options @ ..] = &head.words[..] else {
        return Err(at("a message has a type, a name and versions".into()));
    };
    let mut message = Message {
        kind: kind.to_string(),
        name: name.to_string(),
        versions: Versions::parse(versions).map_err(at)?,
        key: None,
        flexible: Versions::NONE,
        unstable: false,
        structs: Vec::new(),
        fields: Vec::new(),
    };
    for option in options {
        match option.split_once('=').unwrap_or((option, "")) {
            ("key", key) => message.key = Some(key.parse().map_err(|e| at(format!("{e}")))?),
            ("flex", versions) => message.flexible = Versions::parse(versions).map_err(at)?,
            ("unstable", "") => message.unstable = true,
            ("listeners", _) => {}
            _ => return Err(at(format!("unknown option {option}"))),
        }
    }
    let mut rest = body;
    while let Some(line) = rest.first() {
        let (inner, next) = children(rest);
        if let ["struct", name, versions] = line.words[..] {
            let versions = Versions::parse(versions).map_err(at)?;
            message.structs.push(Struct { name: name.into(), versions, fields: fields(inner)? });
        } else {
            message.fields.push(field(line, inner)?);
        }
        rest = next;
    }
    Ok(message)
}

/// The lines under the first one, and those after them.
fn children<'l, 't>(lines: &'l [Line<'t>]) -> (&'l [Line<'t>], &'l [Line<'t>]) {
    let depth = lines[0].depth;
    let length = lines[1..].iter().take_while(|line| line.depth > depth).count();
    lines[1..].split_at(length)
}

fn fields(lines: &[Line<'_>]) -> Result<Vec<Field>, String> {
    let mut fields = Vec::new();
    let mut rest = lines;
    while let Some(line) = rest.first() {
        let (inner, next) = children(rest);
        fields.push(field(line, inner)?);
        rest = next;
    }
    Ok(fields)
}

fn field(line: &Line<'_>, inner: &[Line<'_>]) -> Result<Field, String> {
    let at = |problem: String| format!("line {}: {problem}", line.number);
    let [name, kind, versions, options @ ..] = &line.words[..] else {
        return Err(at("a field has a name, a type and versions".into()));
    };
    let mut field = Field {
        name: name.to_string(),
        kind: Kind::parse(kind).map_err(at)?,
        versions: Versions::parse(versions).map_err(at)?,
        nullable: Versions::NONE,
        tag: None,
        default: None,
        never_flexible: false,
        ignorable: false,
        fields: fields(inner)?,
    };
    for option in options {
        match option.split_once('=').unwrap_or((option, "")) {
            ("nullable", versions) => field.nullable = Versions::parse(versions).map_err(at)?,
            ("tag", tag) => field.tag = Some(tag.parse().map_err(|e| at(format!("{e}")))?),
            ("default", value) => field.default = Some(value.into()),
            ("flex", "none") => field.never_flexible = true,
            ("ignorable", "") => field.ignorable = true,
            ("key", "") => {}
            _ => return Err(at(format!("unknown option {option}"))),
        }
    }
    Ok(field)
}
