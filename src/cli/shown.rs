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

/// Text that is to be copied as it is: backslashes stay, and no line breaks out of it.
pub struct Copied<'a>(pub &'a str);

impl fmt::Display for Copied<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.chars().try_for_each(|c| match c {
            '\\' => f.write_str("\\"),
            c => write_char(c, f),
        })
    }
}

/// The same of whole lines, of which each is kept: figures with names of others in between.
pub struct Lines<'a>(pub &'a str);

impl fmt::Display for Lines<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.chars().try_for_each(|c| match c {
            '\n' | '\\' => fmt::Write::write_char(f, c),
            c => write_char(c, f),
        })
    }
}

/// [`Shown`] of bytes that may be no text.
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
        assert_eq!(Copied(odd).to_string(), "a\\nb\\r\\t\\x1b[2J\\x9b1m\\ü ");
        assert_eq!(Lines("a\n\u{1b}\\").to_string(), "a\n\\x1b\\");
        assert_eq!(ShownBytes(b"a\nb\xff\x01").to_string(), "a\\nb\\xff\\x01");
    }
}
