//! Writes the Rust source of the messages. It lists fields and versions; every rule of reading
//! and writing is a generic function of `codec`, which keeps this crate quick to compile.

use std::collections::BTreeMap;
use std::fmt::Write;

use crate::fields::{
    Condition, condition, default, inline, is_optional, is_set, read_field, tagged, test,
    type_default, write_field,
};
use crate::names;
use crate::schema::{Field, Kind, Message, Versions};
use crate::show;

/// Names that the generated modules use themselves.
const RESERVED: [&str; 8] = ["Option", "Some", "None", "Ok", "Err", "Result", "Self", "Default"];

/// A structure of a message, with the versions it is used in.
struct Shape<'m> {
    name: &'m str,
    fields: &'m [Field],
    versions: Versions,
}

/// What the emitting functions need to know of the message around them.
struct Context<'m> {
    flexible: Versions,
    shapes: Vec<Shape<'m>>,
}

pub fn messages(all: &[Message]) -> Result<String, String> {
    let mut out = String::new();
    let live = |message: &&Message| message.kind != "header" && !message.versions.is_empty();
    let mut list = String::new();
    let mut seen = BTreeMap::new();
    for message in all.iter().filter(live) {
        if seen.insert(&message.name, ()).is_some() {
            return Err(format!("two messages are named {}", message.name));
        }
        let text = module(message).map_err(|e| format!("{}: {e}", message.name))?;
        let module = names::snake(&message.name);
        write!(out, "pub mod {module} {{{text}}}\npub use {module}::{};\n", message.name).ok();
        write!(list, " {}", message.name).ok();
    }
    write!(
        out,
        "/// Calls `then!` with the type names of all messages.\n\
         #[macro_export]\nmacro_rules! for_each_message {{\n\
         ($then:ident) => {{ $then! {{{list} }} }};\n}}\n"
    )
    .ok();
    Ok(out)
}

fn module(message: &Message) -> Result<String, String> {
    let mut shapes =
        vec![Shape { name: &message.name, fields: &message.fields, versions: message.versions }];
    collect(&message.fields, message.versions, &mut shapes);
    for common in &message.structs {
        let versions = common.versions.intersect(message.versions);
        shapes.push(Shape { name: &common.name, fields: &common.fields, versions });
        collect(&common.fields, versions, &mut shapes);
    }
    let context = Context { flexible: message.flexible.intersect(message.versions), shapes };
    context.check()?;
    let mut out = String::from("\nuse crate::codec as c;\n");
    for shape in &context.shapes {
        out += &context.structure(shape)?;
        if show::is_shown(&message.kind) {
            out += &show::show(&context.full(shape.name), shape.fields, shape.versions);
        }
    }
    let nullable = |shape: &&Shape<'_>| context.is_nullable_somewhere(shape.name);
    for shape in context.shapes.iter().filter(nullable) {
        let full = context.full(shape.name);
        writeln!(out, "impl<'a> c::Nullable<'a> for {full} {{}}").ok();
    }
    out += &message_impl(message, &context);
    Ok(out)
}

fn collect<'m>(fields: &'m [Field], versions: Versions, shapes: &mut Vec<Shape<'m>>) {
    for field in fields {
        let versions = field.versions.intersect(versions);
        if let (Some(name), false) = (field.kind.structure(), field.fields.is_empty()) {
            shapes.push(Shape { name, fields: &field.fields, versions });
            collect(&field.fields, versions, shapes);
        }
    }
}

fn message_impl(message: &Message, context: &Context<'_>) -> String {
    let name = &message.name;
    let full = context.full(name);
    let key = message.key.map_or("None".into(), |key| format!("Some({key})"));
    let Versions { first, last } = message.versions;
    let flexible = match context.flexible.is_empty() {
        true => "None".into(),
        false => format!("Some({})", context.flexible.first),
    };
    format!(
        "impl<'a> c::Message<'a> for {full} {{\n\
         const NAME: &'static str = \"{name}\";\n\
         const API_KEY: Option<i16> = {key};\n\
         const VERSIONS: std::ops::RangeInclusive<i16> = {first}..={last};\n\
         const FLEXIBLE_FROM: Option<i16> = {flexible};\n}}\n"
    )
}

