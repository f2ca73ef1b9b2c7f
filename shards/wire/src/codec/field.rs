//! What a field of a message is, and how the primitive ones are read and written.
//!
//! Null and empty are different values everywhere: a type that may be null is an `Option`.

use std::borrow::Cow;
use std::ops::RangeInclusive;

use super::error::{DecodeError, EncodeError};
use super::reader::Reader;
use super::uuid::Uuid;
use super::writer::Writer;

pub type Text<'a> = Cow<'a, str>;
pub type Blob<'a> = Cow<'a, [u8]>;

/// A message version together with its encoding: flexible versions (KIP-482) have compact
/// lengths and tagged fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Version {
    pub number: i16,
    pub flexible: bool,
}

pub trait Field<'a>: Sized {
    /// Whether every value takes exactly [`bytes_min`](Self::bytes_min) bytes and any bytes do.
    const FIXED: bool = false;

    fn read(r: &mut Reader<'a>, v: Version) -> Result<Self, DecodeError>;
    fn write(&self, w: &mut Writer, v: Version) -> Result<(), EncodeError>;
    /// The fewest bytes a value takes; bounds the count of an array before it is walked.
    fn bytes_min(v: Version) -> usize;
}

/// A field that can be null. Strings, arrays and records spend a length on it; structures, as
/// written here, a byte: below 0 for null, 1 before a value. Alone in a tagged field, a structure
/// spends a varint instead: 0 for null, 1 before a value.
pub trait Nullable<'a>: Field<'a> {
    fn read_nullable(r: &mut Reader<'a>, v: Version) -> Result<Option<Self>, DecodeError> {
        match r.i8()? {
            ..0 => Ok(None),
            _ => Self::read(r, v).map(Some),
        }
    }

    fn write_nullable(this: Option<&Self>, w: &mut Writer, v: Version) -> Result<(), EncodeError> {
        w.i8(if this.is_some() { 1 } else { -1 });
        this.map_or(Ok(()), |this| this.write(w, v))
    }

    fn nullable_bytes_min(_: Version) -> usize {
        1
    }

    fn read_tagged(r: &mut Reader<'a>, v: Version) -> Result<Option<Self>, DecodeError> {
        match r.uvarint()? {
            0 => Ok(None),
            _ => Self::read(r, v).map(Some),
        }
    }

    fn write_tagged(this: Option<&Self>, w: &mut Writer, v: Version) -> Result<(), EncodeError> {
        w.uvarint(u32::from(this.is_some()));
        this.map_or(Ok(()), |this| this.write(w, v))
    }
}

/// A request, a response, or another message with versions of its own.
pub trait Message<'a>: Field<'a> {
    const NAME: &'static str;
    /// The API of a request or response; the record type of an internal record.
    const API_KEY: Option<i16>;
    const VERSIONS: RangeInclusive<i16>;
    /// The first flexible version, if one is.
    const FLEXIBLE_FROM: Option<i16>;

    fn version(number: i16) -> Option<Version> {
        let flexible = Self::FLEXIBLE_FROM.is_some_and(|first| number >= first);
        Self::VERSIONS.contains(&number).then_some(Version { number, flexible })
    }

    /// Reads the message. Bytes after it stay in the reader, as Kafka ignores them too.
    fn decode(r: &mut Reader<'a>, version: i16) -> Result<Self, DecodeError> {
        let found = Self::version(version);
        Self::read(r, found.ok_or(DecodeError::Version { message: Self::NAME, version })?)
    }

    /// Writes the message. After an error the writer holds part of it: throw it away.
    fn encode(&self, w: &mut Writer, version: i16) -> Result<(), EncodeError> {
        let found = Self::version(version);
        self.write(w, found.ok_or(EncodeError::Version { message: Self::NAME, version })?)
    }
}

/// A field is set that the version cannot carry and that may not be dropped silently.
#[cold]
pub(crate) fn lacks<T>(field: &'static str, v: Version) -> Result<T, EncodeError> {
    Err(EncodeError::Field { field, version: v.number })
}

/// The value of a field that may be null in other versions than this one.
pub(crate) fn need<'f, T>(
    value: &'f Option<T>,
    field: &'static str,
    v: Version,
) -> Result<&'f T, EncodeError> {
    value.as_ref().ok_or(EncodeError::Null { field, version: v.number })
}

