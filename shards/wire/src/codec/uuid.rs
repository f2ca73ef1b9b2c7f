//! Sixteen bytes that name a topic, a directory, a process. Text form: URL-safe base64, 22
//! characters, no padding.

use std::fmt;
use std::str::FromStr;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use super::error::DecodeError;

const TEXT_LEN: usize = 22;

#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Uuid(pub [u8; 16]);

impl Uuid {
    /// None at all.
    pub const ZERO: Uuid = Uuid([0; 16]);
    /// The topic of the cluster's metadata: (0, 1).
    pub const METADATA_TOPIC: Uuid = Uuid([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);

    pub fn is_zero(self) -> bool {
        self == Self::ZERO
    }

    /// Marks random bytes as a version 4 (random) UUID.
    pub fn from_random(mut bytes: [u8; 16]) -> Self {
        bytes[6] = bytes[6] & 0x0f | 0x40;
        bytes[8] = bytes[8] & 0x3f | 0x80;
        Uuid(bytes)
    }

    pub fn from_halves(most: u64, least: u64) -> Self {
        Uuid((u128::from(most) << 64 | u128::from(least)).to_be_bytes())
    }
}

impl fmt::Display for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = [0; TEXT_LEN];
        URL_SAFE_NO_PAD.encode_slice(self.0, &mut text).map_err(|_| fmt::Error)?;
        f.pad(std::str::from_utf8(&text).map_err(|_| fmt::Error)?)
    }
}

impl fmt::Debug for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Uuid {
    type Err = DecodeError;

    fn from_str(text: &str) -> Result<Self, DecodeError> {
        let mut bytes = [0; 16];
        if text.len() != TEXT_LEN {
            return Err(DecodeError::Uuid);
        }
        match URL_SAFE_NO_PAD.decode_slice_unchecked(text, &mut bytes) {
            Ok(16) => Ok(Uuid(bytes)),
            _ => Err(DecodeError::Uuid),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_form() {
        assert_eq!(Uuid::ZERO.to_string(), "AAAAAAAAAAAAAAAAAAAAAA");
        assert_eq!(Uuid::METADATA_TOPIC.to_string(), "AAAAAAAAAAAAAAAAAAAAAQ");
        assert_eq!(Uuid([0xff; 16]).to_string(), "_____________________w");
        assert_eq!("_____________________w".parse(), Ok(Uuid([0xff; 16])));
        assert_eq!(Uuid::from_halves(0, 1), Uuid::METADATA_TOPIC);
    }

    #[test]
    fn other_text_is_refused() {
        let texts = [
            "",
            "AAAA",
            "AAAAAAAAAAAAAAAAAAAAAA==",
            "AAAAAAAAAAAAAAAAAAAAA+",
            "_____________________x",
        ];
        for text in texts {
            assert_eq!(text.parse::<Uuid>(), Err(DecodeError::Uuid), "{text}");
        }
    }

    #[test]
    fn random_bytes_become_version_4() {
        let uuid = Uuid::from_random([0xff; 16]);
        assert_eq!((uuid.0[6], uuid.0[8]), (0x4f, 0xbf));
    }
}
