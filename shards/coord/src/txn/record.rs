//! Records of `__transaction_state`: to bytes and from bytes, as Kafka 4.4 writes and reads them.
//!
//! ```text
//! key    | type 0 i16  | transactional id, never flexible |
//! value  | version i16 | fields of that version: 0 plain, 1 with tags |    null: the id is gone
//! ```

use wire::messages as m;
use wire::{IntoOwned, Message, Reader};

use super::state::State;
use crate::error::CoordError;
use crate::record::{finished, read_value, write};

/// What is known of a transactional id; no value means that it is forgotten.
#[derive(Clone, Debug, PartialEq)]
pub struct TxnRecord<'a> {
    pub key: m::TransactionLogKey<'a>,
    pub value: Option<m::TransactionLogValue<'a>>,
    /// Of the value: it follows what the cluster has finalised.
    pub version: i16,
}

const KEY_TYPE: i16 = 0;

impl<'a> TxnRecord<'a> {
    /// Reads a record; `None` for a type that is not ours to understand.
    pub fn read(key: &'a [u8], value: Option<&'a [u8]>) -> Result<Option<Self>, CoordError> {
        let mut reader = Reader::new(key);
        if reader.i16()? != KEY_TYPE {
            return Ok(None);
        }
        let key = m::TransactionLogKey::decode(&mut reader, 0)?;
        finished(&reader)?;
        let version = value.map(|bytes| Reader::new(bytes).i16()).transpose()?.unwrap_or(0);
        let value = value.map(read_value::<m::TransactionLogValue<'_>>).transpose()?;
        Ok(Some(TxnRecord { key, value, version }))
    }

    /// Whether the record decides a transaction, and how: `true` for a commit.
    pub fn decides(&self) -> Option<bool> {
        let status = self.value.as_ref()?.transaction_status;
        match status {
            status if status == State::PrepareCommit as i8 => Some(true),
            status if status == State::PrepareAbort as i8 => Some(false),
            _ => None,
        }
    }

    /// The key and, unless the id is gone, the value.
    pub fn to_bytes(&self) -> Result<(Vec<u8>, Option<Vec<u8>>), CoordError> {
        let value = self.value.as_ref().map(|value| write(self.version, self.version, value));
        Ok((write(KEY_TYPE, 0, &self.key)?, value.transpose()?))
    }

    /// The same, without borrows.
    pub fn into_owned(self) -> TxnRecord<'static> {
        TxnRecord {
            key: self.key.into_owned(),
            value: self.value.into_owned(),
            version: self.version,
        }
    }
}