impl<'m> Context<'m> {
    fn shape(&self, name: &str) -> Result<&Shape<'m>, String> {
        let found = self.shapes.iter().find(|shape| shape.name == name);
        found.ok_or_else(|| format!("no structure is named {name}"))
    }

    fn check(&self) -> Result<(), String> {
        for (i, shape) in self.shapes.iter().enumerate() {
            let twice = self.shapes[..i].iter().any(|other| other.name == shape.name);
            if twice || RESERVED.contains(&shape.name) {
                return Err(format!("the structure name {} is taken", shape.name));
            }
            for name in shape.fields.iter().filter_map(|field| field.kind.structure()) {
                self.shape(name)?;
            }
            for version in shape.versions.first..=shape.versions.last {
                // An element of no bytes would leave the count of an array unbounded.
                if i > 0 && self.bytes_min(shape, version)? == 0 {
                    return Err(format!("{} can be empty in version {version}", shape.name));
                }
            }
            if let Some(field) = shape.fields.iter().find(|field| field.never_flexible) {
                return Err(format!("{}.{}: never flexible", shape.name, field.name));
            }
        }
        Ok(())
    }

    fn is_nullable_somewhere(&self, name: &str) -> bool {
        let holds = |field: &Field| field.kind == Kind::Struct(name.into());
        self.shapes.iter().any(|shape| {
            shape.fields.iter().any(|field| holds(field) && is_optional(field, shape.versions))
        })
    }

    fn borrows(&self, kind: &Kind) -> bool {
        match kind {
            Kind::Text | Kind::Bytes | Kind::Records | Kind::Array(_) => true,
            Kind::Struct(name) => {
                let shape = self.shapes.iter().find(|shape| shape.name == name);
                shape.is_some_and(|s| s.fields.iter().any(|field| self.borrows(&field.kind)))
            }
            _ => false,
        }
    }

    /// The type name of a structure, with its lifetime if it borrows.
    fn full(&self, name: &str) -> String {
        match self.borrows(&Kind::Struct(name.into())) {
            true => format!("{name}<'a>"),
            false => name.into(),
        }
    }

    fn rust_type(&self, kind: &Kind) -> String {
        match kind {
            Kind::Bool => "bool".into(),
            Kind::Int8 => "i8".into(),
            Kind::Int16 => "i16".into(),
            Kind::Uint16 => "u16".into(),
            Kind::Int32 => "i32".into(),
            Kind::Uint32 => "u32".into(),
            Kind::Int64 => "i64".into(),
            Kind::Float64 => "f64".into(),
            Kind::Uuid => "c::Uuid".into(),
            Kind::Text => "c::Text<'a>".into(),
            Kind::Bytes => "c::Blob<'a>".into(),
            Kind::Records => "c::Records<'a>".into(),
            Kind::Struct(name) => self.full(name),
            Kind::Array(element) => format!("c::Array<'a, {}>", self.rust_type(element)),
        }
    }

    fn structure(&self, shape: &Shape<'_>) -> Result<String, String> {
        let full = self.full(shape.name);
        let mut out = String::new();
        let plain = shape.fields.iter().all(|field| {
            default(field, shape.versions)
                .is_ok_and(|value| value == type_default(field, shape.versions))
        });
        let derived = if plain { ", Default" } else { "" };
        write!(out, "#[derive(Clone, Debug, PartialEq{derived})]\npub struct {full} {{\n").ok();
        for field in shape.fields {
            let inner = self.rust_type(&field.kind);
            let optional = is_optional(field, shape.versions);
            let outer = if optional { format!("Option<{inner}>") } else { inner };
            writeln!(out, "pub {}: {outer},", names::field(&field.name)).ok();
        }
        out += "}\n";
        if !plain {
            write!(out, "impl<'a> Default for {full} {{\nfn default() -> Self {{\nSelf {{\n").ok();
            for field in shape.fields {
                let value = default(field, shape.versions)?;
                writeln!(out, "{}: {value},", names::field(&field.name)).ok();
            }
            out += "}\n}\n}\n";
        }
        writeln!(out, "impl<'a> c::Field<'a> for {full} {{").ok();
        out += &self.read(shape)?;
        out += &self.write(shape)?;
        out += &self.bytes_min_fn(shape)?;
        out += "}\n";
        out += &self.owning(shape);
        Ok(out)
    }

    fn read(&self, shape: &Shape<'_>) -> Result<String, String> {
        let tagged: Vec<&Field> = tagged(shape.fields, shape.versions);
        let mut out = String::from(
            "#[inline]\nfn read(r: &mut c::Reader<'a>, v: c::Version) -> \
             Result<Self, c::DecodeError> {\n",
        );
        let mutable = if tagged.is_empty() { "" } else { "mut " };
        writeln!(out, "let {mutable}m = Self {{").ok();
        for field in shape.fields {
            let name = names::field(&field.name);
            let inline = inline(field, shape.versions);
            let value = default(field, shape.versions)?;
            let read = read_field(field, inline, "r");
            match condition(inline, shape.versions) {
                Condition::Always => writeln!(out, "{name}: {read},"),
                Condition::Never => writeln!(out, "{name}: {value},"),
                Condition::If(test) => {
                    writeln!(out, "{name}: if {test} {{ {read} }} else {{ {value} }},")
                }
            }
            .ok();
        }
        out += "};\n";
        let mut tags = String::new();
        if tagged.is_empty() {
            tags += "r.skip_tags()?;\n";
        } else {
            tags += "let mut previous = None;\nfor _ in 0..r.tag_count()? {\n\
                     let (tag, mut t) = r.tagged(&mut previous)?;\nmatch tag {\n";
            for field in tagged {
                let versions = field.versions.intersect(shape.versions);
                let test = match condition(versions, shape.versions.intersect(self.flexible)) {
                    Condition::If(test) => format!(" if {test}"),
                    _ => String::new(),
                };
                let read = read_field(field, versions, "&mut t");
                let (tag, name) = (field.tag.unwrap_or(0), names::field(&field.name));
                writeln!(tags, "{tag}{test} => {{ m.{name} = {read}; t.end()?; }}").ok();
            }
            tags += "_ => {}\n}\n}\n";
        }
        out += &self.if_flexible(shape, &tags);
        out += "Ok(m)\n}\n";
        Ok(out)
    }

    /// The code for the versions that are flexible.
    fn if_flexible(&self, shape: &Shape<'_>, code: &str) -> String {
        match condition(self.flexible, shape.versions) {
            Condition::Always => code.into(),
            Condition::Never => String::new(),
            Condition::If(_) => format!("if v.flexible {{\n{code}}}\n"),
        }
    }

    fn write(&self, shape: &Shape<'_>) -> Result<String, String> {
        let mut out = String::from(
            "#[inline]\nfn write(&self, w: &mut c::Writer, v: c::Version) -> \
             Result<(), c::EncodeError> {\n",
        );
        for field in shape.fields {
            let inline = inline(field, shape.versions);
            let write = write_field(field, inline, shape.name);
            let lacking = format!("return c::lacks(\"{}.{}\", v);", shape.name, field.name);
            let set = is_set(field, shape.versions)?;
            let lost = Versions::lost(field, shape.versions);
            match condition(inline, shape.versions) {
                Condition::Always => writeln!(out, "{write}"),
                Condition::Never if lost.is_empty() => Ok(()),
                Condition::Never => {
                    let tests: Vec<String> =
                        lost.iter().map(|range| test(*range, shape.versions)).collect();
                    writeln!(out, "if ({}) && {set} {{ {lacking} }}", tests.join(" || "))
                }
                Condition::If(test) if field.ignorable => {
                    writeln!(out, "if {test} {{ {write} }}")
                }
                Condition::If(test) => {
                    writeln!(out, "if {test} {{ {write} }} else if {set} {{ {lacking} }}")
                }
            }
            .ok();
        }
        let tagged: Vec<&Field> = tagged(shape.fields, shape.versions);
        let mut tags = String::new();
        if tagged.is_empty() {
            tags += "w.no_tags();\n";
        } else {
            tags += "let mut tags = w.begin_tags();\n";
            for field in tagged {
                let versions = field.versions.intersect(shape.versions);
                let set = is_set(field, shape.versions)?;
                let test = match condition(versions, shape.versions.intersect(self.flexible)) {
                    Condition::If(test) => format!("{test} && {set}"),
                    _ => set,
                };
                let write = write_field(field, versions, shape.name);
                let tag = field.tag.unwrap_or(0);
                writeln!(
                    tags,
                    "if {test} {{ let at = w.begin_tag(&mut tags, {tag}); {write} w.end_tag(at); }}"
                )
                .ok();
            }
            tags += "w.end_tags(tags);\n";
        }
        out += &self.if_flexible(shape, &tags);
        out += "Ok(())\n}\n";
        Ok(out)
    }

    fn bytes_min_fn(&self, shape: &Shape<'_>) -> Result<String, String> {
        let mut steps: Vec<(i16, usize)> = Vec::new();
        for version in shape.versions.first..=shape.versions.last {
            let bytes = self.bytes_min(shape, version)?;
            match steps.last_mut() {
                Some((last, same)) if *same == bytes => *last = version,
                _ => steps.push((version, bytes)),
            }
        }
        let body = match &steps[..] {
            [] => return Err(format!("{} is in no version", shape.name)),
            [(_, bytes)] => bytes.to_string(),
            [early @ .., (_, bytes)] => {
                let arms: String =
                    early.iter().map(|(last, bytes)| format!("..={last} => {bytes}, ")).collect();
                format!("match v.number {{ {arms}_ => {bytes} }}")
            }
        };
        Ok(format!("#[inline]\nfn bytes_min(v: c::Version) -> usize {{ {body} }}\n"))
    }

    fn bytes_min(&self, shape: &Shape<'_>, version: i16) -> Result<usize, String> {
        let flexible = self.flexible.contains(version);
        let mut bytes = usize::from(flexible);
        for field in shape.fields {
            if !inline(field, shape.versions).contains(version) {
                continue;
            }
            bytes += match &field.kind {
                Kind::Bool | Kind::Int8 => 1,
                Kind::Int16 | Kind::Uint16 => 2,
                Kind::Int32 | Kind::Uint32 => 4,
                Kind::Int64 | Kind::Float64 => 8,
                Kind::Uuid => 16,
                Kind::Text => {
                    if flexible {
                        1
                    } else {
                        2
                    }
                }
                Kind::Bytes | Kind::Records | Kind::Array(_) => {
                    if flexible {
                        1
                    } else {
                        4
                    }
                }
                Kind::Struct(_) if field.nullable.contains(version) => 1,
                Kind::Struct(name) => self.bytes_min(self.shape(name)?, version)?,
            };
        }
        Ok(bytes)
    }

    fn owning(&self, shape: &Shape<'_>) -> String {
        let name = shape.name;
        let full = self.full(name);
        let owned = full.replace("'a", "'static");
        let body = if full == name {
            "self".into()
        } else {
            let field = |field: &Field| {
                let name = names::field(&field.name);
                format!("{name}: c::IntoOwned::into_owned(self.{name}),\n")
            };
            format!("{name} {{\n{}}}", shape.fields.iter().map(field).collect::<String>())
        };
        format!(
            "impl<'a> c::IntoOwned for {full} {{\ntype Static = {owned};\n\
             #[inline]\nfn into_owned(self) -> {owned} {{ {body} }}\n}}\n"
        )
    }
}
