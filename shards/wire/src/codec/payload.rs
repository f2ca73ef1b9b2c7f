//! The record batches of a produce or fetch: opaque here, and never copied when received.

use bytes::Bytes;

use super::error::{DecodeError, EncodeError};
use super::field::{Field, Nullable, Version, field_by_nullable};
use super::reader::Reader;
use super::writer::Writer;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Records<'a> {
    Borrowed(&'a [u8]),
    /// This many bytes, which the caller sends itself at the splice point.
    Detached(usize),
    /// Held by reference count, for messages that outlive their frame.
    Owned(Bytes),
}

impl Records<'_> {
    pub fn len(&self) -> usize {
        match self {
            Records::Borrowed(bytes) => bytes.len(),
            Records::Detached(length) => *length,
            Records::Owned(bytes) => bytes.len(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bytes, unless they are detached.
    pub fn bytes(&self) -> Option<&[u8]> {
        match self {
            Records::Borrowed(bytes) => Some(bytes),
            Records::Detached(_) => None,
            Records::Owned(bytes) => Some(bytes),
        }
    }
}

impl<'a> Field<'a> for Records<'a> {
    field_by_nullable!();
}

impl<'a> Nullable<'a> for Records<'a> {
    fn read_nullable(r: &mut Reader<'a>, v: Version) -> Result<Option<Self>, DecodeError> {
        Ok(r.nullable_bytes(v.flexible)?.map(Records::Borrowed))
    }

    fn write_nullable(this: Option<&Self>, w: &mut Writer, v: Version) -> Result<(), EncodeError> {
        w.nullable_length(this.map(Records::len), v.flexible)?;
        match this {
            Some(Records::Detached(length)) => w.splice(*length),
            Some(records) => w.slice(records.bytes().unwrap_or_default()),
            None => {}
        }
        Ok(())
    }

    fn nullable_bytes_min(v: Version) -> usize {
        if v.flexible { 1 } else { 4 }
    }
}
