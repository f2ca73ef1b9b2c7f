//! Messages that outlive the frame they came in: the same type with every borrow copied.

use std::borrow::Cow;

use bytes::Bytes;

use super::array::Array;
use super::field::{Blob, Field, Text};
use super::payload::Records;
use super::uuid::Uuid;

pub trait IntoOwned {
    type Static: 'static;

    fn into_owned(self) -> Self::Static;
}

macro_rules! already_owned {
    ($($type:ty),*) => {$(
        impl IntoOwned for $type {
            type Static = $type;

            #[inline]
            fn into_owned(self) -> $type {
                self
            }
        }
    )*};
}

already_owned!(bool, i8, i16, u16, i32, u32, i64, f64, Uuid);

impl IntoOwned for Text<'_> {
    type Static = Text<'static>;

    fn into_owned(self) -> Text<'static> {
        Cow::Owned(Cow::into_owned(self))
    }
}

impl IntoOwned for Blob<'_> {
    type Static = Blob<'static>;

    fn into_owned(self) -> Blob<'static> {
        Cow::Owned(Cow::into_owned(self))
    }
}

impl IntoOwned for Records<'_> {
    type Static = Records<'static>;

    fn into_owned(self) -> Records<'static> {
        match self {
            Records::Borrowed(bytes) => Records::Owned(Bytes::copy_from_slice(bytes)),
            Records::Detached(length) => Records::Detached(length),
            Records::Owned(bytes) => Records::Owned(bytes),
        }
    }
}

impl<T: IntoOwned> IntoOwned for Option<T> {
    type Static = Option<T::Static>;

    fn into_owned(self) -> Self::Static {
        self.map(T::into_owned)
    }
}

impl<'a, T: Field<'a> + Clone + IntoOwned> IntoOwned for Array<'a, T> {
    type Static = Array<'static, T::Static>;

    fn into_owned(self) -> Self::Static {
        match self {
            Array::Owned(items) => items.into_iter().map(T::into_owned).collect(),
            lazy => lazy.iter().map(T::into_owned).collect(),
        }
    }
}
