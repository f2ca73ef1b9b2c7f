//! Sizes in bytes as people write and read them: `512M`, `1.5 GiB`, `1048576`.
//!
//! Units are powers of 1024 whether written `M`, `MB` or `MiB`: memory is meant, not disk labels.

/// Why a text is not a size.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SizeError {
    #[error("`{0}` is not a size; write for example 512M, 2G or a number of bytes")]
    Malformed(String),
    #[error("`{0}` is more than 2^63 bytes")]
    TooLarge(String),
}

const UNITS: [(&str, u64); 5] =
    [("", 1), ("k", 1 << 10), ("m", 1 << 20), ("g", 1 << 30), ("t", 1 << 40)];

/// Parses a size; fractions are allowed (`1.5G`), the result is rounded down to whole bytes.
pub fn parse_size(text: &str) -> Result<u64, SizeError> {
    let malformed = || SizeError::Malformed(text.to_owned());
    let trimmed = text.trim();
    let split = trimmed.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(trimmed.len());
    let (number, unit) = trimmed.split_at(split);
    let unit = unit.trim().to_ascii_lowercase();
    let unit = unit.strip_suffix("ib").or_else(|| unit.strip_suffix('b')).unwrap_or(&unit);
    let (_, scale) = UNITS.iter().find(|(name, _)| *name == unit).ok_or_else(malformed)?;
    if let Ok(whole) = number.parse::<u64>() {
        let bytes = whole.checked_mul(*scale).filter(|&bytes| bytes <= i64::MAX as u64);
        return bytes.ok_or_else(|| SizeError::TooLarge(text.to_owned()));
    }
    let fraction: f64 = number.parse().map_err(|_| malformed())?;
    let bytes = fraction * *scale as f64;
    if bytes >= i64::MAX as f64 {
        return Err(SizeError::TooLarge(text.to_owned()));
    }
    Ok(bytes as u64)
}

/// `1.5 GiB`, `512 MiB`, `17 B`: one decimal where the number is not whole.
pub fn format_size(bytes: u64) -> String {
    const NAMES: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < NAMES.len() {
        value /= 1024.0;
        unit += 1;
    }
    let rounded = (value * 10.0).round() / 10.0;
    if rounded.fract() == 0.0 {
        format!("{rounded:.0} {}", NAMES[unit])
    } else {
        format!("{rounded:.1} {}", NAMES[unit])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_parse() {
        let table = [
            ("0", 0),
            ("1048576", 1 << 20),
            ("512M", 512 << 20),
            ("512MB", 512 << 20),
            ("512 MiB", 512 << 20),
            ("2g", 2 << 30),
            ("1.5G", 3 << 29),
            ("10b", 10),
            (" 4k ", 4096),
        ];
        for (text, bytes) in table {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn nonsense_is_refused() {
        for text in ["", "M", "-1", "1x", "1.2.3G", "1 G G", "half"] {
            assert!(matches!(parse_size(text), Err(SizeError::Malformed(_))), "{text}");
        }
        for text in ["99999999999T", "9223372036854775808"] {
            assert!(matches!(parse_size(text), Err(SizeError::TooLarge(_))), "{text}");
        }
        assert_eq!(parse_size("9223372036854775807"), Ok(i64::MAX as u64));
    }

    #[test]
    fn sizes_read_well() {
        assert_eq!(format_size(17), "17 B");
        assert_eq!(format_size(512 << 20), "512 MiB");
        assert_eq!(format_size(3 << 29), "1.5 GiB");
        assert_eq!(format_size(5 << 50), "5120 TiB");
    }
}
