//! What must hold for any bytes taken for a frame or a message: no panic, and whatever decodes
//! encodes to bytes that decode to the same again.

use std::fmt::Debug;

use wire::{Message, Reader, Writer, frame, messages};

struct Kind {
    name: &'static str,
    api_key: Option<i16>,
    check: fn(i16, &[u8]),
}

macro_rules! kinds {
    ($($name:ident)*) => {
        static KINDS: &[Kind] = &[$(Kind {
            name: stringify!($name),
            api_key: messages::$name::API_KEY,
            check: |version, bytes| {
                let decode = |bytes| messages::$name::decode(&mut Reader::new(bytes), version);
                let Ok(message) = decode(bytes) else { return };
                let written = encode(&message, version);
                let again = decode(&written);
                assert_same(&message, again.as_ref().ok(), version);
                assert_eq!(again.map(|again| encode(&again, version)), Ok(written.clone()));
            },
        }),*];
    };
}

wire::for_each_message!(kinds);

/// A request as it comes after its size: header and body.
pub fn frame(data: &[u8]) {
    let mut r = Reader::new(data);
    let Ok(header) = frame::decode_request_header(&mut r) else { return };
    let wanted =
        |kind: &&Kind| kind.api_key == Some(header.api_key) && kind.name.ends_with("Request");
    if let Some(kind) = KINDS.iter().find(wanted) {
        (kind.check)(header.api_version, r.rest());
    }
}

/// Any message of the schema: two bytes choose it, one its version, the rest is its body.
pub fn message(data: &[u8]) {
    let [high, low, version, body @ ..] = data else { return };
    let chosen = usize::from(u16::from_be_bytes([*high, *low])) % KINDS.len();
    (KINDS[chosen].check)(i16::from(*version), body);
}

fn encode<'a>(message: &impl Message<'a>, version: i16) -> Vec<u8> {
    let mut writer = Writer::new();
    let encoded = message.encode(&mut writer, version);
    assert_eq!(encoded, Ok(()), "what was decoded encodes in the same version");
    writer.finish().bytes.to_vec()
}

/// By their text, since a NaN is not equal to itself.
fn assert_same(message: &impl Debug, again: Option<&impl Debug>, version: i16) {
    let again = again.map(|again| format!("{again:?}"));
    assert_eq!(again, Some(format!("{message:?}")), "version {version}");
}
