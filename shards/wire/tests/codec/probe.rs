//! The generated types by name, each behind the same few functions.

use std::fmt::Debug;
use std::ops::RangeInclusive;

use wire::{DecodeError, EncodeError, IntoOwned, Message, Reader, Writer, messages};

pub type Encoded = Result<Vec<u8>, EncodeError>;

pub struct Probe {
    pub name: &'static str,
    pub versions: RangeInclusive<i16>,
    /// Decodes only: what is left unread.
    pub decode: fn(i16, &[u8]) -> Result<usize, DecodeError>,
    /// Decodes and encodes again; see [`Seen`].
    pub recode: fn(i16, &[u8]) -> Result<Seen, DecodeError>,
    /// Decodes in the first version, encodes in the second.
    pub convert: fn(i16, i16, &[u8]) -> Result<Encoded, DecodeError>,
    /// The default value, and what it encodes to.
    pub default: fn(i16) -> (String, Encoded),
}

pub struct Seen {
    pub debug: String,
    pub bytes: Vec<u8>,
    /// What the value encodes to once it owns everything.
    pub owned_bytes: Vec<u8>,
    pub left: usize,
}

pub fn probe(name: &str) -> &'static Probe {
    let found = PROBES.iter().find(|probe| probe.name == name);
    found.unwrap_or_else(|| panic!("no type is named {name}"))
}

fn see<'a, M>(message: M, version: i16, left: usize) -> Seen
where
    M: Message<'a> + IntoOwned<Static: Message<'static> + Debug> + Clone + Debug + PartialEq,
{
    let debug = format!("{message:?}");
    assert_eq!(message, message.clone());
    let bytes = encode(&message, version).unwrap();
    let owned_bytes = encode(&message.into_owned(), version).unwrap();
    Seen { debug, bytes, owned_bytes, left }
}

fn encode<'a>(message: &impl Message<'a>, version: i16) -> Encoded {
    let mut writer = Writer::new();
    message.encode(&mut writer, version)?;
    let output = writer.finish();
    assert_eq!(output.splices, []);
    Ok(output.bytes.to_vec())
}

macro_rules! probes {
    ($($name:ident)*) => {
        pub static PROBES: &[Probe] = &[$(Probe {
            name: stringify!($name),
            versions: messages::$name::VERSIONS,
            decode: |version, bytes| {
                let mut reader = Reader::new(bytes);
                messages::$name::decode(&mut reader, version)?;
                Ok(reader.remaining())
            },
            recode: |version, bytes| {
                let mut reader = Reader::new(bytes);
                let message = messages::$name::decode(&mut reader, version)?;
                Ok(see(message, version, reader.remaining()))
            },
            convert: |from, to, bytes| {
                let message = messages::$name::decode(&mut Reader::new(bytes), from)?;
                Ok(encode(&message, to))
            },
            default: |version| {
                let message = messages::$name::default();
                (format!("{message:?}"), encode(&message, version))
            },
        }),*];
    };
}

wire::for_each_message!(probes);
