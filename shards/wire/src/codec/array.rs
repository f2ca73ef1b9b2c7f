//! Arrays: a view of received bytes, or values of our own.
//!
//! A received array is checked once, when its message is decoded: the count against the bytes
//! that remain, then every element. Nothing is allocated; elements are read again when iterated,
//! which cannot fail any more.

use std::fmt;

use super::error::{DecodeError, EncodeError};
use super::field::{Field, Nullable, Version, field_by_nullable};
use super::reader::Reader;
use super::writer::Writer;

#[derive(Clone)]
pub enum Array<'a, T> {
    Lazy(View<'a>),
    Owned(Vec<T>),
}

/// The checked bytes of a received array.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    bytes: &'a [u8],
    count: usize,
    version: Version,
}

impl<'a, T> Array<'a, T> {
    pub fn len(&self) -> usize {
        match self {
            Array::Lazy(view) => view.count,
            Array::Owned(items) => items.len(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<'a, T: Field<'a> + Clone> Array<'a, T> {
    pub fn iter(&self) -> Iter<'_, 'a, T> {
        match self {
            Array::Lazy(view) => Iter::Lazy(Reader::new(view.bytes), *view),
            Array::Owned(items) => Iter::Owned(items.iter()),
        }
    }

    pub fn first(&self) -> Option<T> {
        self.iter().next()
    }

    pub fn to_vec(&self) -> Vec<T> {
        self.iter().collect()
    }

    pub fn into_vec(self) -> Vec<T> {
        match self {
            Array::Lazy(_) => self.to_vec(),
            Array::Owned(items) => items,
        }
    }
}

/// Iterates by value: a received element is read, one of our own is cloned.
#[derive(Clone, Debug)]
pub enum Iter<'s, 'a, T> {
    Lazy(Reader<'a>, View<'a>),
    Owned(std::slice::Iter<'s, T>),
}

impl<'a, T: Field<'a> + Clone> Iterator for Iter<'_, 'a, T> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        match self {
            Iter::Lazy(reader, view) => {
                view.count = view.count.checked_sub(1)?;
                let item = T::read(reader, view.version);
                debug_assert!(item.is_ok(), "an element that was read before reads again");
                item.ok()
            }
            Iter::Owned(items) => items.next().cloned(),
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = match self {
            Iter::Lazy(_, view) => view.count,
            Iter::Owned(items) => items.len(),
        };
        (left, Some(left))
    }
}

impl<'a, T: Field<'a> + Clone> ExactSizeIterator for Iter<'_, 'a, T> {}

impl<'a, T: Field<'a> + Clone> Field<'a> for Array<'a, T> {
    field_by_nullable!();
}

impl<'a, T: Field<'a> + Clone> Nullable<'a> for Array<'a, T> {
    fn read_nullable(r: &mut Reader<'a>, version: Version) -> Result<Option<Self>, DecodeError> {
        let Some(count) = r.nullable_length(version.flexible)? else { return Ok(None) };
        let element_bytes_min = T::bytes_min(version);
        r.check_count(count, element_bytes_min)?;
        let start = r.position();
        if T::FIXED {
            r.skip(count * element_bytes_min)?;
        } else {
            for _ in 0..count {
                T::read(r, version)?;
            }
        }
        Ok(Some(Array::Lazy(View { bytes: r.since(start), count, version })))
    }

    fn write_nullable(this: Option<&Self>, w: &mut Writer, v: Version) -> Result<(), EncodeError> {
        w.nullable_length(this.map(Array::len), v.flexible)?;
        match this {
            None => Ok(()),
            Some(Array::Owned(items)) => items.iter().try_for_each(|item| item.write(w, v)),
            Some(Array::Lazy(view)) if T::FIXED => {
                w.slice(view.bytes);
                Ok(())
            }
            Some(lazy) => lazy.iter().try_for_each(|item| item.write(w, v)),
        }
    }

    fn nullable_bytes_min(v: Version) -> usize {
        if v.flexible { 1 } else { 4 }
    }
}

impl<T> Default for Array<'_, T> {
    fn default() -> Self {
        Array::Owned(Vec::new())
    }
}

impl<T> From<Vec<T>> for Array<'_, T> {
    fn from(items: Vec<T>) -> Self {
        Array::Owned(items)
    }
}

impl<T> FromIterator<T> for Array<'_, T> {
    fn from_iter<I: IntoIterator<Item = T>>(items: I) -> Self {
        Array::Owned(items.into_iter().collect())
    }
}

impl<'s, 'a, T: Field<'a> + Clone> IntoIterator for &'s Array<'a, T> {
    type Item = T;
    type IntoIter = Iter<'s, 'a, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl<'a, T: Field<'a> + Clone + PartialEq> PartialEq for Array<'a, T> {
    fn eq(&self, other: &Self) -> bool {
        self.len() == other.len() && self.iter().eq(other.iter())
    }
}

impl<'a, T: Field<'a> + Clone + fmt::Debug> fmt::Debug for Array<'a, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::super::field::Text;
    use super::*;

    const CLASSIC: Version = Version { number: 0, flexible: false };
    const FLEXIBLE: Version = Version { number: 1, flexible: true };

    #[test]
    fn null_is_not_empty() {
        let read = |bytes, v| Option::<Array<'_, i32>>::read(&mut Reader::new(bytes), v);
        assert_eq!(read(&[0xff; 4], CLASSIC), Ok(None));
        assert_eq!(read(&[0; 4], CLASSIC), Ok(Some(Array::default())));
        assert_eq!(read(&[0], FLEXIBLE), Ok(None));
        assert_eq!(read(&[1], FLEXIBLE), Ok(Some(Array::default())));
        let null = Array::<i32>::read(&mut Reader::new(&[0]), FLEXIBLE);
        assert_eq!(null, Err(DecodeError::Null));
    }

    #[test]
    fn a_count_over_the_remaining_bytes_is_refused_before_the_walk() {
        let bytes = [0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 0];
        let numbers = Array::<i32>::read(&mut Reader::new(&bytes), CLASSIC);
        assert_eq!(numbers, Err(DecodeError::Count { count: 0x7fff_ffff, remaining: 4 }));
        let texts = Array::<Text<'_>>::read(&mut Reader::new(&[0, 0, 0, 3, 0, 0, 0, 0]), CLASSIC);
        assert_eq!(texts, Err(DecodeError::Count { count: 3, remaining: 4 }));
    }

    #[test]
    fn received_and_own_elements_are_equal_and_written_alike() {
        let bytes = [3, 2, b'a', 3, b'b', b'c'];
        let received = Array::<Text<'_>>::read(&mut Reader::new(&bytes), FLEXIBLE).unwrap();
        assert!(matches!(received, Array::Lazy(_)));
        let own: Array<'_, Text<'_>> = Array::Owned(received.to_vec());
        assert_eq!(received.len(), 2);
        assert_eq!(received, own);
        for array in [&received, &own] {
            let mut writer = Writer::new();
            array.write(&mut writer, FLEXIBLE).unwrap();
            assert_eq!(writer.written(), bytes);
        }
    }

    #[test]
    fn elements_are_checked_when_the_array_is_decoded() {
        let bytes = [3, 2, b'a', 2, 0xff];
        let array = Array::<Text<'_>>::read(&mut Reader::new(&bytes), FLEXIBLE);
        assert_eq!(array, Err(DecodeError::Utf8));
    }
}
