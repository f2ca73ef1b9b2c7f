//! Text of others as it is printed: names and ids may hold anything, and must neither break a line
//! nor command a terminal.

use std::fmt;

/// Text as it is, but for control characters and backslashes: `\n`, `\xNN`.
pub struct Shown<'a>(pub &'a str);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.chars().try_for_each(|c| write_char(c, f))
    }
}

/// The same of bytes that may be no text.
pub struct ShownBytes<'a>(pub &'a [u8]);

impl fmt::Display for ShownBytes<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for chunk in self.0.utf8_chunks() {
            Shown(chunk.valid()).fmt(f)?;
            chunk.invalid().iter().try_for_each(|byte| write!(f, "\\x{byte:02x}"))?;
        }
        Ok(())
    }
}

fn write_char(c: char, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match c {
        '\n' => f.write_str("\\n"),
        '\r' => f.write_str("\\r"),
        '\t' => f.write_str("\\t"),
        '\\' => f.write_str("\\\\"),
        c if c.is_control() => write!(f, "\\x{:02x}", u32::from(c)),
        c => fmt::Write::write_char(f, c),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_stays_one_and_a_terminal_obeys_nobody() {
        let odd = "a\nb\r\t\u{1b}[2J\u{9b}1m\\ü ";
        assert_eq!(Shown(odd).to_string(), "a\\nb\\r\\t\\x1b[2J\\x9b1m\\\\ü ");
        assert_eq!(ShownBytes(b"a\nb\xff\x01").to_string(), "a\\nb\\xff\\x01");
    }
}