macro_rules! numbers {
    ($($type:ident),*) => {$(
        impl<'a> Field<'a> for $type {
            const FIXED: bool = true;

            #[inline]
            fn read(r: &mut Reader<'a>, _: Version) -> Result<Self, DecodeError> {
                r.$type()
            }

            #[inline]
            fn write(&self, w: &mut Writer, _: Version) -> Result<(), EncodeError> {
                w.$type(*self);
                Ok(())
            }

            #[inline]
            fn bytes_min(_: Version) -> usize {
                size_of::<$type>()
            }
        }
    )*};
}

numbers!(i8, i16, u16, i32, u32, i64, f64);

impl<'a> Field<'a> for bool {
    #[inline]
    fn read(r: &mut Reader<'a>, _: Version) -> Result<Self, DecodeError> {
        Ok(r.u8()? != 0)
    }

    #[inline]
    fn write(&self, w: &mut Writer, _: Version) -> Result<(), EncodeError> {
        w.u8(u8::from(*self));
        Ok(())
    }

    #[inline]
    fn bytes_min(_: Version) -> usize {
        1
    }
}

impl<'a> Field<'a> for Uuid {
    const FIXED: bool = true;

    #[inline]
    fn read(r: &mut Reader<'a>, _: Version) -> Result<Self, DecodeError> {
        r.uuid()
    }

    #[inline]
    fn write(&self, w: &mut Writer, _: Version) -> Result<(), EncodeError> {
        w.slice(&self.0);
        Ok(())
    }

    #[inline]
    fn bytes_min(_: Version) -> usize {
        16
    }
}

impl<'a, T: Nullable<'a>> Field<'a> for Option<T> {
    #[inline]
    fn read(r: &mut Reader<'a>, v: Version) -> Result<Self, DecodeError> {
        T::read_nullable(r, v)
    }

    #[inline]
    fn write(&self, w: &mut Writer, v: Version) -> Result<(), EncodeError> {
        T::write_nullable(self.as_ref(), w, v)
    }

    #[inline]
    fn bytes_min(v: Version) -> usize {
        T::nullable_bytes_min(v)
    }
}

/// The three methods of `Field` for a type whose null takes no more room than its empty value.
macro_rules! field_by_nullable {
    () => {
        #[inline]
        fn read(r: &mut Reader<'a>, v: Version) -> Result<Self, DecodeError> {
            Self::read_nullable(r, v)?.ok_or(DecodeError::Null)
        }

        #[inline]
        fn write(&self, w: &mut Writer, v: Version) -> Result<(), EncodeError> {
            Self::write_nullable(Some(self), w, v)
        }

        #[inline]
        fn bytes_min(v: Version) -> usize {
            Self::nullable_bytes_min(v)
        }
    };
}
pub(super) use field_by_nullable;

impl<'a> Field<'a> for Text<'a> {
    field_by_nullable!();
}

impl<'a> Nullable<'a> for Text<'a> {
    #[inline]
    fn read_nullable(r: &mut Reader<'a>, v: Version) -> Result<Option<Self>, DecodeError> {
        Ok(r.nullable_text(v.flexible)?.map(Cow::Borrowed))
    }

    #[inline]
    fn write_nullable(this: Option<&Self>, w: &mut Writer, v: Version) -> Result<(), EncodeError> {
        w.nullable_text(this.map(|text| &**text), v.flexible)
    }

    #[inline]
    fn nullable_bytes_min(v: Version) -> usize {
        if v.flexible { 1 } else { 2 }
    }
}

impl<'a> Field<'a> for Blob<'a> {
    field_by_nullable!();
}

impl<'a> Nullable<'a> for Blob<'a> {
    #[inline]
    fn read_nullable(r: &mut Reader<'a>, v: Version) -> Result<Option<Self>, DecodeError> {
        Ok(r.nullable_bytes(v.flexible)?.map(Cow::Borrowed))
    }

    #[inline]
    fn write_nullable(this: Option<&Self>, w: &mut Writer, v: Version) -> Result<(), EncodeError> {
        w.nullable_bytes(this.map(|bytes| &**bytes), v.flexible)
    }

    #[inline]
    fn nullable_bytes_min(v: Version) -> usize {
        if v.flexible { 1 } else { 4 }
    }
}
