//! What a message holds, by the names of Kafka's schemas: for tools that print what is kept in
//! files.
//!
//! Of messages that only travel there is nothing to be shown.

use super::array::Array;
use super::field::{Blob, Field, Text, Version};
use super::uuid::Uuid;

/// A value that says what it is.
#[derive(Clone, Debug, PartialEq)]
pub enum Shown {
    Null,
    Flag(bool),
    Number(i64),
    Float(f64),
    Text(String),
    Bytes(Vec<u8>),
    List(Vec<Shown>),
    /// In the order of the schema.
    Fields(Vec<(&'static str, Shown)>),
}

pub trait Show {
    /// The fields that this version has.
    fn show(&self, v: Version) -> Shown;
}

macro_rules! numbers {
    ($($type:ty),*) => {$(
        impl Show for $type {
            fn show(&self, _: Version) -> Shown {
                Shown::Number(i64::from(*self))
            }
        }
    )*};
}

numbers!(i8, i16, u16, i32, u32, i64);

impl Show for bool {
    fn show(&self, _: Version) -> Shown {
        Shown::Flag(*self)
    }
}

impl Show for f64 {
    fn show(&self, _: Version) -> Shown {
        Shown::Float(*self)
    }
}

impl Show for Uuid {
    fn show(&self, _: Version) -> Shown {
        Shown::Text(self.to_string())
    }
}

impl Show for Text<'_> {
    fn show(&self, _: Version) -> Shown {
        Shown::Text(String::from(&**self))
    }
}

impl Show for Blob<'_> {
    fn show(&self, _: Version) -> Shown {
        Shown::Bytes(self.to_vec())
    }
}

impl<T: Show> Show for Option<T> {
    fn show(&self, v: Version) -> Shown {
        self.as_ref().map_or(Shown::Null, |value| value.show(v))
    }
}

impl<'a, T: Field<'a> + Clone + Show> Show for Array<'a, T> {
    fn show(&self, v: Version) -> Shown {
        Shown::List(self.iter().map(|item| item.show(v)).collect())
    }
}
