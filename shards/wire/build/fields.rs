//! The code of one field: the versions that have it, how it is read and written, its default.

use crate::names;
use crate::schema::{Field, Kind, Versions};

pub enum Condition {
    Always,
    Never,
    If(String),
}

impl Versions {
    /// The versions of a structure that neither hold a field nor may drop it silently.
    pub fn lost(field: &Field, within: Versions) -> Vec<Versions> {
        let held = field.versions.intersect(within);
        if field.ignorable || held.is_empty() {
            return Vec::new();
        }
        let before = Versions { first: within.first, last: held.first - 1 };
        let after = Versions { first: held.last + 1, last: within.last };
        [before, after].into_iter().filter(|range| !range.is_empty()).collect()
    }
}

/// The test that picks `versions` out of `within`.
pub fn condition(versions: Versions, within: Versions) -> Condition {
    let versions = versions.intersect(within);
    if versions.is_empty() {
        Condition::Never
    } else if versions == within {
        Condition::Always
    } else {
        Condition::If(test(versions, within))
    }
}

pub fn test(versions: Versions, within: Versions) -> String {
    let Versions { first, last } = versions;
    match (first > within.first, last < within.last) {
        (_, _) if first == last => format!("v.number == {first}"),
        (true, false) => format!("v.number >= {first}"),
        (false, true) => format!("v.number <= {last}"),
        _ => format!("({first}..={last}).contains(&v.number)"),
    }
}

/// The versions in which the field stands in line, not tagged.
pub fn inline(field: &Field, within: Versions) -> Versions {
    match field.tag {
        None => field.versions.intersect(within),
        Some(_) => Versions::NONE,
    }
}

pub fn tagged(all: &[Field], within: Versions) -> Vec<&Field> {
    let in_use =
        |field: &&Field| field.tag.is_some() && !field.versions.intersect(within).is_empty();
    let mut fields: Vec<&Field> = all.iter().filter(in_use).collect();
    fields.sort_by_key(|field| field.tag);
    fields
}

pub fn is_optional(field: &Field, within: Versions) -> bool {
    field.kind == Kind::Records || !field.nullable.intersect(within).is_empty()
}

/// A structure that may be null and has a tagged field to itself.
fn is_tagged_struct(field: &Field) -> bool {
    let structure = matches!(field.kind, Kind::Struct(_));
    structure && field.tag.is_some() && !field.nullable.is_empty()
}

pub fn read_field(field: &Field, present: Versions, reader: &str) -> String {
    let read = format!("c::Field::read({reader}, v)?");
    if is_tagged_struct(field) {
        return format!("c::Nullable::read_tagged({reader}, v)?");
    }
    if !is_optional(field, present) {
        return match field.nullable.is_empty() {
            true => read,
            false => format!("Some({read})"),
        };
    }
    match condition(field.nullable, present) {
        Condition::Always => read,
        Condition::Never => format!("Some({read})"),
        Condition::If(test) => format!("if {test} {{ {read} }} else {{ Some({read}) }}"),
    }
}

pub fn write_field(field: &Field, present: Versions, shape: &str) -> String {
    let name = names::field(&field.name);
    let write = format!("c::Field::write(&self.{name}, w, v)?;");
    if field.kind != Kind::Records && field.nullable.is_empty() {
        return write;
    }
    if is_tagged_struct(field) {
        return format!("c::Nullable::write_tagged(self.{name}.as_ref(), w, v)?;");
    }
    let path = format!("{shape}.{}", field.name);
    let need = format!("c::Field::write(c::need(&self.{name}, \"{path}\", v)?, w, v)?;");
    match condition(field.nullable, present) {
        Condition::Always => write,
        Condition::Never => need,
        Condition::If(test) => format!("if {test} {{ {write} }} else {{ {need} }}"),
    }
}

pub fn type_default(field: &Field, within: Versions) -> String {
    match (&field.kind, is_optional(field, within)) {
        (_, true) => "None".into(),
        (Kind::Bool, _) => "false".into(),
        (Kind::Float64, _) => "0.0".into(),
        (Kind::Uuid | Kind::Text | Kind::Bytes | Kind::Struct(_) | Kind::Array(_), _) => {
            "Default::default()".into()
        }
        _ => "0".into(),
    }
}

/// The value of a field that is not set.
pub fn default(field: &Field, within: Versions) -> Result<String, String> {
    let wrong = || format!("{} has no default {:?}", field.name, field.default);
    let optional = is_optional(field, within);
    let value = match (&field.kind, field.default.as_deref()) {
        (Kind::Records, None) => return Ok("None".into()),
        (_, Some("null")) if optional => return Ok("None".into()),
        (Kind::Bool, None | Some("false")) => "false".into(),
        (Kind::Bool, Some("true")) => "true".into(),
        (Kind::Float64, None) => "0.0".into(),
        (
            Kind::Int8 | Kind::Int16 | Kind::Uint16 | Kind::Int32 | Kind::Uint32 | Kind::Int64,
            text,
        ) => match text {
            None => "0".into(),
            Some(hex) if hex.starts_with("0x") => hex.to_string(),
            Some(text) => text.parse::<i64>().map_err(|_| wrong())?.to_string(),
        },
        (_, None) => "Default::default()".to_string(),
        _ => return Err(wrong()),
    };
    Ok(if optional { format!("Some({value})") } else { value })
}

/// Whether a field holds something else than its default.
pub fn is_set(field: &Field, within: Versions) -> Result<String, String> {
    let name = names::field(&field.name);
    let value = default(field, within)?;
    Ok(match (&field.kind, value.as_str()) {
        (_, "None") => format!("self.{name}.is_some()"),
        (Kind::Bool, "false") => format!("self.{name}"),
        (Kind::Bool, "true") => format!("!self.{name}"),
        (Kind::Text | Kind::Bytes | Kind::Array(_), "Default::default()") => {
            format!("!self.{name}.is_empty()")
        }
        _ => format!("self.{name} != {value}"),
    })
}
