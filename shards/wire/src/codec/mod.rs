//! The primitives every message is built from: checked reading, growing writing, field types.
//!
//! Pure. Decoding borrows from the frame and allocates nothing; generated code in
//! [`crate::messages`] only lists the fields and leaves the rules to this module.

mod array;
mod error;
mod field;
mod owned;
mod payload;
mod reader;
mod show;
mod uuid;
mod writer;

pub use array::{Array, Iter, View};
pub use error::{DecodeError, EncodeError};
pub use field::{Blob, Field, Message, Nullable, Text, Version};
pub use owned::IntoOwned;
pub use payload::Records;
pub use reader::Reader;
pub use show::{Show, Shown};
pub use uuid::Uuid;
pub use writer::{Output, Piece, Splice, Tags, Writer};

pub(crate) use field::{lacks, need};
